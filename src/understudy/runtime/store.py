"""What a site on a network must not lose: its rounds, its last reply, and its memory, in one file.

Memory and sealed bytes are written together, in one move, so that neither can be newer than the
other: after a crash the site either resends the bytes that go with its memory or has none to send.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from understudy.errors import OutputError, ReleaseError
from understudy.federation.checkpoint import write_atomic

__all__ = ["Kept", "Store", "read_kept"]

_MEMORY, _REPLY, _SESSION = "memory/", "reply", "session"
_TENSORS = ("memory", _REPLY, _SESSION)  # what is kept beside the rest, as tensors


@dataclass(frozen=True)
class Kept:
    """The run a site has joined, its last round, rounds left by phase, and the reply it gave.

    In a secure sum also the leg of that reply, the hash of what was asked in it, and what the
    site keeps of the round: secrets of its own and shares of others' (`secure.session`). ``paid``
    is where its own ledger stood (length and head) once it had paid for the run or noted the round,
    if it keeps one.
    """

    run: str = ""
    round: int = -1
    allowance: tuple[int, ...] = ()
    reply: bytes = b""
    memory: dict[str, Tensor] = field(default_factory=dict)
    leg: str = ""
    asked: str = ""
    session: bytes = field(default=b"", repr=False)
    paid: tuple[int, str] | None = None


class Store:
    """The file of one site, or, without a folder, the same in memory.

    One process at a time: two that answered for one site would each draw noise for a round.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._lock = -1 if folder is None else _locked(folder / "site.lock")
        self._path = None if folder is None else folder / "site.state"
        self.place = "" if folder is None else hashlib.sha256(bytes(folder.resolve())).hexdigest()
        self.kept = Kept()
        if self._path is not None and self._path.exists():
            self.kept = _read(self._path.read_bytes())

    def __del__(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            os.close(self._lock)

    def save(self, kept: Kept) -> None:
        if self._path is not None:
            write_atomic(self._path, _bytes(kept), sync=True)
        self.kept = kept


def _locked(path: Path) -> int:
    """Held open for as long as the store lives; the system lets go of it when a process dies."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise OutputError(
            "a site that no other process answers for",
            "another process holds its folder",
            "stop that process, or name another folder",
        ) from error
    return handle


def _bytes(kept: Kept) -> bytes:
    tensors = {_MEMORY + name: value.contiguous() for name, value in kept.memory.items()}
    for name, data in ((_REPLY, kept.reply), (_SESSION, kept.session)):
        tensors[name] = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
    head = {name: value for name, value in vars(kept).items() if name not in _TENSORS}
    said = json.dumps({**head, "open": bool(kept.session), "answered": bool(kept.reply)})
    body = safetensors.torch.save(tensors, metadata={"kept": said})
    return hashlib.sha256(body).digest() + body


def _read(data: bytes) -> Kept:
    digest, body = data[:32], data[32:]
    if hashlib.sha256(body).digest() != digest:
        raise ReleaseError(
            "an intact site.state", "a damaged one", "restore it, or leave this run for good"
        )
    length = int.from_bytes(body[:8], "little")
    head = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["kept"])
    tensors = safetensors.torch.load(body)
    reply, session = (tensors.pop(name).numpy().tobytes() for name in (_REPLY, _SESSION))
    answered, opened = head.pop("answered"), head.pop("open")
    head |= {"allowance": tuple(head["allowance"]), "paid": head["paid"] and (*head["paid"],)}
    memory = {name.removeprefix(_MEMORY): value for name, value in tensors.items()}
    reply, session = reply if answered else b"", session if opened else b""
    return Kept(**head, memory=memory, reply=reply, session=session)


def read_kept(folder: Path) -> Kept | None:
    """What a site has kept there, without taking its place; None where there is nothing."""
    path = folder / "site.state"
    return _read(path.read_bytes()) if path.exists() else None
