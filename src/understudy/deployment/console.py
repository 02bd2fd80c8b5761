"""A page that shows a run while it runs: read-only, from the status file, on this machine alone.

It is served by Python's own HTTP server, to loopback unless told otherwise, and only to those who
have the token: the address that is printed has it, the browser keeps it in a cookie. The page asks
for nothing but its own few files, and shows what `Status` has: nothing that follows from rows.
"""

from __future__ import annotations

import csv
import hmac
import json
import secrets
import socket
import time
from dataclasses import asdict
from functools import partial
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from understudy.deployment.status import Status
from understudy.errors import OutputError, UnderstudyError

__all__ = ["open_console", "start"]

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
}
_ROWS, _COLUMNS, _CELL = 12, 40, 60  # of the sample that is shown
_JSON = "application/json; charset=utf-8"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def start(folder: Path, port: int, token: str = "", host: str = "127.0.0.1") -> str:
    """Show the run in ``folder`` for as long as this process lives; the address to open."""
    token = token or secrets.token_urlsafe(24)
    server = open_console(folder, port, token, host)
    Thread(target=server.serve_forever, daemon=True, name="console").start()
    return address(server, token)


def address(server: ThreadingHTTPServer, token: str) -> str:
    """What to open in a browser."""
    host, port = str(server.server_address[0]), server.server_address[1]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/?token={token}"


def open_console(
    folder: Path, port: int, token: str, host: str = "127.0.0.1"
) -> ThreadingHTTPServer:
    """The server, listening; port 0 takes any that is free."""
    if (
        len(token) < 16
        or not token.isascii()
        or not token.replace("-", "").replace("_", "").isalnum()
    ):
        raise UnderstudyError(
            "a token of 16 or more letters, digits, - and _", "another", "leave it out: one is made"
        )
    try:
        kind = _Six if ":" in host else _Four
        return kind((host, port), partial(_Handler, folder, token))
    except (OSError, OverflowError) as error:
        raise OutputError(
            f"a free port for the console page, on {host}",
            f"{port}: {getattr(error, 'strerror', None) or error}",
            "choose another --console PORT, or 0 for any",
        ) from error


class _Four(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Six(_Four):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """Answers GET with one of four files, to whoever has the token."""

    timeout = 15  # seconds for a request to come in

    def __init__(self, folder: Path, token: str, *args: Any) -> None:
        self.folder, self.token = folder, token
        super().__init__(*args)

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        given = parse_qs(asked.query).get("token", [""])[0]
        if self._fits(given):
            self._enter()
        elif not self._fits(self._cookie()):
            self._send(403, b"Open the address that the server printed: it has a token.\n")
        elif asked.path == "/status.json":
            self._send_status()
        elif asked.path in _FILES:
            name, kind = _FILES[asked.path]
            self._send(200, (_PAGE / name).read_bytes(), kind)
        else:
            self._send(404, b"There is no such page.\n")

    do_HEAD = do_GET

    def version_string(self) -> str:
        """What the header "Server" says: no versions."""
        return "Understudy"

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    @property
    def _cookie_name(self) -> str:
        """One per port: browsers share cookies between ports."""
        return f"understudy-{self.connection.getsockname()[1]}"

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return ""
        return found[self._cookie_name].value if self._cookie_name in found else ""

    def _enter(self) -> None:
        """Keep the token in a cookie, and take it out of the address."""
        kept = f"{self._cookie_name}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(303, b"", more={"Location": "/", "Set-Cookie": kept})

    def _send_status(self) -> None:
        try:
            status = Status.read(self.folder)
        except UnderstudyError as error:
            self._send(503, json.dumps({"error": error.found}).encode(), _JSON)
            return
        told = {"status": asdict(status), "sample": _sample(self.folder, status.sample)}
        body = json.dumps({**told, "now": time.time()}, ensure_ascii=False).encode()
        self._send(200, body, _JSON)

    def _send(
        self,
        code: int,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}
        for name, value in {**headers, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses may hold the token."""


def _sample(folder: Path, name: str) -> dict[str, Any] | None:
    """The first rows of the CSV file that the server wrote beside its status."""
    if not name or Path(name).name != name or not name.endswith(".csv"):
        return None
    try:
        with (folder / name).open(encoding="utf-8", newline="") as file:
            lines = [line for line, _ in zip(csv.reader(file), range(_ROWS + 1), strict=False)]
    except (OSError, ValueError, csv.Error):
        return None
    cut = [[cell[:_CELL] for cell in line[:_COLUMNS]] for line in lines]
    return {"columns": cut[0], "rows": cut[1:]} if len(cut) > 1 else None
