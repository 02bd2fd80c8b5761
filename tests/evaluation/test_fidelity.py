import numpy as np
import pytest
from scipy.stats import ks_2samp, wasserstein_distance

from understudy.data.schema import Column, Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.fidelity import Fidelity, measure_fidelity
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Score

ONE = Schema("table", "t", 9, columns=(Column("a", "numeric", low=0.0, high=1.0),))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def numbers(values: np.ndarray) -> Rows:
    return Rows(values.astype(np.float32)[:, None], np.zeros(len(values), np.int64))


def scores(found: Fidelity, column: str) -> dict[str, Score]:
    fit = next(fit for fit in found.columns if fit.column == column)
    return {d.name: d.synthetic for d in fit.distances}


def test_distances_of_numbers_agree_with_scipy() -> None:
    draw = np.random.default_rng(1)
    a, b = draw.beta(2, 5, 200), draw.beta(3, 4, 150)
    found = scores(measure_fidelity(ONE, numbers(a), numbers(b), numbers(b), rng=rng()), "a")
    assert found["Kolmogorov-Smirnov"].value == pytest.approx(ks_2samp(a, b).statistic, abs=0.01)
    assert found["Wasserstein"].value == pytest.approx(wasserstein_distance(a, b), rel=0.02)


def test_total_variation_of_categories_counts_missing_as_one_of_them() -> None:
    column = Column("c", "categorical", categories=("x", "y"), missing=True)
    schema = Schema("table", "t", 9, columns=(column,))

    def rows(codes: list[int]) -> Rows:
        return Rows(np.eye(3, dtype=np.float32)[codes], np.zeros(len(codes), np.int64))

    found = measure_fidelity(schema, rows([0, 0, 1, 1]), rows([0]), rows([0, 0, 1, 2]), rng=rng())
    assert scores(found, "c")["total variation"].value == pytest.approx(0.25)


def test_missing_numbers_are_compared_as_missing() -> None:
    column = Column("a", "numeric", low=0.0, high=1.0, missing=True)
    schema = Schema("table", "t", 9, columns=(column,))

    def rows(missing: int) -> Rows:
        flag = (np.arange(100) < missing).astype(np.float32)
        value = np.where(flag == 1, 0.5, np.linspace(0, 1, 100))
        return Rows(np.column_stack([value, flag]).astype(np.float32), np.zeros(100, np.int64))

    found = measure_fidelity(schema, rows(100), rows(0), rows(0), rng=rng())
    assert scores(found, "a")["Kolmogorov-Smirnov"].value == pytest.approx(1, abs=0.01)
    assert np.isnan(axes(schema)[0].values(rows(3))).sum() == 3


def test_the_floor_is_the_distance_of_real_training_rows() -> None:
    draw = np.random.default_rng(2)
    found = measure_fidelity(
        ONE,
        numbers(draw.random(200) / 2),
        numbers(draw.random(200)),
        numbers(draw.random(200)),
        rng=rng(),
    )
    mean = found.overall[0]
    assert mean.real is not None
    assert mean.real.value < 0.15 < 0.4 < mean.synthetic.value
    assert mean.synthetic.low <= mean.synthetic.value <= mean.synthetic.high


def test_same_generator_gives_the_same_figures() -> None:
    a, b = (numbers(np.random.default_rng(i).random(50)) for i in (0, 1))
    assert measure_fidelity(ONE, a, b, b, rng=rng()) == measure_fidelity(ONE, a, b, b, rng=rng())


@pytest.mark.parametrize("empty", ["synthetic", "train", "test"])
def test_an_empty_side_is_a_note(empty: str) -> None:
    sides = {name: numbers(np.linspace(0, 1, 20)) for name in ("synthetic", "train", "test")}
    sides[empty] = numbers(np.zeros(0))
    found = measure_fidelity(ONE, **sides, rng=rng())
    assert found.notes
    if empty == "train":
        assert all(c.real is None for c in found.overall)
    else:
        assert found.columns == ()


def test_one_constant_row_is_enough() -> None:
    one = numbers(np.array([0.5]))
    assert measure_fidelity(ONE, one, one, one, rng=rng()).overall[0].synthetic.value == 0


def test_series_are_compared_by_channel() -> None:
    channels = tuple(Column(c, "numeric", low=0.0, high=1.0) for c in "ab")
    schema = Schema("series", "s", 9, columns=channels, shape=(4, 2))
    x = np.tile(np.array([0.2, 0.8], np.float32), (10, 4))
    y = np.zeros(10, np.int64)
    found = measure_fidelity(schema, Rows(x[:, ::-1].copy(), y), Rows(x, y), Rows(x, y), rng=rng())
    assert [c.column for c in found.columns] == ["a", "b"]
    assert scores(found, "a")["Kolmogorov-Smirnov"].value == 1
