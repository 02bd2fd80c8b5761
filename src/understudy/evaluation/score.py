"""Scores that carry their uncertainty.

A `Score` is a number with the 95 % interval that the finite number of tested rows leaves open, and
the number of rows. A `Compared` puts the synthetic score beside the same score for real rows and
for guessing, because none means much alone; a `Contrast` has their differences, on the same
rows, which are known better than the scores themselves. Distances between finite samples are
never zero, even between two halves of one dataset: that is what the real score beside a distance
shows. How models are measured is in `measures`; distances have bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = [
    "INTERNAL",
    "Compared",
    "Contrast",
    "Score",
    "Z",
    "compare_distances",
    "distance",
    "interval",
    "plain",
    "resample",
    "shares",
    "weights",
    "wilson",
]

INTERNAL = "internal: reveals statistics of the real data"
LEVEL = 0.95
Z = 1.959964
"""So many standard errors to either side are `LEVEL`."""
RESAMPLES = 200


@dataclass(frozen=True)
class Score:
    """A value with its 95 % interval over the ``n`` rows it was measured on."""

    name: str
    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Contrast:
    """Differences between scores on the same test rows; above zero, the first is better.

    ``gain``: synthetic rows over guessing. ``reach``: real rows over guessing, which is all that
    there is to gain. ``lost``: real rows over synthetic ones.
    """

    gain: Score
    reach: Score | None = None
    lost: Score | None = None


@dataclass(frozen=True)
class Compared:
    """One measure: for synthetic rows, for real rows and for guessing where these could be had."""

    name: str
    synthetic: Score
    real: Score | None = None
    guess: Score | None = None
    contrast: Contrast | None = None


def plain(found: Any) -> dict[str, Any]:
    """Scores as plain values for scores.json, figures to six decimals."""

    def rounded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {k: round(v, 6) + 0.0 if isinstance(v, float) else v for k, v in pairs}

    return asdict(found, dict_factory=rounded)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for ``hits`` of ``n``; never empty, also at 0 and n."""
    if n == 0:
        return 0.0, 1.0
    p, widened = hits / n, 1 + Z * Z / n
    centre = (p + Z * Z / (2 * n)) / widened
    half = Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / widened
    return float(max(0.0, min(p, centre - half))), float(min(1.0, max(p, centre + half)))


def resample(n: int, *, rng: np.random.Generator, times: int = RESAMPLES) -> np.ndarray:
    """Bootstrap weights ``[times, n]``: how often each row is drawn (rows sum to ``n``)."""
    counts = [np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(times)]
    return np.asarray(counts, dtype=np.float32).reshape(times, n)


def interval(name: str, value: float, draws: np.ndarray, n: int, *, centred: bool = False) -> Score:
    """Score with the bootstrap percentile interval, widened where needed to hold the value.

    ``centred`` is for distances: resampling adds to them, so the draws are moved to have the
    measured value as their mean (and cut at zero).
    """
    draws = draws[np.isfinite(draws)]
    if centred and len(draws):
        draws = np.maximum(0, draws - draws.mean() + value)
    if len(draws) == 0:
        return Score(name, float(value), float(value), float(value), n)
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(draws, [tail, 100 - tail])
    return Score(name, float(value), float(min(low, value)), float(max(high, value)), n)


def weights(n: int, *, rng: np.random.Generator, times: int = 100) -> np.ndarray:
    """Row weights ``[1 + times, n]``: first every row once, then bootstrap draws."""
    return np.vstack([np.ones((1, n), np.float32), resample(n, rng=rng, times=times)])


def shares(cells: np.ndarray, n: int, drawn: np.ndarray) -> np.ndarray:
    """Share of each of ``n`` cells ``[T, n]`` in rows' ``cells`` under row weights ``[T, rows]``.

    A row is in one cell, or in several: ``[rows]`` or ``[rows, m]``.
    """
    flat, m = cells.ravel(), cells.size // max(1, len(cells))
    counts = np.array([np.bincount(flat, np.repeat(w, m), minlength=n) for w in drawn])
    return counts / counts.sum(1, keepdims=True)


def distance(name: str, draws: np.ndarray, n: int) -> Score:
    """Score of a distance from its value, first, and its bootstrap draws."""
    return interval(name, draws[0], draws[1:], n, centred=True)


def compare_distances(name: str, draws: Mapping[str, np.ndarray], n: int) -> Compared:
    """One distance, from draws with the value first: of synthetic, real and guessed rows."""
    ours, real, guess = draws["synthetic"], draws.get("real"), draws.get("guess")
    floor, ceiling = (None if d is None else distance(name, d, n) for d in (real, guess))
    contrast = None
    if guess is not None:
        reach = None if real is None else _nearer("reach", real, guess, n)
        lost = None if real is None else _nearer("lost", real, ours, n)
        contrast = Contrast(_nearer("gain", ours, guess, n), reach, lost)
    return Compared(name, distance(name, ours, n), floor, ceiling, contrast)


def _nearer(name: str, a: np.ndarray, b: np.ndarray, n: int) -> Score:
    """How much nearer ``a`` is; resampling adds to both, so the draws are moved to the value."""
    apart = b - a
    return interval(name, apart[0], apart[1:] - apart[1:].mean() + apart[0], n)
