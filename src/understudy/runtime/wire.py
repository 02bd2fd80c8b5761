"""The byte format: tasks out, sealed updates or refusals back; and the legs of a secure sum.

A message is ``UNDY``, a version, the length of a JSON header, the header, and a safetensors
body. Message kind, what both ends agreed on, run, site, round, leg and attempt are in the header,
inside our own bytes, whatever carries them. Every length is checked before it is believed; there
is no code and no pickle in a message, and no way to encode a value that was not sealed, nor a
share of a secure sum without its masks. What sites and server tell each other in a leg (keys,
locked shares, signatures) stands between header and body, as the bytes it is.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard, get_args

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from understudy.errors import UnderstudyError, WireError
from understudy.federation.recipe import Recipe, Task
from understudy.privacy.clip import Receipt, Sealed
from understudy.privacy.terms import Kind
from understudy.version import __version__

__all__ = [
    "MAX_BODY",
    "VERSION",
    "Agreement",
    "Envelope",
    "Refused",
    "answered",
    "decode_arrays",
    "decode_call",
    "decode_sealed",
    "decode_told",
    "encode_arrays",
    "encode_call",
    "encode_refusal",
    "encode_sealed",
    "encode_told",
    "malformed",
    "pack",
    "unpack",
]

_LOG = logging.getLogger(__name__)
MAGIC = b"UNDY"
VERSION = 3
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
        return cls(study, recipe.schema.hash, digest, __version__)

    @property
    def hash(self) -> bytes:
        """One hash of it all: what the signatures of a secure sum are bound to."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Envelope:
    """What a message belongs to; a retry has a higher ``attempt`` and is otherwise the same.

    ``leg`` is that of a secure sum, or empty where a round has one exchange.
    """

    agreement: Agreement
    run: str
    site: str
    round: int
    attempt: int = 0
    leg: str = ""

    def header(self) -> dict[str, Any]:
        own = {"run": self.run, "site": self.site, "round": self.round, "attempt": self.attempt}
        return {**asdict(self.agreement), **own, "leg": self.leg}


class Refused(WireError):
    """A site said no, and why."""


def encode_arrays(arrays: dict[str, Tensor]) -> bytes:
    """The body of a message; one serves all sites that are sent the same."""
    # Cloned: one tensor may stand under two names, which the format refuses.
    return safetensors.torch.save({n: v.contiguous().clone() for n, v in arrays.items()})


def encode_call(
    envelope: Envelope, task: Task | None = None, told: bytes = b"", body: bytes | None = None
) -> bytes:
    """What a site is sent: a task, or, in a leg of a sum, what it is told, perhaps with one.

    ``body`` is that of the task's arrays, if it was made before.
    """
    task = task or Task()
    if not _plain(task.values):
        raise WireError("a task of arrays and plain values", "something else", "fix the recipe")
    kind = "leg" if envelope.leg else "task"
    header = {"message": kind, **envelope.header(), "values": task.values, "told": len(told)}
    return pack(header, encode_arrays(task.arrays) if body is None else body, told)


def decode_call(data: bytes, agreement: Agreement, site: str) -> tuple[Task, bytes, Envelope]:
    """Inverse of `encode_call`: task, what is told, and what it belongs to.

    Refuses what was not agreed on, and what is for another site.
    """
    header, body = unpack(data, "task", "leg")
    _check(header, {**asdict(agreement), "site": site})
    values, run, leg = (header.get(name) for name in ("values", "run", "leg"))
    round, attempt = (_count(header.get(name)) for name in ("round", "attempt"))
    if not (_plain(values) and isinstance(run, str) and isinstance(leg, str)):
        raise malformed("a task with a run and plain values")
    if (header["message"] == "leg") != bool(leg):
        raise malformed("a leg only in a secure sum")
    told, body = _told(header, body)
    return (
        Task(decode_arrays(body), values),
        told,
        Envelope(agreement, run, site, round, attempt, leg),
    )


def _told(header: dict[str, Any], body: bytes) -> tuple[bytes, bytes]:
    """What stands before the body, and the body."""
    length = _count(header.get("told", 0))
    if length > len(body):
        raise malformed("all that was told")
    return body[:length], body[length:]


def encode_told(told: bytes, envelope: Envelope) -> bytes:
    """A site's answer in a leg that carries no update: keys, locked shares, a signature."""
    header = {"message": "told", **envelope.header(), "told": len(told)}
    return pack(header, encode_arrays({}), told)


def decode_told(data: bytes, envelope: Envelope) -> bytes:
    """Inverse of `encode_told`; refuses what belongs elsewhere, as `decode_sealed` does."""
    header, body = _reply(data, "told", envelope)
    return _told(header, body)[0]


def _count(number: object) -> int:
    if type(number) is not int or number < 0:
        raise malformed("a round and an attempt that are whole numbers")
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
    if sealed.kind == "share":
        raise WireError("a share under masks", "a bare one", "mask it first (federation.masking)")
    receipts = [asdict(receipt) for receipt in sealed.receipts]
    header = {"message": "sealed", **envelope.header(), "kind": sealed.kind, "receipts": receipts}
    parts = sealed.parts
    if sealed.kind == "masked":
        parts = {name: _packed(value) for name, value in parts.items()}
    return pack(header, encode_arrays(parts))


