"""One-way margins of a table: columns as codes, their noisy histograms, and what these say.

Every column, the label too, is cut into public cells: a number's range into equal bins of its
scale, with cells of their own for whole numbers that are few, for the bounds and for round
numbers (values pile up there); a category, a class and "missing" are cells as they are. A record
is in one cell of each column, so all histograms together have norm √columns per record. `clean`
takes the noise out of their sum: post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.column import Column, bounds
from understudy.data.scale import from_unit, to_unit
from understudy.data.schema import Schema

__all__ = ["Margin", "clean", "codes", "margins", "spans", "total"]

_HAIR = 2.0**-25  # half the width of a cell for one number: encoded rows are 32-bit floats
_ROUND = 16  # at most so many round numbers of a range have a cell of their own
_FAINT = 2.5  # so many, and a side of a range that an even split would fill counts as empty
_CLEAR = 3.0  # standard deviations by which a spike must stand out of the noise


@dataclass(frozen=True)
class Cells:
    """Cells of a number's encoded range: cell k emits values from ``low[k]`` to ``high[k]``.

    ``borders`` ``[K − 1]`` part the cells. ``spikes`` ``[K]`` are those that hold one value
    between bins of many; the noise alone must not fill them.
    """

    borders: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spikes: np.ndarray


@dataclass(frozen=True)
class Margin:
    """One column as codes ``0 … size − 1``; the last is "missing" where there may be none.

    ``start`` is its first encoded feature, None for the label. Numbers, dates and times have
    ``cells``; a category is one-hot in the encoded row, and what is neither is a yes or no.
    """

    name: str
    start: int | None
    size: int
    missing: bool = False
    onehot: bool = False
    cells: Cells | None = None

    @property
    def width(self) -> int:
        """How many encoded features it takes (the label: none)."""
        return 0 if self.start is None else self.size if self.onehot else 1 + self.missing

    def code(self, x: Tensor, y: Tensor) -> Tensor:
        """Codes ``[n]`` of encoded rows, within 0 … size − 1 whatever the rows hold."""
        if self.start is None:
            return y.clamp(0, self.size - 1)
        if self.onehot:
            return x[:, self.start : self.start + self.size].nan_to_num(0).argmax(1)
        value = x[:, self.start].double()
        if self.cells is None:
            found = (value > 0.5).long()
        else:
            found = torch.bucketize(
                value.contiguous(), torch.from_numpy(self.cells.borders), right=True
            )
        if self.missing:
            found = found.masked_fill(x[:, self.start + 1] > 0.5, self.size - 1)
        return found


def margins(schema: Schema, bins: int) -> tuple[Margin, ...]:
    """The margins of a table: its columns in order, numbers in up to ``bins``, then the label."""
    found, start = [], 0
    for column in schema.features:
        found.append(_margin(column, start, bins))
        start += column.width
    if schema.n_classes > 1:
        found.append(Margin(schema.label or "class", None, schema.n_classes))
    return tuple(found)


def codes(found: Sequence[Margin], x: Tensor, y: Tensor) -> Tensor:
    """Every column of encoded rows as codes ``[n, columns]``."""
    return torch.stack([margin.code(x, y) for margin in found], dim=1)


def spans(found: Sequence[Margin]) -> list[slice]:
    """Where each margin lies in the vector of all histograms."""
    ends = np.cumsum([margin.size for margin in found]).tolist()
    return [slice(end - margin.size, end) for end, margin in zip(ends, found, strict=True)]


def _margin(column: Column, start: int, bins: int) -> Margin:
    if column.kind == "categorical":
        return Margin(column.name, start, column.width, column.missing, onehot=True)
    cells = None if column.kind == "boolean" else _cells(column, bins)
    size = (2 if cells is None else len(cells.low)) + column.missing
    return Margin(column.name, start, size, column.missing, cells=cells)


# Cells of a number.


def _cells(column: Column, bins: int) -> Cells:
    """By the schema alone: one for each value where values are few, else bins and spikes."""
    low, high = bounds(column)
    step = _step(column)
    if step is not None and high - low <= step * (bins - 1) * (1 + 1e-9):
        at = to_unit(column, low + step * np.arange(round((high - low) / step) + 1))
        return Cells((at[1:] + at[:-1]) / 2, at, at, np.zeros(len(at), bool))
    edges, marks = np.arange(1, bins) / bins, _marks(column)
    if column.kind == "numeric":
        at = to_unit(column, marks)
        return _beside(edges, at, at - _HAIR, at + _HAIR)
    whole = np.unique(from_unit(column, edges)) + 0.5  # so that a whole number is in one cell
    terms = (whole, marks, marks - 0.5, marks + 0.5)
    return _beside(*(to_unit(column, values) for values in terms))


def _beside(edges: np.ndarray, marks: np.ndarray, low: np.ndarray, high: np.ndarray) -> Cells:
    """Bins between ``edges``, and a cell from ``low`` to ``high`` for each of the marks."""
    inside = ((edges[:, None] > low) & (edges[:, None] < high)).any(1)
    borders = np.unique(np.concatenate([edges[~inside], low, high]))
    borders = borders[(borders > 0) & (borders < 1)]
    at = np.searchsorted(borders, marks, side="right")
    spikes = np.zeros(len(borders) + 1, bool)
    starts, stops = np.append(0.0, borders), np.append(borders, 1.0)
    spikes[at], starts[at], stops[at] = True, marks, marks
    return Cells(borders, starts, stops, spikes)


def _step(column: Column) -> float | None:
    """Between two values that the column can take, where the schema says so."""
    if column.kind != "numeric":
        return 1.0
    return None if column.decimals is None else 10.0**-column.decimals


def _marks(column: Column) -> np.ndarray:
    """Values that may hold many rows: the bounds, and of a number's range the roundest."""
    low, high = bounds(column)
    if not column.is_number:
        return np.array([low, high])
    found = _powers(low, high) if column.scale == "log" else _multiples(low, high)
    hair = (high - low) * 1e-6
    found = found[(found - low > hair) & (high - found > hair)]
    found = np.unique(np.rint(found)) if column.kind == "integer" else found
    return np.concatenate([[low], found, [high]])


