"""Utility: how well students do that only ever saw synthetic rows.

Each student is trained twice, on synthetic rows and on real ones, with the same settings and
randomness, and tested both times on the same held-out real rows ("train on synthetic, test on
real"). Beside them stands guessing: the commonest class, a coin (AUC), or the mean of a numeric
label. Which students there are is in `students` and `regressors`, how they are measured in
`measures`. The intervals cover the choice of test rows only, not of training rows or initial
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation import measures
from understudy.evaluation.measures import ACCURACY, AUC, FEWEST, MAE, R2, Measure
from understudy.evaluation.regressors import numbers, predict_numeric, regressors
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared
from understudy.evaluation.students import Learner, Tick, answer, silent, students
from understudy.evaluation.words import listed
from understudy.rng import Streams

__all__ = [
    "COMMONEST",
    "MEAN",
    "ClassFit",
    "Progress",
    "StudentScores",
    "Utility",
    "measure_utility",
    "share",
    "ticker",
]

COMMONEST = "the most common class"
MEAN = "the mean"
"""What guessing is: giving this as every answer."""

RECOGNISED = "recognised"

Progress = Callable[[str, int, int], None]
"""Called with a stage in words, the work done and the work in all."""
Judge = Callable[[np.ndarray], dict[str, Measure]]
"""Every measure of a model's answers."""


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
class ClassFit:
    """One class: its rows on each side, and how often the quoted student recognises it.

    ``recognised`` is None where there are too few test rows to say.
    """

    name: str
    test: int
    real: int
    synthetic: int
    recognised: Compared | None = None


@dataclass(frozen=True)
class Utility:
    """All students, each class, what guessing means here, and what could not be measured."""

    students: tuple[StudentScores, ...]
    notes: tuple[str, ...] = ()
    guess: str | None = None
    positive_class: str | None = None
    classes: tuple[ClassFit, ...] = ()

    @property
    def main(self) -> str:
        """The measure that students are ranked by."""
        return R2 if self.guess == MEAN else ACCURACY

    @property
    def best(self) -> StudentScores | None:
        """The student to quote: the one that does best when trained on real rows."""
        return max(self.students, key=lambda s: _reached(s, self.main), default=None)


def _reached(student: StudentScores, measure: str) -> float:
    found = next((c.real for c in student.scores if c.name == measure), None)
    return -np.inf if found is None else found.value


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
    nothing = _nothing(schema, synthetic, test)
    if nothing:
        return Utility((), (nothing,))
    if schema.task == "regression":
        sides = (numbers(schema, rows) for rows in (synthetic, train, test))
        return _numbers(schema, *sides, rng=rng, progress=progress)
    return _classes(schema, synthetic, train, test, rng, progress, learners or students(schema))


def _nothing(schema: Schema, synthetic: Rows, test: Rows) -> str:
    """Why no model can be tried, if none can."""
    if schema.task == "none" and schema.kind == "series":
        return "The schema has no classes to predict; look at the next-step error."
    if schema.task == "none":
        return "The schema names no label, so there is nothing to predict: distances alone count."
    if schema.task == "regression" and len(schema.features) == 1:
        return "The label is the only column, so there is nothing to predict it from."
    if not len(test):
        return "There are no held-out real rows to test on."
    return "" if len(synthetic) else "The release gave no synthetic rows."


def _classes(
    schema: Schema,
    synthetic: Rows,
    train: Rows,
    test: Rows,
    rng: Streams,
    progress: Progress,
    table: Mapping[str, Learner],
) -> Utility:
    scored = measures.scorable(test.y, schema.n_classes)
    scored = scored[-1:] if schema.n_classes == 2 else scored

    def judge(probability: np.ndarray) -> dict[str, Measure]:
        found = probability.argmax(1)
        kinds = (
            measures.accuracy(test.y, found),
            measures.f1(test.y, found, scored),
            measures.auc(test.y, probability, scored),
        )
        return {m.name: m for m in kinds if m is not None}

    coin = Measure(AUC, 0.5, np.zeros(len(test)))
    guess = {ACCURACY: measures.accuracy(test.y, measures.commonest(test.y)), AUC: coin}
    answers = _taught(answer, schema, table, (synthetic, train), test, rng, progress)
    found = Utility(
        _scored(answers, judge, guess),
        _class_notes(schema, synthetic, train, test),
        COMMONEST,
        schema.classes[1] if schema.n_classes == 2 else None,
    )
    best = answers[found.best.student] if found.best else (None, None)
    return replace(found, classes=_class_fits(schema, (synthetic, train, test), best))


