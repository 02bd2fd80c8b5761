"""Mechanisms as values: their JSON, what they refuse, and the one that promises nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privacy.plans import noised, one_phase, part, sent
from understudy.errors import BudgetError, PrivacyError
from understudy.privacy.account import cost
from understudy.privacy.claim import claims, headline
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.gaussian import NO_BOUND, Gaussian, Plain
from understudy.privacy.mechanism import Mechanism, Use
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.rng import NoiseSource, Streams

POSITIVE = st.floats(1e-6, 1e6)
EPSILONS = st.floats(1e-3, 30)


@st.composite
def clipped(draw: st.DrawFn, unit: str) -> dict[str, Any]:
    rate = st.none() | st.floats(1e-6, 1)
    return dict(
        bound=draw(POSITIVE),
        blocks=draw(st.integers(1, 9)),
        rows=draw(st.integers(1, 9)),
        steps=draw(st.integers(1, 9)),
        rate=draw(rate) if unit == "record" else None,
    )


@st.composite
def selections(draw: st.DrawFn) -> Selection:
    size = draw(st.integers(4, 10**6))
    subset = draw(st.none() | st.integers(3, size))
    pool = subset or size
    top = draw(st.integers(1, pool - 1))
    output = draw(st.integers(1, min(top, pool - top)))
    return Selection(size, top, output, draw(EPSILONS), subset)


@st.composite
def parts(draw: st.DrawFn, name: str, unit: str, trust: str) -> Part:
    """A part that a plan of this unit and trust may have."""
    shape = draw(st.lists(st.integers(1, 9), max_size=3).map(tuple))
    combine = draw(st.sampled_from(["mean", "sum"]))
    where = draw(st.sampled_from({"central": ["server"], "local": ["client", "step"]}.get(trust)
                                 or ["client", "server", "step"]))  # fmt: skip
    mechanism: Mechanism = Plain(**draw(clipped(unit)))
    if trust != "none":
        mechanism = Gaussian(**draw(clipped(unit)), noise=draw(POSITIVE))
    if trust == "local" and unit == "site" and draw(st.booleans()):
        mechanism = draw(selections() | EPSILONS.map(Response))
        return Part(name, mechanism.shape, combine, "client", mechanism)
    return Part(name, shape, combine, where, mechanism)


def _whole(mechanism: Mechanism) -> Mechanism:
    return replace(mechanism, rate=None) if isinstance(mechanism, Gaussian) else mechanism


@st.composite
def plans(draw: st.DrawFn) -> PrivacyPlan:
    """Plans of one to three phases, under every unit and trust that has a slot."""
    unit = draw(st.sampled_from(["record", "person", "site"]))
    trust = draw(st.sampled_from(["central", "local", "none"]))
    sites = draw(st.integers(1, 10**6))
    flips = st.none() | st.floats(1e-6, 1)
    phases = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True))
        rate = draw(flips) if unit == "site" or trust != "central" else None
        found = [draw(parts(name, unit, trust)) for name in names]
        if trust != "none":  # one part alone may have batches
            found[1:] = [replace(p, mechanism=_whole(p.mechanism)) for p in found[1:]]
        sized = rate is None and trust in ("local", "none") and draw(st.booleans())
        phases.append(
            Phase(
                tuple(found),
                rounds=draw(st.integers(1, 10**4)),
                sites=sites,
                rate=rate,
                size=draw(st.integers(1, sites)) if sized else None,
                joins=draw(st.none() | st.integers(1, 100)),
            )
        )
    units, notes = draw(st.integers(1, 10**6)), tuple(draw(st.lists(st.text(), max_size=2)))
    return PrivacyPlan(unit, trust, tuple(phases), units, 0.5 / units, draw(st.text()), notes)


@given(plans())
def test_every_plan_survives_json_exactly(plan: PrivacyPlan) -> None:
    text = json.dumps(plan.to_dict(), allow_nan=False)
    again = PrivacyPlan.from_dict(json.loads(text))
    assert again == plan and json.dumps(again.to_dict()) == text
    assert [p.mechanism for p in again.own.parts] == [p.mechanism for p in plan.own.parts]


ONE_OF_EACH = {
    "gaussian": noised("a", (9,), "client", 1.0, 2.0),
    "select": part("a", (9,), "client", Selection(9, 3, 2, 1.0)),
    "respond": part("a", (), "client", Response(1.0)),
    "plain": sent("a", (9,)),
}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_mechanism_is_named_in_its_json_and_comes_back(name: str) -> None:
    data = json.loads(json.dumps(ONE_OF_EACH[name].to_dict()))
    assert data["mechanism"]["name"] == name == ONE_OF_EACH[name].mechanism.name
    assert Part.from_dict(data) == ONE_OF_EACH[name]


@pytest.mark.parametrize("spoil", ["unknown", "missing", "no name", "another name"])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_mechanism_with_other_fields_is_refused(name: str, spoil: str) -> None:
    data = json.loads(json.dumps(ONE_OF_EACH[name].to_dict()))
    terms = data["mechanism"]
    if spoil == "unknown":
        terms["discount"] = 0.5
    elif spoil == "no name":
        del terms["name"]
    elif spoil == "another name":
        terms["name"] = "hope"
    elif name == "plain":
        del data["where"]  # it has no field without a default
    else:
        del terms[{"gaussian": "bound", "select": "size", "respond": "epsilon"}[name]]
    with pytest.raises((TypeError, KeyError)):
        Part.from_dict(data)


def plan_of(*of: Part, trust: str = "local", unit: str = "site", **terms: Any) -> PrivacyPlan:
    own = dict(parts=of, rounds=2, sites=10, units=10, delta=1e-5)
    return one_phase(unit, trust, **{**own, **terms})


@pytest.mark.parametrize(
    "wrong",
    [
        Gaussian(1.0),  # noise 0
        Gaussian(1.0, noise=-1.0),
        Gaussian(1.0, noise=math.inf),
        Gaussian(0.0, noise=1.0),
        Gaussian(math.inf, noise=1.0),
        Gaussian(1.0, noise=1.0, steps=0),
        Gaussian(1.0, noise=1.0, rows=0),
        Gaussian(1.0, noise=1.0, blocks=0),
        Gaussian(1.0, noise=1.0, rate=0.5),  # coins of rows hide no site
        Plain(),
    ],
    ids=repr,
)
def test_a_mechanism_that_protects_nothing_makes_no_plan(wrong: Mechanism) -> None:
    with pytest.raises(PrivacyError):
        plan_of(part("a", (3,), "client", wrong))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 31.0, 1, "1"])
def test_choices_without_a_sensible_epsilon_cannot_be_made(epsilon: Any) -> None:
    with pytest.raises(PrivacyError):
        Response(epsilon)
    with pytest.raises(PrivacyError):
        Selection(9, 3, 2, epsilon)


# Plain: the honest name for no protection.


def use(of: Part, sites: int = 2) -> Use:
    return Use(of, "site", 0, NoiseSource.seeded(Streams.from_seed(0)).sites(0, range(sites)))


def test_plain_promises_nothing_and_charges_nothing() -> None:
    plan = plan_of(sent("a", (3,)), trust="none")
    assert not plan.private and not Plain.promises and plan.kind == "not private"
    assert plan.receipts(0, "os") == () and not plan.promise()[0].private
    assert cost(plan.promise(), plan.delta).epsilon == math.inf
    plan.settles([])


def test_the_claim_of_plain_is_that_there_is_none() -> None:
    (only,) = claims(plan_of(sent("a", (3,)), trust="none"), "os")
    assert not only.private and only.epsilon is None and only.events == ()
    assert headline((only,)) == math.inf
    assert "no protection is claimed" in only.words and "not private" in only.words.lower()


def test_plain_sends_the_value_itself_and_clips_where_it_is_told_to() -> None:
    value = torch.tensor([[3.0, 0.0, 4.0], [0.1, 0.0, 0.0]])
    for bound in (NO_BOUND, 1.0):
        of = sent("a", (3,), bound=bound)
        out, receipts = of.mechanism.seal(value, use(of))
        norms = value.norm(dim=1).clamp(max=bound)
        assert receipts == () and torch.allclose(out.norm(dim=1), norms, rtol=1e-5)


def test_no_receipt_is_one_of_plain() -> None:
    plan = plan_of(sent("a", (3,)), trust="none")
    for kind in ("plain", "gaussian"):
        with pytest.raises(BudgetError):
            plan.admits([Receipt(0, "a", "client", kind, "site", 1.0, 9.0, "os")])


@pytest.mark.parametrize("trust, slot", [("central", "server"), ("local", "client")])
def test_a_private_plan_holds_no_part_that_promises_nothing(trust: str, slot: str) -> None:
    kept, open_part = noised("a", (3,), slot, 1.0, 1.0), sent("b", (3,), slot)
    plan_of(kept, trust=trust)
    with pytest.raises(PrivacyError, match="fits trust"):
        plan_of(kept, open_part, trust=trust)
    with pytest.raises(PrivacyError, match="fits trust"):
        plan_of(kept, trust=trust, before=plan_of(open_part, trust="none"))
    with pytest.raises(PrivacyError, match="fits trust"):
        plan_of(kept, sent("b", (3,)), trust="none"), "noise that no claim would count"


# Gaussian: what it takes, and what its receipts must show.


def test_noise_is_added_to_what_is_bounded_and_to_nothing_else() -> None:
    of = noised("a", (3,), "client", 1.0, 2.0)
    with pytest.raises(PrivacyError, match="Bounded"):
        of.mechanism.add_noise(torch.ones(2, 3), use(of))  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="stream"):
        of.mechanism.add_noise(Bounded(torch.ones(2, 3), 1.0, "site"), use(of, sites=3))


@pytest.mark.parametrize("change", [dict(std=1.9), dict(bound=1.1), dict(epsilon=1.0)])
def test_a_receipt_of_less_protection_is_not_admitted(change: dict[str, float]) -> None:
    of = noised("a", (3,), "client", 1.0, 2.0)
    receipt = of.mechanism.receipt(of, "site", 0, "os")
    assert of.mechanism.admits(receipt) and of.mechanism.admits(replace(receipt, std=9.0))
    assert not of.mechanism.admits(replace(receipt, **change))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["client", "server"])
def test_a_reply_that_is_not_finite_does_not_fit(where: str, bad: float) -> None:
    for of in (noised("a", (3,), where, 1.0, 2.0), sent("a", (3,), where)):
        values = torch.zeros(2, 3)
        values[1, 2] = bad
        assert of.mechanism.fits(values, of, "site").tolist() == [True, False]
