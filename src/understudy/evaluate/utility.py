"""Utility: how well students do that only ever saw synthetic rows.

Each student is trained twice, on synthetic rows and on real ones, with the same settings and
randomness, and tested both times on the same held-out real rows ("train on synthetic, test on
real"). Tables and series get a logistic regression, a random forest and a small neural network;
images get the FedVAE thesis's convolutional student (§4.4.3) and a logistic regression. The
intervals cover the choice of test rows only, not of training rows or initial weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from understudy.data.schema import Schema
from understudy.evaluate.score import Compared, Score, score_accuracy, score_auc, score_f1
from understudy.nets.classifier import (
    Student,
    Training,
    conv_student,
    dense_student,
    fit,
    linear_student,
    predict,
)
from understudy.rng import Streams

__all__ = ["Progress", "Rows", "StudentScores", "Utility", "measure_utility", "students"]

TRAINING = Training()
Progress = Callable[[str, int, int], None]
"""Called with a stage in words, the work done and the work in all."""


@dataclass(frozen=True)
class Rows:
    """Encoded rows: ``x`` float32 [n, F] in [0, 1], ``y`` int64 [n]."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: np.ndarray) -> Rows:
        """The rows at ``index``."""
        return Rows(self.x[index], self.y[index])


@dataclass(frozen=True)
class StudentScores:
    """One student, trained on synthetic and on real rows, scored on the same test rows."""

    student: str
    scores: tuple[Compared, ...]

    def __getitem__(self, name: str) -> Compared:
        return next(score for score in self.scores if score.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for scores.json."""
        return {"student": self.student, "scores": [s.to_dict() for s in self.scores]}


@dataclass(frozen=True)
class Utility:
    """All students, and what could not be measured and why."""

    students: tuple[StudentScores, ...]
    notes: tuple[str, ...] = ()
    positive: str | None = None

    @property
    def best(self) -> StudentScores | None:
        """The student to quote: the one that does best when trained on real rows."""
        return max(self.students, key=_real_accuracy, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for scores.json."""
        return {
            "students": [s.to_dict() for s in self.students],
            "positive_class": self.positive,
            "notes": list(self.notes),
        }


def measure_utility(
    schema: Schema,
    synthetic: Rows,
    train: Rows,
    test: Rows,
    *,
    rng: Streams,
    progress: Progress | None = None,
) -> Utility:
    """Train every student on ``synthetic`` and on ``train``; score both on ``test``."""
    notes = _notes(schema, synthetic, train, test)
    if schema.n_classes < 2 or not len(synthetic) or not len(test):
        return Utility((), notes)
    table = students(schema)
    positive = schema.classes[1] if schema.n_classes == 2 else None
    done: list[StudentScores] = []
    for i, (name, learn) in enumerate(table.items()):
        streams = rng.child("student", i)
        sides: list[dict[str, Score]] = []
        for j, (source, rows) in enumerate((("synthetic", synthetic), ("real", train))):
            stage = f"{name}, trained on {source} rows"
            tick = _ticker(progress, stage, 2 * i + j, 2 * len(table))
            probability = _answer(learn, schema, rows, test, streams, tick)
            sides.append(_score(schema, probability, test, streams))
        done.append(StudentScores(name, _beside(*sides)))
    return Utility(tuple(done), notes, positive)


Tick = Callable[[int, int], None]
Learner = Callable[[Schema, Rows, np.ndarray, Streams, Tick], np.ndarray]


def students(schema: Schema) -> dict[str, Learner]:
    """The students for this kind of data, by name."""
    if schema.kind == "image":
        return {"convolutional network": _convolutional, "logistic regression": _linear}
    return {
        "logistic regression": _logistic,
        "random forest": _forest,
        "neural network": _dense,
    }


def _answer(
    learn: Learner, schema: Schema, rows: Rows, test: Rows, rng: Streams, tick: Tick
) -> np.ndarray | None:
    """Class probabilities ``[n, K]`` for the test rows; None without rows to learn from."""
    present = np.unique(rows.y)
    if len(present) == 0:
        return None
    if len(present) == 1:
        return np.eye(schema.n_classes)[np.repeat(present, len(test))]
    answer = learn(schema, rows, test.x, rng, tick)
    tick(1, 1)
    return answer


def _score(
    schema: Schema, probability: np.ndarray | None, test: Rows, rng: Streams
) -> dict[str, Score]:
    if probability is None:
        return {}
    truth, guess, classes = test.y, probability.argmax(1), schema.n_classes
    scores = (
        score_accuracy(truth, guess),
        score_f1(truth, guess, classes, rng=rng.numpy("F1")),
        score_auc(truth, probability, classes, rng=rng.numpy("AUC")),
    )
    return {s.name: s for s in scores if s is not None}


def _beside(synthetic: dict[str, Score], real: dict[str, Score]) -> tuple[Compared, ...]:
    return tuple(Compared(name, score, real.get(name)) for name, score in synthetic.items())


def _real_accuracy(student: StudentScores) -> float:
    real = student["accuracy"].real
    return real.value if real else -1.0


def _notes(schema: Schema, synthetic: Rows, train: Rows, test: Rows) -> tuple[str, ...]:
    """What the reader must know before reading the table. Public class names only."""
    if schema.n_classes < 2:
        return (
            "The schema has no label with two or more classes, so there is nothing to predict.",
        )
    if not len(test):
        return ("There are no held-out real rows to test on.",)
    if not len(synthetic):
        return ("The release gave no synthetic rows.",)
    notes = []
    if not len(train):
        notes.append("There are no real rows left to train on: only synthetic-trained students.")
    elif len(np.unique(train.y)) == 1:
        notes.append("The real training rows are all of one class; their students are constant.")
    if len(np.unique(synthetic.y)) == 1:
        notes.append("The synthetic rows are all of one class; their students are constant.")
    if len(np.unique(test.y)) == 1:
        notes.append("The held-out real rows are all of one class: no AUC, and F1 means little.")
    if len(test) < 50:
        notes.append("Fewer than 50 held-out real rows: the intervals are wide, read them first.")
    return tuple(notes)


def _ticker(progress: Progress | None, stage: str, step: int, steps: int) -> Tick:
    def tick(done: int, total: int) -> None:
        if progress is not None:
            progress(stage, step * 1000 + 1000 * done // total, steps * 1000)

    tick(0, 1)
    return tick


def _scaled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardise by the training rows; nearly constant columns cannot blow up the test rows."""
    mean, spread = train.mean(0), np.maximum(train.std(0), 5e-3)
    return tuple(np.clip((x - mean) / spread, -8, 8).astype(np.float32) for x in (train, test))


def _spread(probability: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Give classes that the student never saw probability zero."""
    full = np.zeros((len(probability), n_classes))
    full[:, classes] = probability
    return full


def _logistic(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    train, test = _scaled(rows.x, x)
    model = LogisticRegression(max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, rows.y)
    return _spread(model.predict_proba(test), model.classes_, schema.n_classes)


def _forest(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier

    seed = int(rng.numpy("forest").integers(2**31))
    model = RandomForestClassifier(n_estimators=100, random_state=seed).fit(rows.x, rows.y)
    return _spread(model.predict_proba(x), model.classes_, schema.n_classes)


def _network(
    spec: Student, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick, training: Training
) -> np.ndarray:
    train, truth, test = map(torch.from_numpy, (rows.x, rows.y, x))
    params = fit(spec, train, truth, rng=rng, training=training, progress=tick)
    return predict(spec, params, test).numpy()


def _dense(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    train, test = _scaled(rows.x, x)
    spec = dense_student(schema.width, schema.n_classes)
    return _network(spec, Rows(train, rows.y), test, rng, tick, TRAINING)


def _convolutional(
    schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick
) -> np.ndarray:
    spec = conv_student(schema.shape, schema.n_classes)
    return _network(spec, rows, x, rng, tick, TRAINING)


def _linear(schema: Schema, rows: Rows, x: np.ndarray, rng: Streams, tick: Tick) -> np.ndarray:
    """Logistic regression by small steps: on pixels, much faster than to convergence."""
    spec = linear_student(schema.width, schema.n_classes)
    return _network(spec, rows, x, rng, tick, replace(TRAINING, rate=1e-2))
