from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contracts.toys import engine, study
from recipes.at_site import at_site
from understudy.data.encode import Encoded, encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import from_frame
from understudy.errors import StudyError
from understudy.recipes import build
from understudy.recipes.features import BOUND, COUNT, FEW, MEAN, norm
from understudy.recipes.fedmoments import FedMoments
from understudy.rng import Streams
from understudy.simulation import run

COLUMNS = (
    Column("dose", "numeric", 0.0, 10.0),
    Column("visits", "integer", 0, 50, missing=True),
    Column("smoker", "boolean"),
    Column("town", "categorical", categories=("here", "there", "far", "away")),
    Column("ill", "categorical", categories=("no", "yes")),
)
TABLE = Schema("table", "clinic", 500, COLUMNS, label="ill")
IMAGE = Schema("image", "tiles", 500, classes=("a", "b", "c"), shape=(5, 4, 3))
SERIES = Schema(
    "series", "waves", 500, (Column("v", "numeric", -1.0, 1.0),), classes=("a", "b"), shape=(9, 1)
)
SMALL = replace(TABLE, records=20)  # too few rows for histograms: one sum
SCHEMAS = {schema.kind: schema for schema in (SMALL, IMAGE, SERIES)}


def built(schema: Schema, sites: int = 3, **tables: Any) -> FedMoments:
    privacy = {"noise": 1.0, **tables.pop("privacy", {})}
    if "epsilon" in privacy or privacy.get("trust") == "none":
        del privacy["noise"]
    asked = study("fedmoments", sites, schema=schema, privacy=privacy, **tables)
    return build(asked)


def table(n: int, seed: int = 0, *, ill: str | None = None) -> Records:
    """Rows in which the ill take more, live far away and rarely know their visits."""
    rng = np.random.default_rng(seed)
    yes = np.full(n, ill == "yes") if ill else rng.random(n) < 0.3
    frame = pd.DataFrame(
        {
            "dose": np.clip(rng.normal(3 + 3 * yes, 1), 0, 10),
            "visits": np.where(rng.random(n) < 0.1 + 0.5 * yes, None, rng.integers(0, 20, n)),
            "smoker": rng.random(n) < 0.5 + 0.3 * yes,
            "town": rng.choice(["here", "there", "far", "away"], n, p=[0.6, 0.3, 0.09, 0.01]),
            "ill": np.where(yes, "yes", "no"),
        }
    )
    return from_frame(frame, TABLE)


def shards(x: np.ndarray, y: np.ndarray, sites: int = 1) -> Shards:
    parts = np.array_split(np.arange(len(y)), sites)
    return Shards.pack(Encoded(x.astype(np.float32), y.astype(np.int64)), parts)


def summed(recipe: FedMoments, x: np.ndarray, y: np.ndarray, sites: int = 1) -> torch.Tensor:
    """What the sites hand to the mechanism."""
    update, _ = recipe.local(recipe.task({}, 0), at_site(recipe, shards(x, y, sites)))
    bounded = update["moments"]
    assert bounded.sensitivity == recipe.plan.own.parts[0].mechanism.bound
    return bounded.value.sum(0)


@pytest.mark.parametrize("kind", SCHEMAS)
@given(data=st.data())
def test_a_record_moves_the_sum_by_no_more_than_the_bound(kind: str, data: st.DataObject) -> None:
    schema = SCHEMAS[kind]
    recipe = built(schema)
    x = data.draw(arrays(np.float32, (4, schema.width), elements=st.floats(0, 1, width=32)))
    y = np.array(data.draw(st.lists(st.integers(0, schema.n_classes - 1), min_size=4, max_size=4)))
    moved = summed(recipe, x, y) - summed(recipe, x[:3], y[:3])
    assert float(moved.norm()) <= norm(recipe.weights) * (1 + 1e-9)
    assert float(moved[np.arange(schema.n_classes) != y[3]].abs().max()) < 1e-9  # its own block


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_site_s_sum_is_the_same_whoever_is_beside_it(kind: str) -> None:
    """To the last bit: products of many rows round by how many they are."""
    recipe, sizes = built(SCHEMAS[kind], 4), (101, 1, 57, 0, 33, 3)
    rng, wide = np.random.default_rng(0), SCHEMAS[kind].width
    x, y = rng.random((sum(sizes), wide)), rng.integers(0, SCHEMAS[kind].n_classes, sum(sizes))
    parts = np.split(np.arange(len(y)), np.cumsum(sizes)[:-1])
    data = Shards.pack(Encoded(x.astype(np.float32), y), parts)

    def sums(held: Shards) -> torch.Tensor:
        return recipe.local(recipe.task({}, 0), at_site(recipe, held))[0]["moments"].value

    alone = torch.cat([sums(data.take([i])) for i in range(len(sizes))])
    assert torch.equal(sums(data), alone)


