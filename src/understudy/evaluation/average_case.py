"""Average-case privacy (μ, γ) of synthetic rows, as FedGP estimates it.

Triastcyn and Faltings (2020), §4.3: the absence of a real row is imitated by removing its nearest
synthetic rows, as many as there are synthetic rows per real one. The divergence of the whole from
the rest is the expected loss of privacy of that row, and over many rows (Proposition 1)

    μ = L̄ + t⁻¹₍ₙ₋₁₎(1 - γ)·S/√(n - 1),  γ = 10⁻¹⁵.

It reads private rows, it is an estimate, and it is about the average row: it bounds nothing for
any one of them. It is not an ε, and never stands where one is expected. Divergences are by nearest
neighbours (Pérez-Cruz 2008), which assumes continuous features; equal rows are taken to be as far
apart as the two nearest that differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from understudy.data.schema import Schema
from understudy.evaluation.attacks.targets import placed
from understudy.evaluation.distances import CHUNK, nearest, squares
from understudy.evaluation.rows import Rows

__all__ = ["GAMMA", "AverageCase", "average_case", "upper_mean"]

GAMMA = 1e-15
EXAMPLES, POOL = 500, 2000
NEAREST = 5


@dataclass(frozen=True)
class AverageCase:
    """μ and γ, the mean loss behind them, and from how many rows."""

    mu: float
    gamma: float
    mean: float
    examples: int
    synthetic: int
    removed: int
    words: str = (
        "An estimate of average-case risk, computed from real rows: it bounds nothing for any one "
        "of them, and it is no ε."
    )


def average_case(
    schema: Schema, synthetic: Rows, real: Rows, *, rng: np.random.Generator, most: int = POOL
) -> AverageCase | None:
    """(μ, γ) of synthetic rows; None with too few rows for a neighbourhood.

    ``most`` of them are looked at. With fewer than there are real rows, the one that is removed
    for each stands for more than one real row, so that μ comes out too high.
    """
    chosen = real.some(EXAMPLES, rng)
    pool = placed(schema, synthetic.some(most, rng))
    removed = max(1, round(len(pool) / max(1, len(real))))
    if len(chosen) < 3 or len(pool) <= 2 * (NEAREST + removed):
        return None
    losses = _losses(placed(schema, chosen), pool, removed)
    mean, mu = float(losses.mean()), upper_mean(losses, GAMMA)
    return AverageCase(mu, GAMMA, mean, len(chosen), len(pool), removed)


def upper_mean(losses: np.ndarray, gamma: float) -> float:
    """A value that the mean loss exceeds with probability γ at most (Proposition 1)."""
    n = len(losses)
    spread = float(losses.std(ddof=1)) / np.sqrt(n - 1)
    return float(losses.mean() + student_t.isf(gamma, n - 1) * spread)


def _losses(examples: np.ndarray, pool: np.ndarray, removed: int) -> np.ndarray:
    """Divergence of the pool from itself without each example's nearest rows ``[examples]``."""
    reach = NEAREST + removed
    near, _ = nearest(examples, pool, removed)
    place, apart = _neighbours(pool, reach)
    found = [_without(rows, place, apart, pool.shape[1]) for rows in np.array_split(near, 20)]
    return np.concatenate(found)


def _neighbours(pool: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``reach`` nearest other rows of each row ``[n, reach]``, and how far they are."""
    found = []
    for start in range(0, len(pool), CHUNK):
        apart = squares(pool[start : start + CHUNK], pool)
        apart[np.arange(len(apart)), start + np.arange(len(apart))] = np.inf
        near = np.argpartition(apart, reach - 1, axis=1)[:, :reach]
        order = np.take_along_axis(apart, near, 1).argsort(1)
        near = np.take_along_axis(near, order, 1)
        found.append((near, np.take_along_axis(apart, near, 1)))
    place, squared = (np.vstack(part) for part in zip(*found, strict=True))
    return place, _positive(np.sqrt(squared))


def _positive(distance: np.ndarray) -> np.ndarray:
    """Distances of zero become the smallest that is not."""
    some = distance[distance > 0]
    return np.maximum(distance, some.min() if len(some) else 1.0)


def _without(removed: np.ndarray, place: np.ndarray, apart: np.ndarray, width: int) -> np.ndarray:
    """The divergence for each set of removed rows ``[examples, removed]``."""
    n = len(place)
    gone = np.zeros((len(removed), n), bool)
    np.put_along_axis(gone, removed, True, 1)
    left = ~gone[:, place]  # [examples, n, reach]
    kth = (left.cumsum(2) >= NEAREST).argmax(2)
    after = np.take_along_axis(apart[None], kth[:, :, None], 2)[:, :, 0]
    others = n - removed.shape[1] - (~gone)  # rows left beside the row itself
    before = apart[:, NEAREST - 1]
    return (width * np.log(after / before) + np.log(others / (n - 1))).mean(1)
