from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from privacy.plans import SLOTS, noised, one_phase, sent
from understudy.errors import BudgetError, PrivacyError
from understudy.federation.budget import allowed_joins
from understudy.privacy.account import Event, cost
from understudy.privacy.clip import Receipt
from understudy.privacy.plan import (
    PrivacyPlan,
    claim_terms,
    default_delta,
    solve,
)


def plan(trust: str = "central", unit: str = "site", **changes) -> PrivacyPlan:
    slot = SLOTS.get(trust, "server")
    parts = (noised("a", (3,), slot, 2.0, 1.5), noised("b", (2, 2), slot, 1.0, 4.0))
    parts = (sent("a", (3,)), sent("b", (2, 2))) if trust == "none" else parts
    terms = dict(unit=unit, trust=trust, parts=parts, rounds=4, sites=50, units=50, delta=1e-5)
    return one_phase(**{**terms, **changes})


def stepped(**changes) -> PrivacyPlan:
    terms = dict(bound=1.0, noise=2.0, steps=5, rate=0.1)
    return plan("local", "record", parts=(noised("s", (3,), "step", **{**terms, **changes}),))


def test_the_default_delta_is_below_one_in_n() -> None:
    assert default_delta(1) == default_delta(100) == 1e-5
    assert default_delta(10**6) == pytest.approx(10**-6.6)
    assert all(default_delta(n) < 1 / n for n in (1, 2, 10, 10**5, 10**9))


def test_the_planned_cohort_is_public_and_does_not_depend_on_who_came() -> None:
    assert plan(rate=0.1).own.cohort == pytest.approx(5)
    assert plan().own.cohort == 50


@pytest.mark.parametrize("delta", [0.0, 1 / 50, 0.5, 1.0, -1e-6, math.nan])
def test_a_delta_of_one_in_n_or_more_is_refused(delta: float) -> None:
    with pytest.raises(PrivacyError, match="1/N"):
        plan(delta=delta)


@pytest.mark.parametrize(
    "change",
    [
        dict(rounds=0),
        dict(sites=0),
        dict(units=0),
        dict(joins=0),
        dict(rate=0.0),
        dict(rate=1.1),
        dict(rate=math.nan),
        dict(trust="blind"),
        dict(unit="house"),
        dict(parts=()),
        dict(parts=(noised("a", (1,), "server", 1.0, 1.0), noised("a", (2,), "server", 1.0, 1.0))),
    ],
)
def test_a_plan_that_means_nothing_is_refused(change: dict) -> None:
    with pytest.raises(PrivacyError):
        plan(**change)


@pytest.mark.parametrize(
    "change",
    [
        dict(noise=0.0),
        dict(noise=-1.0),
        dict(noise=math.nan),
        dict(noise=math.inf),
        dict(bound=0.0),
        dict(bound=math.nan),
        dict(bound=math.inf),
        dict(steps=0),
        dict(rate=0.0),
        dict(rate=1.5),
        dict(rate=math.nan),
        dict(rows=0),
        dict(blocks=0),
    ],
)
def test_a_part_that_would_cost_nothing_is_refused(change: dict) -> None:
    with pytest.raises(PrivacyError):
        stepped(**change)


@pytest.mark.parametrize(
    "trust, slot",
    [
        ("central", "client"),
        ("central", "step"),
        ("local", "server"),
        ("local", "distributed"),
        ("distributed", "server"),
    ],
)
def test_a_slot_that_does_not_belong_to_the_trust_is_refused(trust: str, slot: str) -> None:
    with pytest.raises(PrivacyError, match="slot"):
        plan(trust, parts=(noised("a", (1,), slot, 1.0, 1.0),))


def test_a_plan_without_privacy_needs_no_noise() -> None:
    open_plan = plan("none")
    assert cost(open_plan.promise(), 1e-5).epsilon == math.inf


def test_the_promise_of_central_trust_is_amplified_by_the_rate() -> None:
    assert plan(rate=0.1).promise() == (Event((1.5, 4.0), 0.1, 4),)
    assert plan(rate=0.1).promise(amplified=False) == (Event((1.5, 4.0), None, 4),)
    assert plan().promise() == (Event((1.5, 4.0), None, 4),)


