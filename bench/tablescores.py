"""What `bench/tables.py` measures of synthetic rows, always against held-out real rows.

Distances on the public grid (mean total variation of single columns and of all pairs), the mean
column distance of `understudy evaluate` (Kolmogorov-Smirnov for numbers, which sees spikes that a
grid hides), and students of `evaluate` with boosting beside them: accuracy and AUC of classes, R²
and mean absolute error of a number.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from tablesets import Grid, Task

from understudy import Records, Schema
from understudy.data.encode import encode
from understudy.evaluation.joints import mean_variation
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import Learner, Tick, answer, silent
from understudy.evaluation.students import students as evaluated
from understudy.rng import Streams

CLASSIFIERS = ("logistic regression", "random forest")


def distances(task: Task, drawn: Records) -> dict[str, float]:
    """How far these rows are from the test rows: columns, pairs, and columns by `evaluate`."""
    grid = Grid(task.schema)
    codes = [grid.codes(records) for records in (drawn, task.test)]
    columns = range(len(grid.sizes))
    rows, test = _rows(task.schema, drawn), _rows(task.schema, task.test)
    return {
        "1-way": _round(mean_variation(codes, [(j,) for j in columns])[0, 0]),
        "2-way": _round(mean_variation(codes, list(combinations(columns, 2)))[0, 0]),
        "columns": _round(column_distance(grid, rows, test)),
    }


def students(task: Task, drawn: Records, seed: int) -> dict[str, Any]:
    """Marks on the test rows of students that learnt from these rows alone."""
    return (_regression if task.target else _classes)(task, drawn, seed)


def booster(task: Task, drawn: Records, seed: int) -> dict[str, float]:
    """Marks of boosting alone, on classes."""
    rows, test = (_rows(task.schema, records) for records in (drawn, task.test))
    guess = boosting(task.schema, rows, test.x, Streams.from_seed(seed), silent)
    return _marks(guess, test.y)


def column_distance(grid: Grid, rows: Rows, test: Rows) -> float:
    """Mean over columns of the total variation (categories) or Kolmogorov-Smirnov distance."""
    found = []
    for axis in grid.axes:
        ours, real = axis.values(rows), axis.values(test)
        found.append(_variation(ours, real) if axis.categories else _greatest_gap(ours, real))
    return float(np.mean(found))


def _variation(ours: np.ndarray, real: np.ndarray) -> float:
    size = int(max(ours.max(), real.max())) + 1
    p, q = (np.bincount(side, minlength=size) / len(side) for side in (ours, real))
    return float(np.abs(p - q).sum() / 2)


def _greatest_gap(ours: np.ndarray, real: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance; missing values come last, as a value of their own."""
    ours, real = (np.sort(np.nan_to_num(side.astype(np.float64), nan=2.0)) for side in (ours, real))
    at = np.unique(np.concatenate([ours, real]))
    p, q = (np.searchsorted(side, at, side="right") / len(side) for side in (ours, real))
    return float(np.abs(p - q).max())


def _classes(task: Task, drawn: Records, seed: int) -> dict[str, Any]:
    rows, test = (_rows(task.schema, records) for records in (drawn, task.test))
    known = evaluated(task.schema)
    learners: dict[str, Learner] = {name: known[name] for name in CLASSIFIERS}
    learners["boosting"] = boosting
    found: dict[str, Any] = {
        "commonest": {"accuracy": _round(np.bincount(test.y).max() / len(test))}
    }
    for i, (name, learn) in enumerate(learners.items()):
        rng = Streams.from_seed(seed).child("student", i)
        guess = answer(learn, task.schema, rows, test.x, rng, silent)
        if guess is not None:
            found[name] = _marks(guess, test.y)
    return found


def boosting(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    """Gradient boosting by histograms: it sees what linear models forgive."""
    state = int(rng.numpy("boosting").integers(2**31))
    model = HistGradientBoostingClassifier(random_state=state, early_stopping=False)
    model.fit(rows.x, rows.y)
    full = np.zeros((len(x), schema.n_classes))
    full[:, model.classes_] = model.predict_proba(x)
    return full


def _marks(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    classes = guess.shape[1]
    chosen = [1] if classes == 2 else [k for k in range(classes) if (truth == k).any()]
    areas = [roc_auc_score(truth == k, guess[:, k]) for k in chosen]
    right = (guess.argmax(1) == truth).mean()
    return {"accuracy": _round(right), "AUC": _round(np.mean(areas))}


def _regression(task: Task, drawn: Records, seed: int) -> dict[str, Any]:
    """R² and mean absolute error of the target, in its own units; the mean is the yardstick."""
    (x, y), (test_x, test_y) = (_target(task, records) for records in (drawn, task.test))
    spread = np.maximum(x.std(0), 5e-3)
    scaled, test_scaled = (np.clip((side - x.mean(0)) / spread, -8, 8) for side in (x, test_x))
    forest = RandomForestRegressor(
        100, min_samples_leaf=5, max_features=1 / 3, random_state=seed
    ).fit(x, y)
    boosted = HistGradientBoostingRegressor(random_state=seed, early_stopping=False).fit(x, y)
    guesses = {
        "mean": np.full(len(test_y), y.mean()),
        "linear regression": Ridge().fit(scaled, y).predict(test_scaled),
        "random forest": forest.predict(test_x),
        "boosting": boosted.predict(test_x),
    }
    variance = ((test_y - test_y.mean()) ** 2).mean()
    return {
        name: {
            "R2": _round(1 - ((guess - test_y) ** 2).mean() / variance),
            "MAE": round(float(np.abs(guess - test_y).mean()), 1),
        }
        for name, guess in guesses.items()
    }


def _target(task: Task, records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Features without the target, and the target as the file has it."""
    assert records.frame is not None and task.target
    y = records.frame[task.target].to_numpy(np.float64)
    kept = [c.name for c in task.schema.columns if c.name != task.target]
    frame = records.frame[kept]
    return encode(task.schema.project(kept), Records(frame=frame)).x, y


def _rows(schema: Schema, records: Records) -> Rows:
    made = encode(schema, records)
    return Rows(made.x, made.y)


def _round(value: float) -> float:
    return round(float(value), 4)
