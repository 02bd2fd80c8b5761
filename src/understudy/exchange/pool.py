"""The pool: what is in it, what a steward has to decide, what has been spent, and pulls."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from understudy.exchange.auditlog import record
from understudy.exchange.context import Exchange
from understudy.exchange.members import allow
from understudy.exchange.models import HELD, SPENT, Member, Pull, Push
from understudy.exchange.refusal import Refused
from understudy.exchange.views import BudgetView, MemberView, PullView, ReleaseDetail, ReleaseView

__all__ = [
    "SORTS",
    "Asked",
    "budgets",
    "detail",
    "may_pull",
    "members",
    "pull",
    "queue",
    "releases",
]

SORTS: dict[str, Callable[[ReleaseView], Any]] = {
    "newest": lambda release: -(release.decided or 0),
    "epsilon": lambda release: release.epsilon,
    "pulls": lambda release: -release.pulls,
    "size": lambda release: release.bytes,
    "member": lambda release: (release.member, release.dataset),
}


@dataclass(frozen=True)
class Asked:
    """Which releases, and in what order; empty means any. ``covers`` is a class they draw."""

    sort: str = "newest"
    recipe: str = ""
    member: str = ""
    epsilon: float | None = None
    covers: str = ""

    def __call__(self, release: ReleaseView) -> bool:
        """Whether a release is one of them."""
        return (
            self.recipe in ("", release.recipe)
            and self.member in ("", release.member)
            and (self.epsilon is None or release.epsilon <= self.epsilon)
            and (not self.covers or release.classes.get(self.covers, 0) > 0)
        )


def releases(session: Session, asked: Asked) -> list[ReleaseView]:
    """The pool."""
    return sorted(filter(asked, _views(session, "accepted")), key=SORTS[asked.sort])


def queue(session: Session, steward: Member) -> list[ReleaseView]:
    """What waits for a decision, oldest first."""
    allow(steward, "steward")
    return sorted(_views(session, "pending"), key=lambda release: release.pushed)


def _views(session: Session, state: str) -> list[ReleaseView]:
    counts = session.execute(select(Pull.push, func.count()).group_by(Pull.push))
    counted = {push: many for push, many in counts}
    found = session.scalars(select(Push).where(Push.state == state))
    return [ReleaseView.of(push, counted.get(push.id, 0)) for push in found]


def _held(session: Session, member: Member, id: str) -> Push:
    """A release in the pool; for stewards and its owner also one that waits."""
    push = session.get(Push, id)
    if push is not None and push.state in HELD:
        if push.state == "accepted" or member.role != "member" or push.member == member.name:
            return push
    raise Refused(404, "a release in the pool", "none of this number", "look at the list")


def detail(session: Session, member: Member, id: str) -> ReleaseDetail:
    """Everything about a release."""
    push = _held(session, member, id)
    taken = session.scalars(select(Pull).where(Pull.push == id).order_by(Pull.when))
    return ReleaseDetail.of(push, [PullView(each.member, each.when) for each in taken])


def may_pull(exchange: Exchange, session: Session, member: Member) -> bool:
    """Whether this member has given before it takes; stewards and admins have to look at pushes."""
    if not exchange.policy.requirements.pull_after_push or member.role != "member":
        return True
    own = select(Push.id).where(Push.member == member.name, Push.state == "accepted")
    return session.scalars(own.limit(1)).first() is not None


def pull(exchange: Exchange, member: Member, id: str) -> Path:
    """The file of a release; the first time is written down."""
    with exchange.database.reading() as session:
        push = _held(session, member, id)
        if push.member != member.name and not may_pull(exchange, session, member):
            raise Refused(
                403,
                "an accepted push of your own before you pull",
                "none",
                "push a generator first: understudy exchange push RELEASE",
            )
        known = session.get(Pull, (id, member.name))
    path = exchange.blobs.path(push.sha256)
    if not path.is_file():
        raise Refused(
            500, f"release {id} in the store", "no such file", "tell the operator: exchange check"
        )
    if known is None and push.member != member.name:
        _note_pull(exchange, member, id)
    return path


def _note_pull(exchange: Exchange, member: Member, id: str) -> None:
    with exchange.database.writing() as session:
        if session.get(Pull, (id, member.name)) is None:
            session.add(Pull(push=id, member=member.name, when=time.time()))
            record(session, member.name, "pull", id)


def budgets(exchange: Exchange, session: Session, member: str = "") -> list[BudgetView]:
    """What has been spent, for each member and dataset; of one member, or of all."""
    asked = select(Push).where(Push.state.in_(SPENT)).order_by(Push.begun)
    found: dict[tuple[str, str], list[Push]] = defaultdict(list)
    for push in session.scalars(asked.where(Push.member == member) if member else asked):
        found[push.member, push.dataset].append(push)
    return [_budget(exchange, *key, pushes) for key, pushes in sorted(found.items())]


def _budget(exchange: Exchange, member: str, dataset: str, pushes: Sequence[Push]) -> BudgetView:
    terms = exchange.policy.requirements
    spent = [(push.begun, float((push.facts or {})["together"])) for push in pushes]
    steps = sorted(spent, key=lambda step: step[1])  # ε so far grows with each
    return BudgetView(member, dataset, steps[-1][1], terms.epsilon, terms.delta, steps)


def members(exchange: Exchange, session: Session, steward: Member) -> list[MemberView]:
    """Everybody, with what each has spent."""
    allow(steward, "steward")
    spent: dict[str, list[BudgetView]] = defaultdict(list)
    for budget in budgets(exchange, session):
        spent[budget.member].append(budget)
    people = session.scalars(select(Member).order_by(Member.joined))
    return [MemberView.of(each, spent[each.name]) for each in people]
