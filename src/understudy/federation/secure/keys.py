"""A site's keys of one round: what it announces of them, and what follows from them.

Two X25519 keys, one to agree on channels with its peers and one to agree on masks, and a hash of
the secret its own mask follows from, so that what is recovered later can be checked. The
announcement is signed together with the round and the hash of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from understudy.errors import WireError
from understudy.federation.secure.masks import derive
from understudy.federation.secure.roster import SIGNATURE, Identity, Place, Roster
from understudy.federation.secure.session import Session
from understudy.federation.secure.shamir import SHARE

__all__ = [
    "ANNOUNCED",
    "SEALED",
    "Announced",
    "Primitives",
    "Remembered",
    "announce",
    "channel",
    "lock",
    "public",
    "unlock",
]

ANNOUNCED = 3 * 32 + SIGNATURE  # bytes of an announcement
SEALED = 2 * SHARE + 16  # bytes of two shares on their way
_NONCE = bytes(12)  # every key encrypts one message


def public(secret: bytes) -> bytes:
    """The public half of an X25519 key."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


@dataclass(frozen=True)
class Announced:
    """What a site told everyone of its keys."""

    channel: bytes
    mask: bytes
    own: bytes  # hash of the secret behind its own mask
    signature: bytes

    @classmethod
    def read(cls, data: bytes) -> Announced:
        if len(data) != ANNOUNCED:
            raise WireError("announced keys", "another length", "drop the message")
        return cls(data[:32], data[32:64], data[64:96], data[96:])

    def to_bytes(self) -> bytes:
        return self.channel + self.mask + self.own + self.signature

    def statement(self, place: Place, client: int, task: bytes) -> bytes:
        """What is signed: these keys, for this site, round and task."""
        number = client.to_bytes(4, "big")
        return place.digest("keys", number, task, self.channel, self.mask, self.own)


def announce(session: Session, place: Place, identity: Identity) -> Announced:
    """A site's signed keys."""
    own = place.digest("own mask", session.own)
    bare = Announced(public(session.channel), public(session.mask), own, b"")
    signature = identity.sign(bare.statement(place, identity.client, session.task))
    return Announced(bare.channel, bare.mask, own, signature)


class Primitives:
    """Agreement and signature checks; a simulation of many sites remembers what it has done."""

    def forget(self) -> None:
        """Before a round: all keys are new."""

    def agree(self, secret: bytes, own: bytes, others: Sequence[bytes]) -> list[bytes]:
        """X25519 of a secret (whose public half is ``own``) with each of the others' keys."""
        key = X25519PrivateKey.from_private_bytes(secret)
        return [self.exchange(key, own, other) for other in others]

    def exchange(self, key: X25519PrivateKey, own: bytes, other: bytes) -> bytes:
        """One agreement; refuses a key that would make it known to anyone."""
        try:
            return key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as error:
            raise WireError("a sound public key", "another", "leave that site out") from error

    def signed(self, roster: Roster, client: int, statement: bytes, signature: bytes) -> bool:
        """Whether this site of the roster signed the statement."""
        return roster.verify(client, statement, signature)


class Remembered(Primitives):
    """The same for sites of one process, where what one has computed the other need not."""

    def __init__(self) -> None:
        self._agreed: dict[tuple[bytes, bytes], bytes] = {}
        self._signed: dict[tuple[int, bytes, bytes], bool] = {}

    def forget(self) -> None:
        """As above: nothing that was done serves again."""
        self._agreed.clear()
        self._signed.clear()

    def exchange(self, key: X25519PrivateKey, own: bytes, other: bytes) -> bytes:
        """As above, once for each pair."""
        pair = (min(own, other), max(own, other))
        if pair not in self._agreed:
            self._agreed[pair] = super().exchange(key, own, other)
        return self._agreed[pair]

    def signed(self, roster: Roster, client: int, statement: bytes, signature: bytes) -> bool:
        """As above, once for each signature."""
        what = (client, statement, signature)
        if what not in self._signed:
            self._signed[what] = super().signed(roster, client, statement, signature)
        return self._signed[what]


def lock(key: bytes, shares: bytes, bound: bytes) -> bytes:
    """Encrypt shares for one peer, bound to what both were told so far."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, shares, bound)


def unlock(key: bytes, sent: bytes, bound: bytes) -> bytes:
    """Inverse of `lock`; refuses what was not made for this site, round and set of sites."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sent, bound)
    except InvalidTag as error:
        raise WireError(
            "shares from a peer that was told the same", "others", "leave the round"
        ) from error


def channel(place: Place, agreed: bytes, sender: int, receiver: int) -> bytes:
    """The key of one direction between two sites in one round."""
    return derive(agreed, place.salt, "channel", sender, receiver)
