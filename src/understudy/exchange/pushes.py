"""The way of a push: begun, received in pieces, checked, shown to a steward, accepted or not.

Each step is one transaction with its line in the audit log. A push that was being checked when the
service stopped is checked again when it starts.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from understudy.exchange.admission import Rules
from understudy.exchange.auditlog import record
from understudy.exchange.blobs import file_hash
from understudy.exchange.context import Exchange
from understudy.exchange.database import GONE
from understudy.exchange.models import HELD, SPENT, Member, Push
from understudy.exchange.refusal import Refused
from understudy.exchange.worker import Job

__all__ = ["begin", "check", "decide", "find", "finish", "receive", "recover", "withdraw"]

_log = logging.getLogger(__name__)
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_FORGET = 86_400.0  # seconds after which an upload that never ended is dropped
_RETRY = 5.0  # seconds between tries while the database is gone


def begin(exchange: Exchange, member: Member, dataset: str, sha256: str, size: int) -> Push:
    """A new upload, or the one of the same bytes that was cut short or is being checked."""
    most = exchange.policy.most_bytes
    if not 0 < size <= most:
        raise Refused(413, f"a release of at most {most:,} bytes", f"{size:,}", "make it smaller")
    if not _DATASET.fullmatch(dataset):
        raise Refused(
            422, "a dataset's name of up to 40 letters, digits, - _ .", "another", "rename it"
        )
    dataset = dataset.lower()  # Ward-A and ward-a are the same rows
    with exchange.database.writing() as session:
        same = session.scalars(select(Push).where(Push.sha256 == sha256)).all()
        for push in same:
            own = (push.member, push.dataset) == (member.name, dataset)
            if own and push.state in ("uploading", "checking"):
                return push
            if push.state in (*HELD, "checking"):
                raise Refused(
                    409, "a release that is not here yet", f"push {push.id}", "push it once"
                )
        _check_open(exchange, session, member)
        push = Push(
            id=secrets.token_hex(8), member=member.name, dataset=dataset, sha256=sha256,
            size=size, state="uploading", begun=time.time(),
        )  # fmt: skip
        session.add(push)
        session.flush()
        record(
            session, member.name, "push begun", push.id, dataset=dataset, sha256=sha256, size=size
        )
        return push


def _check_open(exchange: Exchange, session: Session, member: Member) -> None:
    most = exchange.policy.limits.uploads
    held = select(func.count()).where(
        Push.member == member.name, Push.state.in_(("uploading", "checking"))
    )
    if session.scalar(held) >= most:  # type: ignore[operator]
        raise Refused(
            429, f"at most {most} open uploads", "more", "finish them, or wait for their checks", 5
        )


def find(session: Session, member: Member, id: str, others: bool = False) -> Push:
    """A push of this member's own; stewards and admins may look at those of ``others``."""
    push = session.get(Push, id)
    if push is None or (push.member != member.name and not (others and member.role != "member")):
        raise Refused(404, "a push of yours", "none of this number", "look at your pushes")
    return push


def receive(exchange: Exchange, member: Member, id: str, offset: int, data: bytes) -> int:
    """Take in a piece that begins at ``offset``; how many bytes there are now."""
    with exchange.database.reading() as session:
        push = find(session, member, id)
    with exchange.lock(id):
        there = exchange.blobs.received(id)
        if push.state != "uploading" or offset != there:
            raise Refused(
                409, f"a piece that begins at byte {there:,}", f"{offset:,}", "go on from there"
            )
        if there + len(data) > push.size:
            raise Refused(413, f"{push.size:,} bytes in all", "more", "begin again")
        return exchange.blobs.append(id, offset, data)


def finish(exchange: Exchange, member: Member, id: str) -> Push:
    """All bytes are here: compare their hash, and put the push in the queue of checks."""
    with exchange.lock(id), exchange.database.writing() as session:
        push = find(session, member, id)
        if push.state != "uploading":
            return push
        there = exchange.blobs.received(id)
        if there < push.size:
            raise Refused(409, f"{push.size:,} bytes", f"{there:,}", "send the rest first")
        if file_hash(exchange.blobs.upload(id)) != push.sha256:
            reason = dict(expected="the bytes that were announced", found="others", do="push again")
            _refuse(exchange, session, push, reason)
            return push
        push.state = "checking"
    exchange.later(check, id)
    return push


def check(exchange: Exchange, id: str) -> None:
    """Check a push, and write down what came of it; tries again while the database is gone."""
    while not exchange.closing.is_set():
        try:
            if _checked(exchange, id):
                return
        except GONE as error:
            _log.warning("push %s waits for the database: %s", id, type(error).__name__)
            exchange.closing.wait(_RETRY)
        except Exception:
            _log.exception("push %s could not be checked; it is tried again at the next start", id)
            return


