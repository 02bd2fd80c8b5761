from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from contracts.toys import study
from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import ReleaseError, StudyError, WireError
from understudy.federation.recipe import Task
from understudy.privacy.account import cost
from understudy.privacy.claim import claims
from understudy.recipes import build
from understudy.recipes.fedmoments import FedMoments
from understudy.recipes.two_sums import TwoSums
from understudy.rng import Streams
from understudy.simulation import run

COLUMNS = (
    Column("spent", "numeric", 0.0, 5000.0, missing=True),
    Column("visits", "integer", 0, 12),
    Column("income", "numeric", 0.0, 1e6, scale="log"),
    Column("since", "date", date(2000, 1, 1), date(2030, 1, 1)),
    Column("smoker", "boolean", missing=True),
    Column("town", "categorical", categories=("here", "there", "far", "away")),
    Column("ill", "categorical", categories=("no", "yes")),
)
TABLE = Schema("table", "clinic", 20_000, COLUMNS, label="ill")


def table(n: int, seed: int = 0, schema: Schema = TABLE) -> Records:
    """Spikes, heavy tails, narrow columns in wide bounds; the ill differ in all of them."""
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.2
    spent = np.where(rng.random(n) < 0.7 - 0.5 * ill, 0.0, rng.gamma(2, 60, n))
    days = rng.normal(6000 + 900 * ill, 300, n).astype(int)
    frame = pd.DataFrame(
        {
            "spent": np.where(rng.random(n) < 0.1 + 0.2 * ill, np.nan, spent),
            "visits": rng.poisson(1 + 3 * ill).clip(0, 12),
            "income": np.exp(rng.normal(9 - ill, 1, n)),
            "since": pd.Timestamp("2000-01-01") + pd.to_timedelta(days, "D"),
            "smoker": np.where(rng.random(n) < 0.05, None, rng.random(n) < 0.3 + 0.4 * ill),
            "town": rng.choice(["here", "there", "far", "away"], n, p=[0.6, 0.3, 0.09, 0.01]),
            "ill": np.where(ill, "yes", "no"),
        }
    )
    return from_frame(frame[[c.name for c in schema.columns]], schema)


def built(schema: Schema = TABLE, sites: int = 3, **tables: Any) -> Any:
    privacy = {"epsilon": 1.0, "unit": "record", **tables.pop("privacy", {})}
    privacy = {k: v for k, v in privacy.items() if v is not None}
    return build(study("fedmoments", sites, schema=schema, privacy=privacy, **tables))


def distance(real: pd.Series, made: pd.Series) -> float:
    """Kolmogorov-Smirnov of numbers and dates, total variation of the rest; missing counts."""
    if real.dtype.kind not in "fiM":
        shares = [s.value_counts(normalize=True, dropna=False) for s in (real, made)]
        return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)
    sides = [s.astype("int64") if s.dtype.kind == "M" else s for s in (real, made)]
    sides = [s.astype(float).to_numpy() for s in sides]
    at = np.unique(np.concatenate([s[~np.isnan(s)] for s in sides]))
    ranks = [np.searchsorted(np.sort(s), at, side="right") / len(s) for s in sides]
    return float(np.abs(ranks[0] - ranks[1]).max())