def test_the_bound_is_reached_so_no_noise_is_wasted() -> None:
    recipe = built(SMALL)
    x, y = np.ones((1, TABLE.width)), np.zeros(1)
    moved = summed(recipe, x, y)
    assert float(moved.norm()) == pytest.approx(recipe.plan.own.parts[0].mechanism.bound, rel=1e-5)


def test_where_noise_hides_second_moments_means_and_counts_are_seen_better() -> None:
    few = replace(TABLE, records=40)
    recipe = built(few, sites=1, privacy={"epsilon": 1.5, "trust": "local"})
    assert recipe.weights == FEW and "means and counts" in str(recipe.form)
    usual = built(few, sites=1, privacy={"epsilon": 8.0})
    assert usual.weights == (COUNT, MEAN) and "class moments" in str(usual.form)
    assert recipe.plan.own.parts[0].mechanism.bound == norm(FEW)
    noise = recipe.plan.own.parts[0].mechanism.noise
    told = recipe._moments(np.zeros(recipe.plan.own.parts[0].shape))
    assert told.sum_std < 0.6 * noise * BOUND / MEAN  # what it would be by the usual weights
    assert told.count_std < 0.6 * noise * BOUND / COUNT


def test_weights_are_the_usual_ones_where_whole_sites_are_protected() -> None:
    recipe = built(SMALL, sites=1, privacy={"unit": "site", "epsilon": 1.5})
    assert recipe.weights == (COUNT, MEAN)


def test_a_person_counts_with_all_rows_and_a_site_as_a_whole() -> None:
    columns = dict(person="id", rows_per_person=3)
    schema = Schema("table", "clinic", 500, COLUMNS, label="ill", **columns)  # type: ignore[arg-type]
    one = BOUND
    person = built(schema, privacy={"unit": "person"})
    assert person.plan.own.parts[0].mechanism.bound == pytest.approx(3 * one)
    site = built(TABLE, sites=1, privacy={"unit": "site"})
    rows = encode(TABLE, table(300))
    assert site.plan.own.parts[0].mechanism.bound == pytest.approx(one)
    assert float(summed(site, rows.x, rows.y).norm()) <= one


@pytest.mark.parametrize("trust, factor", [("central", 1.0), ("local", math.sqrt(40))])
def test_counts_means_and_squares_are_all_noised(tmp_path: Path, trust: str, factor: float) -> None:
    recipe = built(IMAGE, 40, privacy={"trust": trust, "noise": 2.0})
    data = shards(np.zeros((0, IMAGE.width)), np.zeros(0), 40)
    made, ledger = engine(recipe, tmp_path, data=data)
    with ledger:
        noise = made.train()["moments"].double().numpy()
    std = 2.0 * BOUND * factor
    assert noise.shape[0] == IMAGE.n_classes
    assert np.all(noise[:, 0] != 0) and np.abs(noise[:, 0]).max() < 5 * std
    assert noise.std() == pytest.approx(std, rel=0.05)
    told = recipe._moments(noise)
    assert told.count_std * COUNT == pytest.approx(std)
    assert told.square_std == pytest.approx(std)
    rows, columns = np.triu_indices(told.squares.shape[1], 1)
    off = told.squares[:, rows, columns]
    assert off.std() == pytest.approx(told.square_std / math.sqrt(2), rel=0.05)


def test_many_rows_give_back_the_moments_of_the_table() -> None:
    asked = study("fedmoments", 4, schema=TABLE, privacy={"epsilon": 5.0})
    parts = [table(5000, seed) for seed in range(4)]
    made = run(asked, parts, seed=1).sample(20_000, seed=2).frame
    real = pd.concat([part.frame for part in parts])
    assert made is not None
    for ill in ("no", "yes"):
        ours, theirs = made[made["ill"] == ill], real[real["ill"] == ill]
        assert len(ours) / len(made) == pytest.approx(len(theirs) / len(real), abs=0.02)
        assert ours["dose"].mean() == pytest.approx(theirs["dose"].mean(), abs=0.15)
        assert ours["dose"].std() == pytest.approx(theirs["dose"].std(), abs=0.25)
        assert ours["smoker"].mean() == pytest.approx(theirs["smoker"].mean(), abs=0.04)
        assert ours["visits"].isna().mean() == pytest.approx(
            theirs["visits"].isna().mean(), abs=0.04
        )
        towns = (f["town"].value_counts(normalize=True) for f in (ours, theirs))
        assert (next(towns) - next(towns)).abs().max() < 0.03


