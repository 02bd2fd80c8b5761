"""Products of columns at two parties that neither shows to anyone: `ProductSum`, three legs.

The server deals randomness, the parties exchange masked rows that the server cannot read, and the
server adds up shares of XᵀY in which both have put noise (`privacy.products`). All modulo 2^64:

1. *keys*: each party announces fresh keys, signed for this roster, study, run, round and task;
2. *matrices*: it gets all keys, a seed, and corrections. From its seed follow a mask Uᵢ as large as
   its rows Xᵢ, and for each later party j a matrix Zᵢⱼ; j gets the correction UᵢᵀUⱼ − Zᵢⱼ. It sends
   the masked rows Eᵢ = Xᵢ − Uᵢ, encrypted for the other parties;
3. *products*: it gets the others' masked rows. Of XᵢᵀXⱼ = XᵢᵀEⱼ + EᵢᵀUⱼ + UᵢᵀUⱼ party i computes
   XᵢᵀEⱼ + Zᵢⱼ and party j the rest, EᵢᵀUⱼ + (UᵢᵀUⱼ − Zᵢⱼ). Each adds its own full noise, and a pair
   mask Pᵢⱼ that i adds and j subtracts; the server adds the two shares. A party's own block
   XᵢᵀXᵢ is sent with its noise as it is.

Guarantee, if every party follows the protocol (a party that sends larger numbers can read others'
rows), the server deals as written and works with no party; parties may work with each other.

* *A party* sees masked rows Eⱼ = Xⱼ − Uⱼ, uniform as long as it does not know j's seed, its own
  seed and corrections, which hide UᵢᵀUⱼ behind Zᵢⱼ and Uᵢ, and the noisy total. It knows its own
  noise, so its claim rests on the other's alone: each adds a full one.
* *The server* knows every U and Z. So it must not see an E, which would give it X: the channel is
  encrypted with keys of the two parties, signed by their long-term keys. Nor may it see a share by
  itself: XᵢᵀEⱼ = XᵢᵀXⱼ − XᵢᵀUⱼ, and XᵢᵀUⱼ is a sum of rows times known numbers of 64 bits, in which
  one record moves more than any noise hides. Under the pair mask, which follows from keys that the
  server does not have, a share is uniform, and only the sum of the two says anything: the product
  and both noises.
* *The server together with a party* sees everything the others hold: it takes the masks off.
* *A party that departs from the protocol* can read others' rows: nothing bounds the rows behind the
  Eⱼ that it sends, and one row of huge numbers, zeros elsewhere, lifts that row above the noise.
* All masks are bound to the round, so a seed that is dealt twice in different rounds masks twice
  differently; a second deal within a round is refused, and a party's rows are masked only once.
* The number of rows does not show in messages to the server: rows are padded to the public number.

It rests on X25519, ed25519, HKDF-SHA256, AES-256-CTR and ChaCha20-Poly1305. A party can also
spoil the sum by sending other numbers. If one leaves, the round is void, stays charged, and there
is no sum.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import torch

from understudy.errors import PrivacyError
from understudy.federation.gather import Ask, PlainSum, completed
from understudy.federation.masking import task_hash
from understudy.federation.product_party import (
    KEY,
    ProductParty,
    between,
    hidden,
    product_place,
    sealed_products,
    times,
)
from understudy.federation.recipe import State, Task
from understudy.federation.secure.keys import Primitives
from understudy.federation.secure.roster import Place, Roster, identities
from understudy.federation.secure.server import Void
from understudy.federation.secure.session import Session
from understudy.federation.sites import Sites
from understudy.privacy.clip import Sealed
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.products import Products
from understudy.rng import NoiseSource

__all__ = ["Holders", "ProductSum", "Together", "assembled", "deal", "product_part", "product_sum"]

_LOG = logging.getLogger(__name__)
Messages = Mapping[int, bytes]
Reply = TypeVar("Reply")


def product_part(plan: PrivacyPlan, round: int) -> tuple[Part, Products] | None:
    """The part of a round that is a product sum, if it is one: it is then alone."""
    for part in plan.at(round).parts:
        if isinstance(part.mechanism, Products):
            return part, part.mechanism
    return None


class Holders(Protocol):
    """How parties are reached: legs that carry no update, and the one that does."""

    def leg(
        self, leg: str, round: int, messages: Messages, task: Task | None = None
    ) -> dict[int, bytes]:
        """Send each party its message, and the task where the leg has one; what came back."""

    def sealed(self, leg: str, task: Task, round: int, messages: Messages) -> Mapping[int, Sealed]:
        """The same for the leg that answers with sealed shares."""


@dataclass
class ProductSum:
    """The noisy matrix of all products; None where a party is missing. Other sums as `PlainSum`.

    ``void`` says why the last round had no total.
    """

    plan: PrivacyPlan
    source: NoiseSource
    holders: Holders
    roster: Roster
    study: bytes
    run: str
    primitives: Primitives = field(default_factory=Primitives)
    void: str = ""

    def total(self, ask: Ask, task: Task, round: int, cohort: np.ndarray) -> State | None:
        """All three legs, or one exchange where nothing is multiplied."""
        found = product_part(self.plan, round)
        if found is None:
            return PlainSum(self.plan, self.source).total(ask, task, round, cohort)
        part, mechanism = found
        self.void = ""
        self.primitives.forget()
        try:
            whole = self._multiplied(task, round, part, mechanism)
        except Void as reason:
            self.void = str(reason)
            _LOG.warning("round %d is void: %s", round, reason)
            return None
        return completed(self.plan, {part.name: whole}, round, self.source, len(self.roster))

    def _multiplied(self, task: Task, round: int, part: Part, mechanism: Products) -> torch.Tensor:
        place = product_place(self.roster, self.study, self.run, round)
        everyone = range(len(self.roster))
        keys = self._all(self.holders.leg("keys", round, dict.fromkeys(everyone, task_hash(task))))
        told = b"".join(keys[i] for i in everyone)
        dealt = deal(place, mechanism)
        sent = self.holders.leg("matrices", round, {i: told + dealt[i] for i in everyone}, task)
        rows = self._all(sent)
        messages = {i: _relayed(rows, i) for i in everyone}
        replies = self._all(self.holders.sealed("products", task, round, messages))
        return assembled({i: self._words(replies[i], part, round) for i in everyone}, mechanism)

    def _all(self, found: Mapping[int, Reply]) -> Mapping[int, Reply]:
        missing = [self.roster.names[i] for i in range(len(self.roster)) if i not in found]
        if missing:
            raise Void(f"{', '.join(missing)} did not answer, and a product needs all parties")
        return found

    def _words(self, sealed: Sealed, part: Part, round: int) -> np.ndarray:
        """A party's numbers, if they fit the plan and carry its receipt."""
        good = sealed.kind == "masked" and sealed.round == round
        value = sealed.parts.get(part.name) if good and len(sealed.receipts) == 1 else None
        fits = None if value is None else part.mechanism.fits(value, part, self.plan.unit)
        try:
            self.plan.admits(sealed.receipts)
        except PrivacyError as error:
            raise Void(str(error)) from error
        if value is None or fits is None or not bool(fits.all()):
            raise Void("a party's shares do not fit the plan")
        return value[0].numpy().view(np.uint64)