def released(n: int, epsilon: float | None, rows: int = 10_000, **terms: Any) -> pd.DataFrame:
    privacy: dict[str, Any] = {"epsilon": epsilon} if epsilon else {"trust": "none"}
    schema = replace(TABLE, records=n)
    parts = [table(n // 2, seed) for seed in (1, 2)]
    asked = study("fedmoments", 2, schema=schema, privacy={"unit": "record", **privacy}, **terms)
    made = run(asked, parts, seed=3).sample(rows, seed=4).frame
    assert made is not None
    return made


def test_two_sums_cost_what_the_study_asks_and_both_are_on_the_claim() -> None:
    recipe = built()
    assert isinstance(recipe, TwoSums)
    assert [p.name for phase in recipe.plan.phases for p in phase.parts] == [
        "histograms",
        "moments",
    ]
    claim = claims(recipe.plan, "os")[0]
    assert 0.98 < claim.epsilon <= 1.0
    both = cost(recipe.plan.promise(), recipe.plan.delta).epsilon
    alone = [
        cost(phase.promise(factor=1, amplified=True), recipe.plan.delta).epsilon
        for phase in recipe.plan.phases
    ]
    assert max(alone) < both <= sum(alone)


def test_a_noise_multiplier_is_that_of_both_sums_together() -> None:
    recipe = built(privacy={"epsilon": None, "noise": 2.0})
    levels = [phase.parts[0].mechanism.noise for phase in recipe.plan.phases]
    assert sum(z**-2 for z in levels) == pytest.approx(2.0**-2)


def test_the_form_and_the_bins_follow_from_public_numbers() -> None:
    sizes = [20, 500, 2000, 8000, 500_000]
    found = [built(replace(TABLE, records=n)) for n in sizes]
    assert isinstance(found[0], FedMoments)
    bins = [recipe.bins for recipe in found[1:]]
    assert bins == sorted(bins) and bins[:2] == [24, 32] and bins[-1] == 256
    assert str(bins[0]) in found[1].form
    near, far = (
        built(replace(TABLE, records=8000), 50, privacy={"trust": trust})
        for trust in ("central", "local")
    )
    assert isinstance(far, FedMoments) or far.bins < near.bins
    assert built(replace(TABLE, records=20), privacy={"epsilon": 100.0}).bins >= 24


def test_without_noise_margins_converge_as_rows_grow() -> None:
    """The model itself has the right margins: what is left falls with the number of rows."""
    real = table(20_000, 9).frame
    assert real is not None
    means = []
    for n in (400, 10_000):
        made = released(n, None)
        means.append(np.mean([distance(real[c], made[c]) for c in real.columns]))
    assert means[1] < 0.015 < means[0]


def test_more_privacy_costs_more_fidelity() -> None:
    real = table(20_000, 9).frame
    assert real is not None
    means = []
    for epsilon in (0.3, 1.0, 8.0):
        made = released(4000, epsilon)
        means.append(float(np.mean([distance(real[c], made[c]) for c in real.columns])))
    assert means == sorted(means, reverse=True) and means[-1] < 0.03


def test_classes_keep_their_shares_and_their_differences() -> None:
    made, real = released(20_000, 2.0), table(20_000, 9).frame
    assert real is not None
    for ill in ("no", "yes"):
        ours, theirs = made[made["ill"] == ill], real[real["ill"] == ill]
        assert len(ours) / len(made) == pytest.approx(len(theirs) / len(real), abs=0.015)
        assert (ours["spent"] == 0).mean() == pytest.approx((theirs["spent"] == 0).mean(), abs=0.08)
        assert ours["spent"].isna().mean() == pytest.approx(theirs["spent"].isna().mean(), abs=0.04)
        assert ours["visits"].mean() == pytest.approx(theirs["visits"].mean(), abs=0.3)
        assert np.log(ours["income"] + 100).mean() == pytest.approx(
            np.log(theirs["income"] + 100).mean(), abs=0.15
        )
        smokes = [side["smoker"].astype(float).mean() for side in (ours, theirs)]
        assert smokes[0] == pytest.approx(smokes[1], abs=0.05)


def test_related_columns_stay_related() -> None:
    rng = np.random.default_rng(0)
    columns = (
        Column("a", "numeric", 0.0, 100.0),
        Column("b", "numeric", -50.0, 50.0),
        Column("c", "boolean"),
    )
    schema = Schema("table", "pairs", 20_000, columns)
    z = rng.normal(size=(20_000, 2))
    a = np.exp(z[:, 0]).clip(0, 100)
    frame = pd.DataFrame({"a": a, "b": 0.9 * z[:, 0] + 0.44 * z[:, 1], "c": z[:, 0] > 0.5})
    asked = study("fedmoments", 1, schema=schema, privacy={"unit": "record", "epsilon": 2.0})
    made = run(asked, [from_frame(frame, schema)], seed=0).sample(20_000, seed=1).frame
    assert made is not None
    ranks = [f[["a", "b"]].rank().corr().iloc[0, 1] for f in (frame, made)]
    assert ranks[1] == pytest.approx(ranks[0], abs=0.05)
    by = [f.groupby("c")["b"].mean() for f in (frame, made)]
    assert by[1].to_numpy() == pytest.approx(by[0].to_numpy(), abs=0.2)


def test_a_label_that_is_a_number_is_a_column_like_others() -> None:
    columns = (Column("age", "integer", 0, 100), Column("pay", "numeric", 0.0, 1e5))
    schema = Schema("table", "pay", 5000, columns, label="pay")
    rng = np.random.default_rng(0)
    age = rng.integers(20, 65, 5000)
    frame = pd.DataFrame({"age": age, "pay": 600.0 * age + rng.normal(0, 4000, 5000)})
    asked = study("fedmoments", 2, schema=schema, privacy={"unit": "record", "epsilon": 2.0})
    parts = [from_frame(part, schema) for part in (frame[:2500], frame[2500:])]
    made = run(asked, parts, seed=0).sample(5000, seed=1).frame
    assert made is not None
    assert made["age"].corr(made["pay"]) == pytest.approx(frame["age"].corr(frame["pay"]), abs=0.08)


def test_what_is_released_depends_on_the_noisy_sums_alone() -> None:
    recipe = built()
    state = {p.name: torch.randn(p.shape) * 30 for phase in recipe.plan.phases for p in phase.parts}
    finished = [recipe.finish(state, rng=Streams.from_seed(3)) for _ in range(2)]
    assert finished[0].kind == "copula" and finished[0].fits(TABLE)
    for name, value in finished[0].arrays.items():
        assert torch.equal(value, finished[1].arrays[name])


def test_a_run_whose_histograms_were_cut_short_says_so() -> None:
    with pytest.raises(ReleaseError, match="histograms"):
        built().task({}, 1)


def test_a_persons_rows_count_together_in_both_sums() -> None:
    schema = replace(TABLE, person="id", rows_per_person=3)
    recipe = built(schema, privacy={"unit": "person"})
    bounds = [phase.parts[0].mechanism.bound for phase in recipe.plan.phases]
    assert bounds == pytest.approx([3.0, 3 * math.sqrt(0.3**2 + 0.5**2 + 1)])


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_tables_with_hardly_a_row_still_give_rows_that_fit(rows: int) -> None:
    asked = study("fedmoments", 2, schema=TABLE, privacy={"unit": "record", "epsilon": 1.0})
    release = run(asked, [table(rows), table(0)], seed=0)
    made = encode(TABLE, release.sample(30, seed=0))
    assert len(made) == 30 and np.isfinite(made.x).all()
    assert len(release.sample(7, label="yes", seed=1)) == 7


WIDE = Schema(
    "table",
    "wide",
    8000,
    (
        Column("cost", "numeric", -1e8, 1e8),
        Column("days", "integer", 0, 10_000_000),
        Column("old", "boolean"),
    ),
    label="old",
)


def wide(n: int, seed: int) -> Records:
    """Numbers in bounds that are ten thousand times and more too wide."""
    rng = np.random.default_rng(seed)
    old = rng.random(n) < 0.4
    frame = {"cost": rng.gamma(4, 500 + 500 * old), "days": rng.poisson(30 + 60 * old), "old": old}
    return from_frame(pd.DataFrame(frame), WIDE)


def test_a_first_noisy_look_finds_useful_bounds() -> None:
    real = wide(20_000, 9).frame
    assert real is not None
    found = {}
    for bounds in (False, True):
        asked = study(
            "fedmoments",
            2,
            schema=WIDE,
            privacy={"unit": "record", "epsilon": 1.0},
            recipe={"bounds": bounds},
        )
        release = run(asked, [wide(4000, seed) for seed in (1, 2)], seed=0)
        made = release.sample(10_000, seed=1).frame
        assert made is not None
        found[bounds] = max(distance(real[c], made[c]) for c in ("cost", "days"))
        assert 0.98 < release.claims[0].epsilon <= 1.0
        assert len(release.plan.phases) == 2 + bounds
    assert found[True] < 0.06 < 0.3 < found[False]


def test_ranges_that_a_server_made_up_leave_the_bounds_as_they_are() -> None:
    recipe = built(WIDE, recipe={"bounds": True})
    for odd in (torch.nan, 5.0, 0.5):
        task = Task({"ranges": torch.full((2, 2), odd)})
        assert [m.size for m in recipe._margins(task)] == [
            m.size for m in recipe._margins(Task({"ranges": torch.tensor([[0.0, 1.0]] * 2)}))
        ]
    with pytest.raises(WireError, match="ranges"):
        recipe._margins(Task({"ranges": torch.zeros(3, 2)}))


def test_a_look_at_bounds_needs_a_table_with_enough_rows() -> None:
    with pytest.raises(StudyError, match="bounds"):
        built(replace(TABLE, records=20), recipe={"bounds": True})
