"""Releases up and down: what is cut short goes on where it was, and hashes are compared."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from understudy.errors import ExchangeError, unwritable
from understudy.exchange.blobs import file_hash
from understudy.exchange.connection import (
    AGAIN,
    LONGEST,
    Answer,
    Connection,
    seconds,
    unreachable,
)

__all__ = ["Tick", "download", "upload", "wait_for_checks"]

PIECE = 1 << 20
_BLOCK = 1 << 18
_LOOK, _SELDOM = 0.5, 4.0  # seconds between looks at a push that is being checked, rising
Tick = Callable[[str, int, int], None]


def silent(note: str, done: int, total: int) -> None:
    """Nobody watches."""


def upload(link: Connection, path: Path, dataset: str, tick: Tick = silent) -> dict[str, Any]:
    """Send a release; the push, which is then being checked."""
    size = path.stat().st_size
    told = {"dataset": dataset, "sha256": file_hash(path), "size": size}
    push: dict[str, Any] = link.ask("POST", "/pushes", told)
    if push["state"] != "uploading":  # all of it is there: somebody waited for the checks, and left
        return push
    way, there, before = f"/pushes/{push['id']}", int(push["received"]), -1
    with path.open("rb") as file:
        while there < size:
            tick("sending", there, size)
            file.seek(there)
            answer = link.send("PUT", f"{way}/bytes?offset={there}", file.read(PIECE))
            if answer.status == 409 and there != before:  # the answer to a piece was lost
                before, there = there, int(link.ask("GET", way)["received"])
            else:
                there = int(answer.checked()["received"])
    tick("sent", size, size)
    found: dict[str, Any] = link.ask("POST", f"{way}/finish")
    return found


def wait_for_checks(link: Connection, push: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The push as it is after its checks; refuses to wait for longer than that."""
    end, pause = time.monotonic() + seconds, _LOOK
    while push["state"] == "checking":
        if time.monotonic() > end:
            raise ExchangeError(
                f"checks that end within {seconds:g} s", "they go on", "look again: exchange list"
            )
        time.sleep(pause)
        pause = min(1.3 * pause, _SELDOM)
        push = link.ask("GET", f"/pushes/{push['id']}")
    return push


def download(
    link: Connection, id: str, sha256: str, size: int, target: Path, tick: Tick = silent
) -> Path:
    """Fetch a release; a file that is there already is only compared."""
    if target.exists() and file_hash(target) == sha256:
        return target
    partial = target.with_name(f".{target.name}.part")
    end, pause = time.monotonic() + link.patience, 0.25
    while True:
        try:
            _go_on(link, f"/api/v1/releases/{id}/file", partial, size, tick)
            break
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno is not None and not _network(error):
                raise unwritable(target.name, error) from error
            if time.monotonic() > end:
                raise unreachable(link.site, error) from error
            time.sleep(min(pause, LONGEST))
            pause *= 2
    if partial.stat().st_size != size or file_hash(partial) != sha256:
        partial.unlink()
        raise ExchangeError(
            f"release {id} with the hash in the list",
            "other bytes",
            "fetch it again; tell the operator",
        )
    os.replace(partial, target)
    return target


def _network(error: OSError) -> bool:
    return isinstance(error, (ConnectionError, TimeoutError)) or error.errno in range(96, 120)


def _go_on(link: Connection, path: str, partial: Path, size: int, tick: Tick) -> None:
    """From where the partial file ends."""
    there = partial.stat().st_size if partial.exists() else 0
    if there >= size:
        return
    more = {"Range": f"bytes={there}-"} if there else {}
    connection = link.site.open()
    try:
        connection.request("GET", path, headers=link.headers("GET", path, b"", more))
        found = connection.getresponse()
        if found.status in AGAIN:
            time.sleep(min(seconds(found), LONGEST))
            raise ConnectionError("busy")
        if found.status not in (200, 206):
            Answer(found.status, found.read(1 << 20), 0).checked()
        with partial.open("ab" if found.status == 206 else "wb") as file:
            there = there if found.status == 206 else 0
            while block := found.read(_BLOCK):
                file.write(block)
                there += len(block)
                tick("fetching", there, size)
                if there > size:
                    raise ExchangeError(f"{size:,} bytes", "more", "tell the operator")
        if there < size:
            raise ConnectionError("cut short")
    finally:
        connection.close()