def deal(place: Place, mechanism: Products) -> list[bytes]:
    """For each party a fresh seed and its corrections; every round is dealt once."""
    widths, rows = mechanism.widths, mechanism.most
    seeds = [os.urandom(32) for _ in widths]
    masks = [
        hidden(place, s, i, rows, w) for i, (s, w) in enumerate(zip(seeds, widths, strict=True))
    ]
    found = []
    for j, seed in enumerate(seeds):
        shapes = [(i, (widths[i], widths[j])) for i in range(j)]
        corrections = (
            times(masks[i], masks[j]) - between(place, seeds[i], (i, j), shape)
            for i, shape in shapes
        )
        found.append(seed + b"".join(each.tobytes() for each in corrections))
    return found


def _relayed(rows: Mapping[int, bytes], receiver: int) -> bytes:
    """Of each other party its key as locked for this one, and its masked rows."""
    found = []
    for sender in (i for i in sorted(rows) if i != receiver):
        place = receiver - (receiver > sender)  # among those that the sender locked its key for
        start, end = place * KEY, (len(rows) - 1) * KEY
        found.append(rows[sender][start : start + KEY] + rows[sender][end:])
    return b"".join(found)


def assembled(words: Mapping[int, np.ndarray], mechanism: Products) -> torch.Tensor:
    """The symmetric matrix from every party's numbers, modulo 2^64."""
    spans, total = mechanism.spans(), sum(mechanism.widths)
    whole = np.zeros((total, total), np.uint64)
    for i, span in enumerate(spans):
        width, start = mechanism.widths[i], 0
        upper, block = np.triu_indices(width), np.zeros((width, width), np.uint64)
        peers = [j for j in range(len(spans)) if j != i]
        expected = len(upper[0]) + sum(width * mechanism.widths[j] for j in peers)
        if len(words[i]) != expected:
            raise Void("a party's shares do not fit the plan")
        block[upper], start = words[i][: len(upper[0])], len(upper[0])
        whole[span, span] = np.triu(block) + np.triu(block, 1).T
        for j in peers:
            size = width * mechanism.widths[j]
            share = words[i][start : start + size].reshape(width, -1)
            whole[span, spans[j]] += share
            whole[spans[j], span] += share.T
            start += size
    return torch.from_numpy(whole.view(np.int64).copy())


def product_sum(plan: PrivacyPlan, source: NoiseSource, sites: Sites, run: str) -> ProductSum:
    """A product sum of parties that are all in this process."""
    together = Together.of(sites, b"simulation", run)
    return ProductSum(plan, source, together, together.parties[0].roster, together.study, run)


@dataclass
class Together:
    """All parties in this process, with real keys, masks and messages."""

    sites: Sites
    parties: Sequence[ProductParty]
    study: bytes
    run: str
    sessions: dict[int, Session] = field(default_factory=dict)

    @classmethod
    def of(cls, sites: Sites, study: bytes, run: str) -> Together:
        """With fresh identities."""
        roster, each = identities(sites.names)
        return cls(sites, [ProductParty(identity, roster) for identity in each], study, run)

    def leg(
        self, leg: str, round: int, messages: Messages, task: Task | None = None
    ) -> dict[int, bytes]:
        clients = np.array(sorted(messages))
        if leg == "keys":
            clients = self.sites.join(clients, round)
        return {int(i): self._answer(int(i), leg, round, messages[int(i)], task) for i in clients}

    def _answer(self, i: int, leg: str, round: int, told: bytes, task: Task | None) -> bytes:
        party, place = self.parties[i], self._place(round)
        if leg == "keys":
            self.sessions[i], reply = party.keys(place, told)
            return reply
        assert task is not None
        rows = self.sites.held(task, round, i).rows
        self.sessions[i], reply = party.matrices(place, self.sessions[i], told, rows)
        return reply

    def sealed(self, leg: str, task: Task, round: int, messages: Messages) -> Mapping[int, Sealed]:
        return {
            i: sealed_products(
                self.parties[i],
                self._place(round),
                self.sessions.pop(i),
                told,
                self.sites.held(task, round, i),
            )
            for i, told in messages.items()
        }

    def _place(self, round: int) -> Place:
        return product_place(self.parties[0].roster, self.study, self.run, round)
