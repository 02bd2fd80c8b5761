"""Columns held apart: the rows of parties that know different things about the same people.

Row k is the same person at every party, by an alignment that came before (`align`). A simulation
splits one table; which columns go where is public, so it is given or drawn by a seed, or, for
experiments on rows that are no secret, by how the columns correlate (`deal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import Encoded, encode
from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import DataError, StudyError

__all__ = ["Columns", "deal"]


@dataclass(frozen=True)
class Columns:
    """The encoded rows of M parties, each by its own part of the schema."""

    parties: tuple[Shards, ...]

    @classmethod
    def of(cls, parties: Sequence[Encoded]) -> Columns:
        """Refuses parties whose rows cannot be the same people."""
        counts = {len(party) for party in parties}
        if len(counts) > 1:
            raise DataError(
                "the same people in the same order at every party",
                f"{len(counts)} different numbers of rows",
                "align the files first: understudy align",
            )
        if counts == {0}:
            raise DataError("people that all parties know", "none", "are the files complete?")
        whole = [np.arange(len(party)) for party in parties]
        return cls(tuple(Shards.pack(p, [w]) for p, w in zip(parties, whole, strict=True)))

    def __len__(self) -> int:
        return len(self.parties)

    @property
    def counts(self) -> Tensor:
        """Rows of each party ``[M]``: the same number."""
        return torch.cat([party.counts for party in self.parties])

    def take(self, clients: Tensor | Sequence[int] | np.ndarray) -> Shards:
        """The rows of one party, as a batch of size 1."""
        (client,) = torch.as_tensor(clients).tolist()
        return self.parties[client]


def deal(
    schema: Schema,
    records: Records,
    parties: int,
    how: Literal["together", "apart"],
) -> tuple[tuple[str, ...], ...]:
    """The columns of so many parties: those that correlate at one party, or dealt apart.

    For experiments: it looks at the rows, so a study must not be made of it where they are secret.
    """
    names = [column.name for column in schema.columns]
    if not 2 <= parties <= len(names):
        raise StudyError(f"2 to {len(names)} parties", f"{parties}", "change it")
    order = _chain(_strengths(schema, records))
    shares = np.array_split(order, parties)
    if how == "apart":
        shares = [order[i::parties] for i in range(parties)]
    return tuple(tuple(names[i] for i in sorted(share.tolist())) for share in shares)


def _strengths(schema: Schema, records: Records) -> np.ndarray:
    """How strongly each pair of columns hangs together: the largest correlation of features."""
    rows, names = encode(schema, records), [column.name for column in schema.columns]
    owner = [names.index(c.name) for c in schema.features for _ in range(c.width)]
    features = rows.x.astype(np.float64)
    if schema.n_classes > 1 and schema.label is not None:
        features = np.hstack([features, np.eye(schema.n_classes)[rows.y]])
        owner += [names.index(schema.label)] * schema.n_classes
    features += 1e-9 * np.arange(len(features))[:, None]  # a constant column correlates with none
    seen = np.abs(np.corrcoef(features.T))
    found, at = np.zeros((len(names), len(names))), np.array(owner)
    np.maximum.at(found, (at[:, None], at[None, :]), np.nan_to_num(seen))
    return found


def _chain(strength: np.ndarray) -> np.ndarray:
    """Columns in an order in which neighbours correlate: from each to its nearest that is left."""
    left, order = set(range(1, len(strength))), [0]
    while left:
        here = max(left, key=lambda i: (strength[order[-1], i], -i))
        left.remove(here)
        order.append(here)
    return np.array(order)


def records_of(records: Records, columns: Sequence[str]) -> Records:
    """The records with these columns alone."""
    if records.frame is None:
        raise DataError("a table", "images or series", "only tables are split by columns")
    return Records(frame=records.frame[list(columns)])
