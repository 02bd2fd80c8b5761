"""The engine over any `Transport`, and the site's end of it.

The server sends every site of the cohort its task and waits until a deadline; whoever has not
answered, or answered with something that does not belong here, is asked again a few times and then
left out of the round. A `Participant` holds one site: it checks that both ends agree on study,
schema, plan and version, counts the round before noise is drawn, and keeps its sealed bytes
together with its memory, so that a retry gets the same bytes and never fresh noise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from understudy.errors import BudgetError, UnderstudyError, WireError
from understudy.federation.recipe import State, Task
from understudy.federation.sites import Sites
from understudy.privacy.clip import Sealed
from understudy.runtime.store import Kept, Store
from understudy.runtime.transport import Transport
from understudy.runtime.wire import (
    Agreement,
    Envelope,
    Refused,
    decode_sealed,
    decode_task,
    encode_arrays,
    encode_refusal,
    encode_sealed,
    encode_task,
)

__all__ = ["Networked", "Participant"]

_LOG = logging.getLogger(__name__)


@dataclass
class Networked:
    """The server's end. ``failures`` says why sites were left out of the last exchange."""

    transport: Transport
    names: Sequence[str]
    agreement: Agreement
    run: str
    deadline: float = 600.0
    attempts: int = 3
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ran(self) -> str:
        """What ran where is the transport's to say."""
        return self.transport.ran

    def exchange(self, task: Task, round: int, cohort: np.ndarray) -> Iterator[Sealed]:
        """Replies in the order of the cohort, whatever order they came in."""
        called = [self.names[client] for client in cohort]
        replies: dict[str, Sealed] = {}
        body, self.failures = encode_arrays(task.arrays), {}
        for attempt in range(self.attempts):
            missing = [n for n in called if n not in replies and self.failures.get(n) != _REFUSED]
            if not missing:
                break
            envelopes = {name: self._envelope(name, round, attempt) for name in missing}
            messages = {n: encode_task(task, e, body) for n, e in envelopes.items()}
            found, failed = self.transport.exchange(messages, self.deadline)
            self.failures |= failed
            replies |= self._accepted(found, envelopes)
        yield from (replies[name] for name in called if name in replies)

    def _envelope(self, site: str, round: int, attempt: int) -> Envelope:
        return Envelope(self.agreement, self.run, site, round, attempt)

    def _accepted(
        self, found: dict[str, bytes], envelopes: dict[str, Envelope]
    ) -> dict[str, Sealed]:
        """Replies of those who were asked that belong to their site, run and round."""
        good = {}
        for name, envelope in envelopes.items():
            if name not in found:
                continue
            try:
                good[name] = decode_sealed(found[name], envelope)
                self.failures.pop(name, None)
            except Refused:
                self.failures[name] = _REFUSED
            except WireError as error:
                self.failures[name] = str(error)
        return good

    def count_void(self, cohort: np.ndarray, round: int) -> None:
        """Sites count their own rounds."""

    def save(self) -> State:
        """Nothing: sites keep what is theirs."""
        return {}

    def restore(self, saved: State) -> None:
        """Nothing was saved."""


_REFUSED = "refused"


@dataclass
class Participant:
    """One site: ``handle`` answers every message of a server, and never twice differently."""

    sites: Sites
    agreement: Agreement
    store: Store
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        kept = self.store.kept
        if kept.round >= 0:
            self.sites.allowance[:, 0] = kept.allowance
        if kept.memory:
            self.sites.memory.scatter(_ALONE, kept.memory)

    @property
    def name(self) -> str:
        """Of the site."""
        return self.sites.names[0]

    def handle(self, data: bytes) -> bytes:
        """The reply to a message: a sealed update, or a refusal that says why."""
        with self._lock:
            try:
                task, envelope = decode_task(data, self.agreement, self.name)
                return self._answer(task, envelope)
            except UnderstudyError as error:
                return encode_refusal(str(error), self.agreement, self.name)
            except Exception:  # its words may hold what rows say: they stay here
                _LOG.exception("site %s could not answer", self.name)
                return encode_refusal("an error at the site", self.agreement, self.name)

    def _answer(self, task: Task, envelope: Envelope) -> bytes:
        kept = self.store.kept
        self._check_turn(envelope, kept)
        if envelope.round == kept.round:
            return kept.reply  # a retry: the same bytes, never fresh noise
        if not kept.run:
            self._pay(envelope.run)
        if not len(self.sites.join(_ALONE, envelope.round)):
            raise WireError("a round within this site's budget", "one more", "leave the site out")
        joined = replace(
            kept,
            run=envelope.run,
            round=envelope.round,
            allowance=tuple(self.sites.allowance[:, 0].tolist()),
            reply=b"",
        )
        self.store.save(joined)  # counted before any noise is drawn
        sealed, memory = self.sites.answer(task, envelope.round, _ALONE)
        reply = encode_sealed(sealed, envelope)
        self.store.save(replace(joined, reply=reply, memory=_single(memory)))
        self.sites.memory.scatter(_ALONE, memory)
        return reply

    def _pay(self, run: str) -> None:
        """Charge the site's own ledger; what it spent elsewhere is not the server's to know."""
        try:
            self.sites.charge(0, run)
        except BudgetError as error:
            found = "a run that exceeds it"
            raise WireError("a run within this site's cap", found, "leave it out") from error

    def _check_turn(self, envelope: Envelope, kept: Kept) -> None:
        """One run, planned rounds in order, and none that was begun and not finished."""
        if kept.run not in ("", envelope.run):
            raise WireError("the run this site has joined", "another", "join it in another folder")
        if envelope.round < kept.round:
            raise WireError(f"round {kept.round} or later", "an earlier one", "drop the message")
        if envelope.round >= (length := self.sites.recipe.plan.length):
            raise WireError(f"one of {length} planned rounds", "a later one", "drop the message")
        if envelope.round == kept.round and not kept.reply:
            raise WireError(
                "a round that was answered here",
                "one that was cut short",
                "go on without this site",
            )


_ALONE = np.array([0])


def _single(memory: State) -> State:
    """What the one site keeps, with its axis of sites."""
    return {name: value.detach().clone() for name, value in memory.items()}