def _multiples(low: float, high: float) -> np.ndarray:
    """Of 1, 2 or 5 times a power of ten, as fine as `_ROUND` allows."""
    unit = 10.0 ** math.floor(math.log10((high - low) / _ROUND))
    step = next(unit * k for k in (1, 2, 5, 10) if (high - low) / (unit * k) <= _ROUND)
    return step * np.arange(math.ceil(low / step), math.floor(high / step) + 1)


def _powers(low: float, high: float) -> np.ndarray:
    """Zero, and powers of ten on both sides of it."""
    top = math.ceil(math.log10(max(abs(low), abs(high))))
    powers = 10.0 ** np.arange(top - _ROUND // 2, top + 1)
    return np.concatenate([-powers[::-1], [0.0], powers])


# Noise out.


def total(noisy: Sequence[np.ndarray]) -> float:
    """How many rows the histograms hold: each says so, the more clearly the fewer its cells."""
    weights = np.array([1 / len(histogram) for histogram in noisy])
    return max(float(weights @ [h.sum() for h in noisy] / weights.sum()), 1.0)


def clean(margin: Margin, noisy: np.ndarray, rows: float, std: float) -> np.ndarray:
    """Shares of a column's codes, from its noisy counts: none below 0, one in all."""
    if margin.cells is None:
        return _projected(noisy, rows) / rows
    share = np.zeros(margin.size)
    spikes = np.append(margin.cells.spikes, np.ones(int(margin.missing), bool))
    heavy = np.where(spikes & (noisy > _CLEAR * std), noisy, 0)
    heavy *= min(1.0, rows / max(heavy.sum(), 1.0))
    share[: len(heavy)] = heavy
    bins = ~spikes
    if bins.any():
        width = (margin.cells.high - margin.cells.low)[bins[: len(margin.cells.low)]]
        width = np.ones(len(width)) if not width.any() else width
        share[bins] = _smoothed(noisy[bins], width, rows - heavy.sum(), std)
    return share / share.sum()


def _projected(noisy: np.ndarray, rows: float) -> np.ndarray:
    """The nearest counts that are not negative and add up to ``rows``."""
    down = np.sort(noisy)[::-1]
    over = (np.cumsum(down) - rows) / np.arange(1, len(down) + 1)
    return np.maximum(noisy - over[down > over][-1], 0)


def _smoothed(noisy: np.ndarray, width: np.ndarray, rows: float, std: float) -> np.ndarray:
    """Rows shared out down a tree of halves: evenly, but where the noise shows otherwise.

    At each node the two sides' difference from an even split is shrunk by what noise would make
    of it (James and Stein's factor): wide, empty stretches stay even and peaks come out.
    """
    count, empty = len(noisy), np.zeros(2 ** math.ceil(math.log2(len(noisy))) - len(noisy))
    levels = [np.stack([np.append(a, empty) for a in (noisy, np.ones(count), width)])]
    while levels[-1].shape[1] > 1:
        levels.append(levels[-1].reshape(3, -1, 2).sum(2))
    held = np.array([rows])
    for level in levels[-2::-1]:
        (a, b), (m, n), (u, v) = (row.reshape(-1, 2).T for row in level)
        even = held * np.where(u + v > 0, u / np.maximum(u + v, 1e-12), m / np.maximum(m + n, 1))
        apart = a + (held - a - b) * m / np.maximum(m + n, 1) - even
        noise = std**2 * m * n / np.maximum(m + n, 1)
        left = even + apart * np.maximum(1 - noise / np.maximum(apart**2, 1e-12), 0)
        seen, other = _FAINT * np.sqrt(noise), held - left
        left = np.where((left < seen) & (even > 2 * seen), 0, left)
        left = np.where((other < seen) & (held - even > 2 * seen) | (n == 0), held, left)
        left = left.clip(0, held)
        held = np.stack([left, held - left], 1).ravel()
    return held[:count]
