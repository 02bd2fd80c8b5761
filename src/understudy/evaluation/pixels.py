"""Images: how far mean images per class and pixel statistics are apart (pixels from 0 to 1)."""

from __future__ import annotations

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Score, distance, weights

__all__ = ["mean_images", "pixel_scores"]


def mean_images(schema: Schema, rows: Rows, drawn: np.ndarray | None = None) -> np.ndarray:
    """Mean image per class, ``[T, K, F]``, under weights ``[T, n]``; NaN where a class is empty."""
    w = np.ones((1, len(rows)), np.float32) if drawn is None else drawn
    found = np.full((len(w), schema.n_classes, rows.x.shape[1]), np.nan)
    for k in range(schema.n_classes):
        member = rows.y == k
        total = w[:, member].sum(1, keepdims=True)
        with np.errstate(invalid="ignore"):
            found[:, k] = (w[:, member] @ rows.x[member]) / total
    return found


def pixel_scores(
    schema: Schema, side: Rows, test: Rows, *, rng: np.random.Generator
) -> list[Score]:
    """Distance of mean images (root mean square, mean over shared classes) and of pixel moments."""
    pairs = [(rows, weights(len(rows), rng=rng)) for rows in (side, test)]
    a, b = (mean_images(schema, rows, w) for rows, w in pairs)
    apart = np.sqrt(np.mean((a - b) ** 2, axis=2))
    mean = [_average(rows.x, w) for rows, w in pairs]
    square = [_average(rows.x**2, w) for rows, w in pairs]
    spread = [np.sqrt(np.maximum(s - m**2, 0)) for m, s in zip(mean, square, strict=True)]
    found = {
        "mean-image distance": _over_classes(apart[:, np.isfinite(apart[0])]),
        "pixel mean difference": np.abs(mean[0] - mean[1]).mean(1),
        "pixel spread difference": np.abs(spread[0] - spread[1]).mean(1),
    }
    return [distance(k, d, len(test)) for k, d in found.items() if np.isfinite(d[0])]


def _average(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return (w @ x) / w.sum(1, keepdims=True)


def _over_classes(apart: np.ndarray) -> np.ndarray:
    """Mean over classes that both sides have; NaN if there is none."""
    shared = np.isfinite(apart)
    with np.errstate(invalid="ignore"):
        return np.where(shared, apart, 0).sum(1) / shared.sum(1)
