"""Alignment over a network: what files carry elsewhere, passed on by a server that cannot read it.

The parties stand in a ring, in the order of their roster. Leg 0: each announces a fresh key, signed
with its identity for this roster and run. Leg 1: each sends the next one its own blinded points.
Legs 2 to M: each multiplies what it got from the one before, and passes it on; what all have
multiplied by then goes to all. Leg M + 1: each has every list, and finds who is in all.

Lists are locked for the party that they go to, under keys that follow from both ends' fresh ones.
So a server that does what it likes learns how many identifiers each party has (the length of what
it passes on) and who takes part, and can end the alignment; it cannot read or exchange a list, nor
stand in for a party, if rosters hold the right keys. It is not told how many people are in common.
What the parties learn from each other is in `data.align`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event, Lock
from typing import Any

import numpy as np

from understudy.data.align import Alignment, Blinded, Secret, answer, blind, common
from understudy.errors import DataError, StudyError, UnderstudyError, WireError
from understudy.federation.secure.keys import Primitives, lock, public, unlock
from understudy.federation.secure.masks import derive
from understudy.federation.secure.roster import SIGNATURE, Identity, Place, Roster
from understudy.runtime.transport import Transport
from understudy.runtime.wire import malformed, pack, unpack
from understudy.version import __version__

__all__ = ["Aligning", "check_parties", "relay", "wait_for"]

_LOG = logging.getLogger(__name__)
MOST = 16  # parties
_AGAIN = "start again at every end: secrets are fresh each time"
_KEY, _SIZE, _LOOK = 32, 8, 0.1
Tell = Callable[[str], None]


def check_parties(roster: Roster) -> None:
    """Refuse to align one party, or very many."""
    if not 2 <= len(roster) <= MOST:
        raise StudyError(f"2 to {MOST} parties", f"{len(roster)}", "name them with --party")


def _place(roster: Roster, run: str) -> Place:
    return Place(roster.hash, b"align", run, 0, len(roster), 0)


@dataclass
class Aligning:
    """One party's end: what it answers in each leg, and, once it is ``over``, what it found.

    ``rows`` are its own, in the order of all, and ``alignment`` is what all have in common.
    """

    roster: Roster
    identity: Identity
    names: Sequence[str] = field(repr=False)
    tell: Tell = lambda line: None
    over: Event = field(default_factory=Event)
    error: UnderstudyError | None = None
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    alignment: Alignment | None = None
    _run: str = ""
    _leg: int = -1
    _told: bytes = b""
    _reply: bytes = field(default=b"", repr=False)
    _keys: bytes = b""
    _whole: Blinded | None = field(default=None, repr=False)
    _lock: Lock = field(default_factory=Lock)

    @property
    def name(self) -> str:
        return self.roster.names[self.identity.client]

    @cached_property
    def _fresh(self) -> bytes:
        return os.urandom(_KEY)

    @cached_property
    def _blinded(self) -> tuple[Secret, Blinded]:
        return blind(self.names)

    def handle(self, data: bytes) -> bytes:
        """The reply to a message: the same to the same, and none to another in one leg."""
        with self._lock:
            try:
                return self._answer(data)
            except UnderstudyError as error:
                return self._refusal(error)
            except Exception:  # its words may hold identifiers: they stay here
                _LOG.exception("party %s could not answer", self.name)
                return self._refusal(WireError("an answer", f"an error at {self.name}", _AGAIN))

    def _refusal(self, error: UnderstudyError) -> bytes:
        self._end(error)
        return pack({"message": "refusal", "site": self.name, "reason": str(error)}, b"")

    def _end(self, error: UnderstudyError | None) -> None:
        self.error = error
        self.over.set()

    def _answer(self, data: bytes) -> bytes:
        header, told = unpack(data, "align")
        _check_header(header, self.roster, self.name)
        leg, run, asked = header.get("leg"), str(header.get("run")), hashlib.sha256(told).digest()
        if self._run and run != self._run:
            raise WireError("the alignment that was begun", "another", "start again at every end")
        if (leg, asked) == (self._leg, self._told):
            return self._reply
        if leg != self._leg + 1:
            raise WireError(f"leg {self._leg + 1} of an alignment", f"{leg!r}"[:20], "start again")
        self._run = run
        made = self._step(leg, told)
        self._leg, self._told = leg, asked
        self._reply = pack({"message": "aligned", "site": self.name, "leg": leg}, b"", made)
        return self._reply

    def _step(self, leg: int, told: bytes) -> bytes:
        me, last = self.identity.client, len(self.roster)
        before, after = (me - 1) % last, (me + 1) % last
        if leg == 0:
            key = public(self._fresh)
            return key + self.identity.sign(self._statement(me, key))
        if leg == 1:
            self._keys = self._checked(told)
            return self._locked(1, after, self._blinded[1])
        if leg <= last:
            found = answer(self._blinded[0], self._open(leg - 1, before, told))
            self.tell(f"{len(found):,} identifiers of another party, multiplied")
            if leg < last:
                return self._locked(leg, after, found)
            self._whole = found
            return b"".join(self._locked(last, peer, found) for peer in self._peers())
        return self._found(told)

    def _found(self, told: bytes) -> bytes:
        """The last leg: whether anyone is in all lists is nothing that the server is told."""
        me, last = self.identity.client, len(self.roster)
        sent = zip(self._peers(), _cut(told, last), strict=True)
        lists = {sender: self._open(last, sender, each) for sender, each in sent}
        assert self._whole is not None
        own = lists.pop((me - 1) % last)
        try:
            others = [self._whole, *lists.values()]
            self.rows, self.alignment = common(self._blinded[0], own, others)
            self._end(None)
        except DataError as error:
            self._end(error)
        return b""

    def _peers(self) -> list[int]:
        return [i for i in range(len(self.roster)) if i != self.identity.client]

    def _statement(self, client: int, key: bytes) -> bytes:
        place = _place(self.roster, self._run)
        return place.digest("align keys", client.to_bytes(4, "big"), key)

    def _checked(self, told: bytes) -> bytes:
        """Everyone's announced keys, if each signed its own."""
        size, keys = _KEY + SIGNATURE, []
        if len(told) != size * len(self.roster):
            raise malformed("the keys of all parties")
        for client in range(len(self.roster)):
            said = told[client * size : (client + 1) * size]
            if not self.roster.verify(client, self._statement(client, said[:_KEY]), said[_KEY:]):
                raise WireError(
                    f"a key that {self.roster.names[client]} has signed", "another", "stop"
                )
            keys.append(said[:_KEY])
        if keys[self.identity.client] != public(self._fresh):
            raise WireError("this party's own key", "another", "stop")
        return b"".join(keys)

    def _channel(self, leg: int, sender: int, receiver: int) -> tuple[bytes, bytes]:
        """The key of one list on its way, and what it is bound to."""
        peer = receiver if sender == self.identity.client else sender
        theirs = self._keys[peer * _KEY : (peer + 1) * _KEY]
        (agreed,) = Primitives().agree(self._fresh, public(self._fresh), [theirs])
        place = _place(self.roster, self._run)
        return derive(agreed, place.salt, "align", leg, sender, receiver), self._keys

    def _locked(self, leg: int, receiver: int, found: Blinded) -> bytes:
        key, bound = self._channel(leg, self.identity.client, receiver)
        return lock(key, found.to_bytes(), bound)

    def _open(self, leg: int, sender: int, sent: bytes) -> Blinded:
        key, bound = self._channel(leg, sender, self.identity.client)
        return Blinded.from_bytes(unlock(key, sent, bound))


