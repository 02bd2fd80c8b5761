"""Measures of a model on test rows: accuracy, F1, AUC, R², mean absolute error.

A `Measure` keeps, beside its value, what each test row adds to it (its influence: how the value
would move if the row counted a little more). The spread of these parts gives the interval of the
value, and the spread of their differences that of the difference of two models on the same rows;
for AUC this is the method of DeLong et al. (1988). It costs no resampling, also with many classes.

Classes with too few test rows to say anything about (`scorable`) are left out of means over
classes, and named elsewhere. Accuracy counts every row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from understudy.evaluation.score import Compared, Contrast, Score, Z, wilson

__all__ = [
    "ACCURACY",
    "AUC",
    "F1",
    "FEWEST",
    "MAE",
    "R2",
    "Measure",
    "absolute_error",
    "accuracy",
    "auc",
    "commonest",
    "compare",
    "explained",
    "f1",
    "proportion",
    "scorable",
]

ACCURACY, F1, AUC, R2, MAE = "accuracy", "F1", "AUC", "R²", "MAE"
FEWEST = 10
"""Test rows that a class needs to be scored by itself."""


@dataclass(frozen=True)
class Measure:
    """A value, and what each test row adds to it ``[n]``; ``less`` is better for errors."""

    name: str
    value: float
    parts: np.ndarray
    low: float = 0.0
    high: float = 1.0
    less: bool = False
    counted: bool = False

    def score(self) -> Score:
        """The value with its interval (Wilson's for a share), within what the measure can be."""
        if self.counted:
            n = len(self.parts)
            return Score(self.name, self.value, *wilson(round(self.value * n), n), n)
        return _score(self.name, self.value, self.parts, self.low, self.high)

    def over(self, other: Measure, name: str) -> Score:
        """How much better this is than another on the same rows."""
        sign = -1 if self.less else 1
        parts = sign * (self.parts - other.parts)
        return _score(name, sign * (self.value - other.value), parts, -np.inf, np.inf)


def compare(synthetic: Measure, real: Measure | None, guess: Measure | None) -> Compared:
    """One measure of the same model trained on synthetic and on real rows, beside guessing."""
    ours, theirs = synthetic.score(), None if real is None else real.score()
    if guess is None:
        return Compared(synthetic.name, ours, theirs)
    gain = synthetic.over(guess, "gain")
    if real is None:
        return Compared(synthetic.name, ours, None, guess.score(), Contrast(gain))
    contrast = Contrast(gain, real.over(guess, "reach"), real.over(synthetic, "lost"))
    return Compared(synthetic.name, ours, theirs, guess.score(), contrast)


def _score(name: str, value: float, parts: np.ndarray, low: float, high: float) -> Score:
    n = len(parts)
    half = Z * float(parts.std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0
    ends = np.clip([value - half, value + half], low, high)
    return Score(name, float(value), float(min(ends[0], value)), float(max(ends[1], value)), n)


def scorable(truth: np.ndarray, classes: int) -> np.ndarray:
    """Classes with `FEWEST` or more test rows, and as many of others."""
    found = np.bincount(truth, minlength=classes)
    return np.flatnonzero((found >= FEWEST) & (len(truth) - found >= FEWEST))


def accuracy(truth: np.ndarray, guess: np.ndarray) -> Measure:
    """Share of right answers, over all rows."""
    return proportion(ACCURACY, truth == guess)


def proportion(name: str, hits: np.ndarray) -> Measure:
    """The share of rows that are hit ``[n]``."""
    return Measure(name, float(hits.mean()), hits.astype(np.float64), counted=True)


def commonest(truth: np.ndarray) -> np.ndarray:
    """Always the commonest of these labels: what takes no learning."""
    return np.full_like(truth, np.bincount(truth).argmax())


def f1(truth: np.ndarray, guess: np.ndarray, scored: np.ndarray) -> Measure | None:
    """F1, mean over the ``scored`` classes; None without any."""
    if not len(scored):
        return None
    n, classes = len(truth), int(max(truth.max(), guess.max(), *scored)) + 1
    right = np.bincount(truth[truth == guess], minlength=classes)
    both = np.bincount(truth, minlength=classes) + np.bincount(guess, minlength=classes)
    found = 2 * right / np.maximum(both, 1)
    scale = np.zeros(classes)
    scale[scored] = n / np.maximum(both[scored], 1) / len(scored)
    hit = 2.0 * scale[truth] * (truth == guess)
    parts = hit - found[truth] * scale[truth] - found[guess] * scale[guess]
    return Measure(F1, float(found[scored].mean()), parts)


def auc(truth: np.ndarray, probability: np.ndarray, scored: np.ndarray) -> Measure | None:
    """Area under the ROC curve, each class against the rest, mean over ``scored`` ones."""
    if not len(scored):
        return None
    found = [_area(probability[:, k], truth == k) for k in scored]
    value = float(np.mean([area for area, _ in found]))
    return Measure(AUC, value, np.mean([parts for _, parts in found], axis=0))


def _area(score: np.ndarray, positive: np.ndarray) -> tuple[float, np.ndarray]:
    """One area, ties counting half, and what each row adds to it."""
    inside, outside = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(score)
    parts = np.empty(len(score))
    parts[positive] = (ranks[positive] - rankdata(score[positive])) / outside
    parts[~positive] = 1 - (ranks[~positive] - rankdata(score[~positive])) / inside
    area = float(parts[positive].mean())
    return area, (parts - area) * np.where(positive, 1 / inside, 1 / outside) * len(score)


def explained(truth: np.ndarray, guess: np.ndarray) -> Measure:
    """R²: the share of the spread that is predicted; 0 for the mean, below it for worse."""
    errors, spread = (truth - guess) ** 2, (truth - truth.mean()) ** 2
    whole = max(float(spread.mean()), 1e-300)
    left = float(errors.mean()) / whole
    return Measure(R2, 1 - left, (left * spread - errors) / whole, -np.inf)


def absolute_error(name: str, errors: np.ndarray) -> Measure:
    """Mean of the absolute errors of rows."""
    return Measure(name, float(errors.mean()), errors, 0.0, np.inf, less=True)
