"""What a site answers while it is connected: greetings, tasks, and the end of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Protocol

from understudy.deployment.joining import Joining
from understudy.deployment.signing import countersign
from understudy.errors import UnderstudyError, WireError
from understudy.runtime.flare import Address, FlareSite
from understudy.runtime.greeting import Farewell, Terms, kind_of, run_of
from understudy.runtime.participant import Participant
from understudy.runtime.reach import awaited, probe
from understudy.runtime.wire import answered

__all__ = ["Attendant", "Attending", "attend"]

_LOOK = 0.5  # seconds between looks at the connection
_LAST_WORDS = 1.0  # seconds for the last reply to get out
_THERE = "connected to the server"
Tell = Callable[[str], None]


@dataclass
class Attendant:
    """Answers every message; ``over`` is set when the run is, or cannot begin (``error``)."""

    joining: Joining
    tell: Tell = lambda line: None
    over: Event = field(default_factory=Event)
    error: UnderstudyError | None = None
    _participant: Participant | None = None
    _run: str = ""
    _round: int = -1
    _lock: Lock = field(default_factory=Lock)

    @property
    def name(self) -> str:
        return self.joining.name

    def handle(self, data: bytes) -> bytes:
        """The reply, or a refusal that says why in words that hold nothing of the rows."""
        heard = time.time()  # it may have to wait until an earlier message is answered
        with self._lock:
            return answered(lambda: self._answer(data, heard), self.joining.agreement, self.name)

    def _answer(self, data: bytes, heard: float) -> bytes:
        kind, run = kind_of(data), run_of(data)
        if kind == "hello":
            return self._welcome(data, run, heard)
        if kind == "bye":
            return self._farewell(data)
        return self._answered(self._in(run), data)

    def _answered(self, participant: Participant, data: bytes) -> bytes:
        before, reply = self._round, participant.handle(data)
        self._round = participant.store.kept.round
        if self._round > before:
            self.tell(f"round {self._round + 1} of {self.joining.recipe.plan.length}")
        return reply

    def _in(self, run: str) -> Participant:
        held = self._participant
        if held is not None and run != self._run and not held.store.kept.run:
            self._participant = held = None  # that run ended before this site was asked or paid
        if self._participant is None:
            self._participant, self._run = self.joining.participant(run), run
            self._round = self._participant.store.kept.round
        if run != self._run:
            raise WireError("the run this site has joined", "another", "join it in another folder")
        return self._participant

    def _welcome(self, data: bytes, run: str, heard: float) -> bytes:
        name, own = self.name, self.joining.terms
        theirs = Terms.decode(data, "hello", name)
        try:
            own.check(theirs, "the server", heard)
            self._in(run)
        except UnderstudyError as error:
            self._end(error)
            if not own.differences(theirs):
                raise
        else:
            self.tell(f"the server agrees on study, plan and keys; run {run[:8]}")
        return own.encode("welcome", run, name)

    def _farewell(self, data: bytes) -> bytes:
        name, joining = self.name, self.joining
        said = Farewell.decode(data, name)
        if self._in(said.run).store.kept.run != said.run:
            raise WireError("the end of a run that this site took part in", "another", "leave it")
        joining.check_last(said.run, said.manifest)
        if joining.keys is None:
            signature = b""
        else:
            plan = joining.recipe.plan.to_dict()
            joined = {"run": said.run, "study": joining.study.hash, "plan": plan}
            names = list(joining.study.site_names)
            signature = countersign(said.manifest, joining.keys, names, joined)
        joining.finish(said.run, said.head, said.model, said.manifest)
        self.tell("the run is over: the release is signed, and noted in the ledger")
        self._end(None)
        return said.signed(name, signature)

    def _end(self, error: UnderstudyError | None) -> None:
        self.error = error
        self.over.set()


class Attending(Protocol):
    """Whoever answers a server until ``over`` is set."""

    over: Event
    error: UnderstudyError | None

    @property
    def name(self) -> str:
        """As the server calls it."""

    def handle(self, data: bytes) -> bytes:
        """The reply to a message."""


def attend(attendant: Attending, address: Address, tell: Tell) -> None:
    """Wait for the server, connect, and answer until the run is over; raises what ended it."""
    awaited(address, attendant.over, tell)
    said = _THERE
    with FlareSite(attendant.name, address, attendant.handle) as site:
        while not attendant.over.wait(_LOOK):
            if (now := _whereabouts(site, address)) != said:
                tell(now)
            said = now
        time.sleep(_LAST_WORDS)
    if attendant.error is not None:
        raise attendant.error


def _whereabouts(site: FlareSite, address: Address) -> str:
    """Whether the site is connected, or what it waits for: FLARE would not say."""
    if site.connected:
        return _THERE
    try:
        missing = probe(address)
    except UnderstudyError as error:  # it may be mended: what was begun is not given up
        missing = str(error)
    return f"waiting for the server: {missing}" if missing else "connecting to the server"