def _packed(numbers: Tensor) -> Tensor:
    """Whole numbers ``[1, …]`` in as few bytes as the largest needs, ``[1, …, w]``."""
    most = int(numbers.max()) if numbers.numel() else 0
    if numbers.dtype != torch.int64 or (numbers.numel() and int(numbers.min()) < 0):
        raise WireError("masked numbers", "others", "mask them first (federation.masking)")
    width = max(1, -(-most.bit_length() // 8))
    return numbers.contiguous()[..., None].view(torch.uint8)[..., :width]


def _unpacked(sent: Tensor) -> Tensor:
    """Inverse of `_packed`."""
    if sent.dtype != torch.uint8 or sent.dim() < 2 or not 1 <= sent.shape[-1] <= 8:
        raise malformed("packed numbers")
    wide = torch.zeros(*sent.shape[:-1], 8, dtype=torch.uint8)
    wide[..., : sent.shape[-1]] = sent
    return wide.view(torch.int64)[..., 0]


def encode_refusal(reason: str, agreement: Agreement, site: str) -> bytes:
    """Why a site sends nothing: one of our own messages, which never holds a record's values."""
    header = {"message": "refusal", **asdict(agreement), "site": site, "reason": reason}
    return pack(header, encode_arrays({}))


def answered(answer: Callable[[], bytes], agreement: Agreement, site: str) -> bytes:
    """What a site answers, or a refusal that says why.

    Words of errors that are not ours may hold what rows say: they stay at the site.
    """
    try:
        return answer()
    except UnderstudyError as error:
        reason = str(error)
    except Exception:
        _LOG.exception("site %s could not answer", site)
        reason = "an error at the site: see its output"
    return encode_refusal(reason, agreement, site)


def decode_sealed(data: bytes, envelope: Envelope) -> Sealed:
    """Inverse of `encode_sealed`; refuses what does not belong to this site, run and round.

    A retry is answered with the bytes of the first attempt, so an earlier attempt will do.
    """
    header, body = _reply(data, "sealed", envelope)
    return _sealed(header, decode_arrays(body))


def _reply(data: bytes, message: str, envelope: Envelope) -> tuple[dict[str, Any], bytes]:
    """Header and body of a reply that belongs here; a refusal is raised as one."""
    header, body = unpack(data, message, "refusal")
    if header["message"] == "refusal":
        _check(header, {"site": envelope.site})
        raise Refused("an answer", f"a refusal: {header.get('reason')}", "see the site's log")
    expected = envelope.header()
    attempt = expected.pop("attempt")
    _check(header, expected)
    if _count(header.get("attempt")) > attempt:
        raise malformed("an attempt that was made")
    return header, body


def _sealed(header: dict[str, Any], parts: dict[str, Tensor]) -> Sealed:
    try:
        receipts = tuple(Receipt(**receipt) for receipt in header["receipts"])
    except (KeyError, TypeError) as error:
        raise malformed("receipts with the known fields") from error
    if header.get("kind") not in set(get_args(Kind)) - {"share"} or not parts:
        raise malformed("a sealed update of a known kind with parts")
    if header["kind"] == "masked":
        parts = {name: _unpacked(value) for name, value in parts.items()}
    if any(value.dim() == 0 or len(value) != 1 for value in parts.values()):
        raise malformed("the update of one site")  # a stack would count as many
    return Sealed(header["kind"], header["round"], parts, receipts)


def pack(header: dict[str, Any], body: bytes, told: bytes = b"") -> bytes:
    """A message: what it is, what is told, and arrays."""
    head = json.dumps(header, allow_nan=False).encode()
    if len(head) > MAX_HEADER or len(told) + len(body) > MAX_BODY:
        raise WireError(
            f"a message up to {MAX_BODY >> 20} MiB",
            "a larger one",
            "use a smaller net or fewer parts",
        )
    return _PREFIX.pack(MAGIC, VERSION, len(head)) + head + told + body


def unpack(data: bytes, *messages: str) -> tuple[dict[str, Any], bytes]:
    """The header of a message of one of these kinds, and what stands after it."""
    if not _PREFIX.size <= len(data) <= _PREFIX.size + MAX_HEADER + MAX_BODY:
        raise malformed("a message of acceptable size")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise malformed("a message that starts with UNDY")
    if version != VERSION:
        raise WireError(
            f"wire version {VERSION}", f"{version}", "install the same Understudy version"
        )
    start = _PREFIX.size + length
    if length > MAX_HEADER or start > len(data):
        raise malformed("a complete header")
    return _header(data[_PREFIX.size : start], messages), data[start:]


def _header(data: bytes, messages: Sequence[str]) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise malformed("a JSON header") from error
    if not isinstance(header, dict) or header.get("message") not in messages:
        raise malformed(f"a {' or '.join(messages)} message")
    return header


def _check(header: dict[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        if header.get(name) != value:
            raise WireError(
                f"a message of this {name}",
                "another",
                "compare study files and versions; late replies are dropped",
            )


def decode_arrays(data: bytes) -> dict[str, Tensor]:
    """Inverse of `encode_arrays`."""
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise malformed("an intact safetensors body") from error


def malformed(expected: str) -> WireError:
    """A message that no end of ours has sent."""
    return WireError(expected, "a malformed or truncated message", "drop it; ask for it again")
