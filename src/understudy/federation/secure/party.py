"""A site's half of a secure sum: what it answers in each leg, and what it refuses.

Every method takes the place and what the site has kept of the round, and gives what to keep next
and what to send; `runtime` writes the one down before it sends the other. A site refuses keys
that are unsigned, forged, doubled, of another round or of another task than its own; fewer sites
than t, or so many that two quorums might not meet in an honest one; a set of survivors that does
not hold itself; a second one; and to tell any share before a quorum of its peers has signed the
same three sets of sites that it was told itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from understudy.errors import WireError
from understudy.federation.secure.graph import Graph
from understudy.federation.secure.keys import (
    ANNOUNCED,
    SEALED,
    Announced,
    Primitives,
    announce,
    channel,
    lock,
    unlock,
)
from understudy.federation.secure.masks import Layout, add_mask, derive
from understudy.federation.secure.roster import SIGNATURE, Identity, Place, Roster, pack, unpack
from understudy.federation.secure.session import Session
from understudy.federation.secure.shamir import SHARE, split
from understudy.privacy.clip import Sealed

__all__ = ["LEGS", "Party", "agreed_on", "cut", "own_mask", "pair_mask"]

LEGS = ("keys", "shares", "masked", "survivors", "unmask")


@dataclass(frozen=True)
class Party:
    """One site of the roster. ``primitives`` are its own unless it is simulated."""

    identity: Identity
    roster: Roster
    primitives: Primitives = field(default_factory=Primitives)

    @property
    def client(self) -> int:
        return self.identity.client

    def keys(self, place: Place, task: bytes) -> tuple[Session, bytes]:
        """Leg 1: fresh keys for a round in which the task with this hash is announced."""
        if len(task) != 32:
            raise WireError("the hash of a task", "another length", "drop the message")
        session = Session(task)
        announced = announce(session, place, self.identity).to_bytes()
        return replace(session, keys={self.client: announced}), announced

    def shares(self, place: Place, session: Session, told: bytes) -> tuple[Session, bytes]:
        """Leg 2: who was called and the peers' keys; shares of this site's secrets, locked."""
        called, rest = self._sites(told)
        graph = Graph.among(called, place)
        peers = graph.peers(self.client)
        keys = dict(zip(peers.tolist(), cut(rest, ANNOUNCED, len(peers)), strict=True))
        keys[self.client] = session.keys[self.client]
        self.check_keys(place, session.task, keys)
        session = replace(session, called=pack(called), keys=keys)
        mine, bound = self._split(graph, session), agreed_on(place, session)
        sent = b"".join(
            lock(channel(place, agreed, self.client, peer), mine[peer], bound)
            for peer, agreed in self.agreed(session, "channel", peers)
        )
        return replace(session, held={self.client: mine[self.client]}), sent

    def receive(self, place: Place, session: Session, told: bytes) -> Session:
        """Leg 3, first half: who has shared, and what the peers' shares are."""
        sharing, rest = self._sites(told, within=session.called, least=place.survivors)
        graph = self._graph(place, session)
        peers = _those(graph.peers(self.client), sharing)
        if len(peers) + 1 < graph.threshold:
            raise _few(graph.threshold, "sites that share secrets with this one")
        held, bound = dict(session.held), agreed_on(place, session)
        agreements = self.agreed(session, "channel", peers)
        for (peer, agreed), sent in zip(agreements, cut(rest, SEALED, len(peers)), strict=True):
            held[peer] = unlock(channel(place, agreed, peer, self.client), sent, bound)
        return replace(session, sharing=pack(sharing), held=held)

    def mask(self, place: Place, session: Session, sealed: Sealed, layout: Layout) -> Sealed:
        """Leg 3, second half: the site's numbers under all its masks, useless alone."""
        if sealed.kind != "share" or sealed.round != place.round or len(sealed) != 1:
            raise WireError("one site's share of this round", "another value", "seal it first")
        row = layout.row(sealed.parts)
        add_mask(row, own_mask(place, session.own, self.client))
        sharing = unpack(session.sharing, len(self.roster))
        peers = _those(self._graph(place, session).peers(self.client), sharing)
        for peer, agreed in self.agreed(session, "mask", peers):
            sign = 1 if self.client < peer else -1
            add_mask(row, pair_mask(place, agreed, self.client, peer), sign)
        return Sealed("masked", sealed.round, layout.split(row), sealed.receipts)

    def survivors(self, place: Place, session: Session, told: bytes) -> tuple[Session, bytes]:
        """Leg 4: sign the one set of survivors of this round, with all that came before."""
        surviving, rest = self._sites(told, within=session.sharing, least=place.survivors)
        cut(rest, 0, 0)
        if session.survivors not in (b"", pack(surviving)):
            raise WireError("one set of survivors a round", "a second", "leave the round")
        session = replace(session, survivors=pack(surviving))
        return session, self.identity.sign(agreed_on(place, session))

    def unmask(self, place: Place, session: Session, told: bytes) -> tuple[Session, bytes]:
        """Leg 5: once a quorum of holders has signed the same, tell this site's shares.

        Of a survivor the share of its own mask, of one that dropped out that of its agreement
        key: never both.
        """
        signers, rest = self._sites(told, within=session.survivors)
        graph = self._graph(place, session)
        peers = _those(graph.peers(self.client), signers)
        if len(peers) + 1 < graph.threshold:
            raise _few(graph.threshold, "signatures")
        statement = agreed_on(place, session)
        for peer, signature in zip(peers.tolist(), cut(rest, SIGNATURE, len(peers)), strict=True):
            if not self.primitives.signed(self.roster, peer, statement, signature):
                raise WireError("a signature of what this site signed", "another", "leave it out")
        return session.closed(), self._told(graph, session)

    def _told(self, graph: Graph, session: Session) -> bytes:
        """A share for each holder that has shared, in ascending order."""
        sharing, surviving = (
            unpack(told, len(self.roster)) for told in (session.sharing, session.survivors)
        )
        targets = _those(graph.holders(self.client), sharing).tolist()
        return b"".join(
            session.held[i][:SHARE] if surviving[i] else session.held[i][SHARE:] for i in targets
        )

    def _split(self, graph: Graph, session: Session) -> dict[int, bytes]:
        """For each holder its share of this site's own mask, and that of its agreement key."""
        holders = graph.holders(self.client).tolist()
        own = split(session.own, graph.threshold, len(holders))
        mask = split(session.mask, graph.threshold, len(holders))
        return {i: a + b for i, a, b in zip(holders, own, mask, strict=True)}

    def agreed(
        self, session: Session, purpose: str, peers: np.ndarray
    ) -> Iterator[tuple[int, bytes]]:
        """What this site and each of these peers alone know, for channels or for masks."""
        secret = session.channel if purpose == "channel" else session.mask
        own, *others = (
            getattr(Announced.read(session.keys[i]), purpose)
            for i in (self.client, *peers.tolist())
        )
        return zip(peers.tolist(), self.primitives.agree(secret, own, others), strict=True)

    def check_keys(self, place: Place, task: bytes, keys: Mapping[int, bytes]) -> None:
        """Refuse keys that are not signed for this place and task, and one key for two sites."""
        read = {client: Announced.read(data) for client, data in keys.items()}
        for client, each in read.items():
            statement = each.statement(place, client, task)
            if not self.primitives.signed(self.roster, client, statement, each.signature):
                raise WireError(
                    "keys that the roster's sites signed for this round, study and task",
                    "others",
                    "leave the round",
                )
        for found in ({e.channel for e in read.values()}, {e.mask for e in read.values()}):
            if len(found) != len(read):
                raise WireError("a key of its own for each site", "one twice", "leave the round")

    def _graph(self, place: Place, session: Session) -> Graph:
        return Graph.among(unpack(session.called, len(self.roster)), place)

    def _sites(
        self, told: bytes, within: bytes | None = None, least: int = 0
    ) -> tuple[np.ndarray, bytes]:
        """The set of sites that a message begins with, and the rest of it."""
        end = -(-len(self.roster) // 8)
        found = unpack(told[:end], len(self.roster))
        if not found[self.client]:
            raise WireError("a set of sites with this one in it", "another", "leave it out")
        if within is not None and (found & ~unpack(within, len(self.roster))).any():
            raise WireError("sites that were there before", "more of them", "leave the round")
        if found.sum() < least:
            raise _few(least, "survivors")
        return found, told[end:]


def agreed_on(place: Place, session: Session) -> bytes:
    """A hash of the task and of every set of sites so far: what sites must have been told alike."""
    sets = (session.called, session.sharing, session.survivors)
    return place.digest("agreed", session.task, *sets)


def own_mask(place: Place, secret: bytes, client: int) -> bytes:
    """The key of a site's own mask."""
    return derive(secret, place.salt, "own mask", client)


def pair_mask(place: Place, agreed: bytes, one: int, other: int) -> bytes:
    """The key of the mask that one site of a pair adds and the other subtracts."""
    return derive(agreed, place.salt, "pair mask", min(one, other), max(one, other))


def cut(data: bytes, size: int, count: int) -> list[bytes]:
    """Exactly so many pieces of one size."""
    if len(data) != size * count:
        raise WireError(f"{count} piece(s) of {size} bytes", "another length", "drop the message")
    return [data[i * size : (i + 1) * size] for i in range(count)]


def _those(clients: np.ndarray, members: np.ndarray) -> np.ndarray:
    return clients[members[clients]]


def _few(needed: int, what: str) -> WireError:
    return WireError(f"at least {needed} {what}", "fewer", "give the round up; nothing is told")
