"""The audit passes correct code and falsifies broken code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from contracts.harness import small_recipe, small_study
from contracts.toys import toys
from understudy.audit import audit, replay
from understudy.audit.canary import Canaries, canaries
from understudy.audit.evidence import Rates, least_epsilon, one_run_bound, separate_bound
from understudy.audit.inputs import handed, inputs
from understudy.audit.replay import Replay
from understudy.audit.runs import many_runs, tiny
from understudy.audit.whole import Audit, Measured
from understudy.errors import AuditError
from understudy.federation import engine as engine_module
from understudy.federation.site import Site
from understudy.nets.autoencoder import ENCODER
from understudy.privacy import integer
from understudy.privacy.account import Event, cost, profile
from understudy.privacy.claim import claims
from understudy.privacy.clip import Bounded
from understudy.privacy.gaussian import Gaussian
from understudy.recipes import RECIPES, vae
from understudy.recipes.dpd_fvae import records as records_module
from understudy.rng import Draws, Streams

_ = toys  # a fixture
BATCHES = {"training": {"rate": 0.3, "batch": 60}}
CASES = {
    "fedmoments": ("record", "central", {}),
    "dpd_fvae": ("record", "local", BATCHES),
    "fedvae": ("site", "central", {"cohort": {"rate": 0.5}, "study": {"rounds": 6}}),
    "signds": ("site", "local", {}),
}


def plan_of(name: str, epsilon: float):
    unit, trust, tables = CASES[name]
    price = "epsilon_per_update" if name == "signds" else "epsilon"
    privacy = {"noise": None, price: epsilon} if name != "signds" else {price: epsilon}
    return small_recipe(name, unit, trust, privacy=privacy, **tables).plan


def bounds(name: str, epsilon: float, many: int = 4000):
    plan = plan_of(name, epsilon)
    for claim in claims(plan, "os"):
        found = canaries(plan, claim, many, rng=Streams.from_seed(3))
        if found is not None:
            yield claim, max(found.epsilon, found.single)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("name", CASES)
def test_correct_code_stays_below_its_claim(name: str, epsilon: float) -> None:
    found = list(bounds(name, epsilon, many=1000))
    assert found
    for claim, least in found:
        assert least <= claim.epsilon


def halved(patch: pytest.MonkeyPatch) -> None:
    """Half the noise, honest receipts."""
    original = Gaussian.add_noise

    def add_noise(self, bounded, use):
        own = None if use.noise is None else 0.5 * use.noise
        value, receipts = original(
            replace(self, noise=0.5 * self.noise), bounded, replace(use, noise=own)
        )
        return value, tuple(replace(r, std=2 * r.std) for r in receipts)

    patch.setattr(Gaussian, "add_noise", add_noise)


def whole_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draws, "coins_each", lambda self, counts, rate: np.ones(sum(counts), bool))


def everyone(patch: pytest.MonkeyPatch) -> None:
    """Cohorts of all sites under a claim that counts on secret ones."""
    patch.setattr(engine_module, "draw_cohort", lambda sites, rate, *, source: np.arange(sites))


def broken(name: str, *terms: object, slow: bool = True) -> object:
    return pytest.param(*terms, id=name, marks=[pytest.mark.slow] if slow else [])


BROKEN = [
    broken("half the noise, one sum", halved, "fedmoments", 1.0, slow=False),
    broken("half the noise, sampled sites", halved, "fedvae", 4.0),
    broken("half the noise, steps", halved, "dpd_fvae", 4.0),
    broken("batches of everyone", whole_batches, "dpd_fvae", 4.0),
    broken("cohorts of everyone", everyone, "fedvae", 4.0),
]


@pytest.mark.parametrize("mutate, name, epsilon", BROKEN)
def test_a_bound_above_the_claim_falsifies_broken_mechanisms(
    monkeypatch: pytest.MonkeyPatch, mutate, name: str, epsilon: float
) -> None:
    mutate(monkeypatch)
    assert any(least > claim.epsilon for claim, least in bounds(name, epsilon))


def half_shares(patch: pytest.MonkeyPatch) -> None:
    drawn = integer.discrete_gaussian
    patch.setattr(integer, "discrete_gaussian", lambda variance: drawn(variance / 4))


RUNS = [
    broken("one sum", halved, "fedmoments", "record", "central", slow=False),
    broken("noise of sites", halved, "fedvae", "site", "local"),
    broken("shares of noise", half_shares, "fedmoments", "person", "distributed"),
]


@pytest.mark.parametrize("mutate, name, unit, trust", RUNS)
def test_many_runs_stay_below_the_claim_until_the_noise_is_halved(
    monkeypatch: pytest.MonkeyPatch, mutate, name: str, unit: str, trust: str
) -> None:
    plan = small_recipe(name, unit, trust, privacy={"noise": None, "epsilon": 4.0}).plan
    assert tiny(plan) and not tiny(plan.with_own(rounds=100))
    told = claims(plan, "os")[0]

    def least() -> float:
        return many_runs(plan, told, 800, rng=Streams.from_seed(0)).least

    assert 0 < least() <= told.epsilon
    mutate(monkeypatch)
    assert least() > told.epsilon


def by_rows(name: str, epsilon: float, runs: int = 1000):
    unit, trust, tables = CASES[name]
    price = {"epsilon_per_update": epsilon} if name == "signds" else {"noise": None}
    privacy = price if name == "signds" else {**price, "epsilon": epsilon}
    recipe = small_recipe(name, unit, trust, privacy=privacy, **tables)
    for claim in claims(recipe.plan, "os"):
        found = handed(recipe, claim)
        told = inputs(recipe.plan, claim, found, runs, rng=Streams.from_seed(0))
        if told is not None:
            yield claim, told.least


@pytest.mark.parametrize("name", ["fedmoments", *(broken(n, n) for n in list(CASES)[1:])])
def test_worst_case_rows_stay_below_the_claim_and_are_told_from_none(name: str) -> None:
    found = list(by_rows(name, 8.0))
    assert found
    for claim, least in found:
        assert 0.15 * claim.epsilon < least <= claim.epsilon


def test_worst_case_rows_show_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    halved(monkeypatch)
    assert all(least > claim.epsilon for claim, least in by_rows("fedmoments", 8.0))


@pytest.mark.slow
def test_worst_case_rows_show_a_clip_that_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    unclipped(monkeypatch)
    assert all(least > claim.epsilon for claim, least in by_rows("dpd_fvae", 4.0))


@pytest.mark.slow
def test_shares_of_a_schedule_are_listened_to_in_the_round_of_the_canary() -> None:
    """Others are called to the other rounds: what they send says nothing of it."""
    terms = {"study": {"rounds": 3}, "cohort": {"size": 5}, "recipe": {"warm_start": 0}}
    terms |= {"simulation": {"data": "-", "sites": 15}}
    privacy = {"noise": None, "epsilon": 8.0, "colluders": 1, "survivors": 5}
    plan = small_recipe("fedvae", "site", "distributed", privacy=privacy, **terms).plan
    told = claims(plan, "os")[0]
    found = many_runs(plan, told, 300, rng=Streams.from_seed(0))
    assert abs(found.rates.false_positive - found.rates.false_negative) < 0.2
    assert 0.4 * told.epsilon < found.least <= told.epsilon


def unclipped(patch: pytest.MonkeyPatch) -> None:
    def clipped(loss, params, pieces, bound, *, only=""):
        return replace(gradients(loss, params, pieces, 1e9, only=only), sensitivity=bound)

    gradients = records_module.clipped_gradients
    patch.setattr(records_module, "clipped_gradients", clipped)


def test_replay_passes_a_study_and_names_the_part_that_moves_too_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = small_study("dpd_fvae", "record", "local", **BATCHES)
    fine = replay(study)
    assert not fine.findings and fine.used > 0.05, fine.words
    unclipped(monkeypatch)
    found = replay(study)
    assert found.findings and "moved by" in found.words
    assert {f.part for f in found.findings} == {"shared"}


def test_replay_catches_an_encoder_whose_steps_are_not_noised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decoder's numbers are noised, the encoder's are stepped and shared as they are."""
    study, original = small_study("dpd_fvae", "record", "local", **BATCHES), Site.step
    spec = RECIPES["dpd_fvae"].build(study).spec
    every = vae.unpack(spec, torch.arange(vae.size(spec, ""))[None], "")
    encoder = torch.cat([p.flatten() for name, p in every.items() if name.startswith(ENCODER)])

    def step(self, part, bounded):
        noised = original(self, part, bounded).clone()
        noised[:, encoder] = bounded.value[:, encoder]
        return noised

    monkeypatch.setattr(Site, "step", step)
    assert "passed the noise by" in replay(study).words