def test_the_promise_counts_the_rounds_that_a_unit_can_join() -> None:
    limited = plan("local", rate=0.1, joins=2)
    assert limited.promise(factor=2.0, amplified=False) == (Event((0.75, 2.0), None, 2),)
    assert plan(rate=0.1, joins=2).promise()[0].count == 4, "secret coins: all rounds count"
    assert plan("local", joins=9).participations == 4


def test_steps_are_sampled_by_record_whoever_looks() -> None:
    assert stepped().promise(amplified=False) == (Event((2.0,), 0.1, 20),)


def test_receipts_are_written_for_every_part_and_step_of_a_round() -> None:
    receipts = plan().receipts(3, "os")
    assert [(r.part, r.round, r.bound, r.std) for r in receipts] == [
        ("a", 3, 2.0, 3.0),
        ("b", 3, 1.0, 4.0),
    ]
    assert len(stepped().receipts(0, "os")) == 5
    assert {r.source for r in receipts} == {"os"}


def all_receipts(p: PrivacyPlan) -> list[Receipt]:
    return [r for round in range(p.length) for r in p.receipts(round, "os")]


def test_what_was_promised_is_admitted() -> None:
    for p in (plan(), plan("local"), stepped()):
        p.admits(all_receipts(p))
        p.admits(())
    p = plan()
    p.admits([replace(p.receipts(0, "os")[0], std=99.0)])  # more noise than promised is fine


@pytest.mark.parametrize(
    "change",
    [
        dict(std=2.9),
        dict(std=math.nan),
        dict(std=0.0),
        dict(bound=2.1, std=99.0),
        dict(bound=0.0, std=0.0),
        dict(bound=-1.0, std=-0.5),
        dict(bound=math.nan),
        dict(where="client"),
        dict(unit="record"),
        dict(mechanism="hope"),
        dict(round=4),
        dict(round=-1),
        dict(round=0.5),
        dict(round="0"),
        dict(std="3"),
        dict(source=None),
    ],
)
def test_a_receipt_beyond_the_promise_is_not_admitted(change: dict) -> None:
    p = plan()
    with pytest.raises(BudgetError):
        p.admits([replace(p.receipts(0, "os")[0], **change)])


def test_a_foreign_part_is_not_admitted() -> None:
    p = plan()
    with pytest.raises(PrivacyError, match="parts"):
        p.admits([replace(p.receipts(0, "os")[0], part="c")])


def test_more_charges_than_promised_are_not_admitted() -> None:
    for p in (plan(), stepped()):
        extra = p.receipts(1, "os")[0]
        with pytest.raises(BudgetError, match="at most"):
            p.admits([*all_receipts(p), extra])


def test_a_finished_run_is_settled_by_all_its_charges_and_no_fewer() -> None:
    for p in (plan(), plan("local"), stepped()):
        p.settles(all_receipts(p))
        for kept in (all_receipts(p)[:-1], all_receipts(p)[1:], []):
            with pytest.raises(BudgetError, match="charge"):
                p.settles(kept)
    open_plan = plan("none")
    open_plan.settles([])


def test_a_plan_survives_json() -> None:
    for p in (plan(rate=0.25, joins=3), plan("none"), stepped()):
        again = PrivacyPlan.from_dict(json.loads(json.dumps(p.to_dict())))
        assert again == p


@pytest.mark.parametrize("spoil", ["extra", "missing"])
def test_a_plan_with_other_fields_is_refused(spoil: str) -> None:
    data = plan().to_dict()
    if spoil == "extra":
        data["discount"] = 0.5
    else:
        del data["delta"]
    with pytest.raises((TypeError, KeyError)):
        PrivacyPlan.from_dict(data)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_solving_for_epsilon_bounds_the_headline(trust: str) -> None:
    solved = solve(plan(trust), 2.0)
    factor, amplified = claim_terms(solved)
    spent = cost(solved.promise(factor=factor, amplified=amplified), solved.delta).epsilon
    assert 1.98 < spent <= 2.0
    assert len({p.mechanism.noise for p in solved.own.parts}) == 1


