"""Image scores for benches: accuracy of DPD-fVAE's three classifiers (§5.1) by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation import students
from understudy.evaluation.rows import Rows
from understudy.nets.student import StudentTraining
from understudy.rng import Streams

__all__ = ["score_images"]

STEPS = 2400


def score_images(
    x: np.ndarray,
    y: np.ndarray,
    test_x: np.ndarray,
    test_y: np.ndarray,
    schema: Schema,
    *,
    rng: Streams,
    training: StudentTraining | None = None,
) -> dict[str, float]:
    """Accuracy on test images of classifiers that saw only ``x`` (float32 ``[n, F]`` in [0, 1]).

    Exact for the rows given, so internal if the test rows are. The MLP and the CNN take `STEPS`
    batches of 64 unless ``training`` says otherwise; the regression stops after
    `students.ITERATIONS` steps of lbfgs, converged or not.
    """
    rows = Rows(np.ascontiguousarray(x, np.float32), np.asarray(y, np.int64))
    tests = Rows(np.ascontiguousarray(test_x, np.float32), np.asarray(test_y, np.int64))
    how = training or replace(students.IMAGE_TRAINING, steps=STEPS)
    return students.accuracies(students.image_students(how), schema, rows, tests, rng=rng)
