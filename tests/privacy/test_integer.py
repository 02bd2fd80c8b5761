"""Noise in shares: rounding, moduli, what the sum holds, and what it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.plans import one_phase, part
from privacy.test_discrete import p_value, pmf
from understudy.errors import PrivacyError
from understudy.privacy import integer
from understudy.privacy.account import Event, cost
from understudy.privacy.analytic import analytic_delta
from understudy.privacy.claim import claims
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part, PrivacyPlan, solve
from understudy.rng import Draws, NoiseSource, Streams

SITE = IntegerGaussian(1.0, noise=1.5, asked=5, survivors=4, colluders=1, most=5, whole=True)
RECORD = replace(SITE, whole=False, most=400)


def of(mechanism: IntegerGaussian, shape: tuple[int, ...] = (6,)) -> Part:
    return part("a", shape, "distributed", mechanism, combine="sum")


def plan(
    mechanism: IntegerGaussian = SITE, shape: tuple[int, ...] = (6,), **terms: Any
) -> PrivacyPlan:
    unit = "site" if mechanism.whole else "record"
    given = dict(parts=(of(mechanism, shape),), rounds=2, sites=5, units=400, delta=1e-5)
    return one_phase(unit, "distributed", **{**given, **terms})


def draws(sites: int = 1, seed: int = 0) -> Draws:
    return NoiseSource.seeded(Streams.from_seed(seed)).sites(0, range(sites))


def use(mechanism: IntegerGaussian, shape: tuple[int, ...], sites: int, seed: int = 0) -> Use:
    unit = "site" if mechanism.whole else "record"
    return Use(of(mechanism, shape), unit, 0, draws(sites, seed))


def sealed(mechanism: IntegerGaussian, value: torch.Tensor, seed: int = 0) -> torch.Tensor:
    how = use(mechanism, tuple(value.shape[1:]), len(value), seed)
    bounded = Bounded(value, mechanism.bound, how.unit)
    return mechanism.seal(bounded, how)[0]


def centred(mechanism: IntegerGaussian, numbers: torch.Tensor) -> torch.Tensor:
    """Whole numbers of a sum, as they were before reduction."""
    there = of(mechanism, tuple(numbers.shape))
    found, _ = mechanism.complete(numbers, Use(there, "site", 0, draws()))
    return (found / mechanism.grid(there).spacing).long()


# The noise.


def test_a_share_has_its_exact_distribution() -> None:
    found = centred(SITE, sealed(SITE, torch.zeros(1, 50_000))[0])
    assert p_value(found.numpy(), SITE.grid(of(SITE, (50_000,))).variance) > 1e-4


def test_the_sum_of_the_honest_shares_is_the_promised_noise() -> None:
    """t − c shares make up the whole: a discrete Gaussian of (zΔ)² and the lattice's 9."""
    shape = (40_000,)
    total = SITE.start(of(SITE, shape))
    SITE.accumulate(total, sealed(SITE, torch.zeros(SITE.honest, *shape)))
    grid = SITE.grid(of(SITE, shape))
    promised = (SITE.noise * grid.limit) ** 2 + 9
    assert p_value(centred(SITE, total).numpy(), promised) > 1e-4
    assert p_value(centred(SITE, total).numpy(), 0.9 * promised) < 1e-4


@pytest.mark.parametrize("mechanism", [SITE, RECORD])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (10_000,)])
def test_shares_are_coarse_enough_to_add_up_and_noise_covers_the_bound(
    mechanism: IntegerGaussian, shape: tuple[int, ...]
) -> None:
    for noise, honest in ((1e-3, 3), (0.7, 3), (50.0, 3), (0.5, 700)):
        made = replace(mechanism, noise=noise, asked=1000, survivors=honest + 100, colluders=100)
        grid = made.grid(of(made, shape))
        assert math.log2(grid.spacing) % 1 == 0
        assert grid.variance >= 4.5**2
        assert made.honest * grid.variance >= (noise * grid.limit) ** 2 + 9
        assert 1 <= grid.limit * grid.spacing / made.bound < 1.003, "rounding costs next to nothing"
        assert made.gap(of(made, shape)) < 1e-40


