"""Claims where parties hold columns of the same people: per party, per person, and for insiders.

A record is one person's row, which is at every party. So what all parties do in one phase, on one
sample, is one event for it, with 1/z² = Σ 1/zᵢ² (`Phase.promise`). An outsider (the public, or a
server that works with no party) does not know shared batches; a party does, and gets a claim of
its own, without amplification, about what the *other* parties hold: whoever took part in the
alignment knows who is in the table.

Claims on products (`federation.products`) hold if every party follows the protocol (a party that
sends larger numbers can read others' rows) and the server deals as written; so nothing is claimed
against a party that departs from it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from understudy.privacy.account import Event

if TYPE_CHECKING:
    from understudy.privacy.claim import Claim
    from understudy.privacy.plan import PrivacyPlan

__all__ = ["DOUBLE", "OTHERS", "SINGLE", "column_caveats", "column_claims", "known_batches"]

OTHERS = "its values at the other parties, or none"
_ITS_OWN = "its values at that party, or none"
_EVERYWHERE = "its values at every party, or none"
_ALIGNED = (
    "a record is one person's row at all parties together; the parties know who is in the table, "
    "by aligning their rows, and how many are"
)
_TRUST = "every party adds noise of its own before anything is sent; the server works with no party"
_DEALT = (
    f"{_TRUST}; every party follows the protocol (a party that sends larger numbers can read "
    "others' rows); the server deals as written"
)
_NOBODY = "every party adds noise of its own before anything is sent; nobody else is trusted"
_PADDED = (
    "the messages of product sums do not tell the server how many people are in the table: rows "
    "are padded to the public number"
)
_TIMED = "how long a party takes for a step depends on how many people are in the table"
_OUTSIDE = "the public and a server that works with no party"
_LOST = (
    (
        "the server together with a party",
        "the server deals the randomness under which products are formed",
    ),
    (
        "a party that departs from the protocol",
        "a party that sends larger numbers than agreed can read others' rows through the noise",
    ),
)
SINGLE: dict[str, Any] = {"factor": 1.0, "amplified": False}
DOUBLE: dict[str, Any] = {"factor": 2.0, "amplified": False}


def known_batches(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The same events for someone who knows who was in each batch."""
    return tuple(replace(e, seen=True) if e.rate and e.rate < 1 else e for e in events)


def column_caveats(plan: PrivacyPlan) -> tuple[str, ...]:
    """What a record is, and who learns how many there are."""
    found = (_ALIGNED, _PADDED if _dealt(plan) else "", _TIMED if _stepped(plan) else "")
    return tuple(caveat for caveat in found if caveat)


def column_claims(told: Any) -> tuple[Claim, ...]:
    """Every claim of a plan of parties; the first, which noise is solved for, is the headline.

    ``told`` is the plan and what is known of its run, as `claim` has it.
    """
    found = _of_steps(told) if _sampled(told.plan) else _of_sums(told)
    return (*found, *(told.nothing(*lost) for lost in (_LOST if _dealt(told.plan) else ())))


def _of_sums(told: Any) -> list[Claim]:
    dealt = _dealt(told.plan)
    trust = _DEALT if dealt else _TRUST
    insider = "the other parties, even all of them together"
    insider += ", if they follow the protocol" if dealt else ""
    return [
        told.claim(_OUTSIDE, "add or remove one", trust, **SINGLE),
        told.claim(_OUTSIDE, "replace one", trust, **DOUBLE),
        told.claim(insider, OTHERS, trust, **SINGLE),
        told.claim(insider, "replace one", trust, **DOUBLE),
    ]


def _of_steps(told: Any) -> list[Claim]:
    """Batches that all parties share: secret to outsiders, known to insiders.

    What single parties reveal is priced as if batches were known: another party's messages, made
    from the same batch, may tell who was in it. Where products are formed too, nothing is claimed
    against a server that works with a party, and products count in full for every party.
    """
    plan: PrivacyPlan = told.plan
    dealt = _dealt(plan)
    trust, nobody = (_DEALT, _DEALT) if dealt else (_TRUST, _NOBODY)
    found = [told.claim(_OUTSIDE, "add or remove one", trust, **SINGLE)]
    for party in range(plan.sites):
        alone = replace(told, plan=plan.of([party]))
        who = f"{_OUTSIDE} (of party {party + 1}'s columns alone)"
        found.append(alone.claim(who, _ITS_OWN, trust, seen=True, **SINGLE))
    insider = "one party, which knows the batches, "
    insider += "if it follows the protocol" if dealt else "even together with the server"
    rests = (replace(told, plan=_without(plan, party)) for party in range(plan.sites))
    each = [rest.claim(insider, OTHERS, nobody, seen=True, **SINGLE) for rest in rests]
    found.append(max(each, key=_price))
    leaked = "an outsider who learns the batches from a party"
    found.append(told.claim(leaked, _EVERYWHERE, nobody, seen=True, **SINGLE))
    return found


def _without(plan: PrivacyPlan, party: int) -> PrivacyPlan:
    return plan.of(i for i in range(plan.sites) if i != party)


def _price(claim: Claim) -> float:
    return math.inf if claim.epsilon is None else claim.epsilon


def _dealt(plan: PrivacyPlan) -> bool:
    """Whether products are formed: parts that all parties have a share in."""
    return any(part.party is None for phase in plan.phases for part in phase.parts)


def _stepped(plan: PrivacyPlan) -> bool:
    return any(part.where == "step" for phase in plan.phases for part in phase.parts)


def _sampled(plan: PrivacyPlan) -> bool:
    return any(part.mechanism.rate for phase in plan.phases for part in phase.parts)
