"""Scores that only benches take: the papers' students, and single figures of plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation import students
from understudy.evaluation.clouds import covered, squared_mmd
from understudy.evaluation.correlation import matrix_distance, pearson
from understudy.evaluation.forecasts import Forecasting, forecasters
from understudy.evaluation.joints import column_sets, mean_variation
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import Learner, answer, forest, silent, standardised, taught
from understudy.nets.student import (
    Dense,
    Student,
    StudentTraining,
    conv_student,
)
from understudy.rng import Streams


def thesis_students() -> Mapping[str, Learner]:
    """The FedVAE thesis's convolutional student (§4.4.3) and a regression by small steps."""
    how = students.TRAINING
    quick = replace(how, rate=1e-2)
    return {
        "convolutional network": taught(lambda s: conv_student(s.shape, s.n_classes), how),
        "logistic regression": taught(lambda s: Student((s.width,), s.n_classes, hidden=()), quick),
    }


def table_students() -> Mapping[str, Learner]:
    """The students of Jiang's thesis (§4.5.2): a two-layer network (96 units) and a forest."""

    def spec(schema: Schema) -> Student:
        return Student((schema.width,), schema.n_classes, hidden=(Dense(96),))

    network = standardised(taught(spec, students.TRAINING))
    return {"two-layer network": network, "random forest": forest}


def accuracies(
    learners: Mapping[str, Learner], schema: Schema, rows: Rows, test: Rows, *, rng: Streams
) -> dict[str, float]:
    """Share of ``test`` rows that each learner gets right after learning from ``rows`` alone."""
    found: dict[str, float] = {}
    for i, (name, learn) in enumerate(learners.items()):
        guess = answer(learn, schema, rows, test.x, rng.child("student", i), silent)
        found[name] = 0.0 if guess is None else float((guess.argmax(1) == test.y).mean())
    return found


def score_images(
    rows: Rows, test: Rows, schema: Schema, *, rng: Streams, training: StudentTraining
) -> dict[str, float]:
    """Accuracy of DPD-fVAE's three classifiers (§5.1) by name."""
    return accuracies(students.image_students(training), schema, rows, test, rng=rng)


def next_step_mae(
    train: np.ndarray, test: np.ndarray, *, rng: Streams, training: Forecasting
) -> float:
    """Error on ``test`` of an LSTM that learnt from ``train``, both ``[n, L, W]`` in [0, 1]."""
    return float(forecasters(training)["LSTM"](train, test, rng, silent).mean())


def average_variation(
    real: np.ndarray, synthetic: np.ndarray, ways: int, *, rng: np.random.Generator
) -> float:
    """Mean total variation distance of ``ways``-way joints of codes ``[n, A]`` and ``[m, A]``."""
    chosen = column_sets(real.shape[1], ways, rng)
    return float(mean_variation([synthetic, real], chosen)[0, 0])


def correlation_distance(real: np.ndarray, synthetic: np.ndarray) -> float:
    """1 - tr(R₁R₂)/(‖R₁‖‖R₂‖) for the correlations of features ``[n, F]`` and ``[m, F]``."""
    return matrix_distance(pearson(real), pearson(synthetic))


def mmd(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Squared MMD of records of any shape, unbiased (so it can be below zero)."""
    return float(squared_mmd(_flat(real), _flat(synthetic))[0])


def coverage(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Share of real records that have a synthetic one among their nearest."""
    return float(covered(_flat(real), _flat(synthetic)).mean())


def _flat(records: np.ndarray) -> np.ndarray:
    return records.reshape(len(records), -1)
