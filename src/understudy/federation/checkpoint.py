"""Checkpoints: a killed run goes on without spending twice.

The server's state is written atomically after every round, with a digest, and the last
two are kept: a torn or altered file falls back to the one before. Rounds that the ledger
shows as charged but no checkpoint completed are void: spent, and not run again, because
noise must never be drawn twice for one charge. Noise state is never saved.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
from torch import Tensor

from understudy.errors import OutputError

__all__ = ["Checkpoint", "Saved"]


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds: the next round, and the state after the one before."""

    round: int
    state: dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoints of one run in one private folder."""

    folder: Path

    def save(self, saved: Saved) -> None:
        """Write, then rename; the previous checkpoint stays as the one to fall back to."""
        # Cloned: a state may hold one tensor under two names, which the format refuses.
        tensors = {name: value.contiguous().clone() for name, value in saved.state.items()}
        body = safetensors.torch.save(tensors, metadata={"round": str(saved.round)})
        current = self.folder / "checkpoint"
        if current.exists():
            os.replace(current, self.folder / "checkpoint.previous")
        write_atomic(current, hashlib.sha256(body).digest() + body)

    def load(self) -> Saved | None:
        """The newest intact checkpoint, or None."""
        for name in ("checkpoint", "checkpoint.previous"):
            saved = _read(self.folder / name)
            if saved is not None:
                return saved
        return None

    def begin(self, round: int, cohort: np.ndarray) -> None:
        """Note who joins, before they are asked: a crash counts as joined. Never released."""
        body = json.dumps({"round": round, "cohort": cohort.tolist()}).encode()
        write_atomic(self.folder / "cohort.json", body)

    def begun(self) -> tuple[int, np.ndarray] | None:
        """The round and cohort last begun; None where there is no readable note."""
        try:
            data = json.loads((self.folder / "cohort.json").read_text())
            return data["round"], np.array(data["cohort"], np.int64)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _read(path: Path) -> Saved | None:
    if not path.exists():
        return None
    data = path.read_bytes()
    digest, body = data[:32], data[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])["__metadata__"]
    return Saved(int(header["round"]), safetensors.torch.load(body))


def write_atomic(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write beside, then rename; a full disk leaves what was there.

    With ``sync`` it is on disk when this returns, and survives a loss of power.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_bytes(data)
        if sync:
            _sync(temporary)
        os.replace(temporary, path)
        if sync:
            _sync(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(
            f"room on disk for {path.name}",
            str(error.strerror),
            "free space, then run with --resume",
        ) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
