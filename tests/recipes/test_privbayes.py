"""PrivBayes learns a network from noisy sums, or is given one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contracts.toys import study
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import ReleaseError, StudyError
from understudy.privacy.claim import claims
from understudy.recipes import RECIPES, build
from understudy.recipes.network import conditional, dependence, given, grow
from understudy.release.generator import Generator
from understudy.release.verify import verify
from understudy.simulation import run

N = 6000
COLUMNS = (
    Column("a", "numeric", 0.0, 1.0),
    Column("b", "numeric", 0.0, 1.0, missing=True),
    Column("town", "categorical", categories=("here", "there", "far")),
    Column("smoker", "boolean"),
    Column("ill", "categorical", categories=("no", "yes")),
)


def schema(**changes: Any) -> Schema:
    return Schema("table", "clinic", N, **{"columns": COLUMNS, "label": "ill", **changes})


def frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    """A chain: illness decides the town, a decides b; smoking is by a and the town together."""
    rng = np.random.default_rng(seed)
    a, ill = rng.random(n), rng.random(n) < 0.3
    far = ill & (rng.random(n) < 0.8)
    return pd.DataFrame(
        {
            "a": a,
            "b": np.where(rng.random(n) < 0.1, np.nan, (a + 0.1 * rng.random(n)) / 1.1),
            "town": np.where(far, "far", rng.choice(["here", "there"], n)),
            "smoker": (a > 0.5) ^ far,
            "ill": np.where(ill, "yes", "no"),
        }
    )


def released(rows: pd.DataFrame, out: Path | None = None, **tables: Any) -> Any:
    asked = study("privbayes", 2, **{"schema": schema(), "privacy": {"noise": 1.0}, **tables})
    whole = from_frame(rows, schema())
    halves = [whole.take(part) for part in np.array_split(np.arange(len(rows)), 2)]
    return run(asked, halves, seed=0, out=out)


@pytest.mark.parametrize("network", [[], ["b < a", "town < ill", "smoker < town"]])
def test_a_chain_of_columns_is_kept(network: list[str]) -> None:
    made = released(frame(), recipe={"network": network}).sample(6000, seed=1).frame
    known = made.dropna()
    assert np.corrcoef(known["a"], known["b"])[0, 1] > 0.9
    far = made["town"] == "far"
    assert far[made["ill"] == "yes"].mean() == pytest.approx(0.8, abs=0.05)
    assert far[made["ill"] == "no"].mean() < 0.05
    assert made["b"].isna().mean() == pytest.approx(0.1, abs=0.02)


def test_two_parents_tell_what_neither_does_alone() -> None:
    told = ["smoker < a, town", "town < ill", "b < a"]
    made = released(frame(), recipe={"network": told, "degree": 2}).sample(6000, seed=1).frame
    right = made["smoker"] == ((made["a"] > 0.5) ^ (made["town"] == "far"))
    assert right.mean() > 0.9


def test_it_is_three_sums_or_two_and_verifies(tmp_path: Path) -> None:
    made = released(frame(400), tmp_path / "out", privacy={"epsilon": 1.0})
    assert [p.parts[0].name for p in made.plan.phases] == ["histograms", "pairs", "tables"]
    assert 0.98 < made.claims[0].epsilon <= 1.0
    assert all(p.parts[0].mechanism.noise < 100 for p in made.plan.phases)  # each has its share
    assert not verify(tmp_path / "out", RECIPES).notes
    public = study(
        "privbayes", 2, schema=schema(), privacy={"epsilon": 1.0}, recipe={"network": ["b < a"]}
    )
    said = claims(build(public).plan, "os")[0].caveats
    assert any("network" in caveat for caveat in said)  # and what it tells is not protected
    assert [p.parts[0].name for p in build(public).plan.phases] == ["histograms", "tables"]


def test_noise_alone_makes_no_columns_depend() -> None:
    rng = np.random.default_rng(0)
    even, many = np.full(4, 0.25), 500
    free = 1000 * np.outer(even, even) + 20 * rng.standard_normal((many, 4, 4))
    found = [dependence(t, even, even, 20.0) for t in free]
    assert abs(np.mean(found)) < 4 * np.std(found) / many**0.5
    tied = 1000 * np.eye(4) / 4 + 20 * rng.standard_normal((4, 4))
    assert dependence(tied, even, even, 20.0) > max(found)


def test_the_network_grows_along_the_strongest_relations() -> None:
    apart = np.zeros((4, 4))
    for i, j, value in ((3, 0, 0.5), (0, 1, 0.4), (3, 2, 0.3), (2, 0, 0.2)):
        apart[i, j] = apart[j, i] = value
    assert grow(apart, 1, 3) == {0: (3,), 1: (0,), 2: (3,)}
    apart[2, 1] = apart[1, 2] = 0.1
    assert grow(apart, 2, 3)[2] == (3, 1)  # 1 tells less than 0, but nothing that 3 tells
    assert next(iter(grow(apart, 1, None).values())) == ()
    assert grow(np.zeros((3, 3)), 1, 2) == {0: (), 1: ()}


def test_chances_of_empty_cases_are_the_margin() -> None:
    found = conditional(np.array([[90.0, 10.0], [-3.0, 2.0]]), np.array([0.7, 0.3]), 4.0)
    assert found.sum(1) == pytest.approx([1, 1]) and found[0, 0] == pytest.approx(0.9, abs=0.02)
    assert found[1, 0] > 0.5


@pytest.mark.parametrize(
    "line, said",
    [
        ("b < c", "columns of the schema"),
        ("b", "lines"),
        ("b < a, town", "up to 1 parent"),
        ("ill < a", "none for the label"),
        ("b < a < town", "lines"),
    ],
)
def test_a_network_in_wrong_words_is_refused(line: str, said: str) -> None:
    names = [column.name for column in COLUMNS]
    with pytest.raises(StudyError, match=said):
        given([line], names, 4, 1)


def test_a_circle_is_refused() -> None:
    with pytest.raises(StudyError, match="circle"):
        given(["a < b", "b < a"], [column.name for column in COLUMNS], 4, 1)


def test_a_table_too_wide_for_pairs_is_told_to_give_a_network() -> None:
    columns = tuple(Column(f"c{i}", "numeric", 0, 1) for i in range(600))
    wide = Schema("table", "wide", 10**7, columns)
    with pytest.raises(StudyError, match="give the network"):
        build(study("privbayes", 2, schema=wide, privacy={"noise": 1.0}))


def test_an_altered_network_does_not_fit() -> None:
    made = released(frame(400)).generator
    assert made.fits(schema())
    config, entries = made.config, made.config["network"]
    for other in (
        {"network": entries[:-1]},
        {"network": [[0, 1], *entries[1:]]},
        {"classes": 3},
        {"network": [[*entries[0], "4"], *entries[1:]]},
    ):
        with pytest.raises(ReleaseError):
            Generator("network", made.arrays, {**config, **other}, made.balance).fits(schema())
