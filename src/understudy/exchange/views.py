"""What members are shown, by the API and by the pages alike: plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from understudy.exchange.models import Member, Push

__all__ = ["BudgetView", "MemberView", "PullView", "PushView", "ReleaseDetail", "ReleaseView"]


@dataclass(frozen=True)
class ReleaseView:
    """A release in the pool, or one that a steward has to look at.

    ``together`` is ε of all that the member has pushed of this data up to this release.
    """

    id: str
    member: str
    dataset: str
    state: str
    pushed: float
    decided: float | None
    by: str | None
    bytes: int
    sha256: str
    pulls: int
    name: str
    recipe: str
    generator: str
    data: str
    unit: str
    trust: str
    relation: str
    epsilon: float
    delta: float
    words: str
    together: float
    parameters: int
    classes: dict[str, float]
    conditional: bool
    preview: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, push: Push, pulls: int) -> ReleaseView:
        """From a push that passed the checks."""
        names = cls.__dataclass_fields__
        facts = {key: value for key, value in (push.facts or {}).items() if key in names}
        return cls(
            id=push.id, member=push.member, dataset=push.dataset, state=push.state,
            pushed=push.begun, decided=push.decided, by=push.by, bytes=push.size,
            sha256=push.sha256, pulls=pulls, preview=push.preview or {}, **facts,
        )  # fmt: skip


@dataclass(frozen=True)
class PullView:
    """Who took a release, and when first."""

    member: str
    when: float


@dataclass(frozen=True)
class ReleaseDetail:
    """All that is known of a release."""

    release: ReleaseView
    claims: list[str]
    caveats: list[str]
    checks: list[str]
    notes: list[str]
    signed: str
    study: str
    sites: int
    versions: dict[str, str]
    card: str
    pulled_by: list[PullView]

    @classmethod
    def of(cls, push: Push, pulled_by: list[PullView]) -> ReleaseDetail:
        """From a push that passed the checks."""
        facts = push.facts or {}
        names = cls.__dataclass_fields__.keys() - {"release", "pulled_by"}
        release = ReleaseView.of(push, len(pulled_by))
        return cls(release=release, pulled_by=pulled_by, **{name: facts[name] for name in names})


@dataclass(frozen=True)
class PushView:
    """A member's own push, whatever became of it."""

    id: str
    dataset: str
    state: str
    sha256: str
    size: int
    received: int
    begun: float
    decided: float | None
    reason: dict[str, str] | None
    epsilon: float | None
    delta: float | None
    together: float | None

    @classmethod
    def of(cls, push: Push, received: int) -> PushView:
        """``received``: how many of its bytes are here."""
        facts = push.facts or {}
        told = {key: facts.get(key) for key in ("epsilon", "delta", "together")}
        return cls(
            push.id, push.dataset, push.state, push.sha256, push.size, received, push.begun,
            push.decided, push.reason, **told,
        )  # fmt: skip


@dataclass(frozen=True)
class BudgetView:
    """What a member has spent on one dataset: after each push, and of how much."""

    member: str
    dataset: str
    epsilon: float
    cap: float
    delta: float
    steps: list[tuple[float, float]]
    """(when, ε so far) of each push that counts, in order."""

    def before(self, when: float) -> float:
        """ε that had been spent by the pushes before this moment."""
        return max((epsilon for begun, epsilon in self.steps if begun < when), default=0.0)

    @property
    def left(self) -> float:
        """How far it is to the cap; costs do not add up exactly, so this is a lower bound."""
        return max(0.0, self.cap - self.epsilon)


@dataclass(frozen=True)
class MemberView:
    """A member, as stewards and admins see it."""

    name: str
    role: str
    joined: float
    revoked: float | None
    fingerprint: str
    budgets: list[BudgetView]

    @property
    def together(self) -> float:
        """ε at most, if all its datasets were the same rows: simply added up."""
        return math.fsum(budget.epsilon for budget in self.budgets)

    @classmethod
    def of(cls, member: Member, budgets: list[BudgetView]) -> MemberView:
        """The fingerprint is what people compare by telephone."""
        printed = " ".join(member.identity[i : i + 4] for i in range(0, 32, 4))
        return cls(member.name, member.role, member.joined, member.revoked, printed, budgets)
