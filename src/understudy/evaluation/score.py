"""Scores that carry their uncertainty.

A `Score` is a number with the 95 % interval that the finite number of tested rows leaves open
(Wilson for proportions, bootstrap over rows for everything else) and the number of rows. A
`Compared` puts the synthetic score beside the same score for real rows, because neither means
much alone. Distances between finite samples are never zero, even between two halves of one
dataset: that is what the real score beside a distance shows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = [
    "INTERNAL",
    "Compared",
    "Score",
    "auc",
    "distance",
    "interval",
    "plain",
    "resample",
    "score_accuracy",
    "score_auc",
    "score_commonest",
    "score_f1",
    "shares",
    "weights",
    "wilson",
]

INTERNAL = "internal: reveals statistics of the real data"
LEVEL = 0.95
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
class Compared:
    """One measure: for synthetic rows, and for real rows where that could be had."""

    name: str
    synthetic: Score
    real: Score | None = None


def plain(found: Any) -> dict[str, Any]:
    """Scores as plain values for scores.json, figures to six decimals."""

    def rounded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {k: round(v, 6) if isinstance(v, float) else v for k, v in pairs}

    return asdict(found, dict_factory=rounded)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for ``hits`` of ``n``; never empty, also at 0 and n."""
    if n == 0:
        return 0.0, 1.0
    z, p = 1.959964, hits / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
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


def score_accuracy(truth: np.ndarray, guess: np.ndarray) -> Score:
    """Share of right answers, with Wilson's interval."""
    hits, n = int((truth == guess).sum()), len(truth)
    low, high = wilson(hits, n)
    return Score("accuracy", hits / n, low, high, n)


def score_commonest(truth: np.ndarray) -> Score:
    """Accuracy of always answering the commonest of these labels: what takes no learning."""
    return score_accuracy(truth, np.full_like(truth, np.bincount(truth).argmax()))


def score_f1(
    truth: np.ndarray, guess: np.ndarray, classes: int, *, rng: np.random.Generator
) -> Score | None:
    """F1 of the second class if there are two, else the mean over classes met in the test rows.

    None if a two-class test has no positive row. Rows are resampled through the confusion
    matrix, which is the same distribution and costs nothing.
    """
    n = len(truth)
    table = np.bincount(truth * classes + guess, minlength=classes**2).astype(np.float64)
    draws = rng.multinomial(n, table / n, RESAMPLES).reshape(-1, classes, classes)
    confusion = table.reshape(classes, classes)
    met = np.flatnonzero(confusion.sum(1)) if classes > 2 else np.array([1])
    if confusion[met].sum() == 0:
        return None
    value = _f1(confusion[None])[:, met].mean()
    return interval("F1", value, _f1(draws)[:, met].mean(1), n)


def _f1(confusion: np.ndarray) -> np.ndarray:
    """F1 per class ``[T, K]`` of confusion matrices ``[T, K, K]`` (truth in rows)."""
    right = np.diagonal(confusion, axis1=1, axis2=2)
    both = confusion.sum(1) + confusion.sum(2)
    return 2 * right / np.maximum(both, 1)


def score_auc(
    truth: np.ndarray, probability: np.ndarray, classes: int, *, rng: np.random.Generator
) -> Score | None:
    """Area under the ROC curve, each class against the rest, mean; None if undefined."""
    chosen = [1] if classes == 2 else range(classes)
    scored = [k for k in chosen if 0 < (truth == k).sum() < len(truth)]
    if not scored:
        return None
    n = len(truth)
    drawn = weights(n, rng=rng, times=RESAMPLES)
    with np.errstate(invalid="ignore"):
        areas = np.mean([auc(probability[:, k], truth == k, drawn) for k in scored], axis=0)
    return interval("AUC", areas[0], areas[1:], n)


def auc(score: np.ndarray, positive: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """ROC areas ``[T]`` under row weights ``[T, n]``; ties count half; NaN if a side is empty."""
    order = np.argsort(score, kind="stable")
    starts = np.flatnonzero(np.diff(score[order], prepend=-np.inf))
    ordered, positive = drawn[:, order].astype(np.float64), positive[order]
    above = np.add.reduceat(ordered * positive, starts, axis=1)
    below = np.add.reduceat(ordered * ~positive, starts, axis=1)
    beaten = np.cumsum(below, axis=1) - below / 2
    return (above * beaten).sum(1) / (above.sum(1) * below.sum(1))