# Rounding.


def test_rounding_is_right_on_average() -> None:
    value = torch.linspace(-3, 3, 400).repeat(500, 1)
    found = integer._randomly(value, draws(500)).double()
    assert float((found - value).abs().max()) < 1
    assert float((found.mean(0) - value[0]).abs().max()) < 0.1


def test_a_sites_rounded_norm_is_within_the_limit_whatever_it_sends() -> None:
    shape = (400,)
    grid = SITE.grid(of(SITE, shape))
    halves = (torch.floor(torch.full((64, 400), grid.limit / 20.0)) + 0.5) * grid.spacing
    worst = halves / halves.norm(dim=1, keepdim=True) * SITE.bound
    for value in (worst, -worst, torch.full((64, 400), math.nan), torch.full((64, 400), 1e9)):
        how = use(SITE, shape, 64)
        found = SITE._rounded(SITE.bounded(value, how).value, grid, how.draws)
        assert int(found.square().sum(1).max()) <= grid.squared


def test_rounding_that_goes_too_far_is_drawn_again_and_then_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []

    def up(value: torch.Tensor, draws: Draws) -> torch.Tensor:
        tries.append(len(value))
        return (value.abs().ceil() * value.sign()).long() + 1

    monkeypatch.setattr(integer, "_randomly", up)
    shape = (900,)
    grid = SITE.grid(of(SITE, shape))
    value = torch.cat((torch.zeros(1, 900), torch.full((1, 900), 1 / 30 * (1 - 1e-6))))
    found = SITE._rounded(value, grid, draws(2))
    assert tries == [2, 1, 1, 1], "only the site that went too far draws again"
    assert torch.equal(found[1], (value[1].double() / grid.spacing).trunc().long())
    assert int(found.square().sum(1).max()) <= grid.squared


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 1.0), st.floats(-40, 40))
def test_one_record_moves_a_rounded_sum_by_no_more_than_the_limit(
    seed: int, share: float, place: float
) -> None:
    """The other rows leave a sum anywhere on the grid; u is the same, as it depends on no data."""
    shape = (25,)
    grid = RECORD.grid(of(RECORD, shape))
    rng = np.random.default_rng(seed)
    rest = torch.from_numpy(rng.normal(size=25) + place)
    move = torch.from_numpy(rng.normal(size=25) * (rng.random(25) < share))
    move = move / max(float(move.norm()), 1e-9)
    with_it, without = (
        RECORD._rounded(sum_[None], grid, draws(seed=seed % 1000)) for sum_ in (rest + move, rest)
    )
    assert float((with_it - without).double().norm()) <= grid.limit
    assert bool(((with_it - without)[0][move == 0] == 0).all()), "others' numbers stay"


def test_what_rounding_adds_to_a_records_move_is_in_the_limit() -> None:
    """Each number is rounded up because of the record: the case that √d in the limit is for."""
    grid = RECORD.grid(of(RECORD, (25,)))
    bound = RECORD.bound / grid.spacing
    rest = torch.from_numpy(draws().uniform(25)) - 1e-6  # a hair below what would be rounded up
    move = torch.full_like(rest, math.floor(bound / 5) + 2e-6)
    assert float(move.norm()) <= bound
    with_it, without = (
        RECORD._rounded(value * grid.spacing, grid, draws()) for value in (rest + move, rest)
    )
    moved = float((with_it - without).double().norm())
    assert bound * (1 + 2**-12) < moved <= grid.limit


def test_what_is_not_finite_counts_as_zero() -> None:
    value = torch.zeros(2, 6)
    value[1] = torch.tensor([math.nan, math.inf, -math.inf, 0, 0, 0])
    assert not RECORD._rounded(value, RECORD.grid(of(RECORD)), draws(2)).any()
    found = centred(RECORD, sealed(RECORD, value)[1])
    assert float(found.abs().max()) < 16 * math.sqrt(RECORD.grid(of(RECORD)).variance)


