"""Signed requests: who asks, for what, when, and never twice.

A member signs the exchange it talks to, the method, the path with its query, the hash of the body,
the time and a nonce with its ed25519 identity, the one it has for federations too
(`deployment.keys`). A request is worth nothing at another exchange, for another path or body,
outside of the clock's window, or a second time::

    Authorization: Understudy member=north, time=1700000000, nonce=…, signature=…
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from understudy.exchange.refusal import Refused

__all__ = ["NAME", "WINDOW", "Stamp", "holds", "sign"]

WINDOW = 120  # seconds that two clocks may be apart
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"
_HEADER = re.compile(
    rf"Understudy member=({NAME}), time=(\d{{1,12}}), nonce=([0-9a-f]{{32}}), "
    r"signature=([0-9a-f]{128})"
)
_DOMAIN = b"understudy exchange request 1"


@dataclass(frozen=True)
class Stamp:
    """What the header of a signed request says."""

    member: str
    time: int
    nonce: str
    signature: str = ""

    @property
    def header(self) -> str:
        """As it travels."""
        return (
            f"Understudy member={self.member}, time={self.time}, nonce={self.nonce}, "
            f"signature={self.signature}"
        )

    @classmethod
    def parse(cls, header: str) -> Stamp:
        """Inverse of `header`; anything else is refused."""
        found = _HEADER.fullmatch(header)
        if found is None:
            raise Refused(
                401, "a signed request", "none, or a malformed signature", "use the client"
            )
        return cls(found[1], int(found[2]), found[3], found[4])

    def statement(self, exchange: str, method: str, target: str, body: bytes) -> bytes:
        """What is signed: all fields, each with its length."""
        hashed = hashlib.sha256(body).hexdigest()
        fields = (exchange, method, target, hashed, self.member, str(self.time), self.nonce)
        made = hashlib.sha256(_DOMAIN)
        for field in fields:
            made.update(len(field.encode()).to_bytes(8, "big") + field.encode())
        return made.digest()

    def check_time(self) -> None:
        """Refuse a request from outside of the window."""
        apart = self.time - time.time()
        if abs(apart) > WINDOW:
            raise Refused(
                401,
                f"a request of the last {WINDOW} s",
                f"a clock {abs(apart):.0f} s {'ahead' if apart > 0 else 'behind'}",
                "set the clock, and send it again",
            )


def sign(
    key: Ed25519PrivateKey, member: str, exchange: str, method: str, target: str, body: bytes = b""
) -> Stamp:
    """A fresh stamp for this request."""
    bare = Stamp(member, int(time.time()), secrets.token_hex(16))
    return replace(bare, signature=key.sign(bare.statement(exchange, method, target, body)).hex())


def holds(
    identity: str, stamp: Stamp, exchange: str, method: str, target: str, body: bytes
) -> bool:
    """Whether the owner of this identity signed this request."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity))
        key.verify(bytes.fromhex(stamp.signature), stamp.statement(exchange, method, target, body))
    except (InvalidSignature, ValueError):
        return False
    return True
