from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privacy.plans import SLOTS, noised, one_phase, sent
from understudy.errors import PrivacyError
from understudy.privacy.claim import Claim, claims, headline, projection, round_up
from understudy.privacy.plan import PrivacyPlan


def plan(trust: str = "central", unit: str = "site", noise: float = 4.0, **changes) -> PrivacyPlan:
    slot = SLOTS.get(trust, "server")
    only = sent("a", (3,)) if trust == "none" else noised("a", (3,), slot, 1.0, noise)
    terms = dict(parts=(only,), rounds=3, sites=100, units=100, delta=1e-5)
    return one_phase(unit, trust, **{**terms, **changes})


def by_relation(found: tuple[Claim, ...]) -> dict[str, float | None]:
    return {claim.relation: claim.epsilon for claim in found}


def test_the_known_setting_is_claimed_at_its_known_price() -> None:
    found = claims(plan(noise=1.0, rounds=100, rate=0.1), "os")
    assert headline(found) == pytest.approx(7.05, abs=0.01)
    assert found[0].epsilon_rdp == pytest.approx(7.90, abs=0.01)
    assert "rate 0.1" in found[0].sampling and "only the server knows" in found[0].sampling


def test_central_trust_promises_the_server_nothing() -> None:
    public, server = claims(plan(), "os")
    assert public.adversary == "the public and the other sites"
    assert public.private and public.relation == "add or remove one"
    assert server.adversary == "the server"
    assert not server.private and server.epsilon is None and server.epsilon_rdp is None
    assert "no protection is claimed" in server.words
    assert "trusted" in server.trust


def test_local_trust_composes_without_amplification() -> None:
    found = claims(plan("local", rate=0.1), "os")
    assert all(event.rate is None for claim in found for event in claim.events)
    assert all("the server" in claim.adversary for claim in found)
    assert all("knows which" in claim.sampling for claim in found)
    amplified = claims(plan("central", rate=0.1), "os")
    assert headline(found) > headline(amplified)


def test_a_site_that_noises_itself_is_claimed_at_doubled_sensitivity_first() -> None:
    found = claims(plan("local", noise=1.0, rounds=100), "os")
    assert [claim.relation for claim in found] == [
        "replace one",
        "its rows or none",
    ]
    assert headline(found) == pytest.approx(284, abs=0.5)
    assert by_relation(found)["its rows or none"] == pytest.approx(91.8, abs=0.1)


@pytest.mark.parametrize("unit", ["record", "person"])
def test_records_noised_at_their_site_are_added_or_removed(unit: str) -> None:
    found = claims(plan("local", unit), "os")
    assert [claim.relation for claim in found] == ["add or remove one", "replace one"]
    assert found[0].epsilon < found[1].epsilon
    assert found[1].events[0].noise[0] == found[0].events[0].noise[0] / 2


@pytest.mark.parametrize(
    "unit, said", [("record", "several rows"), ("person", "at one site"), ("site", None)]
)
def test_the_unit_brings_its_caveat(unit: str, said: str | None) -> None:
    caveats = " ".join(claims(plan(unit=unit), "os")[0].caveats)
    assert ("protected less" in caveats or "at one site" in caveats) == (said is not None)
    assert said is None or said in caveats
    assert f"any one {unit}" in claims(plan(unit=unit), "os")[0].words


@pytest.mark.parametrize("trust", ["central", "local"])
def test_seeded_noise_says_simulation(trust: str) -> None:
    for source, expected in (("os", False), ("simulation", True)):
        private = [claim for claim in claims(plan(trust), source) if claim.private]
        for claim in private:
            assert any(c.startswith("simulation") for c in claim.caveats) == expected
            assert claim.noise_source == source
            assert any("floating-point" in c for c in claim.caveats)
            assert claim.excluded


def test_a_run_without_noise_claims_nothing() -> None:
    (only,) = claims(plan("none"), "os")
    assert not only.private and headline((only,)) == math.inf
    assert only.adversary == "anyone" and "not private" in only.trust
    assert "no protection" in only.words and "ε" not in only.words


