"""The students of the scores: learners that are trained on some rows and asked about others.

Tables and series get a logistic regression, a random forest, boosting and a small neural network;
who predicts numbers is in `regressors`. Images get the three classifiers of DPD-fVAE (§5.1,
Appendix C.2): logistic regression by lbfgs, an MLP and a CNN, both by Adam at rate 1e-3 with weight
decay 1e-4. The paper does not say for how long; here the work is fixed in steps and the rate falls
to zero, and lbfgs stops after `ITERATIONS` (to convergence takes many times as long and moves
accuracy by less than a point).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from understudy.data.schema import Schema
from understudy.evaluation.rows import Rows
from understudy.nets.student import (
    Student,
    StudentTraining,
    cnn_student,
    dense_student,
    fit,
    mlp_student,
    predict,
)
from understudy.rng import Streams

__all__ = [
    "Learner",
    "Tick",
    "answer",
    "boosting",
    "forest",
    "image_students",
    "silent",
    "standardised",
    "students",
    "taught",
]

TRAINING = StudentTraining()
IMAGE_TRAINING = StudentTraining(rate=1e-3, decay=0.0, penalty=1e-4)
ITERATIONS = 100
TREES, ROUNDS = 100, 100

Tick = Callable[[int, int], None]
Learner = Callable[[Schema, Rows, np.ndarray, Streams, Tick], np.ndarray]
"""From the schema, rows to learn from and rows to judge ``[n, F]``: probabilities ``[n, K]``."""


def students(schema: Schema) -> Mapping[str, Learner]:
    """The students for this kind of data, by name."""
    if schema.kind == "image":
        return image_students()
    network = taught(lambda s: dense_student(s.width, s.n_classes), TRAINING)
    return {
        "logistic regression": standardised(_regression(300)),
        "random forest": forest,
        "boosting": boosting,
        "neural network": standardised(network),
    }


def image_students(training: StudentTraining | None = None) -> Mapping[str, Learner]:
    """The classifiers of DPD-fVAE; ``training`` is of the MLP and the CNN."""
    how = training or IMAGE_TRAINING
    return {
        "logistic regression": _regression(ITERATIONS),
        "multi-layer perceptron": taught(lambda s: mlp_student(s.width, s.n_classes), how),
        "convolutional network": taught(lambda s: cnn_student(s.shape, s.n_classes), how),
    }


def answer(
    learn: Learner, schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick
) -> np.ndarray | None:
    """Class probabilities ``[n, K]`` for rows ``x``; None without rows to learn from."""
    present = np.unique(rows.y)
    if len(present) == 0:
        return None
    if len(present) == 1:
        return np.eye(schema.n_classes)[np.repeat(present, len(x))]
    found = learn(schema, rows, x, rng, tick)
    tick(1, 1)
    return found


def silent(*done: object) -> None:
    """Report progress to nobody."""


def _spread(probability: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Give classes that the student never saw probability zero."""
    full = np.zeros((len(probability), n_classes))
    full[:, classes] = probability
    return full


def _regression(iterations: int) -> Learner:
    """Logistic regression by lbfgs with an l2 penalty, on one thread like all students."""

    def learn(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=iterations)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(rows.x, rows.y)
            return _spread(model.predict_proba(x), model.classes_, schema.n_classes)

    return learn


def forest(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    """A random forest of `TREES` trees."""
    from sklearn.ensemble import RandomForestClassifier

    seed = int(rng.numpy("forest").integers(2**31))
    model = RandomForestClassifier(TREES, random_state=seed).fit(rows.x, rows.y)
    return _spread(model.predict_proba(x), model.classes_, schema.n_classes)


def boosting(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    """Boosted trees over binned features; with many classes fewer rounds, of a tree per class."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    seed = int(rng.numpy("boosting").integers(2**31))
    rounds = max(10, min(ROUNDS, 1000 // schema.n_classes))
    with threadpool_limits(1):
        model = HistGradientBoostingClassifier(
            max_iter=rounds, early_stopping=False, random_state=seed
        )
        model.fit(rows.x, rows.y)
        return _spread(model.predict_proba(x), model.classes_, schema.n_classes)


def taught(spec: Callable[[Schema], Student], training: StudentTraining) -> Learner:
    """The learner that trains this network on rows as they are."""

    def learn(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
        student = spec(schema)
        train, truth, test = map(torch.from_numpy, (rows.x, rows.y, x))
        params = fit(student, train, truth, rng=rng, training=training, progress=tick)
        return predict(student, params, test).numpy()

    return learn


def standardised(learn: Learner) -> Learner:
    """The same learner on rows standardised by those it learns from.

    Nearly constant columns cannot blow up the rows to judge.
    """

    def scaled(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
        mean, spread = rows.x.mean(0), np.maximum(rows.x.std(0), 5e-3)
        train, test = (
            np.clip((side - mean) / spread, -8, 8).astype(np.float32) for side in (rows.x, x)
        )
        return learn(schema, Rows(train, rows.y), test, rng, tick)

    return scaled
