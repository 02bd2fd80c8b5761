"""``signature``: who vouches for a release. The server signs it, and each site counter-signs it.

Everyone signs the same statement: the hash of ``release.json``, which names the plan and the hash
of every other file, the ledger among them; the run; the server; and the roster of sites, so that a
site that did not sign is seen. A site signs only for the study, plan and run that it joined
(`deployment.signing`). Releases need no signature: those of a simulation have none.

The file says which keys signed. Whether they are the right ones is known only to a reader who has
them from elsewhere: a roster that the parties publish, or its fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from understudy.errors import PrivacyError, ReleaseError
from understudy.federation.secure.roster import Roster, digest

__all__ = ["SIGNATURE_FILE", "Signed"]

SIGNATURE_FILE = "signature"
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RUN = re.compile(r"[0-9a-f]{1,64}")
_DISTRUST = "do not trust this release: get it again from its source"


@dataclass(frozen=True)
class Signed:
    """The parties of a run and, by name, the signatures of those who vouch for its release."""

    run: str
    server: str
    identity: bytes  # the server's ed25519 key
    roster: Roster  # of the sites
    signatures: Mapping[str, bytes] = field(default_factory=dict)

    def statement(self, manifest: bytes) -> bytes:
        """What all parties sign; ``manifest`` is ``release.json``."""
        hashed = hashlib.sha256(manifest).digest()
        parties = (self.server.encode(), self.identity, self.roster.hash)
        return digest("release", hashed, self.run.encode(), *parties)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.roster.names if name not in self.signatures)

    @property
    def signers(self) -> tuple[str, ...]:
        return tuple(name for name in self.roster.names if name in self.signatures)

    @property
    def words(self) -> str:
        sites = ", ".join(self.signers) or "no site"
        all_signed = f"all {len(self.roster)} sites"
        rest = f"not by {', '.join(self.missing)}" if self.missing else all_signed
        return f"signed by {self.server}, counter-signed by {sites} ({rest})"

    def holds(self, name: str, manifest: bytes, signature: bytes) -> bool:
        """Whether this party made this signature."""
        keys = dict(zip(self.roster.names, self.roster.keys, strict=True))
        try:
            key = Ed25519PublicKey.from_public_bytes({**keys, self.server: self.identity}[name])
            key.verify(signature, self.statement(manifest))
        except (InvalidSignature, ValueError, KeyError):
            return False
        return True

    def covers(self, manifest: bytes) -> bool:
        """Whether every signature is for this manifest."""
        return all(self.holds(name, manifest, each) for name, each in self.signatures.items())

    def check(self, manifest: bytes) -> None:
        """Refuse unless the server signed, and every signature holds for this manifest."""
        if self.server not in self.signatures:
            raise ReleaseError(f"the signature of {self.server}", "none", _DISTRUST)
        for name, signature in self.signatures.items():
            if not self.holds(name, manifest, signature):
                raise ReleaseError(
                    f"a signature of {name} for this release.json", "one that fails", _DISTRUST
                )

    def to_bytes(self) -> bytes:
        """The one way to write the file: there is room for nothing else in it."""
        pairs = zip(self.roster.names, self.roster.keys, strict=True)
        body = {
            "format": _FORMAT,
            "run": self.run,
            "server": {"name": self.server, "identity": self.identity.hex()},
            "sites": [{"name": name, "identity": key.hex()} for name, key in pairs],
            "signatures": {name: each.hex() for name, each in sorted(self.signatures.items())},
        }
        return (json.dumps(body, indent=2) + "\n").encode()

    @classmethod
    def parse(cls, data: bytes) -> Signed:
        """Inverse of `to_bytes`; other bytes are refused."""
        try:
            read = cls._from(json.loads(data))
            names = (read.server, *read.roster.names)
            named = all(map(_NAME.fullmatch, names)) and len(set(names)) == len(names)
            sound = named and bool(_RUN.fullmatch(read.run)) and read.to_bytes() == data
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, PrivacyError):
            sound = False
        if not sound:
            raise ReleaseError(
                f"the file {SIGNATURE_FILE!r} as Understudy writes it", "another", _DISTRUST
            )
        return read

    @classmethod
    def _from(cls, body: dict[str, Any]) -> Signed:
        sites, server = body["sites"], body["server"]
        keys = tuple(bytes.fromhex(site["identity"]) for site in sites)
        roster = Roster(tuple(site["name"] for site in sites), keys)
        signatures = {name: bytes.fromhex(each) for name, each in body["signatures"].items()}
        return cls(
            body["run"], server["name"], bytes.fromhex(server["identity"]), roster, signatures
        )

    def check_trusted(self, server: bytes, sites: Mapping[str, bytes], where: str) -> None:
        """Refuse unless the parties' keys are those that the reader trusts."""
        keys = dict(zip(self.roster.names, self.roster.keys, strict=True))
        strange = [name for name, key in keys.items() if sites.get(name) != key]
        strange += [self.server] if self.identity != server else []
        if strange:
            raise ReleaseError(
                f"signatures by the keys in {where}",
                f"another key for {', '.join(strange)}",
                "ask them for the fingerprint of their keys; do not trust this release until then",
            )
