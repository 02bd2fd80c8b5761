"""The generator kind "products": for each class, a mixture of rows of independent columns.

Each of K rows holds a distribution over the codes of every column; to draw, take a row of the
class, a code of each column by it, a cell of the code by its share, and a value within the cell.
Arrays: ``chance`` [K, D] (codes of a column side by side, rows sorted by class); ``share``
[C, cells] of each cell within its code, and the encoded values from ``low`` to ``high`` [cells].
In the config, ``rows`` are the rows of each class; ``columns`` list each column's first feature,
kind ("number", "flag" or "onehot", where ``low`` is the place of the one), whether its last cell
means missing, and how many cells each of its codes has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.rng import Streams

__all__ = ["Column", "cell_of", "check", "draw", "drawn", "emit", "read_columns", "spans"]

_KINDS = ("number", "flag", "onehot")
_MISSING = 0.5  # what stands in a row for a missing value


@dataclass(frozen=True)
class Column:
    """One column: see the module's paragraph."""

    start: int
    kind: str
    missing: bool
    cells: tuple[int, ...]

    def to_config(self) -> dict[str, Any]:
        return {**self.__dict__, "cells": list(self.cells)}

    @property
    def size(self) -> int:
        """Cells of all codes."""
        return sum(self.cells)

    @property
    def width(self) -> int:
        return self.size if self.kind == "onehot" else 1 + self.missing


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]`` in [0, 1] for class indices ``[n]``."""
    columns = _columns(arrays, config)
    source, rows = rng.torch("products"), torch.tensor(config["rows"])
    chosen = torch.rand(len(labels), generator=source) * rows[labels]
    row = (rows.cumsum(0) - rows)[labels] + torch.minimum(chosen.long(), rows[labels] - 1)
    x = torch.zeros(len(labels), config["width"])
    for column, codes, cells in spans(columns):
        chance = arrays["chance"][row, codes].double()
        code = drawn(chance, torch.rand(len(row), generator=source, dtype=torch.float64))
        cell = cell_of(column, arrays["share"][:, cells].double(), labels, code, source)
        emit(column, arrays["low"][cells], arrays["high"][cells], cell, x, source)
    return x


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether these are chances of every class's rows, and nothing else."""
    columns = _columns(arrays, config)
    whole = config.keys() == {"width", "rows", "columns"} and len(config["rows"]) == classes
    return whole and [c.to_config() for c in columns] == config["columns"]


def drawn(chance: Tensor, point: Tensor) -> Tensor:
    """The place in each row of ``chance`` where its sum passes ``point`` of the whole."""
    sums = chance.cumsum(1)
    found = (sums <= point[:, None] * sums[:, -1:]).sum(1)
    return found.clamp(max=chance.shape[1] - 1)


def cell_of(
    column: Column, share: Tensor, labels: Tensor, code: Tensor, source: torch.Generator
) -> Tensor:
    """A cell of each row's code ``[n]``, by the shares ``[C, cells]`` of its class."""
    counts = torch.tensor(column.cells)
    owner = torch.repeat_interleave(torch.arange(len(counts)), counts)
    held = torch.zeros(len(share), len(counts), dtype=torch.float64).index_add_(1, owner, share)
    ends = share.cumsum(1) - (held.cumsum(1) - held)[:, owner]
    ends = owner + (ends / held[:, owner]).clamp(0, 1)
    ends = (ends + len(counts) * torch.arange(len(share))[:, None]).flatten()
    point = code + torch.rand(len(code), generator=source, dtype=torch.float64)
    found = torch.searchsorted(ends, point + len(counts) * labels, right=True)
    first = (counts.cumsum(0) - counts)[code]
    return (found - column.size * labels).clamp(first, first + counts[code] - 1)


def emit(
    column: Column, low: Tensor, high: Tensor, cell: Tensor, x: Tensor, source: torch.Generator
) -> None:
    """Write a column's encoded values."""
    if column.kind == "onehot":
        x[torch.arange(len(cell)), column.start + low[cell].long()] = 1
        return
    within = torch.rand(len(cell), generator=source)
    x[:, column.start] = torch.lerp(low[cell], high[cell], within)
    if column.missing:
        gone = cell == column.size - 1
        x[gone, column.start] = _MISSING
        x[:, column.start + 1] = gone.float()


def spans(columns: Sequence[Column]) -> Iterator[tuple[Column, slice, slice]]:
    """Each column with the stretches of its codes and of its cells."""
    code = cell = 0
    for column in columns:
        codes, cells = len(column.cells), column.size
        yield column, slice(code, code + codes), slice(cell, cell + cells)
        code, cell = code + codes, cell + cells


def _columns(arrays: Mapping[str, Tensor], config: Mapping[str, Any]) -> list[Column]:
    """The columns, if arrays and config fit together; only an altered release's do not."""
    try:
        rows = config["rows"]
        fits = all(type(n) is int and n > 0 for n in rows) and len(rows) > 0
    except (KeyError, TypeError, ValueError):
        fits = False
    columns = read_columns(arrays, config, shares=len(rows) if fits else 0)
    codes = sum(len(c.cells) for c in columns)
    fits = arrays.keys() == {"chance", "share", "low", "high"}
    fits = fits and tuple(arrays["chance"].shape) == (sum(rows), codes)
    fits = fits and bool((arrays["chance"] >= 0).all())
    if not fits or not all(
        bool((arrays["chance"][:, codes].sum(1) > 0).all()) for _, codes, _ in spans(columns)
    ):
        raise _misfit()
    return columns


def read_columns(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], *, shares: int
) -> list[Column]:
    """The columns, if they fill a row and have as many ``shares`` and values as they need."""
    try:
        columns = [Column(**{**c, "cells": tuple(c["cells"])}) for c in config["columns"]]
        fits = shares > 0 and all(map(_sound, columns)) and _lies(columns, config["width"])
        cells = sum(c.size for c in columns)
        wanted = {"share": (shares, cells), "low": (cells,), "high": (cells,)}
        fits = fits and all(tuple(arrays[name].shape) == shape for name, shape in wanted.items())
        fits = fits and _within(arrays, columns)
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise _misfit()
    return columns


def _misfit() -> ReleaseError:
    expected = "chances, shares and values of matching columns"
    return ReleaseError(expected, "others", "fetch the release again")


def _sound(column: Column) -> bool:
    whole = column.cells and all(type(n) is int and n > 0 for n in column.cells)
    known = column.kind in _KINDS and type(column.missing) is bool and type(column.start) is int
    return bool(whole) and known


def _lies(columns: Sequence[Column], width: int) -> bool:
    """Whether the columns fill the row, one after the other."""
    at = 0
    for column in columns:
        if column.start != at:
            return False
        at += column.width
    return at == width


def _within(arrays: Mapping[str, Tensor], columns: Sequence[Column]) -> bool:
    """Whether numbers are shares and values in [0, 1], and each place is taken once."""
    share, low, high = (arrays[name] for name in ("share", "low", "high"))
    fits = bool((share > 0).all() and (low <= high).all())
    for column, _, cells in spans(columns):
        if column.kind == "onehot":
            places = low[cells].sort().values
            fits = fits and torch.equal(places, torch.arange(column.size).float())
        else:
            fits = fits and bool((low[cells] >= 0).all() and (high[cells] <= 1).all())
    return fits