def _check_header(header: Mapping[str, Any], roster: Roster, name: str) -> None:
    """Both ends name the same parties, and have the same version."""
    wanted = {"roster": roster.hash.hex(), "version": __version__, "site": name}
    if differ := [what for what, value in wanted.items() if header.get(what) != value]:
        raise WireError(
            "the same parties, keys and version at the server and here",
            f"another {differ[0]}",
            "name the same --party in the same order everywhere; install the newest reply",
        )


def _cut(told: bytes, parties: int) -> list[bytes]:
    """The lists of all other parties, each with its length before it."""
    found: list[bytes] = []
    while told:
        size = int.from_bytes(told[:_SIZE], "little")
        found.append(told[_SIZE : _SIZE + size])
        told = told[_SIZE + size :]
    if len(found) != parties - 1:
        raise malformed("a list of every other party")
    return found


def wait_for(transport: Transport, names: Sequence[str], seconds: float, tell: Tell) -> None:
    """Until all parties are there."""
    until = time.monotonic() + seconds
    tell(f"waiting for {', '.join(names)}")
    while missing := [name for name in names if name not in transport.sites()]:
        if time.monotonic() > until:
            found = f"no word from {', '.join(missing)} for {seconds:g} s"
            raise WireError("all parties", found, "start those that are missing, and this again")
        time.sleep(_LOOK)


def relay(
    transport: Transport, roster: Roster, deadline: float = 600.0, tell: Tell = lambda line: None
) -> None:
    """The server's end: pass on what the parties send each other."""
    check_parties(roster)
    run, last = secrets.token_hex(16), len(roster)
    parties = range(last)

    def leg(number: int, told: Mapping[int, bytes]) -> dict[int, bytes]:
        tell(f"step {number + 1} of {last + 2}")
        return _asked(transport, roster, run, number, told, deadline)

    keys = leg(0, dict.fromkeys(parties, b""))
    sent = leg(1, dict.fromkeys(parties, b"".join(keys[i] for i in parties)))
    for number in range(2, last + 1):
        sent = leg(number, {i: sent[(i - 1) % last] for i in parties})
    others = {i: [j for j in parties if j != i] for i in parties}
    leg(last + 1, {i: b"".join(_for(i, sent[j], j, last) for j in others[i]) for i in parties})
    tell("every party has its rows; how many they are was not told here")


def _for(receiver: int, sent: bytes, sender: int, parties: int) -> bytes:
    """What a party sent to this one, of what it sent to all others, with its length."""
    size, place = len(sent) // (parties - 1), receiver - (receiver > sender)
    return size.to_bytes(_SIZE, "little") + sent[place * size : (place + 1) * size]


def _asked(
    transport: Transport,
    roster: Roster,
    run: str,
    leg: int,
    told: Mapping[int, bytes],
    deadline: float,
) -> dict[int, bytes]:
    """What every party answers in one leg; without one of them there is no alignment."""
    about = {"message": "align", "run": run, "leg": leg, "version": __version__}
    about |= {"roster": roster.hash.hex()}
    named = {roster.names[i]: sent for i, sent in told.items()}
    messages = {n: pack({**about, "site": n}, b"", sent) for n, sent in named.items()}
    replies, failed = transport.exchange(messages, deadline)
    return {i: _read(roster.names[i], leg, replies, failed) for i in told}


def _read(name: str, leg: int, replies: Mapping[str, bytes], failed: Mapping[str, str]) -> bytes:
    if name not in replies:
        raise WireError(f"an answer of {name}", failed.get(name, "none"), _AGAIN)
    header, made = unpack(replies[name], "aligned", "refusal")
    if header["message"] == "refusal":
        raise WireError(f"{name} to take part", f"a refusal: {header.get('reason')}"[:300], _AGAIN)
    if (header.get("site"), header.get("leg")) != (name, leg):
        raise WireError(f"an answer of {name} in step {leg + 1}", "another", _AGAIN)
    return made