def test_a_broken_study_fails_as_a_whole(monkeypatch: pytest.MonkeyPatch, toys: None) -> None:
    study = small_study("toy-mean", "site", "central")
    good = audit(study, many=400, runs=20, rng=Streams.from_seed(0))
    good.check()
    assert "never certifies" in good.to_dict()["caveat"]

    def bounded(self, value, use):
        return Bounded(value.value if isinstance(value, Bounded) else value, self.bound, "site")

    monkeypatch.setattr(Gaussian, "bounded", bounded)
    with pytest.raises(AuditError) as error:
        audit(study, only_replay=True).check()
    assert error.value.exit_code == 11 and "mean" in error.value.found


def test_a_bound_above_the_claim_fails_the_whole_audit(toys: None) -> None:
    plan = small_recipe("toy-mean", "site", "central").plan
    claim, fine = claims(plan, "os")[0], Replay((), 1, 0.5)
    assert claim.epsilon is not None
    for over in (-0.1, 0.1):
        found = Canaries(0.0, claim.epsilon + over, Rates(0.1, 0.1, 9), 1)
        each = Measured(claim, None, None, "", found)
        for bound in (Measured(claim, found), Measured(claim, None, found), each):
            told = Audit("s", "toy-mean", fine, (bound,))
            assert bool(told.failures) == (over > 0) == told.to_dict()["claims"][0]["broken"]
    with pytest.raises(AuditError, match="at least"):
        told.check()


