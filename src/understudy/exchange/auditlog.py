"""The audit log: every action, in order, each entry with the hash of the one before.

An entry is written in the transaction of what it tells of, so that neither is there without the
other. Triggers refuse to change or remove entries; someone who gets around them breaks the chain,
which `read_chain` finds. That the last entries are gone is seen only by somebody who knows a later
head: the service writes it beside the blobs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from understudy.errors import ExchangeError
from understudy.exchange.models import Entry

__all__ = ["ROOT", "head", "read_chain", "record"]

ROOT = "0" * 64


def _hash(entry: Entry) -> str:
    fields = (entry.previous, entry.seq, repr(float(entry.when)), entry.actor, entry.action)
    text = json.dumps([*fields, entry.subject, entry.details])
    return hashlib.sha256(text.encode()).hexdigest()


def record(session: Session, actor: str, action: str, subject: str = "", **details: Any) -> Entry:
    """Add an entry; the session must be one that writes."""
    seq, previous = head(session)
    entry = Entry(
        seq=seq + 1,
        when=time.time(),
        actor=actor[:64],
        action=action,
        subject=subject[:64],
        details=json.dumps(details, sort_keys=True),
        previous=previous,
    )
    entry.hash = _hash(entry)
    session.add(entry)
    session.flush()
    return entry


def head(session: Session) -> tuple[int, str]:
    """Number and hash of the last entry."""
    last = session.execute(
        select(Entry.seq, Entry.hash).order_by(Entry.seq.desc()).limit(1)
    ).one_or_none()
    return (0, ROOT) if last is None else (last.seq, last.hash)


def read_chain(session: Session) -> Iterator[Entry]:
    """All entries, each checked against the one before."""
    seq, previous = 0, ROOT
    for entry in session.scalars(
        select(Entry).order_by(Entry.seq).execution_options(yield_per=500)
    ):
        if (entry.seq, entry.previous, entry.hash) != (seq + 1, previous, _hash(entry)):
            raise ExchangeError(
                f"entry {seq + 1} of the audit log as it was written",
                "an altered or missing one",
                "restore the database from a copy, and find out who can write to it",
            )
        seq, previous = entry.seq, entry.hash
        yield entry
