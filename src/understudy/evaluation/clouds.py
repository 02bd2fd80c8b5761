"""Whole records as points: how far two clouds of them are apart, and how much of one is covered.

**MMD** is the estimate of Jiang's thesis (eq. 2.14, §5.6): unbiased, squared, with the kernel
κ/(κ + ‖x-y‖²). The thesis sets κ = 2·d·σ² for latents of d dimensions with a prior of scale σ,
which is the mean squared distance of two draws from the prior; it does not say what σ is for
records. Here σ² is the mean variance of the real rows' features, so that κ is the mean squared
distance of two real records. Being unbiased, the estimate can fall below zero by chance.

**Coverage** is that of Naeem et al. (2020): the share of real records that have a synthetic one at
least as near as their k-th nearest other real record, k = 5. The library the thesis used computes
the same, but asks for "nearer"; with categories, where distances tie, that would call perfect
synthetic rows uncovered. It depends on the numbers of rows, so they are made equal; two samples of
the same data then reach about 1 - 2⁻⁵, or 97 %.

Records are compared as encoded, flattened; both take at most `MOST` of each side, drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from understudy.evaluation.distances import squares
from understudy.evaluation.measures import compare, proportion
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score, distance, weights

__all__ = [
    "COVERAGE",
    "MMD",
    "MMD_REMARK",
    "covered",
    "equal_samples",
    "measure_clouds",
    "squared_mmd",
]

MMD = "maximum mean discrepancy (MMD²)"
COVERAGE = "coverage"
MMD_REMARK = (
    f"“{MMD}” compares whole records, not columns: 0 means that no difference was found. Its scale "
    "depends on the real rows, so compare it with the floor, or between releases that were "
    "evaluated on the same real rows."
)
MOST = 2000
NEAREST = 5
RESAMPLES = 40


def squared_mmd(
    real: np.ndarray, synthetic: np.ndarray, drawn: Sequence[np.ndarray] | None = None
) -> np.ndarray:
    """Squared MMD ``[T]`` of records ``[n, F]`` and ``[m, F]``, unbiased (it can be below zero).

    ``drawn`` holds row weights ``[T, n]`` and ``[T, m]``; without them every row counts once.
    Time and memory grow with the product of the numbers of rows.
    """
    w, v = drawn or [np.ones((1, len(side))) for side in (real, synthetic)]
    kappa = float(2 * real.shape[1] * real.var(0, ddof=1, dtype=np.float64).mean()) or 1.0
    pairs = ((real, real), (synthetic, synthetic), (real, synthetic))
    among, within, between = (kappa / (kappa + squares(a, b)) for a, b in pairs)
    crossed = ((w @ between) * v).sum(1) / (w.sum(1) * v.sum(1))
    return _other_pairs(among, w) + _other_pairs(within, v) - 2 * crossed


def equal_samples(sides: Sequence[Rows], most: int, rng: np.random.Generator) -> list[np.ndarray]:
    """As many records of each side, flattened: at most ``most``, drawn at random."""
    n = min(most, *(len(rows) for rows in sides))
    return [rows.some(n, rng).x for rows in sides]


def measure_clouds(
    sides: Mapping[str, Rows], test: Rows, *, rng: np.random.Generator
) -> tuple[Compared, Compared] | None:
    """MMD and coverage of synthetic (and, if there, real and guessed) rows against ``test``.

    None where a side has fewer rows than a neighbourhood.
    """
    *rest, reference = equal_samples([*sides.values(), test], MOST, rng)
    if len(reference) <= NEAREST:
        return None
    clouds = dict(zip(sides, rest, strict=True))
    apart = {k: _mmd_score(reference, c, rng) for k, c in clouds.items() if k != "guess"}
    hits = {k: proportion(COVERAGE, covered(reference, c)) for k, c in clouds.items()}
    near = compare(hits["synthetic"], hits.get("real"), hits.get("guess"))
    return Compared(MMD, apart["synthetic"], apart.get("real")), near


def _other_pairs(kernel: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Mean kernel over pairs of different records."""
    np.fill_diagonal(kernel, 0)
    return ((w @ kernel) * w).sum(1) / (w.sum(1) ** 2 - (w**2).sum(1))


def _mmd_score(real: np.ndarray, side: np.ndarray, rng: np.random.Generator) -> Score:
    """Shown as a distance: an estimate below zero counts as zero."""
    drawn = [weights(len(x), rng=rng, times=RESAMPLES) for x in (real, side)]
    draws = squared_mmd(real, side, drawn)
    draws[0] = max(0.0, draws[0])
    return distance(MMD, draws, len(real))


def covered(real: np.ndarray, synthetic: np.ndarray, nearest: int = NEAREST) -> np.ndarray:
    """Which real records ``[n]`` have a synthetic one within their neighbourhood."""
    within = squares(real, real)
    np.fill_diagonal(within, np.inf)
    radius = np.partition(within, nearest - 1, axis=1)[:, nearest - 1]
    # A record as far as the k-th nearest must count as near: allow for the rounding of distances.
    slack = 1e-9 * (1 + radius)
    return squares(real, synthetic).min(1) <= radius + slack
