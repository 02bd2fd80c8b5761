"""A simulation on several machines: each worker holds many sites as a stack, and sends sums.

The sites of a plan stand in groups, and sums are formed group by group (`federation.gather`). A
worker holds the sites of whole groups and sends a sum for each, so that the total is that of one
process to the last bit, and what travels does not grow with the number of sites. A worker trains,
seals and checks replies as one process would. It keeps what its sites remember, so it has to see
every round, in order; a question that is asked again gets the same bytes.

Nothing here is for real sites: a worker sees the rows of all its sites, and the sum of a group
may be that of one site. Claims say so (``ran``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar

import numpy as np
import torch

from understudy.data.shards import Shards
from understudy.errors import StudyError, WireError
from understudy.federation.gather import GROUPS, Ask, PlainSum, Reply, Subtotal, group_of
from understudy.federation.recipe import State, Task
from understudy.federation.sites import Sites
from understudy.privacy.plan import PrivacyPlan
from understudy.runtime.in_process import InProcess
from understudy.runtime.networked import Elsewhere, Networked
from understudy.runtime.wire import (
    MAX_BODY,
    Agreement,
    Envelope,
    answered,
    decode_arrays,
    decode_call,
    encode_arrays,
    encode_told,
    malformed,
)

__all__ = ["Spread", "Worker", "check_spread", "rows_hash", "worker_of"]

_ROWS, _SUMS = "rows", "sums"  # the legs
_RECEIVED = "received"  # beside the parts of a group
_DOUBLE = 8  # bytes of a number in a sum


def worker_of(clients: np.ndarray, sites: int, workers: int) -> np.ndarray:
    """Which of so many workers holds each of these sites: ranges of whole groups."""
    return group_of(clients, sites) * workers // min(GROUPS, sites)


def check_spread(plan: PrivacyPlan, workers: int) -> None:
    """Refuse what cannot be spread over so many workers."""
    most = min(GROUPS, plan.sites)
    if not 1 <= workers <= most:
        raise StudyError(
            f"1 to {most} workers, for {plan.sites:,} simulated sites", f"{workers}", "use fewer"
        )
    if plan.held == "columns":
        raise StudyError(
            "simulated sites that hold rows", "parties that hold columns", "use understudy run"
        )
    numbers = max(sum(int(np.prod(p.shape)) for p in phase.parts) for phase in plan.phases)
    largest = -(-most // workers) * numbers * _DOUBLE
    if largest > MAX_BODY:
        raise StudyError(
            f"sums of up to {MAX_BODY >> 20} MiB from each worker",
            f"{largest >> 20} MiB",
            "use more workers, or a smaller net",
        )


def rows_hash(data: Shards) -> bytes:
    """Of all rows and whose they are: every worker must have split the same file."""
    made = hashlib.sha256()
    for array in (data.x, data.y, data.starts, data.counts):
        made.update(array.numpy().tobytes())
    return made.digest()


@dataclass
class Spread(Elsewhere):
    """The server's end: the engine's runtime, and its `Gather`. ``networked`` has the workers."""

    plan: PrivacyPlan
    networked: Networked
    whole: PlainSum

    ran: ClassVar[str] = "workers"

    def open(self) -> None:
        """See that all workers hold parts of the same rows."""
        nothing = dict.fromkeys(range(len(self.networked.names)), b"")
        found = self._all(self.networked.leg(_ROWS, 0, nothing))
        if len(set(found.values())) > 1:
            raise WireError(
                "the same rows at every worker",
                "others at some",
                "give all of them the same study, schema and data files",
            )

    def total(self, ask: Ask, task: Task, round: int, cohort: np.ndarray) -> State | None:
        """One exchange with every worker, for the sums of its groups."""
        workers = len(self.networked.names)
        holder = worker_of(cohort, self.plan.sites, workers)
        asked = {i: cohort[holder == i].astype("<i8").tobytes() for i in range(workers)}
        found = self._all(self.networked.leg(_SUMS, round, asked, task))
        subtotals = [each for reply in found.values() for each in _read(reply)]
        return self.whole.add_up(sorted(subtotals, key=lambda each: each.group), round)

    def _all(self, found: dict[int, bytes]) -> dict[int, bytes]:
        """A worker holds what its sites remember: without it there is no going on."""
        if missing := [n for i, n in enumerate(self.networked.names) if i not in found]:
            said = "; ".join(f"{n}: {self.networked.failures.get(n, 'lost')}" for n in missing)
            raise WireError(
                "an answer of every worker",
                said[:500],
                "see its output, and start the simulation again: one seed gives one release",
            )
        return found

    def exchange(self, task: Task, round: int, cohort: np.ndarray) -> Iterator[Reply]:
        """Workers send sums alone."""
        raise WireError("a question for sums", "one for single updates", "fix the recipe's plan")


@dataclass
class Worker:
    """A worker's end, for one run. ``sites`` are its own, ``rows`` the hash of everyone's."""

    name: str
    sites: Sites
    agreement: Agreement
    run: str
    rows: bytes
    _round: int = -1
    _reply: bytes = b""
    _lock: Lock = field(default_factory=Lock)

    def handle(self, data: bytes) -> bytes:
        """The reply to a message of the server: a sum for each group, or a refusal."""
        with self._lock:
            return answered(lambda: self._answer(data), self.agreement, self.name)

    def _answer(self, data: bytes) -> bytes:
        task, told, envelope = decode_call(data, self.agreement, self.name)
        if envelope.leg not in (_ROWS, _SUMS):
            raise WireError("a question for sums", "another", "use understudy serve --simulate")
        if envelope.leg == _ROWS:
            return encode_told(self.rows, envelope)
        if envelope.round != self._round:
            self._check_turn(envelope)
            self._reply = encode_told(self._sums(task, told, envelope.round), envelope)
            self._round = envelope.round
        return self._reply

    def _check_turn(self, envelope: Envelope) -> None:
        """Every round of one run, in order: sites remember what they did in the one before."""
        if (envelope.run, envelope.round) != (self.run, self._round + 1):
            raise WireError(
                f"round {self._round + 2} of the run it began",
                "another: it was started again in between, or the server was",
                "start the simulation again",
            )

    def _sums(self, task: Task, told: bytes, round: int) -> bytes:
        """Train those of the cohort, all of which are held here, and add up what they seal."""
        cohort = np.frombuffer(told, "<i8") - self.sites.ids[0]
        replies = InProcess(self.sites).exchange(task, round, cohort)
        added = PlainSum(self.sites.recipe.plan, self.sites.source).subtotals(replies, round)
        return _written(added)


def _written(subtotals: Iterable[Subtotal]) -> bytes:
    found: State = {}
    for each in subtotals:
        parts = {**each.sums, _RECEIVED: torch.tensor(each.received)}
        found |= {f"{each.group}/{name}": value for name, value in parts.items()}
    return encode_arrays(found)


def _read(data: bytes) -> list[Subtotal]:
    """Inverse of `_written`."""
    groups: dict[int, State] = {}
    try:
        for name, value in decode_arrays(data).items():
            group, _, part = name.partition("/")
            groups.setdefault(int(group), {})[part] = value
        return [Subtotal(g, int(sums.pop(_RECEIVED)), sums) for g, sums in groups.items()]
    except (ValueError, KeyError) as error:
        raise malformed("sums of groups") from error
