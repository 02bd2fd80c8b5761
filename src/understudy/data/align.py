"""Private alignment: parties find the people that they all know, by blinded identifiers.

Each identifier is hashed to a point of Curve25519 and multiplied by every party's secret scalar
(X25519, from `cryptography`), in whatever order the files travel: X25519(a, X25519(b, u)) is the
same either way. Points that all parties have multiplied are equal where the identifiers are, so
each party finds which of its rows are known to all, and all sort them by these points: the aligned
files have the same people in the same, otherwise meaningless, order.

Why it is sound, for parties that follow the protocol and look at all they see: without a party's
scalar its points cannot be told from random ones (decisional Diffie–Hellman on Curve25519 and its
twist, SHA-512 as a random oracle), so guesses cannot be tried on them, however few identifiers
there are. X25519 keeps to u-coordinates, takes points of the curve and of its twist, both of which
are secure, and its scalars are multiples of 8, so that nothing of small order is left over.

What it reveals: to every party, how many identifiers each other party has, and which of *its own*
people each of the others has; to nobody, the others' identifiers. With three parties or more, all
see all lists that everyone has multiplied, so each party also learns how many people any of the
others have in common, those that it does not have included. Whether a hash lies on the curve
or on the twist survives blinding, so each party also learns how many of another's do: about half.
A party that lies about its list, or adds guesses to it, learns whether those are in the others'.
Outsiders must not see lists that all have multiplied: of all of them together, anybody can tell how
many people are in common, and make the `Alignment`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from subprocess import PIPE, CalledProcessError, Popen

import numpy as np

from understudy.data.curve import REFUSED, times
from understudy.errors import DataError, WireError

__all__ = [
    "Alignment",
    "Blinded",
    "Secret",
    "align_here",
    "answer",
    "blind",
    "common",
    "identifiers",
]

_DOMAIN = b"understudy align 1\0"
_POINT, _SECRET = 32, 32
_WORTH = 10_000  # points that are worth a process
# With this process's path for imports: the folder that it was started in is not on it.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from understudy.data.curve import main; main()"
_DATES = (
    (re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"), (1, 2, 3)),
    (re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})"), (3, 2, 1)),  # with dots, the day comes first
)


@dataclass(frozen=True)
class Secret:
    """What a party keeps to itself: its scalar, and in which order it sent its rows ``[n]``."""

    scalar: bytes = field(repr=False)
    order: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Blinded:
    """Points ``[n, 32]`` in the order in which their owner sent them."""

    points: np.ndarray

    def __len__(self) -> int:
        return len(self.points)

    def to_bytes(self) -> bytes:
        """The file that travels."""
        return b"UNDA" + len(self).to_bytes(8, "little") + self.points.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Blinded:
        """Inverse of `to_bytes`; refuses what is cut short or no such file."""
        count = int.from_bytes(data[4:12], "little")
        if data[:4] != b"UNDA" or len(data) != 12 + _POINT * count:
            raise WireError("a file of blinded identifiers", "another", "ask for it again")
        return cls(np.frombuffer(data[12:], np.uint8).reshape(count, _POINT))


@dataclass(frozen=True)
class Alignment:
    """What the parties of one alignment have in common, and nobody else knows.

    A ``secret`` of 32 bytes, and the number of ``rows`` of every aligned file. It follows from
    points that all parties have multiplied: a server that passes on locked lists cannot know it.
    Whoever sees such lists unlocked, of every party, can make it.
    """

    secret: bytes = field(repr=False)
    rows: int

    @classmethod
    def fresh(cls, rows: int) -> Alignment:
        """For files that are in one order already; one party makes it for all."""
        return cls(os.urandom(_SECRET), rows)

    @property
    def mark(self) -> str:
        """What a study file says of it: equal only if all of it is, and it gives nothing away."""
        return hashlib.sha256(b"understudy alignment\0" + self.to_bytes()).hexdigest()

    def agreed(self, study: str, run: str) -> bytes:
        """32 secret bytes for one run of one study: no two runs draw the same batches."""
        text = json.dumps([study, run]).encode()
        return hashlib.sha256(b"understudy batches\0" + self.secret + text).digest()

    def to_bytes(self) -> bytes:
        """The file that every party keeps beside its rows."""
        return b"UNDC" + self.secret + self.rows.to_bytes(8, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> Alignment:
        """Inverse of `to_bytes`; refuses what is cut short or no such file."""
        if data[:4] != b"UNDC" or len(data) != 12 + _SECRET:
            raise DataError("an alignment file", "another", "name what understudy align wrote")
        return cls(data[4 : 4 + _SECRET], int.from_bytes(data[4 + _SECRET :], "little"))


def identifiers(columns: Sequence[Sequence[object]]) -> list[str]:
    """One identifier for each row, from one column or several; refuses empty and repeated ones.

    Blanks around and between words, case and width of letters do not count, nor how a date is
    written if it can be told: 2001-03-04, 2001/3/4 and 04.03.2001 are the same day.
    """
    found = ["\x1f".join(map(_normal, row)) for row in zip(*columns, strict=True)]
    empty = sum(not all(part for part in name.split("\x1f")) for name in found)
    if empty:
        raise DataError(
            "an identifier in every row", f"{empty} row(s) without", "fill or drop them"
        )
    if len(set(found)) < len(found):
        many = len(found) - len(set(found))
        raise DataError(
            "every person once",
            f"{many} row(s) whose identifier came before",
            "keep one row per person, or add a column to the identifier",
        )
    return found


def _normal(value: object) -> str:
    text = " ".join(unicodedata.normalize("NFKC", str(value)).split()).casefold()
    if text in ("nan", "none", "nat", "<na>"):
        return ""
    for pattern, (year, month, day) in _DATES:
        if date := pattern.fullmatch(text):
            return f"{int(date[year]):04}-{int(date[month]):02}-{int(date[day]):02}"
    return text


def points(names: Sequence[str]) -> np.ndarray:
    """Identifiers as u-coordinates ``[n, 32]``: the first half of a SHA-512."""
    hashes = (hashlib.sha512(_DOMAIN + name.encode()).digest()[:_POINT] for name in names)
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(len(names), _POINT)


def blind(names: Sequence[str]) -> tuple[Secret, Blinded]:
    """A party's identifiers under a fresh scalar, in an order that only it knows."""
    secret = Secret(os.urandom(32), np.argsort(np.frombuffer(os.urandom(8 * len(names)), "<u8")))
    return secret, Blinded(multiplied(points(names)[secret.order], secret.scalar))


