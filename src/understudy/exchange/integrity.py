"""Whether store and database agree: every blob has its row and every row its blob, to the byte.

The audit log is followed from its first entry to its last, and compared with the head that lies
beside the blobs; states of pushes are compared with what the log says of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from understudy.exchange.auditlog import read_chain
from understudy.exchange.blobs import Blobs, file_hash
from understudy.exchange.database import Database, reached
from understudy.exchange.models import HELD, Entry, Member, Push

__all__ = ["Findings", "inspect"]


@dataclass(frozen=True)
class Findings:
    """What was looked at, and what is wrong."""

    releases: int
    entries: int
    head: str
    faults: tuple[str, ...]


def inspect(database: Database, blobs: Blobs) -> Findings:
    """Look at everything; raises where the audit log is broken."""
    with reached(), database.reading() as session:
        entries = list(read_chain(session))
        pushes = list(session.scalars(select(Push)))
        faults = [
            *_blobs(blobs, pushes),
            *_head(blobs, entries),
            *_states(pushes, entries),
            *_members(session, entries),
        ]
    held = sum(push.state in HELD for push in pushes)
    return Findings(held, len(entries), entries[-1].hash if entries else "", tuple(faults))


def _blobs(blobs: Blobs, pushes: list[Push]) -> Iterator[str]:
    named = {push.sha256: push for push in pushes if push.state in HELD}
    moving = {push.sha256 for push in pushes if push.state == "checking"}
    for sha256, push in named.items():
        path = blobs.path(sha256)
        if not path.is_file():
            yield f"push {push.id} is {push.state}, and its blob {sha256[:12]}… is missing"
        elif path.stat().st_size != push.size or file_hash(path) != sha256:
            yield f"blob {sha256[:12]}… of push {push.id} is not what was pushed"
    for sha256 in blobs.kept():
        if sha256 not in named and sha256 not in moving:
            yield f"blob {sha256[:12]}… is in the store, and no push names it"


def _head(blobs: Blobs, entries: list[Entry]) -> Iterator[str]:
    noted = blobs.head()
    if noted is None:
        return
    seq, hash = noted
    if seq > len(entries) or (seq and entries[seq - 1].hash != hash):
        yield f"the audit log ends before, or differs from, the head noted in the store ({seq})"


def _states(pushes: list[Push], entries: list[Entry]) -> Iterator[str]:
    """The last thing that the log says of each push."""
    said = {e.subject: e.action.removeprefix("push ") for e in entries if e.action[:5] == "push "}
    expected = {"uploading": "begun", "checking": "begun"}
    for push in pushes:
        if said.pop(push.id, "") != expected.get(push.state, push.state):
            yield f"push {push.id} is {push.state}, and the audit log says otherwise"
    for id in said:
        yield f"the audit log tells of push {id}, which the database does not have"


def _members(session: Session, entries: list[Entry]) -> Iterator[str]:
    """Everybody subscribed, with this key, in the log."""
    told = {e.actor: json.loads(e.details)["identity"] for e in entries if e.action == "subscribe"}
    for member in session.scalars(select(Member)):
        if told.get(member.name) != member.identity:
            yield f"member {member.name} has another key than the audit log says"
