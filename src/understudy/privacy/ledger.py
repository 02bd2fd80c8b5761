"""The ledger: an append-only, hash-chained, fsynced file of what was charged.

A run has a ledger of its own ("open", then a "charge" per round), and a site may keep one across
studies ("reserve" when a run begins, "join" for each round over a network, "release" when the run
is done). A charge is written **before** noise is drawn; a crash after it counts as spent. One
process at a time holds a ledger; over a network only for as long as it takes to note a line, so
that a site may be in several runs. A last line torn by a crash or a full disk is cut off; a torn
line anywhere else is refused.

The chain shows that a line was altered, moved or removed, but not that the last lines are gone.
That shows only against a head recorded elsewhere (`Ledger.holds`): a run in progress keeps the
heads of its own ledger and of its sites'. So a site's ledger that is replaced by an older copy
while no run is in progress is not noticed, nor are ledger and record replaced together.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from understudy.errors import BudgetError, OutputError, ReleaseError
from understudy.privacy.account import Event, cost, round_up
from understudy.privacy.clip import Receipt

__all__ = ["Ledger", "events_in", "read_entries", "receipts_in"]

_ROOT = "0" * 64
_PATIENCE, _LOOK = 2.0, 0.01  # seconds to wait for the lock, and between two tries
_KINDS = ("open", "charge", "reserve", "join", "release")
Entry = dict[str, Any]


def _seal(previous: str, kind: str, body: Entry) -> Entry:
    payload = json.dumps([previous, kind, body], sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(payload.encode()).hexdigest()
    return {"kind": kind, "body": body, "previous": previous, "hash": digest}


def _line(entry: Entry) -> str:
    """The one way to write an entry: no room for a second key of one name, or other spaces."""
    return json.dumps(entry, sort_keys=True, ensure_ascii=False)


def _damaged(what: str) -> ReleaseError:
    return ReleaseError("an intact ledger", what, "restore it from a copy; never edit a ledger")


def read_entries(text: str) -> Iterator[Entry]:
    """The entries of a ledger, each checked against the chain."""
    previous = _ROOT
    lines = text.removesuffix("\n").split("\n") if text else []  # splitlines knows other ends too
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            intact = line == _line(_seal(previous, entry["kind"], entry["body"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            intact = False
        if not intact:
            raise _damaged(f"line {number} altered, missing or torn")
        if entry["kind"] not in _KINDS:
            raise ReleaseError(
                f"ledger entries of {', '.join(_KINDS)}", "another kind", "update Understudy"
            )
        previous = entry["hash"]
        yield entry


def receipts_in(entries: list[Entry]) -> list[Receipt]:
    """All charges of a run, as receipts."""
    try:
        found = [r for e in entries if e["kind"] == "charge" for r in e["body"]["receipts"]]
        return [Receipt(**receipt) for receipt in found]
    except (TypeError, KeyError) as error:
        raise _damaged("a receipt with unknown or missing fields") from error


def events_in(body: Entry) -> list[Event]:
    """What a site reserved for one run."""
    return [
        Event(tuple(e["noise"]), e["rate"], e["count"], e.get("epsilon", 0.0), e.get("gap", 0.0))
        for e in body["events"]
    ]


class Ledger:
    """One open ledger file. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "a+b", buffering=0)  # held open: it carries the lock
        except OSError as error:
            raise OutputError(
                "a ledger that can be written",
                f"{path.name}: {error.strerror}",
                "create its folder, or name another file",
            ) from error
        self._lock()
        try:
            self.entries = list(read_entries(self._read()))
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        """Wait a moment for one who notes a line, not for a run that holds it to its end."""
        until = time.monotonic() + _PATIENCE
        while not self._locked():
            if time.monotonic() > until:
                self._file.close()
                raise OutputError(
                    "a ledger nobody else has open",
                    "another process holds it",
                    "wait until that run has ended",
                )
            time.sleep(_LOOK)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _read(self) -> str:
        """The text. A last line torn by a crash is cut off: its charge never completed."""
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._file.truncate(len(whole))
        try:
            return whole.decode()
        except UnicodeDecodeError as error:
            raise _damaged("bytes that are not text") from error

    @property
    def head(self) -> str:
        """The hash of the last entry: names everything before it."""
        return str(self.entries[-1]["hash"]) if self.entries else _ROOT

    @property
    def position(self) -> tuple[int, str]:
        """Length and head: what to record elsewhere, for `holds` to compare."""
        return len(self.entries), self.head

    def holds(self, length: int, head: str) -> bool:
        """Whether this ledger goes on from a recorded position: nothing was lost since."""
        then = [_ROOT, *(entry["hash"] for entry in self.entries)]
        return length < len(then) and then[length] == head

    def append(self, kind: str, body: Entry) -> None:
        """Write one entry and wait until it is on disk."""
        entry = _seal(self.head, kind, body)
        line = f"{_line(entry)}\n".encode()
        end = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
            raise OutputError(
                "room on disk for the ledger",
                str(error.strerror),
                "free space, then run with --resume",
            ) from error
        self.entries.append(entry)

    def charge(self, receipts: tuple[Receipt, ...]) -> None:
        """Spend, before the noise of these receipts is drawn."""
        self.append("charge", {"receipts": [asdict(r) for r in receipts]})

    def _bodies(self, kind: str) -> list[Entry]:
        return [entry["body"] for entry in self.entries if entry["kind"] == kind]

    def reserved(self, run: str) -> bool:
        """Whether this site has paid for the run."""
        return any(body["run"] == run for body in self._bodies("reserve"))

    def payer(self, run: str) -> str | None:
        """Who paid for the run, as far as the ledger says."""
        found = [body.get("payer") for body in self._bodies("reserve") if body["run"] == run]
        return found[0] if found else None

    def joined(self, run: str) -> int:
        """The last round of a run that the site has joined; -1 before the first."""
        rounds = [body["round"] for body in self._bodies("join") if body["run"] == run]
        return max(rounds, default=-1)

    def join(self, run: str, round: int) -> None:
        """Note that the site joins a round: once, whatever older state of it is put back."""
        if round <= (last := self.joined(run)):
            raise BudgetError(
                f"a round after round {last}, which this site has joined",
                f"round {round}, by an older copy of its state",
                "restore the newest copy, or leave this run for good",
            )
        self.append("join", {"run": run, "round": round})

    def released(self, run: str) -> str | None:
        """The head of the run's ledger when it was released; None if it was not."""
        return next((b["head"] for b in self._bodies("release") if b["run"] == run), None)

    def spent(self) -> list[Event]:
        """The events of every run reserved so far."""
        return [event for body in self._bodies("reserve") for event in events_in(body)]

    def total(self, events: tuple[Event, ...] = (), delta: float = 1.0) -> float:
        """ε of every run reserved so far, and of ``events`` at ``delta``: all at the smallest δ."""
        together = [*self.spent(), *events]
        deltas = [delta, *(body["delta"] for body in self._bodies("reserve"))]
        return cost(together, min(deltas)).epsilon if together else 0.0

    def check(
        self, run: str, events: tuple[Event, ...], delta: float, cap: float, unit: str
    ) -> None:
        """Refuse a run that does not fit under the cap together with all earlier ones.

        Runs that protect another unit or relation cannot be added to these, so they are refused.
        """
        if self.reserved(run):
            return
        kept = {body["unit"] for body in self._bodies("reserve")} - {unit}
        if kept:
            raise BudgetError(
                f"a ledger for {unit}", f"one for {sorted(kept)[0]}", "keep a ledger for each unit"
            )
        total = self.total(events, delta)
        if not total <= cap:
            before = self.total(delta=delta)
            raise BudgetError(
                f"a run that fits this site's cap ε={cap:g}",
                f"{round_up(before)} spent already, {round_up(total)} with this run",
                "ask for a smaller ε, or let the data owner raise the cap",
            )

    def reserve(
        self,
        run: str,
        events: tuple[Event, ...],
        delta: float,
        unit: str,
        said: Mapping[str, str | float] = MappingProxyType({}),
    ) -> None:
        """Spend a whole run's promise at a site, once per run id. `check` it first.

        ``said`` is what else the ledger notes: the study's name, the time, the cap, who paid.
        """
        if not self.reserved(run):
            kept = {"events": [asdict(event) for event in events], **said}
            self.append("reserve", {"run": run, "unit": unit, "delta": delta, **kept})

    def release(self, run: str, head: str, model: str) -> None:
        """Note, once, that the run was released, the head of its ledger and the model's hash.

        A run releases one model. Two copies of its private folder end with equal ledgers, which
        hold nothing random, but not with equal models.
        """
        noted = [body for body in self._bodies("release") if body["run"] == run]
        if any(body.get("model") != model for body in noted):
            raise ReleaseError(
                "a run that was not released yet",
                "one whose other model was released, from a copy of its folder",
                "do not release this one; start a new run in another folder",
            )
        if not noted:
            self.append("release", {"run": run, "head": head, "model": model})

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