# The modulus.


@pytest.mark.parametrize("mechanism", [SITE, RECORD])
def test_the_largest_sum_does_not_wrap(mechanism: IntegerGaussian) -> None:
    there = of(mechanism)
    grid, bits = mechanism.grid(there), mechanism.bits(there)
    most = mechanism.most * mechanism.bound
    each = torch.full((1, 6), most / mechanism.asked)
    total = mechanism.start(there)
    for site in range(mechanism.asked):
        value = each if site % 2 else 2 * each  # beyond: clipped, or more rows than declared
        numbers = (
            (value / grid.spacing).long()[0].clamp(max=int(most / mechanism.asked / grid.spacing))
        )
        mechanism.accumulate(total, (-numbers[None]) & (2**bits - 1))
    found, receipts = mechanism.complete(total, use(mechanism, (6,), 1))
    assert float((found + most).abs().max()) < 2 * mechanism.asked * grid.spacing
    assert receipts == () and bits % 8 == 0


def test_a_sum_that_no_modulus_holds_is_refused_with_the_bits_it_needs() -> None:
    with pytest.raises(PrivacyError, match=r"56 bits; found \d+ bits needed"):
        plan(replace(RECORD, most=2**45), units=2**40, delta=1e-14)


@pytest.mark.parametrize(
    "sent",
    [
        torch.zeros(1, 6),
        torch.zeros(1, 6, dtype=torch.int32),
        torch.zeros(1, 7, dtype=torch.int64),
        torch.full((1, 6), math.nan),
    ],
)
def test_what_is_no_whole_number_of_the_right_shape_is_left_out(sent: torch.Tensor) -> None:
    assert SITE.fits(sent, of(SITE), "site") is None


def test_numbers_beyond_the_modulus_are_left_out() -> None:
    sent = torch.zeros(3, 6, dtype=torch.int64)
    sent[1, 2], sent[2, 0] = -1, 2 ** SITE.bits(of(SITE))
    found = SITE.fits(sent, of(SITE), "site")
    assert found is not None and found.tolist() == [True, False, False]


# What it costs.


def exact_delta(epsilon: float, variance: float, shift: int) -> float:
    """δ(ε) of one discrete Gaussian in one dimension, added up."""
    k, chance = pmf(variance)
    norm = np.exp(-(k**2) / (2 * variance)).sum()
    return float(np.maximum(0, np.exp(-((k - shift) ** 2) / (2 * variance)) / norm
                            - math.exp(epsilon) * chance).sum())  # fmt: skip


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_in_one_dimension_the_gaussians_delta_covers_the_exact_one(noise: float) -> None:
    shift = 60
    variance = (noise * shift) ** 2 + 9
    for epsilon in (0.1, 0.5, 1.0, 3.0):
        exact, claimed = exact_delta(epsilon, variance, shift), analytic_delta(epsilon, noise)
        assert exact <= claimed * (1 + 1e-9)
        if claimed < 1e-12:
            continue
        assert exact > 0.9 * claimed, "and hardly more is claimed than is needed"


def test_renyi_divergence_agrees_with_the_published_bound() -> None:
    """Kairouz, Liu & Steinke 2021, Theorem 1: ½Δ²/(hσ²) of concentrated privacy, and τ beside."""
    shape, alphas = (100,), np.linspace(1.01, 200, 20_000)
    grid = SITE.grid(of(SITE, shape))
    tau = 10 * sum(math.exp(-2 * math.pi**2 * grid.variance * k / (k + 1)) for k in (1, 2))
    rho = grid.limit**2 / (2 * SITE.honest * grid.variance) + 0.25 * tau * 100
    delta = 1e-5
    logs = np.log((alphas - 1) / alphas) - (math.log(delta) + np.log(alphas)) / (alphas - 1)
    published = float((rho * alphas + logs).min())
    ours = cost(plan(shape=shape, rounds=1).promise(amplified=False), delta)
    assert published <= ours.epsilon_rdp * (1 + 1e-4) <= 1.01 * published
    assert ours.epsilon < ours.epsilon_rdp


