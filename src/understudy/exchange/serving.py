"""The process that serves an exchange: TLS, the address, and a clean end."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from understudy.errors import ExchangeError
from understudy.exchange.admission import Verifier
from understudy.exchange.connection import is_local
from understudy.exchange.context import Exchange
from understudy.exchange.policy import Policy
from understudy.exchange.service import application
from understudy.exchange.worker import Worker

__all__ = ["Address", "open_exchange", "serve"]


@dataclass(frozen=True)
class Address:
    """Where to listen, and with which certificate."""

    host: str
    port: int
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse to send anything in the clear over a network, unless told to."""
        if (self.cert is None) != (self.key is None):
            raise ExchangeError("--cert and --key", "one of them", "give both")
        for file in (self.cert, self.key):
            if file is not None and not file.is_file():
                raise ExchangeError(f"the file {file}", "no such file", "check the path")
        self._check_certificate()
        if self.cert is None and not self.insecure and not is_local(self.host):
            raise ExchangeError(
                f"--cert and --key, to listen on {self.host}",
                "neither: requests and releases would travel in the clear",
                "give a certificate (understudy keys init makes one), or --insecure behind a "
                "proxy that has one",
            )

    def _check_certificate(self) -> None:
        if self.cert is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key)
        except OSError as error:
            found = f"others: {getattr(error, 'reason', None) or error.strerror}"
            do = "name the certificate and its own key"
            raise ExchangeError("a certificate and its key, both PEM", found, do) from error

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.cert is None else "https"

    def socket(self) -> socket.socket:
        """Bound, so that the port is known (0 takes any) and taken before anything else is done."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        made = socket.socket(family)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((self.host, self.port))
        except (OSError, OverflowError) as error:
            made.close()
            raise ExchangeError(
                f"a free port on {self.host}",
                f"{self.port}: {getattr(error, 'strerror', None) or error}",
                "choose another --port, or 0 for any",
            ) from error
        return made


def open_exchange(policy: Policy, verifier: Verifier) -> Exchange:
    """The exchange of this file."""
    limits = policy.limits
    return Exchange.open(policy, Worker(verifier, limits.seconds, limits.gigabytes))


def serve(exchange: Exchange, where: Address, opened: Callable[[str], None]) -> None:
    """Serve until the process is told to stop; ``opened`` is told the address."""
    where.check()
    bound = where.socket()
    host = f"[{where.host}]" if ":" in where.host else where.host
    opened(f"{where.scheme}://{host}:{bound.getsockname()[1]}")
    config = uvicorn.Config(
        application(exchange),
        log_level="warning",
        ssl_certfile=where.cert,
        ssl_keyfile=str(where.key) if where.key else None,
        server_header=False,
        timeout_keep_alive=15,
        h11_max_incomplete_event_size=32 << 10,
        limit_concurrency=1000,
    )
    uvicorn.Server(config).run(sockets=[bound])
