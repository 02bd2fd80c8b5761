"""A party's half of a product sum: what it answers in each leg, and what it refuses.

`federation.products` has the protocol and what it promises. A party refuses keys that are
unsigned or of another round, study or task, a second deal in one round, and masked rows that were
not made for it in this round. It does not multiply other rows than it masked: their difference
times the other's mask, which the server knows, would be left in the sum. It cannot tell how large
the numbers behind masked rows are: every party must follow the protocol (a party that sends
larger numbers can read others' rows).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from understudy.errors import WireError
from understudy.federation.secure.keys import ANNOUNCED, Primitives, channel, lock, unlock
from understudy.federation.secure.masks import add_mask, derive
from understudy.federation.secure.party import Party, cut, pair_mask
from understudy.federation.secure.roster import Identity, Place, Roster
from understudy.federation.secure.session import Session
from understudy.federation.site import Columned
from understudy.privacy.clip import Receipt, Sealed
from understudy.privacy.products import MODULUS, Products

__all__ = [
    "KEY",
    "PRODUCT_LEGS",
    "ProductParty",
    "between",
    "hidden",
    "product_place",
    "sealed_products",
    "stretched",
    "times",
]

PRODUCT_LEGS = ("keys", "matrices", "products")
KEY = 32 + 16  # bytes of a locked key
Pair = tuple[int, int]


def product_place(roster: Roster, study: bytes, run: str, round: int) -> Place:
    """Where a round takes place: all parties are needed, and none may work with the server."""
    return Place(roster.hash, study, run, round, len(roster), 0)


def stretched(key: bytes, *shape: int) -> np.ndarray:
    """Uniform words of 64 bits that follow from a key."""
    found = np.zeros(int(np.prod(shape)), np.uint64)
    add_mask(found, key)
    return found.reshape(shape)


def hidden(place: Place, seed: bytes, party: int, rows: int, width: int) -> np.ndarray:
    """The mask Uᵢ of a party's rows."""
    return stretched(derive(seed, place.salt, "rows", party), rows, width)


def between(place: Place, seed: bytes, pair: tuple[int, int], shape: tuple[int, int]) -> np.ndarray:
    """Zᵢⱼ, the first party's half of UᵢᵀUⱼ."""
    return stretched(derive(seed, place.salt, "product", *pair), *shape)