def test_a_gap_costs_and_one_that_is_not_small_costs_infinity() -> None:
    exact = cost([Event((1.0,), None, 3)], 1e-5).epsilon
    near = cost([Event((1.0,), None, 3, gap=1e-18)], 1e-5).epsilon
    assert exact <= near < exact * (1 + 1e-6)
    assert cost([Event((1.0,), None, 3, gap=1e-9)], 1e-5).epsilon == math.inf
    assert cost([Event((1e-3,), None, 3, gap=1e-30)], 1e-5).epsilon == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [SITE, RECORD])
def test_the_view_of_the_server_and_c_sites_tells_no_more_than_claimed(
    mechanism: IntegerGaussian,
) -> None:
    """The sum over t survivors less the colluders' shares, for rows or none of the victim's.

    The best test of a Gaussian's shift, at every threshold; with 40,000 trials a share of noise
    sized for t in place of t − c is found out.
    """
    trials, there = 40_000, of(mechanism, (1,))
    grid, epsilon = mechanism.grid(there), 0.5
    size = int(grid.limit) if mechanism.whole else mechanism.bound / grid.spacing
    views = []
    for value, seed in ((mechanism.bound * (1 - 1e-9), 1), (0.0, 2)):
        view = torch.zeros(trials, 1, dtype=torch.int64)
        for site in range(mechanism.survivors - mechanism.colluders):
            held = torch.full((trials, 1), value if site == 0 else 0.0)
            view += sealed(mechanism, held, seed=10 * seed + site)
        half = 2 ** (mechanism.bits(there) - 1)
        views.append(((view + half) % (2 * half) - half).numpy()[:, 0] / size)
    edges = np.linspace(-2, 4, 61)
    with_rows, without = (np.mean(v[:, None] > edges, axis=0) for v in views)
    error = 4 * math.sqrt(0.25 / trials) * (1 + math.exp(epsilon))
    found = float((with_rows - math.exp(epsilon) * without).max())
    claimed = analytic_delta(epsilon, mechanism.noise)
    assert found <= claimed + error
    assert found > claimed - error, "the attack is not the best one"
    lucky = analytic_delta(epsilon, mechanism.noise * math.sqrt(mechanism.survivors / 3))
    assert found > lucky + error / 4, "the attack would not notice that c was ignored"


@pytest.mark.slow
def test_solved_noise_costs_no_more_than_was_asked_for() -> None:
    for mechanism in (SITE, RECORD, replace(RECORD, rate=0.1)):
        solved = solve(plan(mechanism, rounds=3), 1.0)
        assert 0.9 < claims(solved, "os")[0].epsilon <= 1.0


# Claims.


def test_each_adversary_has_a_claim_with_t_and_c_on_it() -> None:
    found = claims(plan(RECORD), "os")
    assert [c.adversary for c in found] == [
        "the server together with one site",
        "the server together with one site",
        "one other site",
        "the public",
    ]
    assert [c.relation for c in found][:2] == ["add or remove one", "replace one"]
    for claim in found:
        told = claim.caveats[-1]
        assert "t = 4 of 5 sites" in told and "c = 1 of all 5 sites tell" in told
    server, replaced, others, public = (c.epsilon for c in found)
    assert server == others < replaced and public < server
    assert all("no amplification" in c.sampling for c in found)
    assert not any("floating-point" in caveat for c in found for caveat in c.caveats)


def test_the_public_knows_no_share() -> None:
    """All t shares are noise to it: z·√(t/(t − c))."""
    public = claims(plan(RECORD, rounds=1), "os")[-1]
    expected = cost([Event((1.5 * math.sqrt(4 / 3),), None, 1)], 1e-5).epsilon
    assert public.epsilon == pytest.approx(expected, rel=1e-5)


