"""Who takes part in secure sums: pinned signing keys, what is signed, and sets of sites as bits.

Both ends hold the same `Roster`, made before the run (in a simulation by the process). Whatever a
site signs is bound to a `Place`: roster, study, run and round; a signature is worth nothing
anywhere else. Sets of sites travel as one bit per site of the roster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from understudy.errors import PrivacyError, WireError

__all__ = ["SIGNATURE", "Identity", "Place", "Roster", "digest", "identities", "pack", "unpack"]

SIGNATURE = 64  # bytes
_DOMAIN = b"understudy secure sum 1"


def digest(kind: str, *fields: bytes) -> bytes:
    """SHA-256 of named fields, each with its length: no two lists of fields have the same."""
    made = hashlib.sha256(_DOMAIN)
    for part in (kind.encode(), *fields):
        made.update(len(part).to_bytes(8, "big") + part)
    return made.digest()


@dataclass(frozen=True)
class Roster:
    """Names and ed25519 keys of all sites, in the order of the study."""

    names: tuple[str, ...]
    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        sound = len(self.names) == len(self.keys) and all(len(key) == 32 for key in self.keys)
        if not (sound and len(set(self.names)) == len(set(self.keys)) == len(self.names)):
            raise PrivacyError(
                "a roster with one name and one key for every site",
                "a missing, doubled or malformed one",
                "collect the sites' public keys again",
            )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def hash(self) -> bytes:
        """Of names and keys in order."""
        return digest("roster", *(name.encode() for name in self.names), *self.keys)

    def verify(self, client: int, statement: bytes, signature: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.keys[client]).verify(signature, statement)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Identity:
    """A site's place in the roster and its long-term signing key."""

    client: int
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, statement: bytes) -> bytes:
        return self.key.sign(statement)


def identities(names: Sequence[str]) -> tuple[Roster, list[Identity]]:
    """Fresh identities for all sites of one process, and the roster of their public keys."""
    made = [Identity(i, Ed25519PrivateKey.generate()) for i in range(len(names))]
    keys = tuple(each.key.public_key().public_bytes_raw() for each in made)
    return Roster(tuple(names), keys), made


@dataclass(frozen=True)
class Place:
    """What keys, masks and signatures are bound to: roster, study, run and round.

    ``survivors`` of those called must stay to the end of the round (t), and up to ``colluders``
    may work with the server (c).
    """

    roster: bytes
    study: bytes
    run: str
    round: int
    survivors: int
    colluders: int

    @cached_property
    def salt(self) -> bytes:
        """One hash for all of it."""
        numbers = (self.round, self.survivors, self.colluders)
        counts = b"".join(number.to_bytes(8, "big") for number in numbers)
        return digest("place", self.roster, self.study, self.run.encode(), counts)

    def digest(self, kind: str, *fields: bytes) -> bytes:
        """A hash of these fields that is worth nothing in another place."""
        return digest(kind, self.salt, *fields)


def pack(members: np.ndarray) -> bytes:
    """A set of sites (a flag for each site of the roster) as bits."""
    return np.packbits(members).tobytes()


def unpack(data: bytes, sites: int) -> np.ndarray:
    """Inverse of `pack`; refuses other lengths and stray bits."""
    if len(data) == -(-sites // 8):
        members = np.unpackbits(np.frombuffer(data, np.uint8)).astype(bool)
        if not members[sites:].any():
            return members[:sites]
    raise WireError(f"a set of {sites} sites", "another length", "compare the rosters")
