"""Sums that no server can see through: `SecureSum`, a `Gather` of five legs.

Each site hides its numbers, which hold its share of the noise, under masks (Bonawitz et al. 2017;
above 100 sites with the sparse graph of Bell et al. 2020). A mask that it shares with each peer
cancels in the sum; a mask of its own comes off once the survivors are known.

1. *keys*: each site announces fresh keys, signed with its long-term key for this roster, study,
   run, round and task;
2. *shares*: it is told who was called and its peers' keys, and sends every peer, encrypted,
   a share of its two secrets;
3. *masked*: it is told who has shared, and given the task; it trains, and sends masked numbers;
4. *survivors*: it is told whose numbers arrived, and signs that together with all it was told;
5. *unmask*: shown that a quorum signed the same, it tells its shares: of a survivor those of its
   own mask, of one that dropped out those of its keys. The server takes the masks off the sum.

Guarantee. Of n sites called, at least t survive or there is no sum; up to c work with the server;
2t > n + c, which every site checks itself.

* n ≤ 100 (complete graph): a server that does anything it likes, with up to c sites, sees of an
  honest site's numbers at most one sum a round, modulo the plan's powers of two, in which those
  of at least t − c honest sites are added up. (1) Shares can be read only by sites that were told
  of the same n. (2) Two quorums of t of these share an honest site, and a site signs one set of
  survivors a round; so all honest sites tell shares for one set, of each site of one kind, and
  c < t shares of the other kind are worth nothing. (3) Signers share masks with each other. A
  survivor that was told of other sharers than they shares a mask with one of them nonetheless:
  else its at least t sharers would be colluders or among the n − t who did not sign, and
  n − t + c < t. So its numbers are in the one sum over all honest survivors, or in none.
* n > 100 (ring of peers): the same, but only for a server that follows the protocol and looks at
  all it sees, for colluders and drop-outs that do not depend on the order of the ring, and but
  for a chance of 2⁻³⁹ a round (`secure.graph`). Sites refuse what they can see to be wrong; but a
  server that does not follow the protocol could choose runs until the ring suits its colluders.

It rests on X25519, ed25519, HKDF-SHA256, AES-256-CTR, ChaCha20-Poly1305 and on rosters that hold
the right keys. It does not hide who takes part and survives, nor keep a site from spoiling a sum
(numbers of its own choice, or wrong shares, which make the round void). What the sum itself
tells is the noise's to hide: fewer than t survivors are never unmasked, and shares of
noise are sized for t − c.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from understudy.errors import PrivacyError
from understudy.federation.gather import Ask, acceptable, completed
from understudy.federation.recipe import State, Task
from understudy.federation.secure.keys import Primitives, Remembered
from understudy.federation.secure.masks import Layout
from understudy.federation.secure.party import Party
from understudy.federation.secure.roster import Place, Roster, identities
from understudy.federation.secure.server import Collector, Messages, Relay, Void
from understudy.federation.secure.session import Session
from understudy.federation.sites import Sites
from understudy.privacy.clip import Sealed
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.rng import NoiseSource

__all__ = ["Checked", "Parties", "SecureSum", "checked_sum", "layout_of", "place_of", "task_hash"]

Willing = Callable[[np.ndarray, int], np.ndarray]  # of these sites, those who join the round
_LOG = logging.getLogger(__name__)


class Parties(Relay, Protocol):
    """The sites of a secure sum: a relay, and one leg that carries the task and the updates."""

    def masked(
        self, ask: Ask, task: Task, round: int, messages: Messages
    ) -> Iterator[tuple[int, Sealed]]:
        """Send each site its message and the task; masked updates of single sites, as they come."""


@dataclass
class SecureSum:
    """The total of integer shares that only sites can unmask; None where a round is void.

    ``study`` is a hash of all that both ends agreed on. ``void`` says why the last round had no
    total, ``survivors`` how many sites are in the last one.
    """

    plan: PrivacyPlan
    source: NoiseSource
    parties: Parties
    roster: Roster
    study: bytes
    run: str
    primitives: Primitives = field(default_factory=Primitives)
    void: str = ""
    survivors: int = 0

    def total(self, ask: Ask, task: Task, round: int, cohort: np.ndarray) -> State | None:
        """All five legs, then as any other gather."""
        place = place_of(self.plan, round, self.roster, self.study, self.run)
        layout = layout_of(self.plan, round)
        collector = Collector(
            place, self.roster, self.parties, layout, task_hash(task), self.primitives
        )
        self.void, self.survivors = "", 0
        self.primitives.forget()
        try:
            messages = collector.open(cohort.tolist())
            replies = self.parties.masked(ask, task, round, messages)
            masked = collector.add_up(replies, lambda sealed: self._fits(sealed, round))
            sums = collector.close(masked)
        except Void as reason:
            self.void = str(reason)
            _LOG.warning("round %d is void: %s", round, reason)
            return None
        self.survivors = len(collector.surviving)
        each = {name: value[0] for name, value in sums.items()}
        return completed(self.plan, each, round, self.source, self.survivors)

    def _fits(self, sealed: Sealed, round: int) -> bool:
        if sealed.kind != "masked":
            return False
        good = acceptable(self.plan, sealed, round)
        return len(good) == 1 and bool(good.all())


def place_of(plan: PrivacyPlan, round: int, roster: Roster, study: bytes, run: str) -> Place:
    """Where a round takes place; t and c are those of this end's own plan."""
    phase = plan.at(round)
    return Place(roster.hash, study, run, round, phase.survivors, phase.colluders)


