"""What benches measure is what the report measures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from test_bench_baselines import bench
from understudy.data.schema import Column, Schema
from understudy.evaluation import students
from understudy.evaluation.rows import Rows
from understudy.evaluation.utility import measure_utility
from understudy.nets.student import StudentTraining
from understudy.rng import Streams

measures = bench("measures")
IMAGES = Schema("image", "halves", 9, classes=("left", "right"), shape=(6, 6))
TABLE = Schema(
    "table",
    "t",
    9,
    columns=(Column("a", "numeric", low=0.0, high=1.0), Column("y", "boolean")),
    label="y",
)


def halves(n: int, seed: int) -> Rows:
    """Bright on the left or on the right."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, n)
    x = draw.random((n, 6, 6)) * 0.6
    x[y == 0, :, :3] += 0.4
    x[y == 1, :, 3:] += 0.4
    return Rows(x.reshape(n, 36).astype(np.float32), y)


def table(n: int, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, n)
    x = np.clip(draw.normal(0.3 + 0.4 * y, 0.1), 0, 1)
    return Rows(x.astype(np.float32)[:, None], y)


def score(rows: Rows, seed: int = 0) -> dict[str, float]:
    how = StudentTraining(steps=120, rate=1e-3, penalty=1e-4)
    streams = Streams.from_seed(seed)
    found: dict[str, float] = measures.score_images(
        rows, halves(100, 1), IMAGES, rng=streams, training=how
    )
    return found


def test_three_classifiers_learn_what_can_be_learnt_and_repeat_it() -> None:
    found = score(halves(200, 0))
    assert list(found) == [
        "logistic regression",
        "multi-layer perceptron",
        "convolutional network",
    ]
    assert all(0.95 < accuracy <= 1 for accuracy in found.values())
    assert found == score(halves(200, 0))


def test_one_class_to_learn_from_gives_its_share_of_the_test_rows() -> None:
    share = (halves(100, 1).y == 1).mean()
    ones = Rows(halves(20, 0).x, np.ones(20, np.int64))
    assert set(score(ones).values()) == {share}


@pytest.mark.parametrize(
    ("learners", "rows", "schema", "names"),
    [
        ("table_students", table, TABLE, ["two-layer network", "random forest"]),
        ("thesis_students", halves, IMAGES, ["convolutional network", "logistic regression"]),
    ],
)
def test_students_of_the_papers_stand_in_for_ours_and_accuracies_are_those_of_the_scores(
    learners, rows, schema, names, monkeypatch
) -> None:
    monkeypatch.setattr(students, "TRAINING", replace(students.TRAINING, steps=100))
    chosen, real, rng = getattr(measures, learners)(), rows(100, 1), Streams.from_seed(0)
    scores = measure_utility(schema, rows(200, 0), real, real, rng=rng, learners=chosen)
    assert [s.student for s in scores.students] == names
    assert all(s["accuracy"].synthetic.value > 0.85 for s in scores.students)
    found = measures.accuracies(chosen, schema, rows(200, 0), real, rng=rng)
    assert found == {s.student: s["accuracy"].synthetic.value for s in scores.students}
    nobody = measures.accuracies(chosen, schema, rows(0, 0), real, rng=rng)
    assert set(nobody.values()) == {0.0}


def test_records_of_any_shape_are_compared_flat() -> None:
    a, b = (np.random.default_rng(i).normal(0.1 * i, 1, (20, 2500)) for i in range(2))
    for measure in (measures.mmd, measures.coverage):
        whole = measure(a, b)
        assert measure(a.reshape(20, 50, 50), b.reshape(20, 50, 50)) == pytest.approx(whole)
