"""How the parties of a federation come to trust each other's keys, in four steps.

The server makes an authority (`make_server`), each site makes its own keys and a request
(`make_site`), the server signs the requests and writes a reply for every site (`approve`), and the
sites install them (`install`). Requests and replies hold nothing secret. They may have been altered
on their way, so both ends show fingerprints, and people compare them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from understudy.deployment.certificates import (
    certify,
    check_certificate,
    make_authority,
    new_key,
    pem,
    public_bytes,
    request_certificate,
)
from understudy.deployment.keys import (
    ABOUT,
    CA_CERT,
    CA_KEY,
    IDENTITY,
    ROSTER,
    TLS_CERT,
    TLS_KEY,
    Keys,
    Listed,
    check_site_name,
    fingerprint,
    load_keys,
    parse_certificate,
    read_certificate,
    read_identity,
    read_json,
    read_tls_key,
    write_file,
    write_private,
)
from understudy.errors import KeysError, OutputError, unwritable
from understudy.federation.secure.roster import Identity, Roster, digest

__all__ = [
    "DAYS",
    "Reply",
    "Request",
    "approve",
    "install",
    "make_server",
    "make_site",
    "read_reply",
    "read_request",
    "renew_server",
]

DAYS = 365
_HOST = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_LOCAL = ("localhost", "127.0.0.1")
_REQUEST, _REPLY = "understudy key request 1", "understudy key reply 1"
_AGAIN = "ask for the file again; if it happens again, compare versions of Understudy"


@dataclass(frozen=True)
class Request:
    """What a site sends to the server: its name, and the public halves of its two keys."""

    name: str
    certificate: x509.CertificateSigningRequest
    identity: bytes

    @property
    def digest(self) -> bytes:
        """Of all of it; the identity signs it."""
        fields = (self.name.encode(), public_bytes(self.certificate), self.identity)
        return digest("key request", *fields)

    @property
    def fingerprint(self) -> str:
        """What site and server compare."""
        return fingerprint(self.digest)


def make_server(folder: Path, name: str, hosts: Sequence[str], days: int = DAYS) -> Keys:
    """A server's folder: an authority, its own keys and certificate, and an empty roster."""
    _check_days(days)
    _check_server_name(name)
    for host in hosts:
        _check_host(host)
    _fresh(folder)
    authority_key, tls, identity = new_key(), new_key(), Ed25519PrivateKey.generate()
    for file, key in ((CA_KEY, authority_key), (TLS_KEY, tls), (IDENTITY, identity)):
        write_private(folder / file, key)
    authority = make_authority(name, authority_key)
    write_file(folder / CA_CERT, pem(authority))
    write_file(folder / ABOUT, {"name": name, "role": "server"})
    _write_roster(folder, _listed(name, identity, authority), identity)
    renew_server(folder, hosts, days)
    return load_keys(folder)


def renew_server(folder: Path, hosts: Sequence[str], days: int = DAYS) -> None:
    """A new certificate for the server's key: other hosts, or another year."""
    _check_days(days)
    for host in hosts:
        _check_host(host)
    _refuse_site(folder)
    authority = (read_certificate(folder / CA_CERT), read_tls_key(folder / CA_KEY))
    name = str(read_json(folder / ABOUT)["name"])
    request = request_certificate(name, read_tls_key(folder / TLS_KEY))
    made = certify(request, authority, (*hosts, *_LOCAL), days)
    write_file(folder / TLS_CERT, pem(made))


def make_site(folder: Path, name: str) -> tuple[Request, Path]:
    """A site's folder with its keys, and the request to send."""
    check_site_name(name)
    _fresh(folder)
    tls, identity = new_key(), Ed25519PrivateKey.generate()
    write_private(folder / TLS_KEY, tls)
    write_private(folder / IDENTITY, identity)
    asked = request_certificate(name, tls)
    request = Request(name, asked, identity.public_key().public_bytes_raw())
    write_file(folder / ABOUT, {"name": name, "role": "site"})
    path = folder / f"{name}.request.json"
    write_file(path, _request_json(request, identity))
    return request, path


