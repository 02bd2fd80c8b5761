"""The keys of one party: what lies in its folder, and what is checked whenever they are loaded.

Every party has a TLS key with a certificate of the federation's own authority, and an ed25519
identity, with which it signs secure sums and releases. The roster lists the identities of all
sites. It is signed by the server, but a server that cheats could sign another one for every site:
what secure sums rest on is that people compare its fingerprint, by telephone say.

::

    keys.json        name and role                identity.key   ed25519, private
    tls.key          P-256, private               roster.json    sites, their identities, signed
    tls.pem, ca.pem  certificate and authority    ca.key         the authority's, at the server

Private keys are readable by their owner alone and never leave the folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from understudy.deployment.certificates import Key, check_certificate, public_bytes
from understudy.errors import KeysError, PrivacyError, unwritable
from understudy.federation.secure.roster import Identity, Roster, digest

if TYPE_CHECKING:  # PyTorch is loaded where it is needed
    from understudy.privacy.plan import PrivacyPlan

__all__ = [
    "Keys",
    "Listed",
    "check_encrypted",
    "check_site_name",
    "fingerprint",
    "load_keys",
    "parse_certificate",
    "read_certificate",
    "read_identity",
    "read_json",
    "read_tls_key",
    "write_file",
    "write_private",
]

ABOUT, TLS_KEY, TLS_CERT, CA_CERT, CA_KEY, IDENTITY, ROSTER = (
    "keys.json",
    "tls.key",
    "tls.pem",
    "ca.pem",
    "ca.key",
    "identity.key",
    "roster.json",
)
_LARGEST = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


def fingerprint(digest: bytes) -> str:
    """128 bits of a hash, in groups that can be read out."""
    text = digest[:16].hex()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


@dataclass(frozen=True)
class Listed:
    """The roster as a file: the server, its authority, the sites in order of approval."""

    server: str
    identity: bytes  # the server's
    authority: bytes  # SHA-256 of the authority's certificate
    number: int  # grows with every change
    roster: Roster

    @property
    def statement(self) -> bytes:
        """What the server signs."""
        number = self.number.to_bytes(8, "big")
        fields = (self.server.encode(), self.identity, self.authority, number)
        return digest("key roster", *fields, self.roster.hash)

    @property
    def server_fingerprint(self) -> str:
        """Of the server's name, identity and authority: it stays the same when sites are added."""
        return fingerprint(digest("server", self.server.encode(), self.identity, self.authority))

    @property
    def fingerprint(self) -> str:
        """Of the sites' names and identities."""
        return fingerprint(self.roster.hash)

    def to_json(self, identity: Identity) -> dict[str, Any]:
        """Signed by the server."""
        pairs = zip(self.roster.names, self.roster.keys, strict=True)
        return {
            "server": self.server,
            "identity": self.identity.hex(),
            "authority": self.authority.hex(),
            "number": self.number,
            "sites": [{"name": name, "identity": key.hex()} for name, key in pairs],
            "signature": identity.sign(self.statement).hex(),
        }

    @classmethod
    def read(cls, data: dict[str, Any], authority: x509.Certificate | None = None) -> Listed:
        """Checked against the signature of the server that it names, and against the authority."""
        try:
            names = tuple(str(site["name"]) for site in data["sites"])
            keys = tuple(bytes.fromhex(site["identity"]) for site in data["sites"])
            fields = ("identity", "authority", "signature")
            identity, hashed, signature = (bytes.fromhex(data[key]) for key in fields)
            roster = Roster(names, keys)
            listed = cls(str(data["server"]), identity, hashed, int(data["number"]), roster)
            Ed25519PublicKey.from_public_bytes(identity).verify(signature, listed.statement)
            if authority is not None and authority.fingerprint(hashes.SHA256()) != hashed:
                raise ValueError
        except (*_MALFORMED, OverflowError, InvalidSignature, PrivacyError) as error:
            raise KeysError(
                "a roster as the server signed it",
                "an altered or damaged one",
                "ask the server for the reply again, and install it",
            ) from error
        return listed


@dataclass(frozen=True)
class Keys:
    """What a party needs to take part; every file of it was checked."""

    name: str
    role: str  # "server" or "site"
    folder: Path
    listed: Listed
    identity: Identity = field(repr=False)
    expires: datetime

    def check_role(self, role: str) -> None:
        """Refuse the keys of the other end."""
        if self.role != role:
            raise KeysError(f"a {role}'s keys", f"those of {self.role} {self.name}", "use its own")

    @property
    def ca(self) -> Path:
        return self.folder / CA_CERT

    @property
    def cert(self) -> Path:
        return self.folder / TLS_CERT

    @property
    def key(self) -> Path:
        return self.folder / TLS_KEY

    @property
    def server(self) -> str:
        """The server's name, as its certificate has it."""
        return self.listed.server

    @property
    def roster(self) -> Roster:
        """All sites, in the order in which they were approved."""
        return self.listed.roster

    @property
    def fingerprint(self) -> str:
        """Of the roster: what the parties compare before a run."""
        return self.listed.fingerprint

    def seated(self, names: Sequence[str]) -> tuple[Roster, Identity]:
        """The roster of these sites in this order, and this party's place in it (server: -1)."""
        known = dict(zip(self.roster.names, self.roster.keys, strict=True))
        if missing := [name for name in names if name not in known]:
            raise KeysError(
                f"the keys of all sites of the study: {', '.join(names)}",
                f"none of {', '.join(missing)} in the roster",
                "approve their requests at the server; then every site installs its new reply",
            )
        if self.role == "site" and self.name not in names:
            raise KeysError(
                f"a study with the site {self.name}", "one without", "use this site's own keys"
            )
        place = names.index(self.name) if self.role == "site" else -1
        roster = Roster(tuple(names), tuple(known[name] for name in names))
        return roster, replace(self.identity, client=place)