def _numbers(
    schema: Schema, synthetic: Rows, train: Rows, test: Rows, *, rng: Streams, progress: Progress
) -> Utility:
    def judge(found: np.ndarray) -> dict[str, Measure]:
        error = measures.absolute_error(MAE, np.abs(test.y - found))
        return {R2: measures.explained(test.y, found), MAE: error}

    notes = _few_notes(train, test)
    if len(test) < 2 or np.ptp(test.y) == 0:
        return Utility((), (*notes, "All test rows have the same label: there is nothing to tell."))
    table = regressors()
    answers = _taught(predict_numeric, schema, table, (synthetic, train), test, rng, progress)
    guess = judge(np.full(len(test), test.y.mean()))
    return Utility(_scored(answers, judge, guess), notes, MEAN)


Answers = Mapping[str, tuple[np.ndarray | None, np.ndarray | None]]
"""What each student says about the test rows, taught by synthetic and by real rows."""
Asked = Callable[[Learner, Schema, Rows, np.ndarray, Streams, Tick], np.ndarray | None]


def _taught(
    ask: Asked,
    schema: Schema,
    table: Mapping[str, Learner],
    sides: tuple[Rows, Rows],
    test: Rows,
    rng: Streams,
    progress: Progress,
) -> Answers:
    found = {}
    for i, (name, learn) in enumerate(table.items()):
        streams, said = rng.child("student", i), []
        for j, (source, rows) in enumerate(zip(("synthetic", "real"), sides, strict=True)):
            tick = ticker(progress, f"{name} on {source}", 2 * i + j, 2 * len(table))
            said.append(ask(learn, schema, rows, test.x, streams, tick))
        found[name] = (said[0], said[1])
    return found


def _scored(
    answers: Answers, judge: Judge, guess: Mapping[str, Measure]
) -> tuple[StudentScores, ...]:
    students = []
    for name, (synthetic, real) in answers.items():
        ours, theirs = ({} if said is None else judge(said) for said in (synthetic, real))
        found = (measures.compare(m, theirs.get(k), guess.get(k)) for k, m in ours.items())
        students.append(StudentScores(name, tuple(found)))
    return tuple(students)


def _class_fits(
    schema: Schema, sides: Sequence[Rows], best: tuple[np.ndarray | None, np.ndarray | None]
) -> tuple[ClassFit, ...]:
    """Rows of each class, and how often the best student recognises it."""
    test = sides[-1].y
    ours, real, held = (np.bincount(rows.y, minlength=schema.n_classes) for rows in sides)
    right = [None if said is None else said.argmax(1) == test for said in best]

    def recognised(k: int) -> Compared | None:
        if held[k] < FEWEST or right[0] is None:
            return None
        there = test == k
        of = [None if r is None else measures.proportion(RECOGNISED, r[there]) for r in right]
        return measures.compare(of[0], of[1], None) if of[0] else None

    return tuple(
        ClassFit(name, int(held[k]), int(real[k]), int(ours[k]), recognised(k))
        for k, name in enumerate(schema.classes)
    )


def _class_notes(schema: Schema, synthetic: Rows, train: Rows, test: Rows) -> tuple[str, ...]:
    """What the reader must know before reading the table. Public class names only."""
    notes = list(_few_notes(train, test))
    sides = (("synthetic rows", synthetic), ("real training rows", train))
    for name, rows in sides:
        if len(rows) and len(np.unique(rows.y)) == 1:
            notes.append(f"All {name} have the same class: models always predict it.")
    if len(np.unique(test.y)) == 1:
        notes.append("All held-out real rows have the same class: no AUC and no F1.")
        return tuple(notes)
    for what, (name, rows) in zip(
        ("score", "learn from", "learn from"), (("test rows", test), *sides), strict=True
    ):
        found = np.bincount(rows.y, minlength=schema.n_classes)
        rare = [c for c, n in zip(schema.classes, found, strict=True) if n < FEWEST]
        if rare and len(rows) and len(rare) < schema.n_classes:
            notes.append(f"Classes with too few {name} to {what} (under {FEWEST}): {listed(rare)}.")
    return tuple(notes)


def _few_notes(train: Rows, test: Rows) -> tuple[str, ...]:
    notes = []
    if not len(train):
        notes.append("There are no real training rows: models are trained on synthetic rows only.")
    if len(test) < 50:
        notes.append("Fewer than 50 held-out real rows: look at the intervals, they are wide.")
    return tuple(notes)


def ticker(progress: Progress, stage: str, step: int, steps: int) -> Tick:
    """Report the work inside one of several equal steps."""

    def tick(done: int, total: int) -> None:
        progress(stage, step * 1000 + 1000 * done // total, steps * 1000)

    tick(0, 1)
    return tick