def _request_json(request: Request, identity: Ed25519PrivateKey) -> dict[str, Any]:
    return {
        "format": _REQUEST,
        "name": request.name,
        "certificate_request": pem(request.certificate),
        "identity": request.identity.hex(),
        "signature": identity.sign(request.digest).hex(),
    }


def read_request(path: Path) -> Request:
    """A request whose two keys vouch for each other, and for the name."""
    data = _sent(path, _REQUEST)
    try:
        asked = x509.load_pem_x509_csr(str(data["certificate_request"]).encode())
        identity = bytes.fromhex(data["identity"])
        request = Request(str(data["name"]), asked, identity)
        signature = bytes.fromhex(data["signature"])
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, request.digest)
        (named,) = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        intact = asked.is_signature_valid and named.value == request.name
    except (KeyError, TypeError, ValueError, InvalidSignature) as error:
        raise _altered(path) from error
    if not intact or not _on_p256(asked):
        raise _altered(path)
    check_site_name(request.name)
    return request


def _on_p256(asked: x509.CertificateSigningRequest) -> bool:
    return getattr(getattr(asked.public_key(), "curve", None), "name", "") == "secp256r1"


def approve(folder: Path, requests: Sequence[Request], days: int = DAYS) -> dict[str, Path]:
    """Sign the requests, list the sites, and write a reply for every site: old and new.

    A request that was approved before is signed again, for another ``days``. A known name with
    other keys is refused: the other sites hold on to the keys they know.
    """
    _check_days(days)
    _refuse_site(folder)
    keys = load_keys(folder)
    roster = _extended(keys, requests)
    authority = (read_certificate(keys.ca), read_tls_key(folder / CA_KEY))
    approved = folder / "sites"
    approved.mkdir(exist_ok=True)
    for request in requests:
        made = certify(request.certificate, authority, (), days)
        write_file(approved / f"{request.name}.pem", pem(made))
    identity = read_identity(folder / IDENTITY)
    number = keys.listed.number + (roster != keys.roster)
    listed = _listed(keys.name, identity, authority[0], roster, number)
    _write_roster(folder, listed, identity)
    return {name: _write_reply(folder, name) for name in roster.names}


def _extended(keys: Keys, requests: Sequence[Request]) -> Roster:
    known = dict(zip(keys.roster.names, keys.roster.keys, strict=True))
    lowered = {name.lower(): name for name in (*known, keys.name)}
    for request in requests:
        name = request.name
        same = lowered.setdefault(name.lower(), name)
        if known.setdefault(name, request.identity) != request.identity or same != name:
            raise KeysError(
                f"{name} with the keys that were approved before",
                f"other keys for {same!r}, which the other sites hold on to",
                f"give the site another name, say {name}-2; or begin again with keys init",
            )
        if name == keys.name or list(known.values()).count(request.identity) > 1:
            raise KeysError(
                "a name and an identity of its own for each party", f"{name}'s twice", "rename it"
            )
    return Roster(tuple(known), tuple(known.values()))


def _write_reply(folder: Path, name: str) -> Path:
    path = folder / "sites" / f"{name}.reply.json"
    reply = {
        "format": _REPLY,
        "name": name,
        "authority": (folder / CA_CERT).read_text(),
        "certificate": (folder / "sites" / f"{name}.pem").read_text(),
        "roster": read_json(folder / ROSTER),
    }
    write_file(path, reply)
    return path


@dataclass(frozen=True)
class Reply:
    """What the server sends back; it fits the keys of the site that read it."""

    certificate: x509.Certificate
    authority: x509.Certificate
    listed: Listed
    roster: dict[str, Any]  # ``listed`` as it was signed


def read_reply(folder: Path, path: Path) -> Reply:
    """A reply that answers the request of this site, and goes on from what it knows."""
    data = _sent(path, _REPLY)
    try:
        texts = [str(data[key]).encode() for key in ("certificate", "authority")]
        certificate, authority = (parse_certificate(text, path) for text in texts)
        reply = Reply(
            certificate, authority, Listed.read(data["roster"], authority), data["roster"]
        )
    except (KeyError, TypeError) as error:
        raise _altered(path) from error
    _check_fits(folder, reply)
    if (folder / ROSTER).exists():
        known = read_certificate(folder / CA_CERT)
        _check_goes_on(Listed.read(read_json(folder / ROSTER), known), reply.listed)
    return reply


