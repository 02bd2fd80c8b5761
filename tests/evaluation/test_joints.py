import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.schema import Column, Schema
from understudy.evaluation.joints import SETS, WAYS, attribute_codes, column_sets, mean_variation
from understudy.evaluation.joints import measure_joints as measure
from understudy.evaluation.rows import Rows


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def codes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    columns, sizes = draw(st.integers(2, 5)), st.integers(1, 12)
    source = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(sizes), draw(sizes)
    return source.integers(0, 3, (n, columns)), source.integers(0, 3, (m, columns))


both = st.composite(codes)()


def average_variation(
    real: np.ndarray, synthetic: np.ndarray, ways: int, *, rng: np.random.Generator
) -> float:
    chosen = column_sets(real.shape[1], ways, rng)
    return float(mean_variation([synthetic, real], chosen)[0, 0])


def test_two_way_distance_by_hand() -> None:
    real = np.array([[0, 0], [0, 0], [0, 1], [1, 1]])
    synthetic = np.array([[0, 0], [0, 1], [0, 1], [1, 0]])
    # shares of 00, 01, 10, 11: (2, 1, 0, 1)/4 against (1, 2, 1, 0)/4
    assert average_variation(real, synthetic, 2, rng=rng()) == pytest.approx(0.5)
    # first column: (3, 1)/4 both times; second: (2, 2)/4 both times
    assert average_variation(real, synthetic, 1, rng=rng()) == 0


def test_average_is_over_all_sets_where_there_are_few() -> None:
    real = np.zeros((4, 3), int)
    synthetic = real.copy()
    synthetic[:, 2] = 1
    # of the pairs (0,1), (0,2), (1,2) the last two have nothing in common
    assert average_variation(real, synthetic, 2, rng=rng()) == pytest.approx(2 / 3)


def test_sparse_joints_are_counted_like_a_dictionary_would() -> None:
    draw = np.random.default_rng(3)
    real, synthetic = (draw.integers(0, 50_000, (300, 6)) % 7001 for _ in range(2))
    synthetic[:100] = real[:100]
    shares: dict[tuple[int, ...], float] = {}
    for rows, sign in ((real, 1), (synthetic, -1)):
        for row in map(tuple, rows.tolist()):
            shares[row] = shares.get(row, 0.0) + sign / 300
    expected = sum(map(abs, shares.values())) / 2
    assert average_variation(real, synthetic, 6, rng=rng()) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(both, st.integers(1, 2))
def test_distance_is_symmetric_from_0_to_1_and_0_for_equal_rows(pair, ways) -> None:
    a, b = pair
    there, back = (average_variation(*ab, ways, rng=rng()) for ab in ((a, b), (b, a)))
    assert -1e-12 <= there <= 1 + 1e-12
    assert there == pytest.approx(back)
    assert average_variation(a, np.concatenate([a, a]), ways, rng=rng()) == pytest.approx(0)


@settings(max_examples=20, deadline=None)
@given(both)
def test_more_columns_are_never_closer(pair) -> None:
    a, b = pair
    found = [average_variation(a, b, m, rng=rng()) for m in range(1, a.shape[1] + 1)]
    assert all(x <= y + 1e-12 for x, y in pairwise(found))


TABLE = Schema(
    "table",
    "t",
    9,
    columns=(
        Column("a", "numeric", low=0.0, high=1.0, missing=True),
        Column("c", "categorical", categories=("x", "y"), missing=True),
        Column("b", "boolean"),
        Column("y", "categorical", categories=("p", "q", "r")),
    ),
    label="y",
)


def test_attributes_are_columns_and_label_cut_by_the_public_schema() -> None:
    x = np.array(
        [[0.0, 0, 1, 0, 0, 0], [0.55, 0, 0, 1, 0, 1], [1.0, 0, 0, 0, 1, 0], [0.5, 1, 1, 0, 0, 0]],
        np.float32,
    )
    found = attribute_codes(TABLE, Rows(x, np.array([0, 1, 2, 0])))
    assert found.tolist() == [[0, 0, 0, 0], [5, 1, 1, 1], [9, 2, 0, 2], [10, 0, 0, 0]]


def rows(n: int, seed: int, tied: bool) -> Rows:
    draw = np.random.default_rng(seed)
    a = draw.random(n)
    c = (a > 0.5).astype(int) if tied else draw.integers(0, 2, n)
    x = np.column_stack([a, np.zeros(n), np.eye(3)[c], draw.random(n) > 0.5])
    return Rows(x.astype(np.float32), draw.integers(0, 3, n))


def test_rows_without_the_dependence_are_far_and_real_rows_are_the_floor() -> None:
    sides = {"synthetic": rows(400, 0, False), "real": rows(400, 1, True)}
    found = measure(TABLE, sides, rows(400, 2, True), rng=rng())
    assert [j.ways for j in found] == [2, 3, 4]
    assert [j.sets for j in found] == [math.comb(4, m) for m in (2, 3, 4)]
    for joint in found:
        apart = joint.distance
        assert apart.real is not None
        assert apart.real.high < apart.synthetic.low
        assert apart.synthetic.low <= apart.synthetic.value <= apart.synthetic.high <= 1


def test_many_columns_get_a_hundred_sets_and_only_tables_have_joints() -> None:
    wide = Schema("table", "w", 9, columns=tuple(Column(f"c{i}", "boolean") for i in range(20)))
    some = Rows(rng().integers(0, 2, (50, 20)).astype(np.float32), np.zeros(50, int))
    found = measure(wide, {"synthetic": some}, some, rng=rng())
    assert [j.ways for j in found] == list(WAYS) and {j.sets for j in found} == {SETS}
    assert all(j.distance.synthetic.value == 0 and j.distance.real is None for j in found)
    images = Schema("image", "i", 9, classes=("a", "b"), shape=(4, 5))
    assert measure(images, {"synthetic": some}, some, rng=rng()) == ()


def test_more_synthetic_rows_than_real_ones_do_not_look_closer() -> None:
    schema = Schema(
        "table",
        "w",
        9,
        columns=tuple(
            Column(f"c{i}", "categorical", categories=tuple("abcdefgh")) for i in range(4)
        ),
    )

    def draw(n: int, seed: int) -> Rows:
        codes = np.random.default_rng(seed).integers(0, 8, (n, 4))
        return Rows(np.eye(8, dtype=np.float32)[codes].reshape(n, 32), np.zeros(n, int))

    sides = {"synthetic": draw(5000, 0), "real": draw(100, 1)}
    found = measure(schema, sides, draw(100, 2), rng=rng())
    for joint in found:
        assert joint.distance.real is not None
        assert joint.distance.synthetic.value == pytest.approx(joint.distance.real.value, abs=0.06)