def check_encrypted(plan: PrivacyPlan, keys: Keys | None) -> None:
    """Without encryption only what is private as it stands may travel.

    Parties that hold columns lock rows for each other, under keys that they signed.
    """
    if keys is None and (plan.kind in ("entrusted", "masked") or plan.held == "columns"):
        what = f'trust = "{plan.trust}"' if plan.held == "rows" else "parties that hold columns"
        raise KeysError(
            f"keys, with {what}: what they send is not private on its way",
            "--insecure",
            "make keys: understudy keys init, at the server",
        )


def load_keys(path: str | Path) -> Keys:
    """The keys in a folder; refuses what is missing, exposed, expired, altered or of others."""
    folder = Path(path)
    about = read_json(folder / ABOUT)
    name, role = str(about.get("name")), str(about.get("role"))
    tls, identity = read_tls_key(folder / TLS_KEY), read_identity(folder / IDENTITY)
    if not (folder / TLS_CERT).exists():
        raise KeysError(
            f"a certificate in {folder}",
            "none yet: the server's reply was not installed",
            f"send {name}.request.json to the server; then understudy keys install {folder} REPLY",
        )
    authority = read_certificate(folder / CA_CERT)
    certificate = read_certificate(folder / TLS_CERT)
    check_certificate(certificate, authority, name, public_bytes(tls))
    listed = Listed.read(read_json(folder / ROSTER), authority)
    client = _place(role, name, identity, listed)
    return Keys(
        name, role, folder, listed, Identity(client, identity), certificate.not_valid_after_utc
    )


def _place(role: str, name: str, identity: Ed25519PrivateKey, listed: Listed) -> int:
    """The party's number in the roster, or -1 for the server; refuses another identity."""
    own = identity.public_key().public_bytes_raw()
    if role == "server" and (name, own) == (listed.server, listed.identity):
        return -1
    roster = listed.roster
    if role == "site" and (name, own) in zip(roster.names, roster.keys, strict=True):
        return roster.names.index(name)
    raise KeysError(
        f"a roster with {name} and the identity in this folder",
        "one without",
        "install the reply to the request that was made in this folder",
    )


def check_site_name(name: str) -> None:
    """Names of sites become names in certificates, on the network and of files."""
    if not _NAME.fullmatch(name) or name.lower() == "server":
        raise KeysError(
            "a site's name of up to 40 letters, digits, - and _ (and not 'server')",
            repr(name[:60]),
            "choose another, and use it in the study file too",
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of ours."""
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(found, dict):
        raise _damaged(path)
    return found


def read_certificate(path: Path) -> x509.Certificate:
    """From PEM."""
    return parse_certificate(_read(path), path)


def parse_certificate(data: bytes, path: Path) -> x509.Certificate:
    """From the PEM found in a file."""
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise _damaged(path) from error


def read_tls_key(path: Path) -> Key:
    """From PEM, if nobody else can read it."""
    key = _private(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _damaged(path)
    return key


def read_identity(path: Path) -> Ed25519PrivateKey:
    """From PEM, if nobody else can read it."""
    key = _private(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise _damaged(path)
    return key


def _private(path: Path) -> Any:
    data = _read(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeysError(
            f"{path} to be readable by its owner alone",
            f"mode {stat.S_IMODE(path.stat().st_mode):o}",
            f"chmod 600 {path}; if others may have read it, make new keys",
        )
    try:
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise _damaged(path) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise KeysError(
            f"the file {path}",
            str(error.strerror),
            "name a folder made by understudy keys init (server) or request (site), "
            "or the file that was sent to you",
        ) from error
    if len(data) > _LARGEST:
        raise _damaged(path)
    return data


def _damaged(path: Path) -> KeysError:
    return KeysError(
        f"{path.name} as Understudy writes it", "a damaged or altered one", "fetch or make it again"
    )


def write_private(path: Path, key: Key | Ed25519PrivateKey) -> None:
    """A new file that only its owner can read; one that exists is never touched."""
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise unwritable(path.name, error) from error


def write_file(path: Path, content: str | dict[str, Any]) -> None:
    """Text, or an object as JSON, in one move."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
    partial = path.with_name(f".{path.name}.new")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise unwritable(path.name, error) from error
