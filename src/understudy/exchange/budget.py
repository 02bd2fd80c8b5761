"""What one member has spent on one dataset: the pushes of it, added up.

Whoever reads the pool sees all of them, so that they compose. Each push counts with the events of
its first claim, the one that its noise was solved for; they are put together by the project's
accountant at the exchange's δ. Those of a claim for replaced rows have twice the bound, and cover
rows added or removed as well. Where the accountant cannot compose them, ε and δ are added up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from understudy.errors import PrivacyError
from understudy.privacy.account import Event, cost
from understudy.privacy.claim import Claim

__all__ = ["Share", "total"]


@dataclass(frozen=True)
class Share:
    """What one push costs: its first claim, in the numbers that compose."""

    epsilon: float
    delta: float
    events: tuple[Event, ...]

    @classmethod
    def of(cls, claim: Claim) -> Share:
        """From a claim that promises something."""
        assert claim.epsilon is not None
        return cls(claim.epsilon, claim.delta, claim.events)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Share:
        """Inverse of `to_dict`."""
        events = (Event(**{**e, "noise": tuple(e["noise"])}) for e in data["events"])
        return cls(data["epsilon"], data["delta"], tuple(events))


def total(shares: Sequence[Share], delta: float) -> float:
    """ε of all shares together at ``delta``; infinity where it cannot be had at that δ."""
    if not shares:
        return 0.0
    try:
        return cost([event for share in shares for event in share.events], delta).epsilon
    except PrivacyError:  # events that no accountant here can put together
        needed = math.fsum(share.delta for share in shares)
        return math.fsum(share.epsilon for share in shares) if needed <= delta else math.inf
