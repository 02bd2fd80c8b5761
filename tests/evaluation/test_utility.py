from collections.abc import Callable

import numpy as np
import pytest

from understudy.data.schema import Column, Schema
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import plain
from understudy.evaluation.students import students
from understudy.evaluation.utility import Utility, measure_utility
from understudy.rng import Streams

SCHEMA = Schema(
    "table",
    "t",
    100,
    columns=(
        Column("a", "numeric", low=0.0, high=1.0),
        Column("b", "numeric", low=0.0, high=1.0),
        Column("y", "categorical", categories=("no", "yes", "perhaps")),
    ),
    label="y",
)


def rows(n: int, seed: int, classes: tuple[int, ...] = (0, 1, 2), shuffle: bool = False) -> Rows:
    draw = np.random.default_rng(seed)
    y = draw.choice(classes, n) if n else np.zeros(0, np.int64)
    x = draw.normal(0.25 + 0.25 * y[:, None], 0.06, (n, 2))
    if shuffle:
        y = draw.permutation(y)
    return Rows(np.clip(x, 0, 1).astype(np.float32), y.astype(np.int64))


def run(synthetic: Rows, train: Rows, test: Rows, schema: Schema = SCHEMA) -> Utility:
    return measure_utility(schema, synthetic, train, test, rng=Streams.from_seed(0))


@pytest.fixture(autouse=True)
def short(shorten: Callable[[int], None]) -> None:
    shorten(200)


def test_students_of_useless_rows_do_worse_than_students_of_real_rows() -> None:
    found = run(rows(200, 0, shuffle=True), rows(200, 1), rows(200, 2))
    assert [s.student for s in found.students] == list(students(SCHEMA))
    for student in found.students:
        accuracy = student["accuracy"]
        assert accuracy.real is not None
        assert accuracy.real.value > 0.85
        assert accuracy.synthetic.high < accuracy.real.low
        assert {c.name for c in student.scores} == {"accuracy", "F1", "AUC"}


def test_beside_the_students_stands_what_takes_no_learning() -> None:
    test = rows(90, 2, classes=(0, 1, 1, 1))
    found = run(rows(60, 0), rows(60, 1), test)
    for student in found.students:
        accuracy, area = student["accuracy"], student["AUC"]
        assert accuracy.guess is not None and accuracy.guess.value == (test.y == 1).mean()
        assert area.guess is not None and area.guess.value == 0.5
    assert found.guess == "the most common class"
    assert plain(found)["students"][0]["scores"][0]["guess"]["n"] == 90


@pytest.mark.slow
def test_same_streams_give_the_same_scores() -> None:
    data = (rows(60, 0), rows(60, 1), rows(60, 2))
    assert run(*data) == run(*data)


def test_without_a_label_there_are_no_students_and_the_report_says_so() -> None:
    schema = Schema("table", "t", 9, columns=(Column("a", "numeric", low=0.0, high=1.0),))
    one = Rows(np.zeros((5, 1), np.float32), np.zeros(5, np.int64))
    found = run(one, one, one, schema)
    assert found.students == () and "no label" in found.notes[0]
    assert found.best is None


def test_one_class_to_learn_from_gives_constant_students_and_a_note() -> None:
    found = run(rows(30, 0, (1,)), rows(30, 1), rows(60, 2))
    for student in found.students:
        assert student["accuracy"].synthetic.value == pytest.approx((rows(60, 2).y == 1).mean())
        assert student["AUC"].synthetic.value == pytest.approx(0.5)
    assert any("All synthetic rows have the same class" in note for note in found.notes)


def test_a_class_never_seen_in_training_gets_no_probability() -> None:
    found = run(rows(60, 0, (0, 2)), rows(60, 1), rows(60, 2))
    assert all(s["accuracy"].synthetic.value < 0.9 for s in found.students)


def test_test_rows_of_one_class_have_no_auc() -> None:
    found = run(rows(40, 0), rows(40, 1), rows(10, 2, (1,)))
    assert all(c.name != "AUC" for s in found.students for c in s.scores)
    assert len(found.notes) == 2


@pytest.mark.parametrize(("train", "test"), [(0, 10), (10, 0), (1, 1)])
def test_tiny_real_data_is_a_note_and_not_a_crash(train: int, test: int) -> None:
    found = run(rows(40, 0), rows(train, 1), rows(test, 2))
    assert found.notes
    assert bool(found.students) == bool(test)
    if not train:
        assert all(c.real is None for s in found.students for c in s.scores)


def test_best_student_is_chosen_by_its_real_training_only() -> None:
    found = run(rows(100, 0, shuffle=True), rows(100, 1), rows(100, 2))
    best = found.best
    assert best is not None
    top = max(s["accuracy"].real.value for s in found.students if s["accuracy"].real)
    assert best["accuracy"].real is not None and best["accuracy"].real.value == top


