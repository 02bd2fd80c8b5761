"""Value perturbation: how others send an update under pure local privacy (SignDS-FL's rivals).

Each function takes a stack of updates ``[C, d]`` in [-1, 1] and the ε of one whole update, and
returns what the server reads of it, ``[C, d]``. DM is Duchi, Jordan and Wainwright's mechanism
for vectors; PM and HM are the piecewise and the hybrid mechanism of Wang et al. (2019), for a few
coordinates drawn by lot; all three are unbiased. FedSel (Liu et al. 2020) picks one coordinate
that is probably among the largest and perturbs its value: unbiased for that value, not for the
update. These are rivals for benchmarks: their noise is seeded, so nothing here protects anyone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from understudy.privacy.select import law

__all__ = ["duchi", "fedsel", "hybrid", "piecewise"]

# Below this ε Duchi's two values vary less than any mixture with the piecewise mechanism.
_ROOTS = (np.cbrt(6353 - 405 * math.sqrt(241)), np.cbrt(6353 + 405 * math.sqrt(241)))
_HYBRID_FROM = math.log((-5 + 2 * sum(_ROOTS)) / 27)

One = Callable[..., np.ndarray]


def duchi(update: np.ndarray, epsilon: float, *, rng: np.random.Generator) -> np.ndarray:
    """DM: a corner of the cube {-B, B}^d, on the side of the randomly rounded update.

    For an even d some corners are on neither side and the published form exceeds ε; here such
    an update gets one more coordinate, which is zero, and loses it again.
    """
    clients, d = update.shape
    odd = d + 1 - d % 2
    whole = np.pad(update, ((0, 0), (0, odd - d)))
    rounded = np.where(rng.random(whole.shape, np.float32) * 2 - 1 < whole, 1, -1).astype(np.int8)
    corner = rng.integers(0, 2, whole.shape, np.int8) * np.int8(2) - np.int8(1)
    same = (corner * rounded).sum(axis=1, dtype=np.int64) > 0
    truth = rng.random(clients) < 1 / (1 + math.exp(-epsilon))
    side = np.where(same == truth, 1.0, -1.0) * _corner(odd, epsilon)
    return (side[:, None] * corner)[:, :d]


def _corner(d: int, epsilon: float) -> float:
    """B for an odd d: it makes the expected corner equal to the update."""
    half = (d - 1) / 2
    log_choose = math.lgamma(d) - 2 * math.lgamma(half + 1)
    return math.exp((d - 1) * math.log(2) - log_choose) / math.tanh(epsilon / 2)


def piecewise(update: np.ndarray, epsilon: float, *, rng: np.random.Generator) -> np.ndarray:
    """PM: a few coordinates by lot, each a number near its value or anywhere in [-C, C]."""
    return _few(update, epsilon, _piecewise, rng)


def hybrid(update: np.ndarray, epsilon: float, *, rng: np.random.Generator) -> np.ndarray:
    """HM: a few coordinates by lot, each by PM or by Duchi's two values."""
    return _few(update, epsilon, _hybrid, rng)


def _few(update: np.ndarray, epsilon: float, one: One, rng: np.random.Generator) -> np.ndarray:
    """``max(1, min(d, ⌊ε/2.5⌋))`` coordinates share ε; they stand for all, so they are scaled."""
    clients, d = update.shape
    count = max(1, min(d, math.floor(epsilon / 2.5)))
    chosen = _distinct(clients, count, d, rng)
    values = np.take_along_axis(update, chosen, axis=1)
    told = one(values, epsilon / count, rng=rng) * (d / count)
    found = np.zeros(update.shape)
    np.put_along_axis(found, chosen, told, axis=1)
    return found


def _distinct(clients: int, count: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """``[clients, count]`` different coordinates; rows with a repeat are drawn anew."""
    chosen = rng.integers(0, d, (clients, count))
    while len(again := np.flatnonzero((np.diff(np.sort(chosen, axis=1)) == 0).any(axis=1))):
        chosen[again] = rng.integers(0, d, (len(again), count))
    return chosen


def _piecewise(values: np.ndarray, epsilon: float, *, rng: np.random.Generator) -> np.ndarray:
    """A number of [l, l + C - 1] with the larger density, else of the rest of [-C, C]."""
    limit = 1 / math.tanh(epsilon / 4)  # C = (e^(ε/2) + 1) / (e^(ε/2) - 1)
    low = (limit + 1) / 2 * values - (limit - 1) / 2
    near = low + (limit - 1) * rng.random(values.shape)
    far = -limit + (limit + 1) * rng.random(values.shape)
    far = np.where(far < low, far, far + limit - 1)
    return np.where(rng.random(values.shape) < 1 / (1 + math.exp(-epsilon / 2)), near, far)


def _two_values(values: np.ndarray, epsilon: float, *, rng: np.random.Generator) -> np.ndarray:
    limit = 1 / math.tanh(epsilon / 2)
    return np.where(rng.random(values.shape) < (1 + values / limit) / 2, limit, -limit)


def _hybrid(values: np.ndarray, epsilon: float, *, rng: np.random.Generator) -> np.ndarray:
    share = 1 - math.exp(-epsilon / 2) if epsilon > _HYBRID_FROM else 0.0
    pieces = _piecewise(values, epsilon, rng=rng)
    ends = _two_values(values, epsilon, rng=rng)
    return np.where(rng.random(values.shape) < share, pieces, ends)


def fedsel(
    update: np.ndarray,
    epsilon: float,
    share: float,
    top: int,
    *,
    rng: np.random.Generator,
) -> np.ndarray:
    """FedSel: ``share`` of ε picks a coordinate, preferably of the ``top`` largest by size; the
    rest of ε perturbs its value by PM. Without the paper's store of delayed gradients: sites of
    these studies keep nothing between rounds."""
    clients, d = update.shape
    order = np.argpartition(np.abs(update), d - top, axis=1)  # the last ``top`` are the largest
    hit = rng.random(clients) < law(d, top, 1, share * epsilon).probability[1]
    place = np.where(
        hit, d - top + rng.integers(0, top, clients), rng.integers(0, d - top, clients)
    )
    chosen = np.take_along_axis(order, place[:, None], axis=1)
    values = np.take_along_axis(update, chosen, axis=1)
    found = np.zeros(update.shape)
    told = _piecewise(values, (1 - share) * epsilon, rng=rng)
    np.put_along_axis(found, chosen, told, axis=1)
    return found