def answer(secret: Secret, theirs: Blinded) -> Blinded:
    """Another party's points under this party's scalar too, in the order in which they came."""
    return Blinded(multiplied(theirs.points, secret.scalar))


def multiplied(found: np.ndarray, scalar: bytes) -> np.ndarray:
    """Every point times the scalar ``[n, 32]``; by a process for each core where there are many."""
    workers = min(os.cpu_count() or 1, len(found) // _WORTH)
    shares = [share.tobytes() for share in np.array_split(found, max(1, workers))]
    try:
        made = _apart(scalar, shares) if workers > 1 else [times(scalar, shares[0])]
    except ValueError as error:
        raise WireError(
            "points that an identifier can have", "one of small order", "stop: do not answer"
        ) from error
    return np.frombuffer(b"".join(made), np.uint8).reshape(len(found), _POINT)


def _apart(scalar: bytes, shares: Sequence[bytes]) -> list[bytes]:
    """`times`, in a process for each share; scalar and points go through pipes."""
    command = [sys.executable, "-c", _PROGRAM, *sys.path]
    with ExitStack() as stack:
        started = [stack.enter_context(Popen(command, stdin=PIPE, stdout=PIPE)) for _ in shares]
        for worker, share in zip(started, shares, strict=True):
            assert worker.stdin is not None
            worker.stdin.write(scalar + share)
            worker.stdin.close()
        made = [worker.stdout.read() for worker in started if worker.stdout is not None]
    for worker in started:
        if worker.returncode == REFUSED:
            raise ValueError("a point of small order")
        if worker.returncode:
            raise CalledProcessError(worker.returncode, command)
    return made


def common(secret: Secret, own: Blinded, others: Sequence[Blinded]) -> tuple[np.ndarray, Alignment]:
    """The rows of this party that all others have too, in the order that all of them find.

    ``own`` are its points and ``others`` those of each other party, all multiplied by everyone.
    The alignment follows from the points of those whom all know, so all find the same.
    """
    if len(own) != len(secret.order) or not others:
        raise DataError(
            f"{len(secret.order)} points of one's own, multiplied by all, and those of others",
            f"{len(own)}, and {len(others)} other file(s)",
            "name the files that came back, in the right places",
        )
    mine = _keys(own)
    shared = set(mine).intersection(*map(_keys, others))
    if not shared:
        raise DataError(
            "people that all parties know",
            "none",
            "compare how identifiers are written, and whether every file has passed every party",
        )
    at, known = {point: place for place, point in enumerate(mine)}, sorted(shared)
    agreed = hashlib.sha256(b"understudy known to all\0" + b"".join(known)).digest()
    return secret.order[[at[point] for point in known]], Alignment(agreed, len(known))


def align_here(parties: Sequence[Sequence[str]]) -> tuple[list[np.ndarray], Alignment]:
    """All steps in one process: each party's rows in their common order, and the alignment."""
    made = [blind(names) for names in parties]
    whole = []
    for i, (_, sent) in enumerate(made):
        for j, (secret, _) in enumerate(made):
            sent = answer(secret, sent) if i != j else sent
        whole.append(sent)
    found = [
        common(secret, whole[i], [each for j, each in enumerate(whole) if j != i])
        for i, (secret, _) in enumerate(made)
    ]
    return [rows for rows, _ in found], found[0][1]


def _keys(found: Blinded) -> list[bytes]:
    """Points as bytes, which sort and compare as wholes."""
    data = found.points.tobytes()
    return [data[i : i + _POINT] for i in range(0, len(data), _POINT)]
