"""fedmarginals keeps relations that class moments do not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from contracts.toys import study
from recipes.at_site import at_site
from understudy.data.encode import Encoded, encode
from understudy.data.records import Records
from understudy.data.rules import parse_rules
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import from_frame
from understudy.errors import StudyError, WireError
from understudy.federation.recipe import Task
from understudy.recipes import build
from understudy.release.verify import verify
from understudy.rng import Streams
from understudy.simulation import run

COLUMNS = (
    Column("a", "numeric", 0.0, 1.0),
    Column("b", "numeric", 0.0, 1.0, missing=True),
    Column("town", "categorical", categories=("here", "there", "far")),
    Column("smoker", "boolean"),
    Column("ill", "categorical", categories=("no", "yes")),
)
N = 6000


def schema(**changes: Any) -> Schema:
    return Schema("table", "clinic", N, **{"columns": COLUMNS, "label": "ill", **changes})


def frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    """b is far from the middle where a is: uncorrelated, but not independent."""
    rng = np.random.default_rng(seed)
    a, ill = rng.random(n), rng.random(n) < 0.3
    b = np.clip(
        0.5 + np.abs(a - 0.5) * rng.choice([-1, 1], n) + 0.02 * rng.standard_normal(n), 0, 1
    )
    return pd.DataFrame(
        {
            "a": a,
            "b": np.where(rng.random(n) < 0.1, np.nan, b),
            "town": np.where(ill & (rng.random(n) < 0.7), "far", rng.choice(["here", "there"], n)),
            "smoker": rng.random(n) < np.where(a > 0.5, 0.8, 0.2),
            "ill": np.where(ill, "yes", "no"),
        }
    )


def released(kind: Schema, rows: pd.DataFrame, recipe: str = "fedmarginals", **tables: Any) -> Any:
    asked = study(recipe, 2, **{"schema": kind, "privacy": {"epsilon": 8.0}, **tables})
    return run(asked, halves(kind, rows), seed=0)


def halves(kind: Schema, rows: pd.DataFrame) -> list[Records]:
    whole = from_frame(rows, kind)
    return [whole.take(part) for part in np.array_split(np.arange(len(rows)), 2)]


def far_apart(rows: pd.DataFrame) -> float:
    """How closely b follows a: the correlation of their distances from the middle."""
    known = rows.dropna()
    return float(np.corrcoef((known["a"] - 0.5).abs(), (known["b"] - 0.5).abs())[0, 1])


@pytest.mark.slow
def test_a_relation_without_correlation_is_kept() -> None:
    kind, rows = schema(), frame()
    made = released(kind, rows).sample(4000, seed=0).frame
    assert far_apart(rows) > 0.9 and far_apart(made) > 0.7
    assert abs(far_apart(released(kind, rows, "fedmoments").sample(4000, seed=0).frame)) < 0.2
    ill = made["ill"] == "yes"
    assert abs(ill.mean() - 0.3) < 0.03 and abs(made["b"].isna().mean() - 0.1) < 0.03
    assert (made["town"][ill] == "far").mean() > 0.5 > (made["town"][~ill] == "far").mean() + 0.4
    assert made["a"].nunique() > 3000  # values, not codes


def test_one_class_can_be_asked_for_and_the_release_verifies(tmp_path: Path) -> None:
    kind = schema()
    asked = study("fedmarginals", 2, schema=kind, privacy={"epsilon": 2.0})
    made = run(asked, halves(kind, frame()), seed=0, out=tmp_path / "out")
    assert (made.sample(50, label="yes", seed=0).frame["ill"] == "yes").all()
    verdict = verify(tmp_path / "out")
    events = [part.name for phase in verdict.release.plan.phases for part in phase.parts]
    assert events[-1] == "tables" and verdict.release.claims[0].epsilon <= 2.0 * (1 + 1e-6)


@pytest.mark.parametrize("label", [None, "a"])
def test_a_table_without_classes_works(label: str | None) -> None:
    kind = schema(label=label)
    made = released(kind, frame()).sample(3000, seed=0).frame
    assert far_apart(made) > 0.7 and list(made.columns) == [c.name for c in COLUMNS]


def test_many_and_rare_classes_work() -> None:
    names = tuple(f"k{i}" for i in range(30))
    kind = schema(columns=(*COLUMNS[:4], Column("ill", "categorical", categories=names)))
    rng = np.random.default_rng(0)
    chance = np.append(0.5, np.full(28, 0.5 / 28))
    rows = frame().assign(ill=rng.choice(names[:29], N, p=chance))  # and one that never occurs
    made = released(kind, rows)
    assert abs((made.sample(4000, seed=0).frame["ill"] == "k0").mean() - 0.5) < 0.05
    assert len(made.sample(20, label="k29", seed=0)) == 20


def test_declared_rules_are_kept_exactly() -> None:
    rule = {"if": {"smoker": True}, "then": {"a": {"at_least": 0.25}}}
    kind = schema(rules=parse_rules([rule]))
    rows = frame()
    rows["smoker"] &= rows["a"] >= 0.25
    made = released(kind, rows, privacy={"epsilon": 1.0}).sample(4000, seed=0).frame
    assert made["smoker"].any() and not (made["smoker"] & (made["a"] < 0.25)).any()


def test_one_column_is_refused() -> None:
    kind = schema(columns=(COLUMNS[0], COLUMNS[4]))
    with pytest.raises(StudyError, match="two columns"):
        build(study("fedmarginals", 2, schema=kind, privacy={"epsilon": 1.0}))


def asked_for() -> tuple[Any, Task]:
    recipe = build(study("fedmarginals", 2, schema=schema(), privacy={"epsilon": 2.0})).second
    rng = Streams.from_seed(0)
    chosen = {"cut": torch.zeros(recipe._shapes["cut"]), "pairs": torch.zeros(recipe.size.pairs, 2)}
    return recipe, recipe.task({**chosen, "rng": rng}, 0)


def held(n: int = 40) -> Shards:
    found = encode(schema(), from_frame(frame(n), schema()))
    return Shards.pack(Encoded(found.x, found.y), [np.arange(n)])


@pytest.mark.parametrize("name", ["cut", "pairs"])
@pytest.mark.parametrize("value", [-1.0, 0.5, 99.0, float("nan"), float("inf")])
def test_a_task_that_names_no_codes_or_columns_is_refused(name: str, value: float) -> None:
    recipe, task = asked_for()
    odd = task.arrays[name].clone()
    odd.flatten()[0] = value
    site = at_site(recipe, held(), round=recipe.plan.length - 1)
    with pytest.raises(WireError, match="whole numbers"):
        recipe.local(Task({**task.arrays, name: odd}), site)


def test_a_record_is_in_one_cell_of_each_table() -> None:
    recipe, task = asked_for()
    site = at_site(recipe, held(), round=recipe.plan.length - 1)
    counts = recipe.local(task, site)[0]["tables"].value[0].reshape(recipe.size.tables, -1)
    weight = 1 / np.sqrt(recipe.size.tables)
    np.testing.assert_allclose(counts.sum(1).numpy(), 40 * weight, rtol=1e-5)


def test_more_budget_brings_the_tables_closer() -> None:
    kind, rows, found = schema(), frame(), []
    for epsilon in (0.2, 8.0):
        made = released(kind, rows, privacy={"epsilon": epsilon}).sample(4000, seed=0).frame
        found.append(abs(far_apart(made) - far_apart(rows)))
    assert found[1] < found[0]
