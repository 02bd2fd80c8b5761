"""The rows of many sites in shared storage, ready for stacked training.

Rows are stored once, site after site; a site is a (start, count) pair, so choosing
a cohort copies two short index vectors and no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import Encoded
from understudy.errors import DataError

__all__ = ["Dealt", "Shards"]


@dataclass(frozen=True, eq=False)
class Dealt(Sequence[np.ndarray]):
    """Row numbers of each site, ascending: one run of ``order`` after the other."""

    order: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[np.ndarray]) -> Dealt:
        """From an array for each site."""
        if isinstance(parts, cls):
            return parts
        rows = [np.asarray(part, np.int64).reshape(-1) for part in parts]
        counts = np.array([len(part) for part in rows], np.int64)
        return cls(np.concatenate([np.empty(0, np.int64), *rows]), counts)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.concatenate([[0], self.counts.cumsum()])

    def __len__(self) -> int:
        return len(self.counts)

    @overload
    def __getitem__(self, site: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, site: slice) -> Dealt: ...

    def __getitem__(self, site: int | slice) -> np.ndarray | Dealt:
        if not isinstance(site, slice):
            first = range(len(self))[site]
            return self.order[self._ends[first] : self._ends[first + 1]]
        first, stop, step = site.indices(len(self))
        if step != 1:
            raise ValueError("sites in their order, without gaps")
        return Dealt(
            self.order[self._ends[first] : self._ends[max(first, stop)]], self.counts[site]
        )


@dataclass(frozen=True)
class Shards:
    """C sites: ``x`` [n, F], ``y`` [n], ``starts`` [C], ``counts`` [C]; n may exceed their sum."""

    x: Tensor
    y: Tensor
    starts: Tensor
    counts: Tensor

    @classmethod
    def pack(
        cls, encoded: Encoded, parts: Sequence[np.ndarray], *, in_place: bool = False
    ) -> Shards:
        """Lay out each site's rows one after the other. A row belongs to one site at most.

        ``in_place`` moves the rows within their memory: ``encoded`` is no longer of use then.
        """
        dealt = Dealt.of(parts)
        order = dealt.order
        _check_disjoint(order, len(encoded.y))
        x, y = encoded.x, encoded.y
        if not np.array_equal(order, np.arange(len(y))):
            x, y = (_moved(x, order) if in_place else x[order]), y[order]
        counts = torch.from_numpy(dealt.counts)
        return cls(torch.from_numpy(x), torch.from_numpy(y), counts.cumsum(0) - counts, counts)

    def take(self, clients: Tensor | Sequence[int] | np.ndarray) -> Shards:
        """Some of the sites, in the given order; rows stay where they are."""
        chosen = torch.as_tensor(clients, dtype=torch.long)
        return Shards(self.x, self.y, self.starts[chosen], self.counts[chosen])

    def __len__(self) -> int:
        return len(self.counts)

    def members(self) -> tuple[Tensor, Tensor]:
        """Every row of these sites, site after site: whose it is, and where it is stored."""
        site = torch.repeat_interleave(torch.arange(len(self)), self.counts)
        offset = torch.arange(len(site)) - (self.counts.cumsum(0) - self.counts)[site]
        return site, self.starts[site] + offset

    @property
    def total(self) -> int:
        """Rows of these sites together."""
        return int(self.counts.sum())

    def rows(self, client: int) -> tuple[Tensor, Tensor]:
        """One site's ``(x, y)``: views, not copies."""
        start = int(self.starts[client])
        stop = start + int(self.counts[client])
        return self.x[start:stop], self.y[start:stop]


def _moved(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Rows in this order, where they were: an eighth of the columns at a time is held twice."""
    for first, stop in pairwise(np.linspace(0, x.shape[1], 9, dtype=int)):
        x[: len(order), first:stop] = x[order, first:stop]
    return x[: len(order)]


def _check_disjoint(order: np.ndarray, n: int) -> None:
    seen = np.zeros(n, bool)
    in_range = len(order) == 0 or (order.min() >= 0 and order.max() < n)
    if in_range:
        seen[order] = True
    if not in_range or seen.sum() < len(order):
        raise DataError(
            "each row at one site at most", "rows shared or out of range", "check the split"
        )
