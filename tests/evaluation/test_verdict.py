"""Rules of the verdict: on figures made up for them, and on rows that deserve it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.schema import Column, Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.fidelity import measure_fidelity
from understudy.evaluation.forecasts import Forecasts
from understudy.evaluation.rows import Rows, same_rows
from understudy.evaluation.score import Compared, Contrast, Score
from understudy.evaluation.students import students
from understudy.evaluation.utility import Utility, measure_utility
from understudy.evaluation.verdict import (
    ALIKE,
    BETTER,
    NEAR,
    NONE,
    OPEN,
    REAL,
    WORSE,
    Judgement,
    judge,
    judge_all,
    remarks,
    sum_up,
)
from understudy.evaluation.worst import atoms, worst_columns, worst_pairs
from understudy.rng import Streams


def score(value: float, half: float = 0.01, n: int = 500) -> Score:
    return Score("s", value, value - half, value + half, n)


def judged(
    synthetic: float, guess: float, real: float, half: float = 0.01, n: int = 500
) -> Judgement:
    contrast = Contrast(
        score(synthetic - guess, half, n),
        score(real - guess, half, n),
        score(real - synthetic, half, n),
    )
    sides = (score(x, half, n) for x in (synthetic, real, guess))
    return judge(
        Compared("accuracy", *sides, contrast), "predicting y", "accuracy", "models", "a coin"
    )


@pytest.mark.parametrize(
    ("synthetic", "guess", "real", "level"),
    [
        (0.895, 0.5, 0.9, REAL),
        (0.85, 0.5, 0.9, NEAR),
        (0.70, 0.5, 0.9, BETTER),
        (0.505, 0.5, 0.9, NONE),
        (0.32, 0.88, 0.93, WORSE),
        (0.50, 0.5, 0.5, OPEN),
        (0.865, 0.88, 0.87, OPEN),
    ],
)
def test_levels_follow_from_the_share_kept(synthetic, guess, real, level) -> None:
    assert judged(synthetic, guess, real).level == level


def test_a_level_needs_evidence() -> None:
    assert judged(0.89, 0.5, 0.9, half=0.15).level == ALIKE
    assert judged(0.45, 0.5, 0.9, half=0.15).level == NONE
    assert judged(0.9, 0.5, 0.9, n=20).level == OPEN


shares = st.floats(0, 1)


@given(shares, shares, shares, st.floats(0.001, 0.2))
def test_better_rows_never_get_a_worse_level(synthetic, guess, real, half) -> None:
    order = (WORSE, NONE, BETTER, ALIKE, NEAR, REAL)
    first, better = (
        judged(min(1, s), guess, real, half).level for s in (synthetic, synthetic + 0.05)
    )
    if OPEN not in (first, better):
        assert order.index(better) >= order.index(first)


@given(shares, shares, st.floats(0.001, 0.2))
def test_as_good_as_guessing_is_never_called_good(guess, real, half) -> None:
    assert judged(guess, guess, real, half).level in (NONE, WORSE, OPEN)


def test_without_real_rows_guessing_alone_is_beaten() -> None:
    contrast = Contrast(score(0.2))
    found = Compared("accuracy", score(0.7), None, score(0.5), contrast)
    assert judge(found, "u", "accuracy", "models", "a coin").level == BETTER


@pytest.mark.parametrize(
    ("levels", "whole"),
    [
        ((0.895, 0.85), "fit"),
        ((0.895, 0.7), "limited"),
        ((0.7, 0.3), "unfit"),
        ((0.5, 0.505), "unfit"),
        ((0.5, 0.7), "limited"),
    ],
)
def test_the_whole_is_as_good_as_its_uses(levels, whole) -> None:
    level, headline = sum_up([judged(s, 0.5, 0.9) for s in levels])
    assert level == whole and headline.endswith(".")


def test_a_use_with_two_levels_names_the_measures() -> None:
    found = [judged(0.895, 0.5, 0.9), judged(0.7, 0.5, 0.9)]
    _, headline = sum_up(found)
    assert "as good as real for predicting y (accuracy)" in headline
    assert sum_up([]) == ("unknown", "Cannot be judged: nothing could be measured.")


TABLE = Schema(
    "table",
    "t",
    600,
    columns=(
        Column("a", "numeric", low=0.0, high=1.0),
        Column("b", "numeric", low=0.0, high=1.0),
        Column("c", "categorical", categories=("x", "y", "z")),
        Column("d", "integer", low=0, high=50),
        Column("ill", "boolean"),
    ),
    label="ill",
)
NAMES = {"a": 0, "b": 1, "d": 5}


def rows(n: int, seed: int) -> Rows:
    """Columns of which all but d go together, and with the label."""
    draw = np.random.default_rng(seed)
    y = (draw.random(n) < 0.4).astype(np.int64)
    a = np.clip(draw.normal(0.3 + 0.3 * y, 0.08), 0, 1)
    b = np.clip(a * 0.5 + draw.normal(0.1, 0.02, n), 0, 1)
    c = np.minimum((a * 3).astype(int), 2)
    d = np.minimum(draw.poisson(3, n), 50) / 50
    return Rows(np.column_stack([a, b, np.eye(3)[c], d]).astype(np.float32), y)


def verdict(synthetic: Rows, train: Rows, test: Rows) -> tuple[dict[str, str], str, str]:
    """Levels by use and measure, the whole level and the headline, with one quick student."""
    table = {"logistic regression": students(TABLE)["logistic regression"]}
    sides = (synthetic, train, test)
    utility = measure_utility(TABLE, *sides, rng=Streams.from_seed(0), learners=table)
    fidelity = measure_fidelity(TABLE, *sides, rng=np.random.default_rng(0))
    found = judge_all(TABLE, utility, Forecasts(), fidelity)
    return {f"{j.use}: {j.measure}": j.level for j in found}, *sum_up(found)


@pytest.mark.parametrize("seed", range(3))
def test_real_rows_as_synthetic_ones_are_as_good_as_real(seed) -> None:
    train, test = rows(600, seed), rows(400, seed + 50)
    levels, level, headline = verdict(train, train, test)
    assert level == "fit" and {v for k, v in levels.items() if "ill" in k} == {REAL}, levels
    assert set(levels.values()) <= {REAL, NEAR}
    assert "as good as real for predicting ill" in headline


@pytest.mark.parametrize("seed", range(3))
def test_rows_with_shuffled_labels_do_no_better_than_guessing(seed) -> None:
    synthetic = rows(600, seed)
    synthetic = Rows(synthetic.x, np.random.default_rng(seed).permutation(synthetic.y))
    levels, level, headline = verdict(synthetic, rows(600, seed + 20), rows(400, seed + 50))
    assert all(v in (NONE, WORSE) for k, v in levels.items() if "predicting" in k), levels
    assert level == "unfit" and headline.startswith("Do not use")


def test_rows_with_turned_labels_are_worse_than_guessing() -> None:
    synthetic = rows(600, 0)
    _, level, headline = verdict(Rows(synthetic.x, 1 - synthetic.y), rows(600, 1), rows(400, 2))
    assert level == "unfit" and "worse than guessing for predicting ill" in headline


def test_uses_of_one_level_are_named_in_one_row() -> None:
    uses = ("predicting ill", "single columns", "pairs of columns")
    judged = [
        Judgement(use, "m", "models", BETTER, "", Score("m", 0.5, 0.4, 0.6, 9)) for use in uses
    ]
    assert "for predicting ill, single columns and pairs of columns." in sum_up(judged)[1]
    assert "for predicting ill." in sum_up(judged[:1])[1]


def test_rows_drawn_evenly_are_no_better_than_guessing() -> None:
    draw = np.random.default_rng(0)
    even = rows(600, 0)
    x = np.column_stack(
        [draw.random((600, 2)), np.eye(3)[draw.integers(0, 3, 600)], draw.random(600)]
    )
    levels, _, _ = verdict(Rows(x.astype(np.float32), even.y), rows(600, 1), rows(400, 2))
    assert levels["single columns: mean distance"] in (NONE, WORSE)


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_column_is_named_as_worst_and_how(name) -> None:
    broken, train, test = rows(600, 0), rows(600, 1), rows(400, 2)
    broken.x[:400, NAMES[name]] = 0
    fidelity = measure_fidelity(TABLE, broken, train, test, rng=np.random.default_rng(0))
    found = worst_columns(TABLE, fidelity, test, broken)
    assert found[0].column == name and [c.column for c in found] == [name]
    assert found[0].floor is not None and found[0].synthetic > found[0].floor + 0.2
    assert found[0].how.startswith("0: 6") or found[0].how.startswith("0: 7"), found[0].how


def test_a_lost_relation_is_named_though_both_columns_are_right() -> None:
    broken, train, test = rows(600, 0), rows(600, 1), rows(400, 2)
    broken.x[:, 1] = np.random.default_rng(3).permutation(broken.x[:, 1])
    fidelity = measure_fidelity(TABLE, broken, train, test, rng=np.random.default_rng(0))
    assert worst_columns(TABLE, fidelity, test, broken) == ()
    first = worst_pairs(fidelity)[0]
    assert {first.first, first.second} == {"a", "b"} and first.beyond > 0.2


def test_rows_of_the_same_law_have_no_worst_columns_or_pairs() -> None:
    found = measure_fidelity(
        TABLE, rows(800, 0), rows(800, 1), rows(800, 2), rng=np.random.default_rng(0)
    )
    assert worst_columns(TABLE, found, rows(800, 2), rows(800, 0)) == ()
    assert worst_pairs(found) == ()


def test_the_same_rows_in_another_order_are_the_same() -> None:
    one = rows(50, 0)
    order = np.random.default_rng(0).permutation(50)
    assert same_rows(one, one.take(order)) and not same_rows(one, rows(50, 1))
    other = Rows(one.x, 1 - one.y)
    assert not same_rows(one, other) and not same_rows(one, one.take(order[:49]))
    assert any("themselves" in line for line in remarks(TABLE, Utility(()), True))
    assert remarks(TABLE, Utility(()), False) == ()


def test_single_values_stand_alone_where_they_stand_out() -> None:
    """Hours a week: forty is a spike, thirty-seven only lies in the middle of the others."""
    axis = axes(Schema("table", "t", 9, (Column("hours", "integer", 0, 100),)))[0]
    draw = np.random.default_rng(0)
    spread = draw.normal(37, 5, 2000).round() / 100
    assert max(np.unique(spread, return_counts=True)[1]) > 0.05 * 2000
    assert atoms(axis, [spread]) == []
    spiked = np.where(draw.random(2000) < 0.1, 0.4, spread)
    assert atoms(axis, [spiked, spread]) == [0.4]
    few = np.repeat([0.0, 0.01, 0.02, 0.5], [800, 700, 300, 200])
    assert atoms(axis, [few]) == [0.0, 0.01, 0.02, 0.5]
