"""Students of a numeric label: the counterparts of the classifiers for tables.

They see all columns but the label, and predict the label in its own units. Each learns the
standardised label and answers within the public bounds: a value outside them cannot occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from understudy.data.column import bounds
from understudy.data.encode import read_column
from understudy.data.schema import Schema
from understudy.evaluation import students
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import Learner, Tick, standardised
from understudy.nets.student import dense_student, fit, predict_numbers
from understudy.rng import Streams

__all__ = ["numbers", "predict_numeric", "regressors"]


def numbers(schema: Schema, rows: Rows) -> Rows:
    """The other columns as ``x``, and the numeric label in its own units as ``y``."""
    start, column = schema.place(schema.label or "")
    others = np.delete(rows.x, slice(start, start + column.width), axis=1)
    return Rows(others, read_column(schema, column.name, rows.x, rows.y)[0])


def regressors() -> Mapping[str, Learner]:
    """The students by name."""
    return {
        "ridge regression": standardised(_by(_ridge)),
        "random forest": _by(_forest),
        "boosting": _by(_boosting),
        "neural network": standardised(_network),
    }


def predict_numeric(
    learn: Learner, schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick
) -> np.ndarray | None:
    """The label of rows ``x`` in its own units; None without rows to learn from."""
    if not len(rows):
        return None
    column = schema.label_column
    centre, spread = float(rows.y.mean()), float(rows.y.std())
    if column is None or spread == 0:
        return np.full(len(x), centre)
    found = learn(schema, Rows(rows.x, (rows.y - centre) / spread), x, rng, tick)
    tick(1, 1)
    return np.clip(centre + spread * found, *bounds(column))


def _ridge(seed: int) -> object:
    from sklearn.linear_model import Ridge

    return Ridge()


def _forest(seed: int) -> object:
    from sklearn.ensemble import RandomForestRegressor

    how = {"max_features": 1 / 3, "min_samples_leaf": 2}
    return RandomForestRegressor(students.TREES, **how, random_state=seed)


def _boosting(seed: int) -> object:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=students.ROUNDS, early_stopping=False, random_state=seed
    )


def _by(build: Callable[[int], object]) -> Learner:
    """The learner that fits this model, on one thread like all students."""

    def learn(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
        model = build(int(rng.numpy("model").integers(2**31)))
        with threadpool_limits(1):
            model.fit(rows.x, rows.y)  # type: ignore[attr-defined]
            return np.asarray(model.predict(x), np.float64)  # type: ignore[attr-defined]

    return learn


def _network(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    student = dense_student(rows.x.shape[1], 1)
    train, test = torch.from_numpy(rows.x), torch.from_numpy(x)
    truth = torch.from_numpy(rows.y.astype(np.float32))
    params = fit(student, train, truth, rng=rng, training=students.TRAINING, progress=tick)
    return predict_numbers(student, params, test).numpy().astype(np.float64)