@pytest.mark.parametrize(
    "parts",
    [
        [table(0), table(0), table(0)],
        [table(1), table(0), table(0)],
        [table(40, ill="yes"), table(0), table(0)],
        [table(300, 1), table(5, 2), table(0)],
    ],
    ids=["no rows at all", "one row", "one class", "few rows"],
)
@pytest.mark.parametrize(
    "unit, trust", sorted(pair for pair in FedMoments.info.supports if pair[0] != "person")
)
def test_small_and_empty_sites_still_make_a_release(
    parts: list[Records], unit: str, trust: str
) -> None:
    privacy = {"unit": unit, "trust": trust, "noise": 1.5}
    release = run(study("fedmoments", 3, schema=TABLE, privacy=privacy), parts, seed=0)
    made = release.sample(50, seed=0)
    again = encode(TABLE, made)  # the rows fit the schema
    assert len(again) == 50 and np.isfinite(again.x).all()


@pytest.mark.parametrize("kind", SCHEMAS)
def test_moments_of_identical_rows_do_not_break(kind: str) -> None:
    schema = SCHEMAS[kind]
    recipe = built(schema)
    for value in (0.0, 0.5, 1.0):
        x, y = np.full((8, schema.width), value), np.zeros(8)
        generator = recipe.finish({"moments": summed(recipe, x, y)}, rng=Streams.from_seed(0))
        drawn = generator.sample(np.zeros(20, np.int64), rng=Streams.from_seed(1))
        assert float(drawn.min()) >= 0 and float(drawn.max()) <= 1


def test_images_drawn_resemble_the_images_given() -> None:
    rng = np.random.default_rng(0)
    tile = rng.random((3, IMAGE.width))
    y = rng.integers(0, 3, 6000)
    x = np.clip(tile[y] + rng.normal(0, 0.1, (6000, IMAGE.width)), 0, 1)
    recipe = built(IMAGE, privacy={"epsilon": 4.0})
    noise = torch.from_numpy(rng.normal(0, 1, recipe.plan.own.parts[0].shape))
    part = recipe.plan.own.parts[0]
    total = summed(recipe, x, y) + part.mechanism.noise * part.mechanism.bound * noise
    generator = recipe.finish({"moments": total.float()}, rng=Streams.from_seed(0))
    for label in range(3):
        drawn = generator.sample(np.full(500, label), rng=Streams.from_seed(1)).numpy().mean(0)
        near = [float(np.corrcoef(drawn, tile[k])[0, 1]) for k in range(3)]
        assert int(np.argmax(near)) == label and near[label] > 0.9


def test_the_seed_decides_everything_and_another_seed_differs() -> None:
    asked = study("fedmoments", 2, schema=TABLE, privacy={"epsilon": 3.0})
    first, again, other = (
        run(asked, [table(60, 1), table(60, 2)], seed=s).generator for s in (7, 7, 8)
    )
    assert all(torch.equal(first.arrays[k], again.arrays[k]) for k in first.arrays)
    assert not torch.equal(first.arrays["mean"], other.arrays["mean"])
    assert first.balance == again.balance


def test_what_is_released_depends_on_the_noisy_sum_alone() -> None:
    recipe = built(SMALL)
    state = {"moments": torch.randn(recipe.plan.own.parts[0].shape)}
    finished = [recipe.finish(state, rng=Streams.from_seed(3)) for _ in range(2)]
    assert torch.equal(finished[0].arrays["factor"], finished[1].arrays["factor"])
    assert set(finished[0].arrays) == {"mean", "factor", "basis", "origin"}


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_options_that_make_no_sense_are_refused(value: float) -> None:
    with pytest.raises(StudyError, match="spread"):
        built(TABLE, recipe={"spread": value})


def test_no_coefficients_and_too_many_features_are_refused() -> None:
    with pytest.raises(StudyError, match="coefficients"):
        built(IMAGE, recipe={"coefficients": 0})
    wide = Column("word", "categorical", categories=tuple(f"w{i}" for i in range(700)))
    with pytest.raises(StudyError, match="600"):
        built(replace(TABLE, columns=(wide, *COLUMNS)))