def test_local_trust_is_solved_at_doubled_sensitivity_and_without_amplification() -> None:
    assert claim_terms(plan("local")) == (2.0, False)
    assert claim_terms(plan("local", "record")) == (1.0, False)
    assert claim_terms(plan("central")) == (1.0, True)
    local, central = (
        solve(plan(trust), 2.0).own.parts[0].mechanism.noise for trust in ("local", "central")
    )
    ratio = local / central
    assert ratio == pytest.approx(2.0)


def test_a_cap_allows_as_many_joins_as_fit_under_it() -> None:
    p = plan("local", rounds=20)
    joins = allowed_joins(p, 12.0)
    assert 0 < joins < 20

    def spent(n: int) -> float:
        return cost(p.with_own(joins=n).promise(factor=2.0, amplified=False), p.delta).epsilon

    assert spent(joins) <= 12.0 < spent(joins + 1)
    assert allowed_joins(p, 1e-3) == 0
    assert allowed_joins(p, 1e6) == 20


@pytest.mark.parametrize("unit", ["record", "person"])
def test_a_sites_coin_hides_no_single_row(unit: str) -> None:
    # Given a site's other rows, the pair is (1-q)N(0)+qN(b) against (1-q)N(0)+qN(b+r): not Poisson.
    with pytest.raises(PrivacyError, match="cohort rate"):
        plan(unit=unit, rate=0.1)


# Phases: a warm start, then the plan's own.


def warm(trust: str = "central", unit: str = "site", **changes) -> PrivacyPlan:
    """One round of another part."""
    slot = SLOTS.get(trust, "server")
    parts = (sent("w", (5,)),) if trust == "none" else (noised("w", (5,), slot, 1.0, 3.0),)
    return plan(trust, unit, **{"parts": parts, "rounds": 1, **changes})


def phased(trust: str = "central", unit: str = "site", **changes) -> PrivacyPlan:
    """The round of `warm`, then the four of `plan`."""
    return plan(trust, unit, **{"before": warm(trust, unit), **changes})


def test_rounds_are_counted_over_all_phases() -> None:
    p = phased(rate=0.1)
    assert (p.first, p.length, len(p.phases)) == (1, 5, 2)
    assert p.phases == (warm().own, p.own)
    assert [p.phase(round) for round in range(5)] == [0, 1, 1, 1, 1]
    assert [p.start(phase) for phase in (0, 1)] == [0, 1]
    assert p.at(0) == warm().own and p.at(1) is p.own and p.at(4) is p.own
    assert p.at(0).rate is None and p.at(1).rate == 0.1
    assert [r.part for r in p.receipts(0, "os")] == ["w"]
    assert [r.part for r in p.receipts(1, "os")] == ["a", "b"]


def test_three_phases_are_told_apart() -> None:
    p = plan(before=phased(), rounds=2)
    assert (p.first, p.length) == (5, 7)
    assert [p.phase(round) for round in range(7)] == [0, 1, 1, 1, 1, 2, 2]
    assert [p.start(phase) for phase in range(3)] == [0, 1, 5]
    assert p.participations == 7


def test_a_prefix_ends_in_the_phase_it_reaches() -> None:
    p = phased()
    assert p.prefix(1) == warm()
    assert p.prefix(3) == p.with_own(rounds=2)
    assert p.prefix(5) == p


def test_the_promise_adds_up_the_phases() -> None:
    p = phased(rate=0.1)
    assert p.promise() == (Event((3.0,), None, 1), Event((1.5, 4.0), 0.1, 4))
    assert p.promise(factor=2.0, amplified=False) == (
        Event((1.5,), None, 1),
        Event((0.75, 2.0), None, 4),
    )
    alone = cost(replace(p, phases=(p.own,)).promise(), p.delta).epsilon
    assert cost(p.promise(), p.delta).epsilon > alone


def test_a_plan_of_phases_survives_json() -> None:
    for p in (phased(rate=0.25, joins=3), phased("local", notes=("said",)), phased("none")):
        again = PrivacyPlan.from_dict(json.loads(json.dumps(p.to_dict())))
        assert again == p and again.phases[0] == p.phases[0]