def layout_of(plan: PrivacyPlan, round: int) -> Layout:
    """How the parts of an update lie in a row of words."""
    return Layout(tuple((part.name, part.shape, _bits(part)) for part in plan.at(round).parts))


def _bits(part: Part) -> int:
    if not isinstance(part.mechanism, IntegerGaussian):
        raise PrivacyError(
            f"part {part.name!r} in whole numbers", part.mechanism.name, "use distributed trust"
        )
    return part.mechanism.bits(part)


def task_hash(task: Task) -> bytes:
    """Of every array and value, the same at both ends: what sites compare before they train."""
    made = hashlib.sha256(json.dumps(task.values, sort_keys=True).encode())
    for name in sorted(task.arrays):
        array = task.arrays[name].detach().contiguous()
        head = json.dumps([name, str(array.dtype), list(array.shape)]).encode()
        made.update(len(head).to_bytes(8, "big") + head)
        made.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return made.digest()


@dataclass
class Checked:
    """All parties in this process, with real keys, shares and masks: ``masks = "checked"``.

    Every site trains and seals as in any simulation, a stack at a time, and answers every leg.
    What one site of a pair computes the other is spared; nothing else is left out.
    """

    plan: PrivacyPlan
    roster: Roster
    parties: Sequence[Party]
    study: bytes
    run: str
    willing: Willing = lambda clients, round: clients
    sessions: dict[int, Session] = field(default_factory=dict)

    def leg(self, leg: str, round: int, messages: Messages) -> dict[int, bytes]:
        """The answer of every site whose budget lets it join."""
        place = place_of(self.plan, round, self.roster, self.study, self.run)
        called = np.array(sorted(messages), np.int64)
        able = called if leg != "keys" else self.willing(called, round)
        return {i: self._answer(leg, place, i, messages[i]) for i in able.tolist()}

    def _answer(self, leg: str, place: Place, client: int, message: bytes) -> bytes:
        party = self.parties[client]
        if leg == "keys":
            self.sessions[client], reply = party.keys(place, message)
        else:
            step = {"shares": party.shares, "survivors": party.survivors, "unmask": party.unmask}
            self.sessions[client], reply = step[leg](place, self.sessions[client], message)
        return reply

    def masked(
        self, ask: Ask, task: Task, round: int, messages: Messages
    ) -> Iterator[tuple[int, Sealed]]:
        """Stacks of shares as the runtime gives them, each site's masked on its own."""
        place = place_of(self.plan, round, self.roster, self.study, self.run)
        layout = layout_of(self.plan, round)
        for clients, sealed in ask(task, round, np.array(sorted(messages), np.int64)):
            for row, client in enumerate(clients.tolist()):
                party = self.parties[client]
                session = party.receive(place, self.sessions[client], messages[client])
                self.sessions[client] = session
                yield client, party.mask(place, session, _one(sealed, row), layout)


def _one(sealed: Sealed, row: int) -> Sealed:
    """One site of a stack."""
    parts = {name: value[row : row + 1] for name, value in sealed.parts.items()}
    return Sealed(sealed.kind, sealed.round, parts, sealed.receipts)


def checked_sum(plan: PrivacyPlan, source: NoiseSource, sites: Sites) -> SecureSum:
    """A secure sum over sites that are all simulated here."""
    roster, each = identities(sites.names)
    shared, study, run = Remembered(), b"simulation", "checked"
    parties = [Party(identity, roster, shared) for identity in each]
    checked = Checked(plan, roster, parties, study, run, sites.willing)
    return SecureSum(plan, source, checked, roster, study, run, shared)
