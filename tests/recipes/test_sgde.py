"""SGDE: a VAE per class under one noise, what a member releases, and what it may claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts.harness import check_replay, neighbours, shorter, small_recipe, small_shards
from contracts.toys import image_records, image_schema, records, schema
from recipes.at_site import at_site
from understudy.data.shards import Shards
from understudy.errors import PrivacyError, StudyError
from understudy.federation.site import Site
from understudy.privacy.claim import claims
from understudy.privacy.clip import Bounded
from understudy.recipes import build, vae
from understudy.release.verify import verify
from understudy.rng import Streams
from understudy.simulation import run
from understudy.study import Study
from understudy.training.dpsgd import RecordBatch

NETS = {"widths": [6], "decoder_widths": [5], "latent": 2, "steps": 3, "warm_steps": 20}
EPSILON = {"epsilon": 1.5}
PERSON = {"unit": "person", "noise": 1.0}


def study(kind: str = "table", sites: int = 1, **tables: Any) -> Study:
    """A member's study: one site, one round, and the privacy of the recipe's default."""
    public = {"table": schema, "image": image_schema}[kind]()
    data = {
        "study": {"name": "member", "recipe": "sgde"},
        "privacy": tables.pop("privacy", {"noise": 1.0}),
        "recipe": {**NETS, **tables.pop("recipe", {})},
        "simulation": {"data": "-", "sites": sites},
        **tables,
    }
    return Study.parse(data, schema=public)


def clipped(recipe: Any, data: Shards) -> Tensor:
    """The sum that one step of these sites noises, ``[C, K, P]``, all drawing the same numbers."""
    start = recipe.init(rng=Streams.from_seed(0))["vaes"]
    found: Tensor = recipe._clipped_sum(
        start.expand(len(data), -1, -1), at_site(recipe, data)
    ).value
    return found


# One noised value for all classes.


def test_a_record_moves_the_vae_of_its_class_alone_and_by_its_bound() -> None:
    recipe, data = build(study(sites=3)), small_shards()
    moved = clipped(recipe, data) - clipped(recipe, shorter(data, 1, 1))
    own = int(data.rows(1)[1][-1])
    assert not moved[[0, 2]].any() and not moved[1, 1 - own].any()
    assert 0.5 < float(moved[1, own].norm()) <= recipe.plan.own.parts[0].mechanism.bound


def test_a_record_of_another_class_moves_two_vaes_and_less_than_two_records() -> None:
    recipe, data = build(study(sites=3)), small_shards()
    other = Shards(data.x, data.y.clone(), data.starts, data.counts)
    other.y[7] = 1 - other.y[7]
    moved = (clipped(recipe, data) - clipped(recipe, other))[1]
    assert all(moved.norm(dim=1) > 0.5)
    assert 1 < float(moved.norm()) <= 2 * recipe.plan.own.parts[0].mechanism.bound


def reference(recipe: Any, data: Shards, bound: float) -> Tensor:
    """Record after record by plain autograd, at the first site."""
    start = recipe.init(rng=Streams.from_seed(0))["vaes"]
    site = at_site(recipe, data)
    noise = site.normals(site.sample("vaes"), recipe.spec.latent)
    total = torch.zeros_like(start)
    x, y = data.rows(0)
    for i, label in enumerate(y.tolist()):
        flat = start[label].clone().requires_grad_()
        batch = _one(x[i], y[i], noise[i])
        loss = recipe.record_losses(vae.unpack(recipe.spec, flat[None]), batch).sum()
        (slope,) = torch.autograd.grad(loss, flat)
        total[label] += slope * min(1.0, bound / float(slope.norm()))
    return total


def _one(x: Tensor, y: Tensor, noise: Tensor) -> RecordBatch:
    return RecordBatch(x[None, None], y[None, None], torch.ones(1, 1), noise[None, None])


def test_gradients_are_those_of_each_class_own_vae() -> None:
    recipe, data = build(study()), small_shards()
    expected = reference(recipe, data, 1 - 1e-3)
    torch.testing.assert_close(clipped(recipe, data)[0].float(), expected, rtol=1e-3, atol=1e-5)


def test_a_class_without_rows_takes_the_same_steps_under_the_same_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Tensor] = []
    original = Site.step

    def noted(self: Site, part: str, bounded: Bounded) -> Tensor:
        noised = original(self, part, bounded)
        seen.append(noised - bounded.value)
        return noised

    monkeypatch.setattr(Site, "step", noted)
    recipe, data = build(study()), small_shards()
    data.y[:] = 0
    for held in (data, shorter(data, 0, 4)):  # no row of class 1, then none at all
        site = at_site(recipe, held)
        update, _ = recipe.local(recipe.task(recipe.init(rng=Streams.from_seed(0)), 0), site)
        assert len(site.receipts) == NETS["steps"] == len(seen)
        assert all(float(noise.std()) == pytest.approx(1, abs=0.15) for noise in seen)
        assert update["vaes"][0, 1].abs().min() > 0, "a class stayed where it was"
        seen.clear()


def test_what_leaves_depends_on_noised_steps_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = build(study())
    draws = Streams.from_seed(9).torch("noised")
    frozen = [torch.randn(1, *recipe.plan.own.parts[0].shape, generator=draws) for _ in range(3)]
    found = []
    for held in (small_shards(), shorter(small_shards(), 0, 4)):
        queue = iter(frozen)
        monkeypatch.setattr(Site, "step", lambda *_, queue=queue: next(queue).double())
        task = recipe.task(recipe.init(rng=Streams.from_seed(0)), 0)
        found.append(recipe.local(task, at_site(recipe, held.take([0])))[0]["vaes"])
    assert torch.equal(*found)


# Claims.


def test_classes_are_not_added_up_and_the_claim_says_why() -> None:
    plan = build(study(privacy=EPSILON, recipe={"warm_start": 0})).plan
    assert (plan.unit, plan.trust, plan.length, plan.own.parts[0].shape[0]) == (
        "record", "local", 1, 2,
    )  # fmt: skip
    added, replaced = claims(plan, "os")
    assert added.relation == "add or remove one" and added.epsilon <= 1.5
    assert [event.count for event in added.events] == [NETS["steps"]]
    assert replaced.relation == "replace one" and replaced.events[0].noise[0] == pytest.approx(
        added.events[0].noise[0] / 2
    )
    assert any("classes are not added up" in caveat for caveat in added.caveats)


def test_secret_batches_are_claimed_for_records_that_are_added_or_removed_only() -> None:
    plan = build(study(training={"batch": 100})).plan
    assert plan.own.parts[0].mechanism.rate == 0.25
    assert [claim.relation for claim in claims(plan, "os")] == ["add or remove one"]


def test_a_persons_rows_are_bounded_together_whatever_their_classes() -> None:
    recipe = small_recipe("sgde", "person", "local", privacy={"noise": 1.5})
    assert (recipe.plan.own.parts[0].mechanism.bound, recipe.plan.own.parts[0].mechanism.rows) == (
        2, 2,
    )  # fmt: skip
    data = small_shards()
    data.y[6:8] = torch.tensor([0, 1])
    moved = clipped(recipe, data) - clipped(recipe, shorter(data, 1, 2))
    assert all(moved[1].norm(dim=1) > 0.5) and float(moved.norm()) <= 2


def test_a_warm_start_is_bounded_and_paid_for_within_the_same_budget(tmp_path: Path) -> None:
    warm = {"privacy": {"noise": None, "epsilon": 1.5}, "recipe": {**NETS, "warm_start": 0.5}}
    recipe, used = small_recipe("sgde", "record", "local", **warm), []
    assert claims(recipe.plan, "os")[0].epsilon <= 1.5 and len(recipe.plan.phases) > 1
    for i, neighbour in enumerate(neighbours("record", "local")[::5]):
        (tmp_path / str(i)).mkdir()
        used.append(check_replay(recipe, tmp_path / str(i), neighbour))
    assert max(used) > 0.05


# A member's release.


@pytest.mark.parametrize("kind, make", [("table", records), ("image", image_records)])
def test_a_member_alone_releases_a_decoder_per_class_drawn_alike(
    tmp_path: Path, kind: str, make: Any
) -> None:
    held = make(40, seed=2)
    run(study(kind, privacy=EPSILON), [held], out=tmp_path / "release")
    release = verify(tmp_path / "release").release
    drawn = release.model.rows(2000, rng=Streams.from_seed(1))[1]
    assert abs(float(drawn.float().mean()) - 0.5) < 0.05
    assert release.model.balance == (0.5, 0.5)
    decoders = [a for name, a in release.model.arrays.items() if name.endswith("decoder")]
    assert [len(found) for found in decoders] == [2]
    assert release.claims[0].epsilon <= 1.5


def test_without_noise_each_class_learns_its_own_rows() -> None:
    held = records(200, seed=3)
    held.frame["smoker"] = held.frame["ill"] == "yes"
    terms = {"training": {"rate": 0.02}, "recipe": {"steps": 150, "beta": 0.1}}
    release = run(study(privacy={"trust": "none"}, **terms), [held], seed=0)
    drawn = release.sample(400, seed=0).frame
    assert np.mean((drawn["ill"] == "yes") == drawn["smoker"]) > 0.95


def test_sites_in_one_study_go_on_from_the_mean_of_their_vaes() -> None:
    recipe = build(study(sites=3, study={"name": "t", "recipe": "sgde", "rounds": 2}))
    state = recipe.init(rng=Streams.from_seed(0))
    moved = torch.ones(recipe.plan.own.parts[0].shape)
    for _ in range(2):
        state = recipe.step(state, {"vaes": moved}, rng=Streams.from_seed(0))
    start = recipe.init(rng=Streams.from_seed(0))["vaes"]
    torch.testing.assert_close(recipe.task(state, 2).arrays["vaes"], start + 2)


REFUSED = {
    "epochs": (StudyError, "recipe.steps", {"training": {"epochs": 1}}),
    "a batch beyond the share": (StudyError, "public share", {"training": {"batch": 500}}),
    "batches of persons' rows": (
        PrivacyError, "where a record is protected", {"privacy": PERSON, "training": {"batch": 9}},
    ),
    "a whole site": (PrivacyError, "supports", {"privacy": {"unit": "site", "noise": 1.0}}),
    "a trusted server": (PrivacyError, "supports", {"privacy": {"trust": "central", "noise": 1}}),
    "no price": (StudyError, "privacy.epsilon", {"privacy": {"unit": "record"}}),
}  # fmt: skip


@pytest.mark.parametrize("error, words, tables", REFUSED.values(), ids=REFUSED)
def test_what_has_no_proof_is_refused(error: type, words: str, tables: dict) -> None:
    with pytest.raises(error, match=words):
        build(study(**tables))
