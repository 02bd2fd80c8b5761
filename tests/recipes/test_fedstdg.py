"""FedSTDG: coordinates and a bit, an adaptive rate, series in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.errors import StudyError
from understudy.federation.gather import PlainSum
from understudy.privacy.claim import claims
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.recipes import build, vae
from understudy.recipes.fedstdg import FedSTDG
from understudy.rng import NoiseSource, Streams
from understudy.simulation import run
from understudy.study import Study

CHANNELS = tuple(Column(name, "numeric", 0.0, 1.0) for name in ("a", "b"))
SERIES = Schema("series", "waves", 1000, CHANNELS, shape=(6, 2))
OWN = {"hidden": 4, "latent": 3, "pretrain_steps": 20}


def study(schema: Schema = SERIES, sites: int = 30, **tables: Any) -> Study:
    data = {
        "study": {"name": "t", "recipe": "fedstdg", "rounds": 6, **tables.pop("study", {})},
        "privacy": {"epsilon_per_update": 2.0},
        "cohort": {"size": 10},
        "recipe": {**OWN, **tables.pop("recipe", {})},
        "simulation": {"data": "-", "sites": sites},
        **tables,
    }
    return Study.parse(data, schema=schema)


def recipe(**tables: Any) -> FedSTDG:
    return build(study(**tables))  # type: ignore[return-value]


def after(made: FedSTDG, means: list[float]) -> list[float]:
    """γ after rounds in which so large a share of the sites answered 1."""
    state = made.init(rng=Streams.from_seed(0))
    size = made.plan.own.parts[0].shape
    rates = []
    for mean in means:
        total = {"update": torch.full(size, 1e-9), "small": torch.tensor(mean)}
        state = made.step(state, total, rng=Streams.from_seed(0))
        rates.append(float(state["rate"]))
    return rates


def test_an_update_is_coordinates_of_a_subset_and_one_bit() -> None:
    made = recipe(recipe={"adaptive": "pooled"})
    update, bit = made.plan.own.parts
    size = vae.size(made.spec)
    rule = update.mechanism
    assert isinstance(rule, Selection) and isinstance(bit.mechanism, Response)
    assert (rule.size, rule.top) == (size, round(0.05 * size))
    assert rule.subset == round(0.1 * size)
    assert rule.epsilon == pytest.approx(1.8) and bit.mechanism.epsilon == pytest.approx(0.2)
    assert made.plan.own.update_epsilon == pytest.approx(2.0)


def test_without_adaptation_all_of_epsilon_goes_to_coordinates() -> None:
    made = recipe()
    assert "level" not in made.task(made.init(rng=Streams.from_seed(0)), 0).values
    assert [p.name for p in made.plan.own.parts] == ["update"]
    assert made.plan.own.parts[0].mechanism.epsilon == pytest.approx(2.0)


@pytest.mark.parametrize("own", [{"bit": 0.2}, {"fall": 0.5}, {"patience": 3}])
def test_options_of_the_bit_are_refused_where_there_is_none(own: dict) -> None:
    with pytest.raises(StudyError, match=f'{next(iter(own))} with adaptive = "none"'):
        recipe(recipe=own)


def test_more_epsilon_buys_more_coordinates() -> None:
    made = (recipe(recipe={"hidden": 16}, privacy={"epsilon_per_update": e}) for e in (0.5, 8.0))
    few, many = (one.plan.own.parts[0].mechanism.output for one in made)
    assert few == 1 and many > 3


def test_pooled_bits_lower_the_rate_once_per_window() -> None:
    made = recipe(recipe={"patience": 3, "fall": 0.5, "global_rate": 8.0, "adaptive": "pooled"})
    truth = made.plan.own.parts[1].mechanism.truth
    assert after(made, [truth] * 7) == [8, 8, 4, 4, 4, 2, 2]
    mixed = [1.0, 0.5, truth]  # the window's debiased mean decides, not each round
    assert after(made, mixed)[-1] == 4
    assert after(made, [1 - truth] * 6) == [8] * 6, "nobody's update is small"


def test_the_published_rule_wants_a_majority_in_a_row() -> None:
    made = recipe(recipe={"patience": 3, "fall": 0.5, "global_rate": 8.0, "adaptive": "paper"})
    assert after(made, [0.6, 0.6, 0.4, 0.6, 0.6, 0.6, 0.6]) == [8, 8, 8, 8, 8, 4, 4]


def test_the_level_that_is_sent_follows_the_rate() -> None:
    made = recipe(recipe={"global_rate": 8.0, "fall": 0.25, "adaptive": "pooled"})
    task = made.task(made.init(rng=Streams.from_seed(0)), 0)
    assert task.values["level"] == pytest.approx(2.0)


def test_series_are_learnt_from_choices() -> None:
    """At a generous ε the first channel, which is high everywhere, comes out high."""
    rng = np.random.default_rng(0)
    series = np.stack((rng.uniform(0.8, 1.0, (3000, 6)), rng.uniform(0.0, 0.2, (3000, 6))), axis=2)
    sites = [Records(series=s.astype(np.float32)) for s in series.reshape(300, 10, 6, 2)]
    asked = study(
        sites=300,
        study={"rounds": 60},
        privacy={"epsilon_per_update": 8.0},
        cohort={"size": 30},
        recipe={"patience": 10, "adaptive": "pooled"},
    )
    release = run(asked, sites, seed=0, rows=10)
    drawn = release.sample(100, seed=0).series
    assert drawn.shape == (100, 6, 2)
    assert drawn[..., 0].mean() > 0.65 > 0.35 > drawn[..., 1].mean()
    assert release.claims[0].epsilon == pytest.approx(8.0 * 6)


def test_the_net_starts_from_smooth_series_anywhere_between_the_bounds() -> None:
    own = {"pretrain_steps": 1500, "hidden": 12}
    made, fresh = (recipe(recipe=own | {"pretrain": p}) for p in ("uniform", "none"))
    spreads, steps = zip(*(start_of(m) for m in (made, fresh)), strict=True)
    assert spreads[0] > 0.2 > 0.1 > spreads[1], "far apart, where a fresh net's are all alike"
    assert steps[0] < spreads[0] / 3, "and each changes little from step to step"


def start_of(made: FedSTDG) -> tuple[float, float]:
    """Spread of the series that a net draws before any round, and their mean step."""
    rng = Streams.from_seed(0)
    drawn = made.finish(made.init(rng=rng), rng=rng).sample(np.zeros(500, np.int64), rng=rng)
    series = drawn.reshape(500, 6, 2)
    return float(series.std(0).mean()), float(series.diff(dim=1).abs().mean())


def test_votes_move_the_model_less_the_more_of_them_are_chance() -> None:
    moved = [float(one_vote(recipe(privacy={"epsilon_per_update": e}))) for e in (0.5, 8.0)]
    assert 0 < moved[0] < moved[1] / 2


def one_vote(made: FedSTDG) -> torch.Tensor:
    """How far a coordinate goes that all sites voted for."""
    state = made.init(rng=Streams.from_seed(0))
    total = {"update": torch.zeros(made.plan.own.parts[0].shape), "small": torch.tensor(0.5)}
    total["update"][0] = 1.0
    after = made.step(state, total, rng=Streams.from_seed(0))
    return (after["model"] - state["model"])[0, 0]


def test_one_sgd_step_is_the_local_training_of_choices_alone() -> None:
    asked = {"epochs": 4, "optimiser": "adam"}
    assert local_training(recipe()) == (1, "sgd")
    assert local_training(recipe(training=asked)) == (4, "adam")
    assert local_training(recipe(privacy={"trust": "none"})) == (10, None)


def local_training(made: FedSTDG) -> tuple[int | None, str | None]:
    how = made.how.training
    return how.epochs, how.optimiser


def test_units_follow_the_channels() -> None:
    assert recipe(recipe={"hidden": 0}).spec.widths == (12,)
    many = tuple(Column(f"c{i}", "numeric", 0.0, 1.0) for i in range(15))
    wide = Schema("series", "wide", 1000, many, shape=(6, 15))
    assert recipe(schema=wide, recipe={"hidden": 0}).spec.widths == (15,)


def test_constant_channels_are_nothing_special() -> None:
    flat = [Records(series=np.full((4, 6, 2), 0.5, np.float32)) for _ in range(30)]
    release = run(study(), flat, seed=0, rows=0)
    assert all(torch.isfinite(v).all() for v in release.model.arrays.values())


@pytest.mark.parametrize(
    "own",
    [{"bit": 0.0}, {"bit": 1.0}, {"fall": 1.0}, {"fall": 0.0}, {"patience": 0}, {"hidden": -1}],
)
def test_options_that_mean_nothing_are_refused(own: dict) -> None:
    with pytest.raises(StudyError, match=f"recipe.{next(iter(own))} (above|at least)"):
        recipe(recipe={"adaptive": "pooled", **own})


def test_tables_are_for_other_recipes() -> None:
    table = Schema("table", "t", 100, CHANNELS)
    with pytest.raises(StudyError, match="series"):
        build(study(table))


def test_a_round_without_replies_is_no_answer() -> None:
    made = recipe(recipe={"patience": 2, "global_rate": 8.0, "adaptive": "pooled"})
    source = NoiseSource.seeded(Streams.from_seed(0))
    assert PlainSum(made.plan, source).add_up([], 0) is None, "the engine would step"


@pytest.mark.parametrize("rounds", [5, 20, 147])
def test_a_life_never_costs_more_than_was_asked(rounds: int) -> None:
    """Rounding alone once made 1.0000000000000002 of it, which a cap of 1 refused."""
    made = recipe(study={"rounds": rounds}, privacy={"epsilon": 1.0}, cohort={"size": 30})
    assert claims(made.plan, "os")[0].epsilon <= 1.0


@pytest.mark.parametrize("split, told", [("uniform", True), ("blocks", False)])
def test_windows_dealt_out_one_by_one_are_told(split: str, told: bool) -> None:
    overlapping = Schema(
        "series", "w", 100, CHANNELS, shape=(6, 2), layout="recording", time="t", stride=2
    )
    simulation = {"data": "-", "sites": 30, "split": split}
    made = build(study(overlapping, simulation=simulation))
    caveats = claims(made.plan, "os")[0].caveats
    assert any("at up to 3 sites" in caveat for caveat in caveats) == told