def test_where_sites_are_protected_the_relation_is_rows_or_none() -> None:
    found = claims(plan(SITE), "os")
    assert found[0].relation == "its rows or none" and found[1].relation == "replace one"


def test_without_colluders_nothing_is_promised_against_the_other_sites() -> None:
    alone = claims(plan(replace(SITE, colluders=0)), "os")
    assert alone[0].adversary == "the server alone" and alone[0].private
    assert [c.adversary for c in alone if not c.private] == ["the other sites"]


def test_secret_batches_hide_records_from_everybody() -> None:
    batched = claims(plan(replace(RECORD, rate=0.1)), "os")
    assert [c.relation for c in batched] == ["add or remove one"] * 3
    assert headline_of(batched) < 0.5 * headline_of(claims(plan(RECORD), "os"))


def headline_of(found: tuple) -> float:
    return found[0].epsilon


def test_above_a_hundred_sites_the_server_must_follow_the_protocol() -> None:
    many = replace(SITE, asked=200, survivors=160, colluders=20, most=200)
    found = claims(plan(many, sites=200), "os")
    assert "the server follows the protocol" in found[0].caveats[-1]
    assert "the server follows" not in claims(plan(), "os")[0].caveats[-1]
    assert found[0].adversary == "the server together with up to 20 sites"


def test_a_schedule_of_few_among_many_sites_lets_a_server_call_more_than_a_hundred() -> None:
    few = replace(SITE, asked=100, survivors=80, colluders=10, most=100)
    found = claims(plan(few, sites=1000, size=100), "os")
    assert "the server follows the protocol" in found[0].caveats[-1]


# Receipts and plans.


def test_receipts_hold_the_share() -> None:
    how = use(SITE, (6,), 2)
    _, (receipt,) = SITE.seal(torch.zeros(2, 6), how)
    grid = SITE.grid(of(SITE))
    assert receipt.std == pytest.approx(math.sqrt(grid.variance) * grid.spacing)
    assert receipt.std >= SITE.noise / math.sqrt(3) and receipt.where == "distributed"
    plan().admits([receipt])
    for less in (replace(receipt, std=0.9 * receipt.std), replace(receipt, bound=2.0)):
        with pytest.raises(PrivacyError):
            plan().admits([less])


def test_a_plan_survives_json() -> None:
    made = plan(RECORD, shape=(2, 3))
    assert PrivacyPlan.from_dict(made.to_dict()) == made
    assert isinstance(made.receipts(0, "os")[0], Receipt)


REFUSED = {
    "more survivors than sites": (dict(survivors=6), {}, "at most 5"),
    "no two honest survivors": (dict(colluders=3), {}, "at least two of 4"),
    "negative colluders": (dict(colluders=-1), {}, "from 0 to 2"),
    "two sums of one round": (dict(survivors=3), {}, "at least 4"),
    "cohorts by coin flips": ({}, dict(rate=0.5), "cohort.rate"),
    "another number of sites": (dict(asked=4, survivors=4), {}, "one t and one c"),
    "no noise": (dict(noise=0.0), {}, "positive noise"),
    "steps": (dict(steps=2), {}, "distributed slot"),
    "records as sites": (dict(whole=False), dict(unit="site"), "distributed slot"),
}


@pytest.mark.parametrize("terms, others, said", REFUSED.values(), ids=REFUSED)
def test_plans_whose_shares_promise_nothing_are_refused(
    terms: dict, others: dict, said: str
) -> None:
    unit = others.pop("unit", "site")
    with pytest.raises(PrivacyError, match=said):
        one_phase(
            unit, "distributed",
            parts=(of(replace(SITE, **terms)),), rounds=2, sites=5, units=400, delta=1e-5, **others,
        )  # fmt: skip


def test_a_public_schedule_counts_the_rounds_of_a_site() -> None:
    half = replace(SITE, asked=5)
    scheduled = plan(half, rounds=4, sites=10, size=5)
    assert scheduled.promise(amplified=False)[0].count == 2