def _checked(exchange: Exchange, id: str) -> bool:
    """False if another push of the same data was admitted meanwhile: then the sum is another."""
    with exchange.database.reading() as session:
        push = session.get_one(Push, id)
        earlier = _earlier(session, push)
    shares = [other.facts["share"] for other in earlier if other.facts]
    job = Job(exchange.blobs.upload(id), _rules(exchange), shares)
    found = exchange.worker.check(job)
    with exchange.database.writing() as session:
        push = session.get_one(Push, id)
        if push.state != "checking":
            return True
        if "refused" in found:
            _refuse(exchange, session, push, found["refused"])
            return True
        if [other.id for other in _earlier(session, push)] != [other.id for other in earlier]:
            return False
        _admit(exchange, session, push, found)
    exchange.blobs.drop_upload(id)
    exchange.note_head()
    return True


def _earlier(session: Session, push: Push) -> Sequence[Push]:
    """What this member pushed of the same data, and people have been shown."""
    asked = select(Push).where(
        Push.member == push.member, Push.dataset == push.dataset, Push.state.in_(SPENT)
    )
    return session.scalars(asked.order_by(Push.id)).all()


def _rules(exchange: Exchange) -> Rules:
    asked, limits = exchange.policy.requirements, exchange.policy.limits
    names = {field.name for field in fields(Rules)}
    taken = {k: v for k, v in vars(asked).items() if k in names}
    schema = exchange.policy.schema.hash
    return Rules(schema=schema, sample_rows=limits.sample_rows, **taken)


def _refuse(exchange: Exchange, session: Session, push: Push, reason: dict[str, Any]) -> None:
    push.state, push.decided, push.reason = "refused", time.time(), reason
    record(session, push.member, "push refused", push.id, **reason)
    exchange.blobs.drop_upload(push.id)


def _admit(exchange: Exchange, session: Session, push: Push, found: dict[str, Any]) -> None:
    """The blob is on the disk before its row says so; if it cannot be, the push is refused."""
    try:
        exchange.blobs.keep(push.id, push.sha256)
    except OSError as error:
        why = dict(expected="room for it in the store", found=str(error.strerror), do="try later")
        return _refuse(exchange, session, push, why)
    push.facts, push.preview = found["facts"], found["preview"]
    push.state = "pending" if exchange.policy.requirements.approval else "accepted"
    push.decided = None if push.state == "pending" else time.time()
    facts = {key: found["facts"][key] for key in ("epsilon", "delta", "together")}
    record(session, push.member, f"push {push.state}", push.id, sha256=push.sha256, **facts)
    return None


def decide(exchange: Exchange, steward: Member, id: str, approve: bool, why: str) -> Push:
    """A steward takes another's push, or turns one down. What was seen of it is spent."""
    with exchange.database.writing() as session:
        push = find(session, steward, id, others=True)
        if push.state != "pending":
            raise Refused(409, "a push that waits for a decision", push.state, "look at the queue")
        if approve and push.member == steward.name:
            raise Refused(403, "another steward's approval", "your own", "ask one of the others")
        push.state = "accepted" if approve else "rejected"
        push.decided, push.by = time.time(), steward.name
        if not approve:
            push.reason = {
                "expected": "a steward's approval",
                "found": why or "no reason was given",
                "do": "ask the stewards",
            }
        record(session, steward.name, f"push {push.state}", id, why=why)
    return _dropped(exchange, push)


def withdraw(exchange: Exchange, member: Member, id: str) -> Push:
    """Its owner, or a steward, takes a release out of the pool. What was pulled stays out there."""
    with exchange.database.writing() as session:
        push = find(session, member, id, others=True)
        if push.state not in HELD:
            raise Refused(409, "a push that is pending or accepted", push.state, "nothing to do")
        push.state, push.decided, push.by = "withdrawn", time.time(), member.name
        record(session, member.name, "push withdrawn", id)
    return _dropped(exchange, push)


def _dropped(exchange: Exchange, push: Push) -> Push:
    """No row names the blob any more, unless somebody has pushed the same bytes meanwhile."""
    if push.state not in HELD:
        with exchange.database.writing() as session:
            asked = select(Push.id).where(Push.sha256 == push.sha256, Push.state.in_(HELD))
            if session.scalars(asked).first() is None:
                exchange.blobs.remove(push.sha256)
    exchange.note_head()
    return push


def recover(exchange: Exchange) -> int:
    """After a stop of any kind: check again what was being checked, drop what nobody finished."""
    now = time.time()
    with exchange.database.writing() as session:
        live = select(Push).where(Push.state.in_(("uploading", "checking")))
        found = session.scalars(live).all()
        for push in found:
            if push.state == "uploading" and push.begun < now - _FORGET:
                reason = dict(expected="an upload within a day", found="a part", do="push again")
                _refuse(exchange, session, push, reason)
        waiting = [push.id for push in found if push.state == "checking"]
        known = {push.id for push in found if push.state != "refused"}
        held = set(session.scalars(select(Push.sha256).where(Push.state.in_((*HELD, "checking")))))
        gone = set(session.scalars(select(Push.sha256).where(Push.state.not_in(HELD)))) - held
    for name in exchange.blobs.uploads():
        if name not in known:
            exchange.blobs.stray(name)
    for sha256 in gone:
        exchange.blobs.remove(sha256)
    for id in waiting:
        exchange.later(check, id)
    return len(waiting)
