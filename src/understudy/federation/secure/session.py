"""What a site keeps of one round of a secure sum, from its keys to its shares of others' secrets.

It is written to the site's store with every reply and must never be sent or shown. The secrets
are gone from it once the site has told its shares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from understudy.federation.secure.shamir import fresh_secret

__all__ = ["Session"]

Table = Mapping[int, bytes]


@dataclass(frozen=True)
class Session:
    """Secrets of one round, and what the site was told in it; sets of sites are packed bits.

    ``task`` is the hash of the task that was announced. ``keys`` are the peers' announcements,
    ``held`` the shares this site holds of its peers' secrets and of its own; ``rows`` is the hash
    of those that a party of products has masked.
    """

    task: bytes
    channel: bytes = field(default_factory=fresh_secret, repr=False)
    mask: bytes = field(default_factory=fresh_secret, repr=False)
    own: bytes = field(default_factory=fresh_secret, repr=False)
    called: bytes = b""
    sharing: bytes = b""
    survivors: bytes = b""
    keys: Table = field(default_factory=dict)
    held: Table = field(default_factory=dict, repr=False)
    rows: bytes = field(default=b"", repr=False)

    def closed(self) -> Session:
        return replace(self, channel=b"", mask=b"", own=b"", held={})

    def to_bytes(self) -> bytes:
        plain = {name: _plain(value) for name, value in asdict(self).items()}
        return json.dumps(plain).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Session:
        found: dict[str, Any] = {n: _read(value) for n, value in json.loads(data).items()}
        return cls(**found)


def _plain(value: bytes | dict[int, bytes]) -> str | dict[int, str]:
    if isinstance(value, bytes):
        return value.hex()
    return {client: each.hex() for client, each in value.items()}


def _read(value: str | dict[str, str]) -> bytes | dict[int, bytes]:
    if isinstance(value, str):
        return bytes.fromhex(value)
    return {int(client): bytes.fromhex(each) for client, each in value.items()}
