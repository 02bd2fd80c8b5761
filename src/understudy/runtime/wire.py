"""The byte format: tasks out, sealed updates or refusals back, nothing else.

A message is ``UNDY``, a version, the length of a JSON header, the header, and a safetensors
body. Message kind, what both ends agreed on, run, site, round and attempt are in the header, inside
our own bytes, whatever carries them. Every length is checked before it is believed; there is no
code and no pickle in a message, and no way to encode a value that was not sealed.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, TypeGuard, get_args

import safetensors
import safetensors.torch
from torch import Tensor

from understudy.errors import WireError
from understudy.federation.recipe import Recipe, Task
from understudy.privacy.clip import Receipt, Sealed
from understudy.privacy.terms import Kind

__all__ = [
    "VERSION",
    "Agreement",
    "Envelope",
    "Refused",
    "decode_sealed",
    "decode_task",
    "encode_arrays",
    "encode_refusal",
    "encode_sealed",
    "encode_task",
]

MAGIC = b"UNDY"
VERSION = 2
MAX_HEADER = 1 << 20
MAX_BODY = 1 << 30
_PREFIX = struct.Struct("<4sHI")


@dataclass(frozen=True)
class Agreement:
    """What both ends must have in common before any message counts: hashes and a version."""

    study: str
    schema: str
    plan: str
    version: str

    @classmethod
    def of(cls, study: str, recipe: Recipe) -> Agreement:
        """Of a recipe that was built from the study with this hash."""
        plan = json.dumps(recipe.plan.to_dict(), sort_keys=True).encode()
        digest = hashlib.sha256(plan).hexdigest()
        return cls(study, recipe.schema.hash, digest, version("understudy"))


@dataclass(frozen=True)
class Envelope:
    """What a message belongs to; a retry has a higher ``attempt`` and is otherwise the same."""

    agreement: Agreement
    run: str
    site: str
    round: int
    attempt: int = 0

    def header(self) -> dict[str, Any]:
        """As it stands in a message."""
        own = {"run": self.run, "site": self.site, "round": self.round, "attempt": self.attempt}
        return {**asdict(self.agreement), **own}


class Refused(WireError):
    """A site said no, and why."""


def encode_arrays(arrays: dict[str, Tensor]) -> bytes:
    """The body of a message; one serves all sites that are sent the same."""
    # Cloned: one tensor may stand under two names, which the format refuses.
    return safetensors.torch.save({n: v.contiguous().clone() for n, v in arrays.items()})


def encode_task(task: Task, envelope: Envelope, body: bytes | None = None) -> bytes:
    """A task as bytes; ``body`` is that of its arrays, if it was made before."""
    if not _plain(task.values):
        raise WireError("a task of arrays and plain values", "something else", "fix the recipe")
    header = {"message": "task", **envelope.header(), "values": task.values}
    return _pack(header, encode_arrays(task.arrays) if body is None else body)


def decode_task(data: bytes, agreement: Agreement, site: str) -> tuple[Task, Envelope]:
    """Inverse of `encode_task`; refuses what was not agreed on, and what is for another site."""
    header, body = _unpack(data, "task")
    _check(header, {**asdict(agreement), "site": site})
    values, run = header.get("values"), header.get("run")
    round, attempt = (_count(header.get(name)) for name in ("round", "attempt"))
    if not (_plain(values) and isinstance(run, str)):
        raise _malformed("a task with a run and plain values")
    return Task(_arrays(body), values), Envelope(agreement, run, site, round, attempt)


def _count(number: object) -> int:
    if type(number) is not int or number < 0:
        raise _malformed("a round and an attempt that are whole numbers")
    return number


def _plain(values: object) -> TypeGuard[dict[str, Any]]:
    """Numbers, texts and flags by name: nothing nested, nothing that is not finite."""
    return isinstance(values, dict) and all(
        isinstance(v, (int, str)) or (isinstance(v, float) and math.isfinite(v))
        for v in values.values()
    )


def encode_sealed(sealed: Sealed, envelope: Envelope) -> bytes:
    """A sealed update as bytes. Only `Sealed` values have an encoding."""
    if not isinstance(sealed, Sealed):
        raise WireError("a Sealed update", type(sealed).__name__, "seal it first (federation.site)")
    receipts = [asdict(receipt) for receipt in sealed.receipts]
    header = {"message": "sealed", **envelope.header(), "kind": sealed.kind, "receipts": receipts}
    return _pack(header, encode_arrays(sealed.parts))


def encode_refusal(reason: str, agreement: Agreement, site: str) -> bytes:
    """Why a site sends nothing: one of our own messages, which never holds a record's values."""
    header = {"message": "refusal", **asdict(agreement), "site": site, "reason": reason}
    return _pack(header, encode_arrays({}))


def decode_sealed(data: bytes, envelope: Envelope) -> Sealed:
    """Inverse of `encode_sealed`; refuses what does not belong to this site, run and round.

    A retry is answered with the bytes of the first attempt, so an earlier attempt will do.
    """
    header, body = _unpack(data, "sealed", "refusal")
    if header["message"] == "refusal":
        _check(header, {"site": envelope.site})
        raise Refused("an update", f"a refusal: {header.get('reason')}", "see the site's log")
    expected = envelope.header()
    attempt = expected.pop("attempt")
    _check(header, expected)
    if _count(header.get("attempt")) > attempt:
        raise _malformed("an attempt that was made")
    return _sealed(header, _arrays(body))


def _sealed(header: dict[str, Any], parts: dict[str, Tensor]) -> Sealed:
    try:
        receipts = tuple(Receipt(**receipt) for receipt in header["receipts"])
    except (KeyError, TypeError) as error:
        raise _malformed("receipts with the known fields") from error
    if header.get("kind") not in get_args(Kind) or not parts:
        raise _malformed("a sealed update of a known kind with parts")
    if any(value.dim() == 0 or len(value) != 1 for value in parts.values()):
        raise _malformed("the update of one site")  # a stack would count as many
    return Sealed(header["kind"], header["round"], parts, receipts)


def _pack(header: dict[str, Any], body: bytes) -> bytes:
    head = json.dumps(header, allow_nan=False).encode()
    if len(head) > MAX_HEADER or len(body) > MAX_BODY:
        raise WireError(
            f"a message up to {MAX_BODY >> 20} MiB",
            "a larger one",
            "use a smaller net or fewer parts",
        )
    return _PREFIX.pack(MAGIC, VERSION, len(head)) + head + body


def _unpack(data: bytes, *messages: str) -> tuple[dict[str, Any], bytes]:
    """The header of a message of one of these kinds, and its body."""
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
    return _header(data[_PREFIX.size : start], messages), data[start:]


def _header(data: bytes, messages: Sequence[str]) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed("a JSON header") from error
    if not isinstance(header, dict) or header.get("message") not in messages:
        raise _malformed(f"a {' or '.join(messages)} message")
    return header


def _check(header: dict[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        if header.get(name) != value:
            raise WireError(
                f"a message of this {name}",
                "another",
                "compare study files and versions; late replies are dropped",
            )


def _arrays(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise _malformed("an intact safetensors body") from error


def _malformed(expected: str) -> WireError:
    return WireError(expected, "a malformed or truncated message", "drop it; ask for it again")
