"""The server's half of a secure sum: five legs, then the masks come off the sum, never off a term.

It passes on what sites tell each other and checks what it can, so that one bad site costs a site
and not a round. It learns who survived and the sum over the survivors, modulo the plan's powers
of two. Where fewer than t are left in any leg, the round is void and nothing is unmasked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from understudy.errors import PrivacyError, WireError
from understudy.federation.secure.graph import Graph
from understudy.federation.secure.keys import SEALED, Announced, Primitives, public
from understudy.federation.secure.masks import Layout, add_mask
from understudy.federation.secure.party import cut, own_mask, pair_mask
from understudy.federation.secure.roster import Place, Roster, pack
from understudy.federation.secure.shamir import SHARE, recover
from understudy.privacy.clip import Sealed

__all__ = ["Collector", "Relay", "Void"]

Messages = Mapping[int, bytes]


class Void(Exception):
    """Why a round has no sum."""


class Relay(Protocol):
    """How sites are reached in the legs that carry no update: silent ones are simply absent."""

    def leg(self, leg: str, round: int, messages: Messages) -> dict[int, bytes]:
        """Send each site its message; what came back."""


@dataclass
class Collector:
    """One round, seen from the server."""

    place: Place
    roster: Roster
    relay: Relay
    layout: Layout
    task: bytes
    primitives: Primitives = field(default_factory=Primitives)
    announced: dict[int, Announced] = field(default_factory=dict)
    shared: dict[int, dict[int, bytes]] = field(default_factory=dict)  # by receiver and sender
    surviving: frozenset[int] = frozenset()

    def open(self, cohort: Iterable[int]) -> dict[int, bytes]:
        """Legs 1 and 2; what to send each site that has shared its secrets, with its task."""
        found = self._leg("keys", {int(client): self.task for client in cohort})
        self.announced = self._signed_keys(found)
        self.called = self._flags(self._enough(self.announced))
        self.graph = self._drawn()
        told = {i: self._keys_for(i) for i in self.announced}
        sent = self._leg("shares", told)
        self.sharing = self._flags(self._enough(self._exchanged(sent)))
        return {int(i): self._shares_for(int(i)) for i in np.flatnonzero(self.sharing)}

    def add_up(
        self, replies: Iterable[tuple[int, Sealed]], fits: Callable[[Sealed], bool]
    ) -> np.ndarray:
        """Leg 3: the sum of all that fits, still under masks; who sent it survives the round."""
        total = np.zeros(self.layout.size, self.layout.word)
        found: set[int] = set()
        for client, sealed in replies:
            if client in found or not self.sharing[client] or not fits(sealed):
                continue
            try:
                total += self.layout.row(sealed.parts)
            except PrivacyError:
                continue
            found.add(client)
        self.surviving = frozenset(self._enough(found))
        return total

    def close(self, total: np.ndarray) -> dict[str, Tensor]:
        """Legs 4 and 5: signatures, shares, and the sum without its masks, ``[1, …]`` by part."""
        survivors = pack(self._flags(self.surviving))
        signatures = self._signatures(
            self._leg("survivors", dict.fromkeys(self.surviving, survivors))
        )
        self._enough(signatures)
        told = {i: self._signatures_for(i, signatures) for i in signatures}
        shares = self._collected(self._leg("unmask", told))
        for client in np.flatnonzero(self.sharing).tolist():
            secret = self._secret(client, shares.get(client, {}))
            self._take_off(total, client, secret)
        return self.layout.split(total)

    def _leg(self, leg: str, messages: Messages) -> dict[int, bytes]:
        found = self.relay.leg(leg, self.place.round, messages)
        return {client: found[client] for client in messages if client in found}

    def _enough(self, clients: Iterable[int]) -> list[int]:
        found = list(clients)
        if len(found) < self.place.survivors:
            raise Void(f"{len(found)} of at least {self.place.survivors} sites are left")
        return found

    def _flags(self, clients: Iterable[int]) -> np.ndarray:
        flags = np.zeros(len(self.roster), bool)
        flags[list(clients)] = True
        return flags

    def _drawn(self) -> Graph:
        try:
            return Graph.among(self.called, self.place)
        except PrivacyError as error:
            raise Void(str(error)) from error

    def _signed_keys(self, found: Messages) -> dict[int, Announced]:
        """Those that their sites signed for this round and task, with no key that came before."""
        good, seen = {}, set[bytes]()
        for client, data in found.items():
            try:
                each = Announced.read(data)
            except WireError:
                continue
            statement = each.statement(self.place, client, self.task)
            signed = self.primitives.signed(self.roster, client, statement, each.signature)
            if signed and not seen & {each.channel, each.mask}:
                good[client] = each
                seen |= {each.channel, each.mask}
        return good

    def _keys_for(self, client: int) -> bytes:
        peers = self.graph.peers(client).tolist()
        return pack(self.called) + b"".join(self.announced[peer].to_bytes() for peer in peers)

    def _exchanged(self, sent: Messages) -> list[int]:
        """Sort locked shares by who is to have them; those who sent theirs."""
        done = []
        for client, data in sent.items():
            peers = self.graph.peers(client).tolist()
            try:
                pieces = cut(data, SEALED, len(peers))
            except WireError:
                continue
            done.append(client)
            for peer, piece in zip(peers, pieces, strict=True):
                self.shared.setdefault(peer, {})[client] = piece
        return done

    def _shares_for(self, client: int) -> bytes:
        mine = self.shared.pop(client, {})
        return pack(self.sharing) + b"".join(mine[sender] for sender in sorted(mine))

    @property
    def statement(self) -> bytes:
        """What survivors sign: as `party.agreed_on` has it."""
        sets = (pack(self.called), pack(self.sharing), pack(self._flags(self.surviving)))
        return self.place.digest("agreed", self.task, *sets)

    def _signatures(self, found: Messages) -> dict[int, bytes]:
        statement = self.statement
        return {
            client: signature
            for client, signature in found.items()
            if self.primitives.signed(self.roster, client, statement, signature)
        }

    def _signatures_for(self, client: int, signatures: Messages) -> bytes:
        signers = [peer for peer in self.graph.peers(client).tolist() if peer in signatures]
        who = pack(self._flags([*signers, client]))
        return who + b"".join(signatures[peer] for peer in signers)

    def _collected(self, told: Messages) -> dict[int, dict[int, bytes]]:
        """Shares by the site whose secret they are of, and by holder."""
        found: dict[int, dict[int, bytes]] = {}
        for holder, data in told.items():
            targets = self.graph.holders(holder)
            targets = targets[self.sharing[targets]].tolist()
            try:
                pieces = cut(data, SHARE, len(targets))
            except WireError:
                continue
            for target, piece in zip(targets, pieces, strict=True):
                found.setdefault(target, {})[holder] = piece
        return found

    def _secret(self, client: int, shares: Messages) -> bytes:
        """The secret of a site's own mask, or of its agreements; as its site announced it."""
        holders = sorted(shares)[: self.graph.threshold]
        if len(holders) < self.graph.threshold:
            raise Void(f"too few shares of the secrets of site {self.roster.names[client]!r}")
        ranks = np.searchsorted(self.graph.holders(client), holders).tolist()
        secret = recover(ranks, [shares[holder] for holder in holders])
        known = self.announced[client]
        if client in self.surviving:
            sound = self.place.digest("own mask", secret) == known.own
        else:
            sound = public(secret) == known.mask
        if not sound:
            raise Void(f"wrong shares of the secrets of site {self.roster.names[client]!r}")
        return secret

    def _take_off(self, total: np.ndarray, client: int, secret: bytes) -> None:
        """A survivor's own mask, or what survivors share with one that dropped out."""
        if client in self.surviving:
            add_mask(total, own_mask(self.place, secret, client), -1)
            return
        peers = [peer for peer in self.graph.peers(client).tolist() if peer in self.surviving]
        keys = [self.announced[peer].mask for peer in peers]
        agreements = self.primitives.agree(secret, self.announced[client].mask, keys)
        for peer, agreed in zip(peers, agreements, strict=True):
            key = pair_mask(self.place, agreed, client, peer)
            add_mask(total, key, -1 if peer < client else 1)
