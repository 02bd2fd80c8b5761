"""Utility: how well students do that only ever saw synthetic rows.

Each student is trained twice, on synthetic rows and on real ones, with the same settings and
randomness, and tested both times on the same held-out real rows ("train on synthetic, test on
real"). Which students there are is in `students`. The intervals cover the choice of test rows
only, not of training rows or initial weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import (
    Compared,
    Score,
    score_accuracy,
    score_auc,
    score_commonest,
    score_f1,
)
from understudy.evaluation.students import Learner, Tick, answer, silent, students
from understudy.rng import Streams

__all__ = [
    "COMMONEST",
    "Progress",
    "StudentScores",
    "Utility",
    "measure_utility",
    "share",
    "ticker",
]

COMMONEST = "the most common class"
"""What `Utility.naive` is the accuracy of: giving it as every answer."""

Progress = Callable[[str, int, int], None]
"""Called with a stage in words, the work done and the work in all."""


def share(tell: Progress, start: int, stop: int) -> Progress:
    """Report a part of the work as these thousandths of the whole."""
    return lambda stage, done, total: tell(stage, start + (stop - start) * done // total, 1000)


@dataclass(frozen=True)
class StudentScores:
    """One student, trained on synthetic and on real rows, scored on the same test rows."""

    student: str
    scores: tuple[Compared, ...]

    def __getitem__(self, name: str) -> Compared:
        return next(score for score in self.scores if score.name == name)


@dataclass(frozen=True)
class Utility:
    """All students, what could not be measured and why, and what takes no learning at all."""

    students: tuple[StudentScores, ...]
    notes: tuple[str, ...] = ()
    positive_class: str | None = None
    naive: Score | None = None

    @property
    def best(self) -> StudentScores | None:
        """The student to quote: the one that does best when trained on real rows."""
        return max(self.students, key=_real_accuracy, default=None)


def measure_utility(
    schema: Schema,
    synthetic: Rows,
    train: Rows,
    test: Rows,
    *,
    rng: Streams,
    progress: Progress = silent,
    learners: Mapping[str, Learner] | None = None,
) -> Utility:
    """Train every student on ``synthetic`` and on ``train``; score both on ``test``.

    ``learners`` stand in for the students that this kind of data gets otherwise.
    """
    notes = _notes(schema, synthetic, train, test)
    if schema.n_classes < 2 or not len(synthetic) or not len(test):
        return Utility((), notes)
    table = learners or students(schema)
    positive = schema.classes[1] if schema.n_classes == 2 else None
    done: list[StudentScores] = []
    for i, (name, learn) in enumerate(table.items()):
        streams = rng.child("student", i)
        sides: list[dict[str, Score]] = []
        for j, (source, rows) in enumerate((("synthetic", synthetic), ("real", train))):
            stage = f"{name} on {source}"
            tick = ticker(progress, stage, 2 * i + j, 2 * len(table))
            probability = answer(learn, schema, rows, test.x, streams, tick)
            sides.append(_score(schema, probability, test, streams))
        ours, real = sides
        found = (Compared(measure, score, real.get(measure)) for measure, score in ours.items())
        done.append(StudentScores(name, tuple(found)))
    return Utility(tuple(done), notes, positive, score_commonest(test.y))


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


def _real_accuracy(student: StudentScores) -> float:
    real = student["accuracy"].real
    return real.value if real else -1.0


def _notes(schema: Schema, synthetic: Rows, train: Rows, test: Rows) -> tuple[str, ...]:
    """What the reader must know before reading the table. Public class names only."""
    if schema.n_classes < 2:
        if schema.kind == "series":
            return ("The schema has no classes to predict; look at the next-step error.",)
        return (
            "The schema has no label with two or more classes, so there is nothing to predict.",
        )
    if not len(test):
        return ("There are no held-out real rows to test on.",)
    if not len(synthetic):
        return ("The release gave no synthetic rows.",)
    notes = []
    if not len(train):
        notes.append("There are no real training rows: models are trained on synthetic rows only.")
    elif len(np.unique(train.y)) == 1:
        notes.append("All real training rows have the same class: models always predict it.")
    if len(np.unique(synthetic.y)) == 1:
        notes.append("All synthetic rows have the same class: models always predict it.")
    if len(np.unique(test.y)) == 1:
        notes.append("All held-out real rows have the same class: no AUC, and F1 means little.")
    if len(test) < 50:
        notes.append("Fewer than 50 held-out real rows: look at the intervals, they are wide.")
    return tuple(notes)


def ticker(progress: Progress, stage: str, step: int, steps: int) -> Tick:
    """Report the work inside one of several equal steps."""

    def tick(done: int, total: int) -> None:
        progress(stage, step * 1000 + 1000 * done // total, steps * 1000)

    tick(0, 1)
    return tick
