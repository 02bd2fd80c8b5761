"""A ledger, read by people: what was spent, on what, and what is left. It changes nothing.

A site's ledger says what each run may cost the people in its rows; a run's ledger says which rounds
were charged. A chain of hashes shows that an entry was altered or removed, but not that the last
ones are gone, as after an old backup was put back: that shows only against a position that was
written down before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import ReleaseError, UnderstudyError
from understudy.privacy.account import cost
from understudy.privacy.claim import Claim, claims
from understudy.privacy.ledger import Entry, events_in, read_entries, receipts_in
from understudy.privacy.plan import PrivacyPlan

__all__ = ["Charged", "Paid", "Spending", "charged", "check_position", "find", "read", "spending"]

_COPY = "put back its newest copy, never an older one"


@dataclass(frozen=True)
class Paid:
    """One run in a site's ledger: what it may cost at most, whether or not it went on to its end.

    ``study`` and ``when`` are empty in ledgers of earlier versions.
    """

    run: str
    study: str
    when: str
    unit: str
    epsilon: float
    delta: float
    released: bool


@dataclass(frozen=True)
class Spending:
    """All runs of a site, what they cost together, and the cap that the last one was held to."""

    runs: tuple[Paid, ...]
    epsilon: float
    delta: float
    cap: float | None

    @property
    def left(self) -> float | None:
        """Cap less total. Costs do not simply add up: a little more than this may fit."""
        return None if self.cap is None else max(self.cap - self.epsilon, 0.0)


@dataclass(frozen=True)
class Charged:
    """A run's own ledger: its study, the plan's claims, and how many rounds were charged."""

    study: str
    claims: tuple[Claim, ...]
    rounds: int
    planned: int


def find(path: Path) -> list[Path]:
    """The file itself, or the ledgers in a folder: of a release, of a run, of sites."""
    found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise ReleaseError(
            "a ledger, or a folder that holds one (*.jsonl)",
            f"none at {path}",
            "name the file that the study file or join calls the ledger",
        )
    return found


def read(path: Path) -> list[Entry]:
    """The entries, each checked against the chain; a last line that was cut short is refused."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ReleaseError("a ledger", f"{path.name} is no text", _COPY) from error
    except OSError as error:
        raise ReleaseError(
            "a ledger that can be read", f"{path.name}: {error.strerror}", "check path and rights"
        ) from error
    if text and not text.endswith("\n"):
        raise ReleaseError(
            "a ledger whose last line is whole",
            "a last line cut short, by a crash or a full disk",
            f"resume the run, which removes that line; if none was interrupted, {_COPY}",
        )
    return list(read_entries(text))


def check_position(entries: Sequence[Entry], position: str) -> None:
    """Refuse a ledger that does not go on from a position ("12:9f3a…") written down before."""
    match = re.fullmatch(r"(\d{1,9}):([0-9a-f]{16,64})", position)
    if match is None:
        raise ReleaseError(
            "a position such as 12:9f3a61c07d25be48",
            repr(position[:80]),
            "copy it from an earlier understudy ledger verify",
        )
    length = int(match[1])
    if length > len(entries):
        raise ReleaseError(
            f"a ledger of {length} entries or more",
            f"{len(entries)}: it was rolled back, and what the others spent is forgotten",
            f"{_COPY}; do not run anything on these rows until then",
        )
    if not position_of(entries[:length]).split(":")[1].startswith(match[2][:16]):
        raise ReleaseError(
            f"the ledger that had this position after entry {length}",
            "another one, or one that was rewritten",
            _COPY,
        )


def position_of(entries: Sequence[Entry]) -> str:
    """How many entries, and the start of the last one's hash: to be written down elsewhere."""
    return f"{len(entries)}:{entries[-1]['hash'][:16] if entries else '0' * 16}"


def spending(entries: Sequence[Entry]) -> Spending:
    """What a site has spent, by its ledger."""
    paid = [entry["body"] for entry in entries if entry["kind"] == "reserve"]
    released = {entry["body"]["run"] for entry in entries if entry["kind"] == "release"}
    try:
        runs = tuple(_paid(body, body["run"] in released) for body in paid)
        events = [event for body in paid for event in events_in(body)]
        caps = [float(body["cap"]) for body in paid if "cap" in body]
    except (KeyError, TypeError, ValueError) as error:
        raise ReleaseError(
            "entries of a site's ledger", "one with missing fields", "update Understudy"
        ) from error
    delta = min((run.delta for run in runs), default=0.0)
    total = cost(events, delta).epsilon if events else 0.0
    return Spending(runs, total, delta, caps[-1] if caps else None)


def _paid(body: Entry, released: bool) -> Paid:
    price = cost(events_in(body), body["delta"]).epsilon
    study, when = (str(body.get(key, "")) for key in ("study", "when"))
    return Paid(body["run"], study, when, body["unit"], price, body["delta"], released)


def charged(entries: Sequence[Entry]) -> Charged:
    """What a run has charged, by its own ledger, whose first entry has its plan."""
    opening = entries[0]["body"]
    try:
        study, plan = str(opening["study"]), PrivacyPlan.from_dict(opening["plan"])
    except (KeyError, TypeError, ValueError, UnderstudyError) as error:
        raise ReleaseError(
            "a ledger that begins with its plan", "another first entry", "update Understudy"
        ) from error
    receipts = receipts_in(list(entries))
    source = receipts[0].source if receipts else "os"
    rounds = {receipt.round for receipt in receipts}
    return Charged(study, claims(plan, source), len(rounds), plan.length)
