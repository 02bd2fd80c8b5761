"""fedmarginals for parties: all tables of pairs as products of columns held apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.columns import Columns, records_of
from understudy.data.encode import encode
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import WireError
from understudy.federation.memory import Memories
from understudy.federation.phases import Then
from understudy.federation.recipe import Task
from understudy.federation.sites import Sites
from understudy.privacy.claim import claims
from understudy.privacy.products import SCALE, Products
from understudy.recipes import build
from understudy.recipes.vertical_tables import VerticalTables
from understudy.rng import NoiseSource, Streams
from understudy.simulation import run, verify
from understudy.simulation.simulate import run_apart
from understudy.study import Study

N = 3000
SCHEMA = Schema(
    "table",
    "clinic",
    N,
    (
        Column("a", "numeric", 0.0, 1.0),
        Column("b", "numeric", 0.0, 1.0, missing=True),
        Column("town", "categorical", categories=("here", "there", "far")),
        Column("smoker", "boolean"),
        Column("ill", "categorical", categories=("no", "yes")),
    ),
    label="ill",
)
HELD = (("a", "town"), ("b", "smoker", "town", "ill"))  # b follows a at another party


def frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    """b is far from the middle where a is: uncorrelated, but not independent."""
    rng = np.random.default_rng(seed)
    a, ill = rng.random(n), rng.random(n) < 0.3
    b = 0.5 + np.abs(a - 0.5) * rng.choice([-1, 1], n)
    towns = rng.choice(["here", "there"], n)
    return pd.DataFrame(
        {
            "a": a,
            "b": np.where(rng.random(n) < 0.1, np.nan, b),
            "town": np.where(ill & (rng.random(n) < 0.7), "far", towns),
            "smoker": rng.random(n) < np.where(a > 0.5, 0.8, 0.2),
            "ill": np.where(ill, "yes", "no"),
        }
    )


def study(**privacy: float) -> Study:
    every = [name for columns in HELD for name in columns]
    parties = [
        {"name": f"party-{i + 1}", "columns": list(columns),
         "shared": [name for name in columns if every.count(name) > 1]}
        for i, columns in enumerate(HELD)
    ]  # fmt: skip
    data = {
        "study": {"name": "t", "recipe": "fedmarginals"},
        "privacy": privacy or {"noise": 1.0},
        "simulation": {"data": "-", "split": "columns"},
        "party": parties,
    }
    return Study.parse(data, schema=SCHEMA)


def built() -> VerticalTables:
    made = build(study())
    assert isinstance(made, Then) and isinstance(made.second, VerticalTables)
    return made.second


def sites(recipe: VerticalTables, people: pd.DataFrame) -> Sites:
    whole, names = from_frame(people, SCHEMA), ["party-1", "party-2"]
    held = [encode(recipe.held.schema_of(i), records_of(whole, c)) for i, c in enumerate(HELD)]
    source = NoiseSource.seeded(Streams.from_seed(0))
    memories, streams = Memories(recipe.memory, names), Streams.from_seed(0)
    rows, rounds = Columns.of(held), np.ones((3, 2), np.int64)
    return Sites(recipe, names, np.arange(2), rows, memories, streams, source, rounds)


def cuts(recipe: VerticalTables) -> Task:
    """Every column cut into as many codes as there may be, cell after cell."""
    found = recipe.columns
    made = torch.zeros(len(found), max(margin.size for margin in found))
    for j, margin in enumerate(found):
        cell = torch.arange(margin.size)
        made[j, : margin.size] = cell * min(recipe.size.codes, margin.size) // margin.size
    return Task({"cut": made})


def rows_of(recipe: VerticalTables, rows: pd.DataFrame) -> np.ndarray:
    held, task = sites(recipe, rows), cuts(recipe)
    each = [held.held(task, recipe.plan.length - 1, i).rows for i in range(2)]
    return np.concatenate(each, axis=1).astype(np.float64) / SCALE


def test_removing_one_person_from_all_parties_moves_the_product_by_the_bound() -> None:
    """One cell of every column, so the whole bound is used, and no more."""
    recipe, rows = built(), frame(200)
    one, two = (rows_of(recipe, r) for r in (rows, rows.drop(index=17)))
    moved = float(np.linalg.norm(one.T @ one - two.T @ two))
    mechanism = recipe.plan.own.parts[0].mechanism
    assert isinstance(mechanism, Products) and mechanism.bound == 5.0  # four columns and the label
    assert moved == pytest.approx(mechanism.bound)


def test_the_product_without_noise_holds_the_tables_of_all_pairs() -> None:
    recipe, rows = built(), frame(500)
    v = rows_of(recipe, rows)
    made = recipe._tables(v.T @ v)
    names, k = [margin.name for margin in recipe.columns], recipe.size.codes
    pairs = [tuple(names[i] for i in pair) for pair in made["pairs"]]
    assert len(pairs) == 6 and np.allclose(made["tables"].sum(1), len(rows))
    table = made["tables"][pairs.index(("smoker", "town"))][: k * k].reshape(k, k)
    counted = pd.crosstab(rows["smoker"], rows["town"])[["here", "there", "far"]].to_numpy()
    assert np.array_equal(table[:2, :3], counted)
    label = made["tables"][6 + names.index("town")][: 2 * k].reshape(2, k)
    counted = pd.crosstab(rows["ill"], rows["town"])[["here", "there", "far"]].to_numpy()
    assert np.array_equal(label[:, :3], counted)


def test_a_relation_across_parties_without_correlation_is_kept(tmp_path: Path) -> None:
    whole, asked = from_frame(frame(), SCHEMA), study()
    made = run(asked, [records_of(whole, c) for c in HELD], seed=0, out=tmp_path / "out", rows=20)
    drawn = made.sample(3000, seed=0).frame.dropna()
    apart = np.corrcoef((drawn["a"] - 0.5).abs(), (drawn["b"] - 0.5).abs())[0, 1]
    assert apart > 0.6 and abs((drawn["ill"] == "yes").mean() - 0.3) < 0.05
    assert (made.sample(50, label="yes", seed=0).frame["ill"] == "yes").all()
    parts = [phase.parts[-1].name for phase in verify(tmp_path / "out").release.plan.phases]
    assert parts == ["histograms 2", "moments", "tables"]


def test_one_seed_gives_one_release_together_and_apart() -> None:
    asked, whole = study(), from_frame(frame(), SCHEMA)
    data = [records_of(whole, columns) for columns in HELD]
    here, there = run(asked, data, seed=3, rows=0), run_apart(asked, data, seed=3, rows=0)
    assert here.model_hash == there.model_hash


@pytest.mark.slow  # noise is solved for by the accountant
def test_an_epsilon_is_met_by_all_three_sums_together() -> None:
    epsilon = claims(build(study(epsilon=8.0)).plan, "os")[0].epsilon
    assert epsilon is not None and 7.9 < epsilon <= 8.0 * (1 + 1e-6)


def test_all_three_sums_are_on_the_claims() -> None:
    outside, _, insider, _, lost, departing = claims(build(study()).plan, "os")
    assert len(outside.events) == 3
    assert insider.epsilon == outside.epsilon
    assert lost.epsilon is None and departing.epsilon is None


def test_a_task_with_other_cuts_is_refused_before_rows_are_seen() -> None:
    recipe = built()
    task = Task({"cut": cuts(recipe).arrays["cut"] + recipe.size.codes})
    with pytest.raises(WireError, match="whole numbers"):
        sites(recipe, frame(50)).held(task, 2, 0)
