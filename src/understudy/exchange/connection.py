"""A member's connection to an exchange: where it is, with which key, and one signed request.

It needs nothing but the standard library and the key. What cannot be answered now (the service is
restarting, its database is gone, too many requests) is asked again for a while, with a fresh nonce.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from understudy.deployment.keys import ABOUT, IDENTITY, read_identity, read_json, write_file
from understudy.errors import ExchangeError, KeysError
from understudy.exchange.signing import sign

__all__ = ["Answer", "Connection", "Site"]

_KNOWN = "exchange.json"  # in the key folder
LONGEST = 10.0  # seconds between two tries
AGAIN = (429, 502, 503, 504)
"""Answers after which the same is asked again."""
_TIMEOUT = 60.0
_LARGEST = 64 << 20  # of an answer that is not a file


@dataclass(frozen=True)
class Site:
    """An exchange's address: https, or http to this machine alone."""

    url: str
    ca: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        secure, host, _ = self._parts
        if not secure and not self.insecure and not is_local(host):
            raise ExchangeError(
                "https, or an exchange on this machine",
                f"http to {host}: releases would travel in the clear",
                "use https; or --insecure, if you know what carries it",
            )

    @property
    def _parts(self) -> tuple[bool, str, int | None]:
        """Whether it is https, host and port."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname or "", parts.port
        except ValueError:  # a port or an address that cannot be
            host = ""
        if not host or parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
            raise ExchangeError(
                "an exchange's address, as https://HOST:PORT", repr(self.url[:80]), "correct it"
            )
        return parts.scheme == "https", host, port

    def open(self) -> http.client.HTTPConnection:
        """A fresh connection; the server's certificate is checked."""
        secure, host, port = self._parts
        if not secure:
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        try:
            trusted = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise KeysError(
                f"certificates in {self.ca}", type(error).__name__, "give --ca FILE.pem"
            ) from error
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=trusted)


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    wait: float

    @property
    def json(self) -> Any:
        """The body, which an exchange always writes as JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise ExchangeError(
                "an answer of an Understudy exchange", f"another (HTTP {self.status})", "check URL"
            ) from error

    def checked(self) -> Any:
        """The body; a refusal is raised in the service's own words."""
        found = self.json
        if self.status < 400:
            return found
        told = found.get("error", {}) if isinstance(found, dict) else {}
        parts = (told.get("expected"), told.get("found"), told.get("do"))
        expected, got, do = (str(part or "more than that")[:1000] for part in parts)
        raise ExchangeError(expected, got, do)


@dataclass(frozen=True)
class Connection:
    """A member's key and the exchange that it signs for."""

    site: Site
    folder: Path
    name: str
    key: Ed25519PrivateKey = field(repr=False)
    exchange: str = ""
    patience: float = 20.0
    """Seconds for which what cannot be answered now is asked again."""

    @classmethod
    def first(cls, site: Site, folder: Path) -> Connection:
        """To an exchange that this key folder does not know yet."""
        name = str(read_json(folder / ABOUT).get("name"))
        bare = cls(
            site, folder, name, read_identity(folder / IDENTITY)
        )  # signs for no exchange yet
        return replace(bare, exchange=str(bare.ask("GET", "/exchange")["id"]))

    @classmethod
    def known(cls, folder: Path) -> Connection:
        """To the exchange that this key folder subscribed to."""
        if not (folder / _KNOWN).exists():
            raise ExchangeError(
                f"a key folder that has subscribed, {folder}",
                "one that has not",
                "understudy exchange subscribe URL --keys FOLDER --code CODE",
            )
        found, about = read_json(folder / _KNOWN), read_json(folder / ABOUT)
        try:
            site = Site(str(found["server"]), str(found["ca"]), bool(found["insecure"]))
            exchange = str(found["exchange"])
        except KeyError as error:
            wanted = f"{_KNOWN} as subscribe writes it"
            raise ExchangeError(wanted, f"no {error.args[0]}", "restore it from a copy") from error
        key = read_identity(folder / IDENTITY)
        return cls(site, folder, str(about.get("name")), key, exchange)

    def remember(self) -> None:
        """For the next commands."""
        ca = str(Path(self.site.ca).absolute()) if self.site.ca else ""
        told = {"server": self.site.url, "ca": ca, "insecure": self.site.insecure}
        write_file(self.folder / _KNOWN, {**told, "exchange": self.exchange})

    @property
    def identity(self) -> str:
        """The public half of the key."""
        return self.key.public_key().public_bytes_raw().hex()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | bytes = b"") -> Any:
        """A signed call of the API, and what it answers."""
        return self.send(method, path, body).checked()

    def send(self, method: str, path: str, body: Mapping[str, Any] | bytes = b"") -> Answer:
        """The same, refusals included."""
        plain = isinstance(body, bytes)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if plain else "application/json"
        headers = {"Content-Type": kind} if data else {}
        return self._tried(method, f"/api/v1{path}", data, headers)

    def _tried(self, method: str, path: str, body: bytes, more: Mapping[str, str]) -> Answer:
        end, pause = time.monotonic() + self.patience, 0.25
        while True:
            last = time.monotonic() > end
            try:
                answer = self._once(method, path, body, more)
                if answer.status not in AGAIN or last:
                    return answer
                pause = max(pause, answer.wait)
            except (OSError, http.client.HTTPException) as error:
                if last or isinstance(error, ssl.SSLCertVerificationError):
                    raise unreachable(self.site, error) from error
            time.sleep(min(pause, LONGEST))
            pause *= 2

    def _once(self, method: str, path: str, body: bytes, more: Mapping[str, str]) -> Answer:
        connection = self.site.open()
        try:
            headers = self.headers(method, path, body, more)
            connection.request(method, path, body or None, headers)
            found = connection.getresponse()
            data = found.read(_LARGEST + 1)
            if len(data) > _LARGEST:
                raise ExchangeError("an answer of at most 64 MiB", "a larger one", "check the URL")
            return Answer(found.status, data, seconds(found))
        finally:
            connection.close()

    def headers(
        self, method: str, path: str, body: bytes, more: Mapping[str, str]
    ) -> dict[str, str]:
        """``more``, and the signature."""
        stamp = sign(self.key, self.name, self.exchange, method, path, body)
        return {**more, "Authorization": stamp.header}


def seconds(answer: http.client.HTTPResponse) -> float:
    """How long the service asks to wait."""
    text = answer.headers.get("Retry-After") or ""
    return float(text) if text.isdecimal() else 1.0


def unreachable(site: Site, error: Exception) -> ExchangeError:
    """Why there was no answer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        do = "give the authority of its certificate: --ca ca.pem"
        return ExchangeError(
            f"a certificate of {site.url} that is trusted", error.verify_message, do
        )
    found = getattr(error, "strerror", None) or type(error).__name__
    return ExchangeError(f"an exchange at {site.url}", str(found), "check address and network")
