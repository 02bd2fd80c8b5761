"""Columns held apart: the rows of parties that know different things about the same people.

Row k is the same person at every party, by an alignment that came before (`align`). A simulation
splits one table; which columns go where is public, so it is given or drawn by a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import Encoded
from understudy.data.records import Records
from understudy.data.shards import Shards
from understudy.errors import DataError

__all__ = ["Columns", "records_of"]


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


def records_of(records: Records, columns: Sequence[str]) -> Records:
    """The records with these columns alone."""
    if records.frame is None:
        raise DataError("a table", "images or series", "only tables are split by columns")
    return Records(frame=records.frame[list(columns)])