def install(folder: Path, reply: Reply) -> Keys:
    """Keep a reply."""
    write_file(folder / CA_CERT, pem(reply.authority))
    write_file(folder / TLS_CERT, pem(reply.certificate))
    write_file(folder / ROSTER, reply.roster)
    return load_keys(folder)


def _check_fits(folder: Path, reply: Reply) -> None:
    name = str(read_json(folder / ABOUT).get("name"))
    tls, identity = read_tls_key(folder / TLS_KEY), read_identity(folder / IDENTITY)
    check_certificate(reply.certificate, reply.authority, name, public_bytes(tls))
    roster, own = reply.listed.roster, identity.public_key().public_bytes_raw()
    if (name, own) not in zip(roster.names, roster.keys, strict=True):
        raise KeysError(
            f"a reply that lists {name} with the identity in this folder",
            "another identity, or none",
            "do not install it: compare fingerprints with the server by telephone",
        )


def _check_goes_on(before: Listed, after: Listed) -> None:
    """A newer roster may add sites; it may not change the server or the keys of known sites."""
    if after.server_fingerprint != before.server_fingerprint:
        raise _others("the server that this folder knows")
    if after.number < before.number:
        raise KeysError(
            f"roster {before.number} or a newer one",
            f"roster {after.number}, an older reply",
            "ask the server for the newest reply",
        )
    known = dict(zip(after.roster.names, after.roster.keys, strict=True))
    pinned = zip(before.roster.names, before.roster.keys, strict=True)
    if any(known.get(name) != key for name, key in pinned):
        raise _others("the sites that this folder knows")


def _others(expected: str) -> KeysError:
    return KeysError(
        f"{expected}, with the same keys",
        "other keys",
        "do not install it; ask the server why, and begin in a new folder if it is right",
    )


def _sent(path: Path, format: str) -> dict[str, Any]:
    data = read_json(path)
    if data.get("format") != format:
        kind = format.removeprefix("understudy ")
        raise KeysError(f"{path.name} to be an Understudy {kind}", "another file", "check the path")
    return data


def _altered(path: Path) -> KeysError:
    return KeysError(f"{path.name} as it was made", "an altered or damaged one", _AGAIN)


def _listed(
    name: str,
    identity: Ed25519PrivateKey,
    authority: x509.Certificate,
    roster: Roster | None = None,
    number: int = 0,
) -> Listed:
    own, known = identity.public_key().public_bytes_raw(), authority.fingerprint(hashes.SHA256())
    return Listed(name, own, known, number, roster or Roster((), ()))


def _write_roster(folder: Path, listed: Listed, identity: Ed25519PrivateKey) -> None:
    write_file(folder / ROSTER, listed.to_json(Identity(-1, identity)))


def _fresh(folder: Path) -> None:
    """An empty folder that only its owner can look into."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputError("a new or empty folder", f"files in {folder}", "name another folder")
        os.chmod(folder, 0o700)
    except OSError as error:
        raise unwritable(str(folder), error) from error


def _refuse_site(folder: Path) -> None:
    if read_json(folder / ABOUT).get("role") != "server":
        raise KeysError("the server's key folder", "a site's", "name the folder of keys init")


def _check_days(days: int) -> None:
    if not 1 <= days <= 3650:
        raise KeysError("1 to 3650 days", str(days), "choose --days 365, say")


def _check_server_name(name: str) -> None:
    """It may be a host's name, with dots."""
    if len(name) > 60 or not _HOST.fullmatch(name):
        raise KeysError(
            "a server's name of up to 60 letters, digits, - and dots, as a host's name is",
            repr(name[:70]),
            "choose another --name",
        )


def _check_host(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError as error:
        if len(host) > 253 or not _HOST.fullmatch(host):
            raise KeysError(
                "a host's name or IP address, without port",
                repr(host[:80]),
                "give what sites will connect to: --host hub.hospital.example",
            ) from error
