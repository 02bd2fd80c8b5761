from dataclasses import replace

import numpy as np
import pytest

from understudy.data.schema import Column, Schema
from understudy.evaluation.advice import Circumstances, advise, noise_distance
from understudy.evaluation.fidelity import measure_fidelity
from understudy.evaluation.forecasts import Forecasts
from understudy.evaluation.rows import Rows
from understudy.evaluation.utility import ClassFit, Utility
from understudy.evaluation.verdict import judge_all

HOW = Circumstances("fedmoments", 1.0, 1e-5, "record", "central", 20_000, 5)
NOTHING = Utility(())
TABLE = Schema(
    "table",
    "t",
    20_000,
    columns=(
        Column("narrow", "numeric", low=0.0, high=1.0),
        Column("wide", "numeric", low=0.0, high=1.0),
        Column("y", "boolean"),
    ),
    label="y",
)


def rows(n: int, seed: int, narrow: float = 0.02, share: float = 0.5) -> Rows:
    draw = np.random.default_rng(seed)
    x = np.column_stack([draw.random(n) * narrow, np.clip(draw.normal(0.5, 0.2, n), 0, 1)])
    return Rows(x.astype(np.float32), (draw.random(n) < share).astype(np.int64))


def advice(
    synthetic: Rows,
    how: Circumstances = HOW,
    utility: Utility = NOTHING,
    narrow: float = 0.02,
) -> str:
    train, test = rows(500, 1, narrow), rows(500, 2, narrow)
    fidelity = measure_fidelity(TABLE, synthetic, train, test, rng=np.random.default_rng(0))
    found = judge_all(TABLE, utility, Forecasts(), fidelity)
    return " ".join(advise(TABLE, how, found, utility, fidelity, test))


def test_rows_that_are_fine_get_no_advice() -> None:
    assert advice(rows(500, 1)) == ""


def test_narrow_columns_that_are_off_are_told_to_have_tighter_bounds() -> None:
    said = advice(rows(500, 3, narrow=0.5))
    assert "tighter public bounds for narrow:" in said and "not from these rows" in said
    assert "wide" not in said.split("tighter")[1].split(":")[0]
    assert "real values fill at most 2 % of the range" in said and "bounds = true" in said
    assert "fill less than 1 % of" in advice(rows(500, 3, narrow=0.5), narrow=0.001)


def test_noise_is_blamed_only_where_it_can_be_the_cause() -> None:
    off = rows(500, 3, narrow=0.5)
    assert "Noise is not the cause" in advice(off) and "Spend more ε" not in advice(off)
    few = replace(HOW, units=100)
    assert "Spend more ε" in advice(off, few) and "ε = 1 for 3 columns and 100 records" in advice(
        off, few
    )
    people = replace(few, unit="person")  # records are declared, persons are not
    assert "3 columns and up to 100 persons" in advice(off, people)


def test_another_recipe_is_named_where_a_noisy_sum_would_do_better() -> None:
    off = rows(500, 3, narrow=0.5)
    assert "fedmoments" in advice(off, replace(HOW, recipe="fedvae"))
    assert "another recipe" not in advice(off)


def test_shares_of_the_label_and_rare_classes_are_spoken_of() -> None:
    assert "The shares of y are off" in advice(rows(500, 3, narrow=0.5, share=0.9))
    rare = Utility((), classes=(ClassFit("seldom", 20, 50, 2),))
    assert "hardly a synthetic row is seldom" in advice(rows(500, 3, narrow=0.5), utility=rare)


def test_the_estimate_of_noise_falls_with_epsilon_and_records_and_grows_with_local_trust() -> None:
    base = noise_distance(TABLE, HOW)
    assert noise_distance(TABLE, replace(HOW, epsilon=2.0)) == pytest.approx(base / 2)
    assert noise_distance(TABLE, replace(HOW, units=40_000)) == pytest.approx(base / 2)
    assert noise_distance(TABLE, replace(HOW, trust="local", sites=4)) == pytest.approx(2 * base)
    assert noise_distance(TABLE, replace(HOW, epsilon=None)) == 0


def test_the_estimate_agrees_with_noise_that_is_drawn() -> None:
    """Ten cells of a column beside two others, summed over N records, noised once."""
    how = replace(HOW, units=2_000)
    z = np.sqrt(2 * np.log(1.25 / how.delta)) / 1.0
    draw = np.random.default_rng(0)
    noise = draw.normal(0, z * np.sqrt(3), (4_000, 10)) / how.units
    apart = np.abs(noise).sum(1).mean() / 2
    assert noise_distance(TABLE, how) == pytest.approx(apart, rel=0.05)
