"""Distances between encoded rows, a part of them at a time."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

__all__ = ["CHUNK", "nearest", "squares"]

CHUNK = 256  # rows at a time, where all distances at once would not fit
_BLOCK = 1024  # features at a time


@threadpool_limits.wrap(limits=1)
def squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances ``[n, m]`` in float64; those of copies are exactly zero."""
    found, scale = np.zeros((len(a), len(b))), np.ones((len(a), len(b)))
    for start in range(0, a.shape[1], _BLOCK):
        x, y = (side[:, start : start + _BLOCK].astype(np.float64) for side in (a, b))
        centre = y.mean(0)  # centred, to round less
        x, y = x - centre, y - centre
        norms = (x**2).sum(1)[:, None] + (y**2).sum(1)[None]
        found += norms - 2 * (x @ y.T)
        scale += norms
    found[found <= 1e-10 * scale] = 0
    return found


def nearest(x: np.ndarray, pool: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the k nearest rows of the pool ``[n, k]``, nearest first, and their distances."""
    places, apart = [], []
    for i in range(0, len(x), CHUNK):
        every = squares(x[i : i + CHUNK], pool)
        near = np.argpartition(every, k - 1)[:, :k]
        near = np.take_along_axis(near, np.take_along_axis(every, near, 1).argsort(1), 1)
        places.append(near)
        apart.append(np.sqrt(np.take_along_axis(every, near, 1)))
    return np.vstack(places), np.vstack(apart)