# The arithmetic.


def test_the_profile_is_that_of_known_mechanisms() -> None:
    one = [Event((2.0,), None, 1)]
    for epsilon in (0.5, 2.0):
        delta = profile(one, [epsilon])[0]
        assert cost(one, delta).epsilon == pytest.approx(epsilon, rel=1e-2)
    sampled = [Event((1.0,), 0.2, 5)]
    delta = profile(sampled, [1.0])[0]
    assert cost(sampled, delta).epsilon == pytest.approx(1.0, rel=2e-2)
    pure = [Event((), None, 2, epsilon=0.5)]
    e = np.e
    assert profile(pure, [0.0, 1.0, 2.0]) == pytest.approx([(e - 1) / (e + 1), 0.0, 0.0])


def test_the_least_epsilon_recovers_a_gaussian_from_its_best_test() -> None:
    from statistics import NormalDist

    events = [Event((1.0,), None, 1)]
    wrong = NormalDist().cdf(-0.5)  # of the best test between N(0, 1) and N(1, 1)
    exact = cost(events, 1e-5).epsilon
    assert least_epsilon(Rates(wrong, wrong, 1), events, events, 1e-5) == pytest.approx(
        exact, rel=0.05
    )
    assert separate_bound(Rates(0.1, 0.19, 1), 0.01) == pytest.approx(np.log(8))
    coin = least_epsilon(Rates(0.5, 0.5, 1), events, events, 1e-5)
    assert coin == 0


def test_one_run_bounds_what_randomised_response_can_do() -> None:
    """Guesses that are right as often as ε = 2 allows are compatible with it, and not with .5."""
    truth = np.e**2 / (1 + np.e**2)
    right = int(np.random.default_rng(0).binomial(2000, truth))
    found = one_run_bound(right, 2000, 2000, 0.0)
    assert 1.5 < found < 2.0
    assert one_run_bound(1000, 2000, 2000, 1e-5) == 0
    assert one_run_bound(right, 2000, 2000, 1e-5) <= found
