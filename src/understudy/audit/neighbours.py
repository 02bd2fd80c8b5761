"""Data sets that differ in one protected unit, by values meant to break a clip.

Values far outside the schema never come out of the encoder; they are there because what bounds a
unit must be the clip, not the range that its rows happen to have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from understudy.data.shards import Shards

__all__ = ["VALUES", "Neighbour", "neighbours", "shorter", "with_rows"]

VALUES = {"zeros": 0.0, "ones": 1.0, "wild": 1e6, "negative": -1e6, "nan": torch.nan}


@dataclass(frozen=True)
class Neighbour:
    """A data set that differs from ``base`` in one unit.

    ``factor`` is how often the sensitivity may be moved (2: one unit leaves and another comes);
    ``silent`` sites do not answer.
    """

    name: str
    data: Shards
    base: Shards
    factor: float = 1.0
    silent: tuple[int, ...] = ()


def with_rows(data: Shards, rows: Sequence[int], x: Any, y: int) -> Shards:
    """The same with other features and label in these rows."""
    changed = replace(data, x=data.x.clone(), y=data.y.clone())
    changed.x[list(rows)] = torch.as_tensor(x, dtype=changed.x.dtype)
    changed.y[list(rows)] = y
    return changed


def shorter(data: Shards, site: int, by: int) -> Shards:
    """The same without the last rows of a site."""
    counts = data.counts.clone()
    counts[site] -= by
    return replace(data, counts=counts)


def neighbours(
    data: Shards, unit: str, trust: str, *, site: int = 1, size: int = 1, classes: int = 2
) -> list[Neighbour]:
    """One unit removed or replaced: the last ``size`` rows of a site, or all of them."""
    whole = int(data.counts[site])
    size = whole if unit == "site" else size
    end = int(data.starts[site]) + whole
    last = range(end - size, end)
    found = [
        Neighbour(
            f"replaced by {name}, class {label}", with_rows(data, last, value, label), data, 2.0
        )
        for name, value in VALUES.items()
        for label in range(min(2, classes))
    ]
    less = shorter(data, site, size)
    if unit != "site":
        found.append(Neighbour("removed", less, data))
        for name in ("wild", "ones"):
            extreme = with_rows(data, last, VALUES[name], min(1, classes - 1))
            found.append(Neighbour(f"{name} against none", extreme, less))
    elif trust == "central":
        found.append(Neighbour("absent", data, data, silent=(site,)))
    else:
        found.append(Neighbour("emptied", less, data))
    return found
