"""What parties that hold columns of the same people promise: per party, per person, to insiders."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from understudy.errors import PrivacyError
from understudy.privacy.account import Event, cost
from understudy.privacy.claim import claims
from understudy.privacy.columns import OTHERS
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.privacy.products import Products
from understudy.privacy.seen import Seen, gaussian_delta, seen_epsilon

Q, T, DELTA = 0.01, 1000, 1e-5


def step(party: int, noise: float = 1.0, rate: float = Q, steps: int = 10) -> Part:
    mechanism = Gaussian(1.0, steps=steps, rate=rate, noise=noise)
    return Part(f"gradient {party}", (4,), "sum", "step", mechanism, party)


def plan(*noise: float) -> PrivacyPlan:
    parts = tuple(step(i, z) for i, z in enumerate(noise))
    return PrivacyPlan(
        "record", "local", (Phase(parts, T // 10, len(noise)),), 1000, DELTA, held="columns"
    )


def short(*noise: float) -> PrivacyPlan:
    """One step, whose price is quickly found."""
    parts = tuple(step(i, z, 0.5, 1) for i, z in enumerate(noise))
    return PrivacyPlan(
        "record", "local", (Phase(parts, 1, len(noise)),), 1000, DELTA, held="columns"
    )


@pytest.mark.slow
def test_joint_claims_of_three_parties_are_those_of_the_literature() -> None:
    found = claims(plan(1, 1, 1), "os")
    three = {(c.adversary, c.relation): c.epsilon or 0 for c in found}
    joint, *alone, insider, leaked = three.values()
    assert joint == pytest.approx(8.40, abs=0.01)
    assert alone == pytest.approx([23.39] * 3, abs=0.01)  # others' messages may tell the batches
    assert cost([Event((1.0,), Q, T)], DELTA).epsilon == pytest.approx(1.83, abs=0.01)  # on its own
    assert leaked == pytest.approx(53.8, abs=0.1)
    assert insider == pytest.approx(39.1, abs=0.1)
    assert (next(a for a, r in three if r == OTHERS)).startswith("one party")


def test_parties_with_unequal_noise_combine_by_their_squares() -> None:
    (event,) = plan(1.0, 2.0, 4.0).promise()
    assert event.merged == pytest.approx(1 / math.sqrt(1 + 1 / 4 + 1 / 16))
    assert (event.rate, event.count) == (Q, T)


def test_whoever_may_know_the_batches_is_claimed_without_their_secrecy() -> None:
    def seen(*noise: float) -> float:
        return cost([Event(noise, 0.5, 1, seen=True)], DELTA).epsilon

    joint, *known = (claim.epsilon or 0 for claim in claims(short(1.0, 2.0), "os"))
    alone, insider, leaked = [seen(1.0), seen(2.0)], seen(1.0), seen(1.0, 2.0)
    assert known == pytest.approx([*alone, insider, leaked], rel=1e-6)
    assert joint < 0.95 * leaked


def test_the_worst_insider_is_the_one_with_the_most_noise() -> None:
    found = claims(short(40.0, 80.0), "os")
    insider = next(c for c in found if c.relation == OTHERS)
    expected = cost([Event((40.0,), 0.5, 1, seen=True)], DELTA)
    assert insider.epsilon == expected.epsilon
    assert "knows the batches" in insider.sampling


def test_the_worst_insider_is_found_by_price_where_sums_and_steps_disagree() -> None:
    """Sums over all rows say more than a thousand steps, few of which a record is in."""
    sums = [Part(f"sum {i}", (4,), "sum", "client", Gaussian(1.0, noise=z), i) for i, z in
            enumerate((1.0, 20.0))]  # fmt: skip
    steps = plan(40.0, 20.0)
    made = replace(steps, phases=(Phase(tuple(sums), 1, 2), steps.own))
    insider = next(c for c in claims(made, "os") if c.relation == OTHERS)
    each = [[Event((a,), None, 1), Event((b,), Q, T, seen=True)] for a, b in ((1, 40), (20, 20))]
    assert insider.epsilon == max(cost(events, DELTA).epsilon for events in each)


def test_insiders_of_three_parties_pay_what_the_literature_says() -> None:
    for many, epsilon in ((3, 53.8), (2, 39.1)):
        found = cost([Event((1.0,) * many, Q, T, seen=True)], DELTA)
        assert found.epsilon == pytest.approx(epsilon, abs=0.1)
        assert found.epsilon < found.epsilon_rdp < 1.2 * found.epsilon


def test_known_samples_cost_what_a_simulation_of_them_finds() -> None:
    epsilon = seen_epsilon(Seen(1.0, 0.1, 50), 1e-3)
    taken = np.random.default_rng(0).binomial(50, 0.1, 400_000)
    assert gaussian_delta(epsilon, np.sqrt(taken)).mean() == pytest.approx(1e-3, rel=0.05)


def test_known_samples_of_every_record_are_a_plain_gaussian() -> None:
    whole = cost([Event((4.0,), 1.0, 9, seen=True)], DELTA)
    assert whole.epsilon == pytest.approx(cost([Event((4.0,), None, 9)], DELTA).epsilon, rel=1e-3)
    assert whole.epsilon <= whole.epsilon_rdp


def test_known_samples_add_to_sums_over_all_records() -> None:
    both = [Event((1.0,), 0.1, 100, seen=True), Event((2.0,), None, 1)]
    assert cost(both, DELTA).epsilon > cost(both[:1], DELTA).epsilon
    with pytest.raises(PrivacyError, match="no secret ones"):
        cost([both[0], Event((1.0,), 0.1, 100)], DELTA)


def test_parties_cannot_stay_away_nor_be_protected_as_wholes() -> None:
    made = plan(1.0, 1.0)
    for changes in ({"rate": 0.5}, {"size": 1}):
        with pytest.raises(PrivacyError, match="all of them in every round"):
            made.with_own(**changes)
    with pytest.raises(PrivacyError):
        replace(made, unit="site")
    with pytest.raises(PrivacyError, match="one rate"):
        made.with_own(parts=(step(0), replace(step(1), mechanism=Gaussian(1.0, noise=1.0))))


def test_parts_of_single_parties_belong_to_parties() -> None:
    with pytest.raises(PrivacyError, match="single parties"):
        replace(plan(1.0, 1.0), held="rows")


def test_every_claim_says_what_alignment_reveals() -> None:
    for claim in claims(short(40.0, 80.0), "os"):
        assert any("by aligning their rows" in caveat for caveat in claim.caveats)


def multiplied() -> PrivacyPlan:
    mechanism = Products((2, 2), (1.0, 1.0), most=50, noise=2.0)
    part = Part("moments", (4, 4), "sum", "client", mechanism)
    return PrivacyPlan("record", "local", (Phase((part,), 1, 2),), 50, DELTA, held="columns")


def test_claims_on_products_hold_for_parties_and_servers_that_follow_the_protocol() -> None:
    *held, with_server, departing = claims(multiplied(), "os")
    assert len(held) == 4
    for claim in held:
        assert claim.private and "every party follows the protocol" in claim.trust
        assert "the server deals as written" in claim.trust
        if "other parties" in claim.adversary:
            assert "follow the protocol" in claim.adversary
    assert not with_server.private and not departing.private
    assert departing.adversary == "a party that departs from the protocol"


def test_claims_without_products_say_nothing_of_dealing() -> None:
    for claim in claims(short(4.0, 8.0), "os"):
        assert "deals" not in claim.trust and "departs" not in claim.adversary


def test_claims_say_whether_the_server_learns_how_many_people_there_are() -> None:
    for made, said in ((multiplied(), "rows are padded"), (short(4.0, 8.0), "how long")):
        assert any(said in caveat for caveat in claims(made, "os")[0].caveats)


def test_a_plan_of_parties_is_the_same_after_json() -> None:
    made = plan(1.0, 2.0)
    assert PrivacyPlan.from_dict(made.to_dict()) == made
