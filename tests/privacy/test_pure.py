"""Plans whose sites send choices: what they promise, what a life of updates costs."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import dp_accounting
import pytest

from privacy.plans import noised, one_phase, part, sent
from understudy.errors import BudgetError, PrivacyError
from understudy.federation.budget import allowed_joins
from understudy.privacy.account import Event, cost
from understudy.privacy.claim import claims, projection, spent_so_far
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection

UPDATE = part("update", (50,), "client", Selection(50, 5, 2, 0.9))
BIT = part("small", (), "client", Response(0.1))


def plan(**changes) -> PrivacyPlan:
    terms = dict(
        unit="site", trust="local", parts=(UPDATE, BIT), rounds=30, sites=40, units=40, delta=1e-5,
        size=4,
    )  # fmt: skip
    return one_phase(**{**terms, **changes})


def test_a_life_is_as_many_updates_as_the_schedule_calls_for() -> None:
    found = plan()
    assert (found.own.calls, found.participations, found.own.cohort) == (3, 3, 4)
    assert plan(rounds=10).participations == 1 and plan(rounds=11).participations == 2
    assert plan(sites=43, units=43).own.calls == 3, "120 calls, 43 sites"
    assert plan(sites=729, units=729, size=250, rounds=500).own.calls == 172
    assert plan(sites=10, units=10, size=9, rounds=10).own.calls == 9
    assert plan(sites=40, units=40, size=40, rounds=7).own.calls == 7
    assert plan(size=None).participations == 30


def test_the_promise_is_the_sum_over_updates_and_mechanisms() -> None:
    found = plan()
    assert found.own.update_epsilon == pytest.approx(1.0)
    price = cost(found.promise(factor=2.0, amplified=False), 1e-5)
    assert price.epsilon == price.epsilon_rdp == pytest.approx(3.0)
    assert price.delta == 0.0, "pure: nothing is left to chance"


@pytest.mark.parametrize("count", [1, 10])
def test_the_sum_is_what_an_accountant_that_counts_gets(count: int) -> None:
    """dp_accounting's PLD of the mechanism repeated in a loop, and of no count field at all."""
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.pld.PLDAccountant(relation)
    for _ in range(count):
        accountant.compose(dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(0.7)), 2))
    ours = cost([Event((), None, count, 0.7)], 1e-5).epsilon
    assert ours == pytest.approx(0.7 * count)
    assert accountant.get_epsilon(1e-12) == pytest.approx(ours, rel=1e-3)
    assert accountant.get_epsilon(1e-2) <= ours + 1e-3, "no (ε, δ) view is worse than the sum"


def test_pure_and_gaussian_events_add_up() -> None:
    noisy = cost([Event((2.0,), None, 1)], 1e-5)
    both = cost([Event((2.0,), None, 1), Event((), None, 4, 0.5)], 1e-5)
    assert both.epsilon == pytest.approx(noisy.epsilon + 2.0) and both.delta == 1e-5


@pytest.mark.parametrize(
    "event",
    [
        Event((), None, 3),
        Event((1.0,), None, 3, 0.5),
        Event((), 0.1, 3, 0.5),
        Event((), None, 3, -0.5),
    ],
)
def test_events_that_would_cost_too_little_are_refused(event: Event) -> None:
    with pytest.raises(PrivacyError, match="events"):
        cost([event], 1e-5)


def test_the_claim_tells_the_life_and_the_update() -> None:
    (claim,) = claims(plan(), "os")
    assert (claim.epsilon, claim.delta, claim.relation) == (pytest.approx(3.0), 0.0, "replace one")
    assert "3 updates of ε = 1 each" in claim.words and "the server" in claim.adversary
    assert "public schedule calls 4 site(s)" in claim.sampling
    assert not any("Gaussian" in caveat for caveat in claim.caveats)


def test_what_is_spent_so_far_grows_with_the_passes() -> None:
    assert [spent_so_far(plan(), n) for n in (0, 1, 10, 11, 30)] == pytest.approx([0, 1, 1, 2, 3])


def test_a_cap_allows_as_many_updates_as_fit() -> None:
    assert [allowed_joins(plan(), cap) for cap in (0.5, 1.0, 2.5, 99)] == [0, 1, 2, 3]


def test_a_sites_ledger_adds_up_lives(tmp_path) -> None:
    found = plan()
    events = found.promise(factor=2.0, amplified=False)
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.reserve("one", events, found.delta, "site, replace one")
        ledger.check("two", events, found.delta, 6.0, "site, replace one")
        with pytest.raises(BudgetError, match="cap"):
            ledger.check("two", events, found.delta, 5.9, "site, replace one")


def test_a_plan_of_choices_survives_json() -> None:
    data = json.loads(json.dumps(plan().to_dict()))
    assert PrivacyPlan.from_dict(data) == plan()
    data["phases"][0]["parts"][0]["mechanism"]["name"] = "guess"
    with pytest.raises(KeyError):
        PrivacyPlan.from_dict(data)


def test_promised_charges_settle_a_run_and_no_others() -> None:
    found = plan(rounds=2)
    charged = [r for round in range(2) for r in found.receipts(round, "os")]
    found.settles(charged)
    assert [r.mechanism for r in charged[:2]] == ["select", "respond"]
    for change in (
        dict(epsilon=1.0),
        dict(epsilon=0.5),
        dict(epsilon=0.0),
        dict(mechanism="gaussian"),
        dict(std=1.0),
        dict(where="server"),
        dict(round=2),
    ):
        with pytest.raises(BudgetError):
            found.admits([replace(charged[0], **change)])
    with pytest.raises(BudgetError):
        found.settles(charged[:-1])


@pytest.mark.parametrize(
    "part",
    [
        replace(UPDATE, where="step"),
        replace(UPDATE, where="server"),
        replace(UPDATE, shape=(49,)),
        replace(UPDATE, shape=(50, 1)),
        replace(UPDATE, combine="median"),
        replace(BIT, shape=(1,)),
        replace(BIT, where="step"),
    ],
)
def test_a_part_that_is_not_what_its_rule_needs_is_refused(part: Part) -> None:
    with pytest.raises(PrivacyError):
        plan(parts=(part,))


@pytest.mark.parametrize("change", [dict(unit="record"), dict(trust="central"), dict(rate=0.1)])
def test_choices_protect_sites_that_trust_nobody(change: dict) -> None:
    with pytest.raises(PrivacyError):
        plan(**change)


@pytest.mark.parametrize("size", [0, 41, -1])
def test_a_cohort_that_cannot_be_called_is_refused(size: int) -> None:
    with pytest.raises(PrivacyError, match="cohort"):
        plan(size=size)


def test_a_schedule_under_central_trust_is_refused_with_the_reason() -> None:
    gaussian = noised("update", (50,), "server", 1.0, 1.0)
    with pytest.raises(PrivacyError) as refusal:
        plan(trust="central", parts=(gaussian,))
    assert "no amplification" in refusal.value.do and "cohort.rate" in refusal.value.do


def test_choices_have_no_projection() -> None:
    with pytest.raises(PrivacyError, match="Selection"):
        projection(plan(), 1000)


def test_a_message_is_a_sign_and_coordinates() -> None:
    assert (UPDATE.bytes, BIT.bytes) == (12, 1)
    assert noised("update", (50,), "client", 1.0, 1.0).bytes == 400
    assert sent("update", (50,)).bytes == 400
