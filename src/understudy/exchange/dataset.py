"""One synthetic dataset from many generators, its classes in equal numbers.

SGDE's *Pull*: each class is drawn in equal parts from the generators that know it. A generator that
was given no share of a class does not know it, even if it could be asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from understudy.data.encode import decode
from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.errors import ExchangeError
from understudy.evaluation.rows import Rows, joined
from understudy.release.bundle import Release
from understudy.release.lawful import lawful_rows
from understudy.rng import Streams

__all__ = ["Balanced", "balanced", "drawn"]


@dataclass(frozen=True)
class Balanced:
    """Rows of many generators, and how many of each class came from which."""

    schema: Schema
    rows: Rows
    counts: Mapping[str, Mapping[str, int]]
    missing: tuple[str, ...]
    """Classes that no generator knows."""

    @property
    def records(self) -> Records:
        """The rows as users see them."""
        return decode(self.schema, self.rows.x, self.rows.y)


def balanced(releases: Mapping[str, Release], n: int, *, rng: Streams) -> Balanced:
    """``n`` rows from these releases, by name; all must have one schema."""
    schemas = {release.schema.hash: release.schema for release in releases.values()}
    if len(schemas) != 1:
        found = f"{len(schemas)} schemas among {len(releases)} generators"
        raise ExchangeError("generators of one schema", found, "choose them from one exchange")
    (schema,) = schemas.values()
    counts = _counts(releases, schema, n)
    parts = [
        drawn(releases[name], own, rng=rng.child("generator", i))
        for i, (name, own) in enumerate(counts.items())
    ]
    rows = joined(parts).take(rng.numpy("order").permutation(sum(map(len, parts))))
    known = {label for own in counts.values() for label, many in own.items() if many}
    missing = tuple(label for label in schema.classes if label not in known)
    return Balanced(schema, rows, counts, missing if n >= schema.n_classes else ())


def drawn(release: Release, counts: Mapping[str, int], *, rng: Streams) -> Rows:
    """So many encoded rows of each class from one generator."""
    schema, parts = release.schema, []
    for index, label in enumerate(schema.classes):
        if many := counts.get(label, 0):
            asked = index if schema.n_classes > 1 else None
            own = rng.child("class", index)
            x, y = lawful_rows(release.generator, schema, many, asked, rng=own)
            parts.append(Rows(x.numpy(), y.numpy()))
    empty = Rows(np.zeros((0, schema.width), np.float32), np.zeros(0, np.int64))
    return joined(parts or [empty])


def knows(release: Release) -> list[str]:
    """The classes that a generator has a share of."""
    balance = release.generator.balance
    return [
        label for label, share in zip(release.schema.classes, balance, strict=True) if share > 0
    ]


def _counts(releases: Mapping[str, Release], schema: Schema, n: int) -> dict[str, dict[str, int]]:
    """Rows of each class from each generator: as equal as whole numbers can be."""
    counts: dict[str, dict[str, int]] = {name: {} for name in releases}
    able = {c: [m for m, r in releases.items() if c in knows(r)] for c in schema.classes}
    present = [label for label in schema.classes if able[label]]
    for turn, (label, many) in enumerate(zip(present, _shared(n, len(present)), strict=True)):
        names = able[label]
        names = names[turn % len(names) :] + names[: turn % len(names)]  # who gives one more
        for name, part in zip(names, _shared(many, len(names)), strict=True):
            counts[name][label] = part
    return counts


def _shared(n: int, among: int) -> list[int]:
    return [n // among + (i < n % among) for i in range(among)]
