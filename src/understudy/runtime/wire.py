"""The byte format: tasks out, sealed updates back, nothing else.

A message is ``UNDY``, a version, the length of a JSON header, the header, and a
safetensors body. Message kind, study hash, round and site are in the header, inside our
own bytes, whatever carries them. Every length is checked before it is believed; there is
no code and no pickle in a message, and no way to encode a value that was not sealed.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard, get_args

import safetensors
import safetensors.torch
from torch import Tensor

from understudy.errors import WireError
from understudy.federation.recipe import Task
from understudy.privacy.clip import Kind, Receipt, Sealed

__all__ = ["VERSION", "Envelope", "decode_sealed", "decode_task", "encode_sealed", "encode_task"]

MAGIC = b"UNDY"
VERSION = 1
MAX_HEADER = 1 << 20
MAX_BODY = 1 << 30
_PREFIX = struct.Struct("<4sHI")


@dataclass(frozen=True)
class Envelope:
    """What a message belongs to; both ends compare it before anything else."""

    study: str
    round: int
    attempt: int = 0


def encode_task(task: Task, envelope: Envelope) -> bytes:
    """A task as bytes."""
    if not _plain(task.values):
        raise WireError("a task of arrays and plain values", "something else", "fix the recipe")
    return _pack({"message": "task", **asdict(envelope), "values": task.values}, task.arrays)


def decode_task(data: bytes, envelope: Envelope) -> Task:
    """Inverse of `encode_task`; refuses another study, round or attempt."""
    header, arrays = _unpack(data, "task", envelope)
    values = header.get("values")
    if not _plain(values):
        raise _malformed("a task with plain values")
    return Task(arrays, values)


def _plain(values: object) -> TypeGuard[dict[str, Any]]:
    """Numbers, texts and flags by name: nothing nested, nothing that is not finite."""
    return isinstance(values, dict) and all(
        isinstance(v, (int, str)) or (isinstance(v, float) and math.isfinite(v))
        for v in values.values()
    )


def encode_sealed(sealed: Sealed, envelope: Envelope) -> bytes:
    """A sealed update as bytes. Only `Sealed` values have an encoding."""
    if not isinstance(sealed, Sealed):
        raise WireError(
            "a Sealed update", type(sealed).__name__, "seal it first (federation.slots)"
        )
    receipts = [asdict(receipt) for receipt in sealed.receipts]
    header = {"message": "sealed", **asdict(envelope), "kind": sealed.kind, "receipts": receipts}
    return _pack(header, sealed.parts)


def decode_sealed(data: bytes, envelope: Envelope) -> Sealed:
    """Inverse of `encode_sealed`; refuses what does not belong to this study and round."""
    header, parts = _unpack(data, "sealed", envelope)
    try:
        receipts = tuple(Receipt(**receipt) for receipt in header["receipts"])
    except (KeyError, TypeError) as error:
        raise _malformed("receipts with the known fields") from error
    if header.get("kind") not in get_args(Kind) or not parts:
        raise _malformed("a sealed update of a known kind with parts")
    if any(value.dim() == 0 or len(value) != 1 for value in parts.values()):
        raise _malformed("the update of one site")  # a stack would count as many
    return Sealed(header["kind"], envelope.round, parts, receipts)


def _pack(header: dict[str, Any], arrays: dict[str, Tensor]) -> bytes:
    head = json.dumps(header, allow_nan=False).encode()
    # Cloned: one tensor may stand under two names, which the format refuses.
    own = {name: value.contiguous().clone() for name, value in arrays.items()}
    body = safetensors.torch.save(own)
    if len(head) > MAX_HEADER or len(body) > MAX_BODY:
        raise WireError(
            f"a message up to {MAX_BODY >> 20} MiB",
            "a larger one",
            "use a smaller net or fewer parts",
        )
    return _PREFIX.pack(MAGIC, VERSION, len(head)) + head + body


def _unpack(
    data: bytes, message: str, envelope: Envelope
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not _PREFIX.size <= len(data) <= _PREFIX.size + MAX_HEADER + MAX_BODY:
        raise _malformed("a message of acceptable size")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise _malformed("a message that starts with UNDY")
    if version != VERSION:
        raise WireError(
            f"wire version {VERSION}", f"{version}", "install the same Understudy version"
        )
    start = _PREFIX.size + length
    if length > MAX_HEADER or start > len(data):
        raise _malformed("a complete header")
    return _header(data[_PREFIX.size : start], message, envelope), _arrays(data[start:])


def _header(data: bytes, message: str, envelope: Envelope) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed("a JSON header") from error
    if not isinstance(header, dict) or header.get("message") != message:
        raise _malformed(f"a {message} message")
    for name, value in asdict(envelope).items():
        if header.get(name) != value:
            raise WireError(
                f"a message of this {name}",
                "another",
                "compare study files; late replies are dropped",
            )
    return header


def _arrays(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise _malformed("an intact safetensors body") from error


def _malformed(expected: str) -> WireError:
    return WireError(expected, "a malformed or truncated message", "drop it; ask for it again")
