import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.schema import Column, Schema
from understudy.evaluation.correlation import (
    associated_names,
    correlation_scores,
    correlations,
    matrix_distance,
    pearson,
)
from understudy.evaluation.rows import Rows

SCHEMA = Schema(
    "table",
    "t",
    9,
    columns=(
        Column("a", "numeric", low=0.0, high=1.0, missing=True),
        Column("c", "categorical", categories=("x", "y")),
        Column("y", "boolean"),
    ),
    label="y",
)


def rows(n: int, seed: int, *, linked: bool = True) -> Rows:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, n)
    other = y if linked else draw.integers(0, 2, n)
    a = 0.3 * draw.random(n) + 0.5 * other
    c = np.eye(2)[draw.integers(0, 2, n)]
    return Rows(np.column_stack([a, np.zeros(n), c]).astype(np.float32), y)


def test_names_follow_the_encoded_columns_and_end_with_the_label() -> None:
    assert associated_names(SCHEMA) == ("a", "a missing", "c = x", "c = y", "y = true")


def test_correlations_agree_with_numpy_and_constant_columns_have_none() -> None:
    data = rows(50, 0)
    found = correlations(SCHEMA, data)
    expected = np.corrcoef(data.x[:, 0], data.y)[0, 1]
    assert found[0, 4] == pytest.approx(expected, abs=1e-6)
    assert (found[1, [0, 2, 3, 4]] == 0).all() and found[1, 1] == 1


def test_weights_act_like_repeated_rows() -> None:
    data = rows(20, 0)
    weights = np.random.default_rng(0).integers(0, 3, 20)
    repeated = data.take(np.repeat(np.arange(20), weights))
    np.testing.assert_allclose(
        correlations(SCHEMA, data, weights), correlations(SCHEMA, repeated), atol=1e-9
    )


def test_lost_association_shows_in_the_scores() -> None:
    real, broken, fine = rows(300, 0), rows(300, 1, linked=False), rows(300, 2)
    worse, better = (
        correlation_scores(SCHEMA, side, real, rng=np.random.default_rng(0))
        for side in (broken, fine)
    )
    for bad, good in zip(worse, better, strict=True):
        assert bad.value > good.high


def test_one_column_has_no_correlations() -> None:
    schema = Schema("table", "t", 9, columns=(Column("a", "numeric", low=0.0, high=1.0),))
    one = Rows(np.zeros((3, 1), np.float32), np.zeros(3, np.int64))
    assert correlation_scores(schema, one, one, rng=np.random.default_rng(0)) == []


def test_very_wide_tables_are_cut_with_the_label_kept() -> None:
    column = Column("c", "categorical", categories=tuple(f"v{i}" for i in range(900)))
    schema = Schema("table", "t", 9, columns=(column, Column("y", "boolean")), label="y")
    assert len(associated_names(schema)) == 300
    assert associated_names(schema)[-1] == "y = true"
    wide = Rows(np.eye(900, dtype=np.float32)[:5], np.array([0, 1, 0, 1, 0]))
    assert correlations(schema, wide).shape == (300, 300)


def correlation_distance(a: np.ndarray, b: np.ndarray) -> float:
    return matrix_distance(pearson(a), pearson(b))


def test_matrix_distance_by_hand() -> None:
    tied = np.array([[0.0, 0.0], [1.0, 1.0]])
    opposed = np.array([[0.0, 1.0], [1.0, 0.0]])
    loose = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    # matrices of ones; with -1 off the diagonal; and the identity
    assert correlation_distance(tied, opposed) == pytest.approx(1)
    assert correlation_distance(tied, loose) == pytest.approx(1 - 2 / (2 * np.sqrt(2)))
    assert correlation_distance(tied, tied[::-1]) == pytest.approx(0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32))
def test_matrix_distance_is_a_number_from_0_to_1_even_with_constant_columns(n, w, seed) -> None:
    draw = np.random.default_rng(seed)
    a, b = (draw.integers(0, 2, (n, w)).astype(np.float32) for _ in range(2))
    there, back = correlation_distance(a, b), correlation_distance(b, a)
    assert 0 <= there <= 1 and there == pytest.approx(back)
    assert correlation_distance(a, 3 * a + 1) == pytest.approx(0, abs=1e-9)
