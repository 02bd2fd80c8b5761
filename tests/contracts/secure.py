"""A secure sum among parties of this process, with drop-outs and lies to inject at every leg."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from understudy.federation.secure.keys import Primitives, Remembered
from understudy.federation.secure.masks import Layout
from understudy.federation.secure.party import Party
from understudy.federation.secure.roster import Identity, Place, Roster, identities
from understudy.federation.secure.server import Collector
from understudy.federation.secure.session import Session
from understudy.privacy.clip import Sealed

__all__ = ["TASK", "Lab"]

TASK = b"t" * 32
Lie = Callable[[int, bytes], bytes]  # what a site is told, or tells, in place of the truth


@dataclass
class Lab:
    """``absent`` are the sites that do not answer a leg; lies change what is told, by leg."""

    numbers: torch.Tensor  # [n, d], what each site would send
    survivors: int
    colluders: int = 1
    bits: int = 20
    round: int = 0
    run: str = "run"
    made: tuple[Roster, list[Identity]] | None = None
    absent: Mapping[str, set[int]] = field(default_factory=dict)
    asking: dict[str, Lie] = field(default_factory=dict)
    answering: dict[str, Lie] = field(default_factory=dict)
    primitives: Primitives = field(default_factory=Remembered)
    sessions: dict[int, Session] = field(default_factory=dict)
    first: dict[int, Session] = field(default_factory=dict)  # with all secrets still in it
    told: dict[str, dict[int, bytes]] = field(default_factory=dict)
    masked: dict[int, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sites = len(self.numbers)
        self.roster, each = self.made or identities([f"site-{i}" for i in range(sites)])
        self.parties = [Party(identity, self.roster, self.primitives) for identity in each]
        self.place = Place(
            self.roster.hash, b"study", self.run, self.round, self.survivors, self.colluders
        )
        self.layout = Layout((("a", tuple(self.numbers.shape[1:]), self.bits),))
        self.collector = Collector(
            self.place, self.roster, self, self.layout, TASK, self.primitives
        )

    def total(self) -> torch.Tensor:
        """The sum that the server makes of a round."""
        messages = self.collector.open(range(len(self.numbers)))
        masked = self.collector.add_up(self._masked(messages), lambda sealed: True)
        return self.collector.close(masked)["a"][0]

    def leg(self, leg: str, round: int, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """What sites answer that are there."""
        gone = self.absent.get(leg, set())
        found = {
            i: self.answer(leg, i, message) for i, message in messages.items() if i not in gone
        }
        self.told[leg] = found
        return found

    def answer(self, leg: str, client: int, message: bytes) -> bytes:
        """One site's answer, after any lies."""
        message = self.asking.get(leg, _truth)(client, message)
        party, session = self.parties[client], self.sessions.get(client)
        if leg == "keys":
            self.sessions[client], reply = party.keys(self.place, message)
            self.first[client] = self.sessions[client]
        else:
            assert session is not None
            self.sessions[client], reply = getattr(party, leg)(self.place, session, message)
        return self.answering.get(leg, _truth)(client, reply)

    def _masked(self, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Sealed]]:
        for client, message in messages.items():
            if client not in self.absent.get("masked", set()):
                yield client, self.mask(client, message)

    def mask(self, client: int, message: bytes) -> Sealed:
        """A site's masked numbers."""
        party = self.parties[client]
        message = self.asking.get("masked", _truth)(client, message)
        session = party.receive(self.place, self.sessions[client], message)
        self.sessions[client] = session
        share = Sealed("share", self.round, {"a": self.numbers[client : client + 1]}, ())
        sealed = party.mask(self.place, session, share, self.layout)
        self.masked[client] = sealed.parts["a"][0]
        return sealed

    def plain(self, clients: set[int]) -> torch.Tensor:
        """The sum over these sites without masks."""
        return self.numbers[sorted(clients)].sum(0) & ((1 << self.bits) - 1)


def _truth(client: int, message: bytes) -> bytes:
    return message
