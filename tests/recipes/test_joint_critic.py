"""VertiGAN with a critic of whole rows: what it sees, and what is claimed of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.columns import records_of
from understudy.data.encode import encode
from understudy.data.onehot import OneHot
from understudy.data.pictures import Picture
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import StudyError
from understudy.federation.phases import Then
from understudy.nets import layers
from understudy.privacy.claim import claims
from understudy.recipes import build
from understudy.recipes.joint_critic import JointCritic
from understudy.recipes.vertigan import VertiGAN
from understudy.rng import Streams
from understudy.simulation import run, run_apart
from understudy.simulation.verification import verify
from understudy.study import Study

N = 2000
NAMES = ("a", "b", "c", "d")
SCHEMA = Schema("table", "pairs", N, tuple(Column(name, "boolean") for name in NAMES))
HELD = (("a", "b"), ("c", "d"))
SMALL = {"widths": [16, 16], "hidden": 16, "critic_width": 8, "latent": 4, "steps": 1}
SMALL |= {"critic_rate": 0.02}


def people(n: int = N) -> Records:
    """At the second party c is nearly what a is at the first, and d is b's opposite."""
    rng = np.random.default_rng(0)
    a, b, slips = rng.random(n) < 0.5, rng.random(n) < 0.5, rng.random((2, n)) < 0.05
    frame = pd.DataFrame({"a": a, "b": b, "c": a ^ slips[0], "d": ~b ^ slips[1]})
    return from_frame(frame, SCHEMA)


def study(joint: float, rounds: int = 2, **tables: object) -> Study:
    data = {
        "study": {"name": "t", "recipe": "vertigan", "rounds": rounds},
        "privacy": {"noise": 4.0},
        "training": {"batch": 200, "rate": 0.02},
        "simulation": {"data": "-", "split": "columns"},
        "party": [{"name": f"p{i}", "columns": list(own)} for i, own in enumerate(HELD)],
        "recipe": {**SMALL, "joint": joint},
        **tables,
    }
    return Study.parse(data, schema=SCHEMA)


def across(drawn: pd.DataFrame) -> float:
    """How closely columns follow those of the other party: 1.8 in the rows."""
    found = 4 * drawn.astype(float).cov()
    return float(found.loc["a", "c"] - found.loc["b", "d"])


def test_what_goes_together_across_parties_is_learnt_with_a_joint_critic_alone() -> None:
    data = [records_of(people(), own) for own in HELD]
    made = {
        joint: run(study(joint, rounds), data, seed=1, rows=0).sample(2000, seed=0).frame
        for joint, rounds in ((0.0, 40), (0.5, 180))
    }
    assert across(made[0.5]) > 1.0 > across(made[0.0]) + 0.5


def test_the_mean_of_a_pixel_is_its_mean_and_not_that_of_its_square() -> None:
    schema = replace(SCHEMA, images=(Picture("scan", (1, 1)),))
    layout = OneHot.of(schema, 4)

    class Half:
        def rows(self, n: int, *, rng: Streams) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.full((n, 5), 0.5), torch.zeros(n, dtype=torch.long)

    found = JointCritic(layout, range(layout.width)).moments(Half(), rng=Streams.from_seed(0))
    assert float(found[4, 4]) == pytest.approx(0.5)


def test_the_distance_is_that_of_pairs_of_columns() -> None:
    recipe = build(study(0.5))
    assert isinstance(recipe, Then) and isinstance(recipe.second, VertiGAN)
    critic = recipe.second._joint
    rows = torch.randint(0, 2, (500, 4), generator=torch.Generator().manual_seed(0)).float()
    at = torch.empty(4, dtype=torch.long)
    at[torch.tensor(critic.places)] = torch.arange(4)
    moments = rows.T @ rows / 500
    assert float(critic.distance(rows[:, at], moments)) == pytest.approx(0, abs=1e-5)
    moved = moments.clone()
    moved[0, 3] += 0.3
    moved[3, 0] += 0.3
    assert float(critic.distance(rows[:, at], moved)) == pytest.approx(0.3 * 2**0.5, rel=1e-4)