def test_progress_never_goes_back_and_ends_full() -> None:
    seen: list[float] = []
    measure_utility(
        SCHEMA,
        rows(30, 0),
        rows(30, 1),
        rows(30, 2),
        rng=Streams.from_seed(0),
        progress=lambda stage, done, total: seen.append(done / total),
    )
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 1


@pytest.mark.slow
def test_image_students_are_the_three_of_the_paper() -> None:
    schema = Schema("image", "i", 9, classes=("a", "b"), shape=(4, 4))
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 80)
    x = (draw.random((80, 16)) * 0.5 + 0.5 * y[:, None]).astype(np.float32)
    found = run(Rows(x, y), Rows(x, y), Rows(x, y), schema)
    assert found.positive_class == "b"
    names = ["logistic regression", "multi-layer perceptron", "convolutional network"]
    assert [s.student for s in found.students] == names
    assert all(s["accuracy"].synthetic.value > 0.95 for s in found.students)


MANY = Schema(
    "table",
    "t",
    100,
    columns=(
        Column("a", "numeric", low=0.0, high=1.0),
        Column("b", "numeric", low=0.0, high=1.0),
        Column("y", "categorical", categories=("no", "yes", "perhaps", "rare", "never")),
    ),
    label="y",
)


def test_rare_classes_are_named_and_not_averaged_away() -> None:
    test = rows(120, 2)
    test.y[:4] = 3
    synthetic = rows(90, 0, (0, 2))
    found = run(synthetic, rows(90, 1), test, MANY)
    by_name = {c.name: c for c in found.classes}
    assert by_name["rare"].recognised is None and by_name["rare"].test == 4
    assert by_name["yes"].recognised is not None and by_name["yes"].synthetic == 0
    assert by_name["yes"].recognised.synthetic.value == 0, "nobody taught it"
    assert any("too few test rows to score" in n and "rare, never" in n for n in found.notes)
    assert any("too few synthetic rows to learn" in n and "yes" in n for n in found.notes)
    for student in found.students:
        assert student["AUC"].real is not None and student["AUC"].real.value > 0.9


NUMBER = Schema(
    "table",
    "t",
    100,
    columns=(
        Column("a", "numeric", low=0.0, high=1.0),
        Column("price", "numeric", low=0.0, high=200.0),
        Column("c", "categorical", categories=("x", "y")),
    ),
    label="price",
)


def priced(n: int, seed: int, *, noise: float = 0.02, tied: bool = True) -> Rows:
    """A price that follows from the other columns, or from nothing."""
    draw = np.random.default_rng(seed)
    a, c = draw.random(n), draw.integers(0, 2, n)
    price = np.clip(0.2 + 0.4 * a + 0.3 * c + draw.normal(0, noise, n), 0, 1)
    price = price if tied else draw.permutation(price)
    x = np.column_stack([a, price, np.eye(2)[c]]).astype(np.float32)
    return Rows(x, np.zeros(n, np.int64))


def test_a_numeric_label_is_predicted_in_its_own_units_beside_the_mean() -> None:
    found = run(priced(400, 0), priced(400, 1), priced(300, 2), NUMBER)
    names = ["ridge regression", "random forest", "boosting", "neural network"]
    assert [s.student for s in found.students] == names and found.guess == "the mean"
    truth = 200 * priced(300, 2).x[:, 1]
    for student in found.students:
        explained, error = student["R²"], student["MAE"]
        assert explained.synthetic.value > 0.9 and explained.guess.value == 0  # type: ignore[union-attr]
        assert error.synthetic.value < 10
        assert error.guess.value == pytest.approx(np.abs(truth - truth.mean()).mean(), rel=1e-3)  # type: ignore[union-attr]


def test_a_label_that_follows_from_nothing_is_not_predicted() -> None:
    found = run(priced(400, 0, tied=False), priced(400, 1), priced(300, 2), NUMBER)
    best = found.best
    assert best is not None and best["R²"].real is not None and best["R²"].real.value > 0.9
    assert best["R²"].synthetic.high < 0.1


def test_numbers_never_leave_their_public_bounds() -> None:
    wild = priced(60, 0)
    wild.x[:, 0] *= 0.01  # a slope that would lead far out
    found = run(wild, priced(60, 1), priced(60, 2), NUMBER)
    assert all(s["MAE"].synthetic.value <= 200 for s in found.students)


def test_a_constant_numeric_label_is_a_note() -> None:
    flat = priced(60, 0)
    flat.x[:, 1] = 0.5
    found = run(flat, flat, flat, NUMBER)
    assert found.students == () and "same label" in found.notes[-1]
    taught_nothing = run(flat, priced(60, 1), priced(60, 2), NUMBER)
    assert all(s["R²"].synthetic.value <= 0 for s in taught_nothing.students)