@pytest.mark.parametrize("spoil", ["missing", "extra", "in a phase", "in a part", "no phases"])
def test_a_phase_with_other_fields_is_refused(spoil: str) -> None:
    data = phased().to_dict()
    if spoil == "extra":
        data["phases"][0]["discount"] = 0.5
    elif spoil == "in a part":
        data["phases"][0]["parts"][0]["discount"] = 0.5
    elif spoil == "in a phase":
        del data["phases"][0]["rounds"]
    elif spoil == "missing":
        del data["phases"]
    else:
        data["phases"] = []
    with pytest.raises((TypeError, KeyError, PrivacyError)):
        PrivacyPlan.from_dict(data)


def test_every_phase_must_be_charged_with_its_own_parts() -> None:
    p = phased()
    receipts = [r for round in range(p.length) for r in p.receipts(round, "os")]
    p.settles(receipts)
    with pytest.raises(BudgetError, match="charge"):
        p.settles([r for r in receipts if r.part != "w"])
    with pytest.raises(PrivacyError, match="parts"):
        p.admits([replace(receipts[0], round=1)])
    with pytest.raises(PrivacyError, match="parts"):
        p.admits([replace(receipts[-1], round=0)])


def test_phases_are_of_the_same_sites() -> None:
    with pytest.raises(PrivacyError, match="phases"):
        plan(before=warm(sites=49))


@pytest.mark.parametrize("trust", ["local", "none"])
def test_phases_protect_in_the_same_way(trust: str) -> None:
    """Unit, δ and the number of units are the plan's own, so only a mechanism can disagree."""
    with pytest.raises(PrivacyError):
        plan("central", before=warm(trust))


@pytest.mark.parametrize("unit", ["site", "person"])
@pytest.mark.parametrize("trust, slot", [("central", "server"), ("local", "step")])
def test_the_coins_of_single_rows_hide_no_larger_unit(unit: str, trust: str, slot: str) -> None:
    sampled = (noised("s", (3,), slot, 1.0, 2.0, rate=0.1),)
    with pytest.raises(PrivacyError, match="batch rate"):
        plan(trust, unit, parts=sampled)
    plan(trust, "record", parts=sampled)


@pytest.mark.parametrize("trust, slot", [("central", "server"), ("local", "step")])
def test_two_parts_with_batches_are_refused(trust: str, slot: str) -> None:
    """Each is accounted as on a batch of its own; on one batch 2.58 would be 4.48 (rate .01)."""
    two = tuple(noised(name, (3,), slot, 1.0, 1.0, rate=0.01) for name in "ab")
    with pytest.raises(PrivacyError, match="one part of a phase with batches"):
        plan(trust, "record", parts=two)
    apart, together = [Event((1.0,), 0.01, 1000)] * 2, [Event((1.0, 1.0), 0.01, 1000)]
    assert cost(together, 1e-5).epsilon > 1.7 * cost(apart, 1e-5).epsilon


@pytest.mark.parametrize("trust, share", [("central", 0.1), ("central", 0.9), ("local", 0.5)])
def test_solving_after_an_earlier_phase_uses_what_that_one_left(trust: str, share: float) -> None:
    first = solve(warm(trust), 2.0 * share)
    solved = solve(phased(trust, before=first), 2.0)
    factor, amplified = claim_terms(solved)
    spent = cost(solved.promise(factor=factor, amplified=amplified), solved.delta).epsilon
    assert 0.95 * 2.0 <= spent <= 2.0
    assert solved.phases[:-1] == first.phases, "the earlier phase is as it was promised"


def test_an_earlier_phase_that_spent_everything_leaves_nothing_to_solve() -> None:
    spent = cost(warm().promise(), 1e-5).epsilon
    with pytest.raises(PrivacyError):
        solve(phased(), spent * 0.99)


def test_a_cap_counts_the_earlier_phase_in_full() -> None:
    p = phased("local")
    spent = cost(warm("local").promise(factor=2.0, amplified=False), p.delta).epsilon
    assert allowed_joins(p, spent * 0.99) == 0