def test_slopes_lower_the_distance() -> None:
    recipe = build(study(0.5))
    assert isinstance(recipe, Then) and isinstance(recipe.second, VertiGAN)
    own, rng = recipe.second, Streams.from_seed(0)
    params = {k: v[None] for k, v in own.generator.init(rng=rng.torch("net")).items()}
    aim, z = torch.eye(4) / 4, torch.randn(1, 1000, 4, generator=rng.torch("z"))
    slopes = own._joint.slopes(own.generator, params, aim, rng=rng)
    moved = {name: value - 0.05 * slopes[name] for name, value in params.items()}
    before, after = (
        own._joint.distance(own.generator.joint(p, z)[0], aim) for p in (params, moved)
    )
    assert float(after) < float(before)


def test_the_joint_critic_teaches_the_generator_before_the_first_round() -> None:
    recipe = build(study(0.5, rounds=180))
    assert isinstance(recipe, Then) and isinstance(recipe.second, VertiGAN)
    own, rng, rows = recipe.second, Streams.from_seed(0), encode(SCHEMA, people())
    distances = []

    class Known:
        def rows(self, n: int, *, rng: Streams) -> tuple[torch.Tensor, torch.Tensor]:
            drawn = torch.arange(n) % N
            return torch.as_tensor(rows.x)[drawn], torch.as_tensor(rows.y)[drawn]

    for state in (own.init(rng=rng), begun := own.begin(Known(), rng=rng)):
        shapes = own.generator.shapes()
        params = layers.separated(state["generator"][None], shapes)
        chances = own.generator.joint(params, torch.randn(1, 2000, 4, generator=rng.torch("z")))[0]
        distances.append(float(own._joint.distance(chances, begun["joint"])))
    assert distances[1] < distances[0] / 3
    assert float(begun["round"]) == float(begun["averaged"]) == 0


def test_both_phases_are_on_every_claim_and_the_dealer_is_named() -> None:
    plain, joint = (claims(build(study(share)).plan, "os") for share in (0.0, 0.5))
    assert len(joint) == len(plain) + 2
    for one, other in zip(joint, plain, strict=False):
        assert len(one.events) == len(other.events) + 2 and one.epsilon > other.epsilon
        assert "the server deals as written" in one.trust
    insider = next(c for c in joint if "knows the batches" in c.adversary)
    assert "follows the protocol" in insider.adversary and "server" not in insider.adversary
    lost = {claim.adversary for claim in joint if claim.epsilon is None}
    assert lost == {"the server together with a party", "a party that departs from the protocol"}


@pytest.mark.slow  # noise is solved for twice by the accountant
def test_an_epsilon_is_shared_by_both_phases() -> None:
    made = build(study(0.5, privacy={"epsilon": 4.0}))
    assert isinstance(made, Then)
    whole, first = (claims(plan, "os")[0].epsilon for plan in (made.plan, made.first.plan))
    assert whole is not None and 3.9 < whole <= 4.0 * (1 + 1e-6)
    assert first == pytest.approx(2.0, rel=0.01)


def test_a_run_ends_in_a_release_that_verifies(tmp_path: Path) -> None:
    data = [records_of(people(), own) for own in HELD]
    here = run(study(0.5), data, seed=1, out=tmp_path / "release", rows=10)
    apart = run_apart(study(0.5), data, seed=1, rows=0)
    assert torch.equal(here.model.arrays["generator"], apart.model.arrays["generator"])
    verify(tmp_path / "release")


def test_a_joint_critic_without_noise_is_refused() -> None:
    with pytest.raises(StudyError, match=r"recipe\.joint"):
        build(study(0.5, privacy={"trust": "none", "unit": "record"}))