def times(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """XᵀY modulo 2^64."""
    return np.ascontiguousarray(one.T) @ other


@dataclass(frozen=True)
class ProductParty:
    """One party's half: what it answers in each leg, and what it refuses.

    ``rows`` gives its features as whole numbers for a task: the same, whenever it is asked.
    """

    identity: Identity
    roster: Roster
    primitives: Primitives = field(default_factory=Primitives)

    @property
    def client(self) -> int:
        return self.identity.client

    @property
    def _party(self) -> Party:
        return Party(self.identity, self.roster, self.primitives)

    def keys(self, place: Place, task: bytes) -> tuple[Session, bytes]:
        """Leg 1: fresh keys for a round in which the task with this hash is announced."""
        return self._party.keys(place, task)

    def matrices(
        self, place: Place, session: Session, told: bytes, rows: np.ndarray
    ) -> tuple[Session, bytes]:
        """Leg 2: a key for each other party, locked, and the masked rows under that key."""
        announced = cut(told[: ANNOUNCED * len(self.roster)], ANNOUNCED, len(self.roster))
        dealt = told[ANNOUNCED * len(self.roster) :]
        if session.held:
            raise WireError("one deal a round", "a second", "leave the round")
        if announced[self.client] != session.keys[self.client] or len(dealt) < 32:
            raise WireError("this party's own keys and a seed", "others", "leave the round")
        keys, hashed = dict(enumerate(announced)), hashlib.sha256(rows.data).digest()
        session = replace(session, keys=keys, held={self.client: dealt}, rows=hashed)
        self._party.check_keys(place, session.task, session.keys)
        masked = rows.view(np.uint64) - hidden(place, dealt[:32], self.client, *rows.shape)
        key, bound = os.urandom(32), _bound(place, session, self.client)
        locked = b"".join(
            lock(channel(place, agreed, self.client, peer), key, bound)
            for peer, agreed in self._agreed(session, "channel")
        )
        return session, locked + lock(key, masked.tobytes(), bound)

    def products(
        self, place: Place, session: Session, told: bytes, held: Columned
    ) -> tuple[np.ndarray, Receipt]:
        """Leg 3: this party's noisy block and its noisy, masked shares of all others it is in."""
        if hashlib.sha256(held.rows.data).digest() != session.rows:
            raise WireError("the rows that were masked in this round", "others", "leave the round")
        rows = held.rows.view(np.uint64)
        masked = self._others(place, session, told, held.mechanism)
        own = times(rows, rows)[np.triu_indices(rows.shape[1])]
        blocks, receipt = held.noised([own, *self._shares(place, session, rows, masked)])
        under = (
            self._under_mask(share, place, agreed, peer).ravel()
            for (peer, agreed), share in zip(self._agreed(session, "mask"), blocks[1:], strict=True)
        )
        return np.concatenate([blocks[0], *under]) & np.uint64(2**MODULUS - 1), receipt

    def _shares(
        self, place: Place, session: Session, rows: np.ndarray, masked: Mapping[int, np.ndarray]
    ) -> list[np.ndarray]:
        """This party's shares ``[d, dⱼ]`` of the products with each other's rows."""
        me, found = self.client, []
        seed, corrections = session.held[me][:32], session.held[me][32:]
        mask = hidden(place, seed, me, *rows.shape)
        for peer, other in masked.items():
            shape = (rows.shape[1], other.shape[1])
            if me < peer:
                found.append(times(rows, other) + between(place, seed, (me, peer), shape))
                continue
            size = 8 * shape[0] * shape[1]
            made, corrections = corrections[:size], corrections[size:]
            correction = np.frombuffer(made, np.uint64).reshape(shape[::-1]).T
            found.append(times(mask, other) + correction)
        return found

    def _under_mask(self, share: np.ndarray, place: Place, agreed: bytes, peer: int) -> np.ndarray:
        """With the mask of the pair, which the first of the two adds and the second subtracts."""
        key = pair_mask(place, agreed, self.client, peer)
        if self.client < peer:
            return share + stretched(key, *share.shape)
        return share - stretched(key, *share.shape[::-1]).T

    def _others(
        self, place: Place, session: Session, told: bytes, mechanism: Products
    ) -> dict[int, np.ndarray]:
        """The masked rows of every other party, each with its locked key before it."""
        found, start = {}, 0
        for peer, agreed in self._agreed(session, "channel"):
            width, bound = mechanism.widths[peer], _bound(place, session, peer)
            size = 8 * mechanism.most * width + 16
            locked, sent = told[start : start + KEY], told[start + KEY : start + KEY + size]
            start += KEY + size
            key = unlock(channel(place, agreed, peer, self.client), locked, bound)
            words = np.frombuffer(unlock(key, sent, bound), np.uint64)
            found[peer] = words.reshape(mechanism.most, width)
        cut(told[start:], 0, 0)
        return found

    def _agreed(self, session: Session, purpose: str) -> list[tuple[int, bytes]]:
        """What this party and each other alone know, for channels or for masks."""
        peers = np.array([i for i in range(len(self.roster)) if i != self.client])
        return list(self._party.agreed(session, purpose, peers))


def _bound(place: Place, session: Session, sender: int) -> bytes:
    """What a party's masked rows are bound to: the place, all keys, and who sent them."""
    keys = (session.keys[i] for i in sorted(session.keys))
    return place.digest("rows", sender.to_bytes(4, "big"), session.task, *keys)


def sealed_products(
    party: ProductParty, place: Place, session: Session, told: bytes, held: Columned
) -> Sealed:
    """A party's shares with the receipt of its noise."""
    words, receipt = party.products(place, session, told, held)
    parts = {held.use.part.name: torch.from_numpy(words.view(np.int64).copy())[None]}
    return Sealed("masked", place.round, parts, (receipt,))