def test_a_nominal_guarantee_is_called_nominal() -> None:
    assert "nominal" in claims(plan(noise=0.1), "os")[0].words
    assert "nominal" not in claims(plan(noise=20.0), "os")[0].words


def test_rounds_a_site_may_not_join_are_not_said_to_be_joined() -> None:
    limited = claims(plan("local", joins=2, rounds=9), "os")[0]
    assert limited.events[0].count == 2
    assert "2 rounds" in limited.sampling and "every round" not in limited.sampling
    every = claims(plan("central", rounds=9), "os")[0]
    assert "every round" in every.sampling and "no amplification" in every.sampling


def test_claims_survive_json() -> None:
    for p in (plan(rate=0.1), plan("local"), plan("none")):
        for claim in claims(p, "os"):
            data = json.loads(json.dumps(claim.to_dict(), allow_nan=False))
            assert data["words"] == claim.words and data["epsilon"] == claim.epsilon


def test_a_claim_follows_from_the_plan_alone() -> None:
    p = plan()
    assert claims(p, "os") == claims(PrivacyPlan.from_dict(p.to_dict()), "os")


def test_a_projection_is_planning_and_no_claim() -> None:
    p = plan(noise=1.0, rounds=10, rate=0.1)
    found = [projection(p, n) for n in (10**3, 10**5, 10**7)]
    assert all("epsilon" not in key for row in found for key in row)
    central = [row["central"] for row in found]
    assert central == sorted(central, reverse=True) and central[0] > central[-1]
    assert all(row["delta"] < 1 / row["population"] for row in found)
    assert all(0 < row["rate"] <= 1 for row in found)
    assert not any(isinstance(row, Claim) for row in found)


def test_a_projection_of_nothing_is_refused() -> None:
    with pytest.raises(PrivacyError):
        projection(plan("none"), 1000)
    with pytest.raises(PrivacyError):
        projection(plan(), 0)


def test_a_site_that_is_asked_is_protected_in_what_it_holds_not_in_taking_part() -> None:
    first, second = claims(plan("local", "site"), "os")
    assert "what any one site holds" in first.words
    assert "whether any one site holds rows at all" in second.words


def test_noise_too_small_for_a_number_is_no_protection() -> None:
    found = claims(plan("local", "site").with_noise(1e-200), "os")
    assert not found[0].private and "no protection" in found[0].words


def test_a_projection_to_few_sites_takes_them_all_and_has_less_noise() -> None:
    p = plan()
    few = max(2, int(p.own.cohort / p.own.parts[0].mechanism.noise / 2))
    found = projection(p, few)
    assert found["rate"] == 1.0
    assert found["noise"] == pytest.approx(p.own.parts[0].mechanism.noise * few / p.own.cohort)
    assert found["central"] >= projection(p, 100 * few)["central"]


@given(st.floats(0, 1e300, exclude_min=True), st.integers(1, 6))
@example(5e-324, 2)
def test_an_epsilon_is_never_printed_below_the_truth(epsilon: float, digits: int) -> None:
    said = float(round_up(epsilon, digits))
    assert said >= epsilon
    assert said <= epsilon * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12), "more than one digit up"


@given(st.floats(1e-3, 1e4), st.integers(1, 6))
def test_the_float_next_to_a_round_number_is_still_rounded_up(epsilon: float, digits: int) -> None:
    exact = float(round_up(epsilon, digits))
    assert float(round_up(exact, digits)) >= exact
    above = math.nextafter(exact, math.inf)
    assert float(round_up(above, digits)) >= above > exact


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"),
        (math.inf, "inf"),
        (2.0, "2"),
        (1.2301, "1.24"),
        (9.999, "10"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
    ],
)
def test_rounding_up_reads_plainly(value: float, text: str) -> None:
    assert round_up(value) == text


@pytest.mark.parametrize("noise", [0.7, 1.3, 2.9, 11.0])
def test_no_epsilon_or_delta_in_words_is_below_the_claim(noise: float) -> None:
    for claim in claims(plan("local", noise=noise, delta=1.04e-5), "os"):
        epsilon, delta = re.search(r"ε = (\S+) at δ = (\S+?)[.,]", claim.words + ",").groups()
        assert float(epsilon) >= claim.epsilon and float(delta) >= claim.delta
