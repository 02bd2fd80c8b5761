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

from understudy.data.column import BOUNDED, Column, bounds
from understudy.data.scale import from_unit, to_unit
from understudy.data.schema import Schema

__all__ = [
    "Cells",
    "Margin",
    "clean",
    "cleaned",
    "codes",
    "margins",
    "most",
    "orders",
    "projected",
    "spans",
    "stretches",
    "total",
    "used",
]

_HAIR = 2.0**-25  # half the width of a cell for one number: encoded rows are 32-bit floats
_EXACT = 2**22  # whole numbers of wider ranges are not told apart by 32-bit floats
_ROUND = 16  # at most so many round numbers of a range have a cell of their own
_FAINT = 2.5  # so many, and a side of a range that an even split would fill counts as empty
_ORDERS = 14  # powers of four: a range may be 10⁸ times too wide
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


def margins(schema: Schema, bins: int, ranges: np.ndarray | None = None) -> tuple[Margin, ...]:
    """The margins of a table: its columns in order, numbers in up to ``bins``, then the label.

    ``ranges`` ``[numbers, 2]`` are the parts of [0, 1] that numbers are known to use.
    """
    found, start = [], 0
    left = iter(() if ranges is None else ranges.tolist())
    for column in schema.features:
        limits = next(left, (0.0, 1.0)) if column.kind in BOUNDED else (0.0, 1.0)
        found.append(_margin(column, start, bins, (limits[0], limits[1])))
        start += column.width
    if schema.n_classes > 1:
        found.append(Margin(schema.label or "class", None, schema.n_classes))
    return tuple(found)


def most(schema: Schema, bins: int) -> int:
    """Codes of all margins together, whatever the ranges."""
    spare = bins + 2 * _ROUND + 4  # bins, round numbers or powers of ten, and the bounds
    columns = schema.features
    numbers = sum(spare + c.missing for c in columns if c.kind in BOUNDED)
    others = sum(
        c.width if c.kind == "categorical" else 2 + c.missing
        for c in columns
        if c.kind not in BOUNDED
    )
    return numbers + others + (schema.n_classes if schema.n_classes > 1 else 0)


def codes(found: Sequence[Margin], x: Tensor, y: Tensor) -> Tensor:
    """Every column of encoded rows as codes ``[n, columns]``."""
    return torch.stack([margin.code(x, y) for margin in found], dim=1)


def spans(found: Sequence[Margin]) -> list[slice]:
    """Where each margin lies in the vector of all histograms."""
    return stretches([margin.size for margin in found])


def stretches(sizes: Sequence[int]) -> list[slice]:
    """Where pieces of these sizes lie, one after the other."""
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _margin(column: Column, start: int, bins: int, limits: tuple[float, float]) -> Margin:
    if column.kind == "categorical":
        return Margin(column.name, start, column.width, column.missing, onehot=True)
    cells = None if column.kind == "boolean" else _cells(column, bins, limits)
    size = (2 if cells is None else len(cells.low)) + column.missing
    return Margin(column.name, start, size, column.missing, cells=cells)


# Cells of a number.


def _cells(column: Column, bins: int, limits: tuple[float, float]) -> Cells:
    """Between encoded limits: one for each value where values are few, else bins and spikes."""
    low, high = from_unit(column, np.array(limits))
    step = _step(column)
    if step is not None and high - low <= step * (bins - 1) * (1 + 1e-9):
        at = to_unit(column, low + step * np.arange(round((high - low) / step) + 1))
        return Cells((at[1:] + at[:-1]) / 2, at, at, np.zeros(len(at), bool))
    edges = limits[0] + (limits[1] - limits[0]) * np.arange(1, bins) / bins
    marks = _marks(column, low, high)
    at = to_unit(column, marks)
    if column.kind == "numeric" or high - low > _EXACT:
        return _beside(limits, edges, at, (at - _HAIR, at + _HAIR))
    whole = np.unique(from_unit(column, edges)) + 0.5  # so that a whole number is in one cell
    around = to_unit(column, marks - 0.5), to_unit(column, marks + 0.5)
    return _beside(limits, to_unit(column, whole), at, around)


def _beside(
    limits: tuple[float, float],
    edges: np.ndarray,
    marks: np.ndarray,
    around: tuple[np.ndarray, np.ndarray],
) -> Cells:
    """Bins between ``edges``, and a cell of its own ``around`` each of the marks."""
    inside = ((edges[:, None] > around[0]) & (edges[:, None] < around[1])).any(1)
    borders = np.unique(np.concatenate([edges[~inside], *around]))
    borders = borders[(borders > limits[0]) & (borders < limits[1])]
    at = np.searchsorted(borders, marks, side="right")
    spikes = np.zeros(len(borders) + 1, bool)
    starts, stops = np.append(limits[0], borders), np.append(borders, limits[1])
    spikes[at], starts[at], stops[at] = True, marks, marks
    return Cells(borders, starts, stops, spikes)


def _step(column: Column) -> float | None:
    """Between two values that the column can take, where the schema says so."""
    if column.kind != "numeric":
        return 1.0
    return None if column.decimals is None else 10.0**-column.decimals


def _marks(column: Column, low: float, high: float) -> np.ndarray:
    """Values that may hold many rows: the ends, and of a number's range the roundest."""
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


# The range that a number uses, where public bounds are far too wide.


def orders(schema: Schema) -> tuple[Margin, ...]:
    """Margins for a first look: numbers by sign and order of magnitude, from their anchor on."""
    found, start = [], 0
    for column in schema.features:
        if column.kind in BOUNDED:
            borders = np.unique(to_unit(column, _orders(column)))
            borders = borders[(borders > 0) & (borders < 1)]
            ends = np.concatenate([[0.0], borders, [1.0]])
            cells = Cells(borders, ends[:-1], ends[1:], np.zeros(len(ends) - 1, bool))
            size = len(cells.low) + column.missing
            found.append(Margin(column.name, start, size, column.missing, cells=cells))
        start += column.width
    return tuple(found)


def _orders(column: Column) -> np.ndarray:
    """Powers of four below the farthest bound, away from zero or the bound next to it."""
    low, high = bounds(column)
    anchor = min(max(0.0, low), high)
    steps = 4.0 ** -np.arange(_ORDERS)
    return np.concatenate([anchor + (high - anchor) * steps, anchor - (anchor - low) * steps])


def used(margin: Margin, noisy: np.ndarray, std: float) -> tuple[float, float]:
    """The encoded range from the first to the last order that stands clear of the noise."""
    assert margin.cells is not None
    cells = margin.cells
    seen = np.flatnonzero(noisy[: len(cells.low)] > (_CLEAR + 1) * std)
    return (float(cells.low[seen[0]]), float(cells.high[seen[-1]])) if len(seen) else (0.0, 1.0)


# Noise out.


def total(noisy: Sequence[np.ndarray]) -> float:
    """How many rows the histograms hold: each says so, the more clearly the fewer its cells."""
    weights = np.array([1 / len(histogram) for histogram in noisy])
    return max(float(weights @ [h.sum() for h in noisy] / weights.sum()), 1.0)


def cleaned(
    found: Sequence[Margin], counts: np.ndarray, std: float, rows: float | None = None
) -> list[np.ndarray]:
    """Shares of the codes of every column, from all noisy counts side by side; see `clean`.

    ``rows`` is how many there are, where more than these histograms say so.
    """
    each = [counts[span] for span in spans(found)]
    rows = total(each) if rows is None else rows
    return [clean(margin, noisy, rows, std) for margin, noisy in zip(found, each, strict=True)]


def clean(margin: Margin, noisy: np.ndarray, rows: float, std: float) -> np.ndarray:
    """Shares of a column's codes, from its noisy counts: none below 0, one in all."""
    if margin.cells is None:
        return projected(noisy, rows) / rows
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


def projected(noisy: np.ndarray, rows: float) -> np.ndarray:
    """The nearest counts that are not negative and add up to ``rows``."""
    down = np.sort(noisy)[::-1]
    over = (np.cumsum(down) - rows) / np.arange(1, len(down) + 1)
    return np.maximum(noisy - over[down > over][-1], 0)


def _smoothed(noisy: np.ndarray, width: np.ndarray, rows: float, std: float) -> np.ndarray:
    """Rows shared out down a tree of halves, as smoothly as the noise allows.

    At each node the two sides' difference from what the slope around it foretells is shrunk by
    what noise would make of it (James and Stein's factor): wide, empty stretches stay even and
    peaks come out.
    """
    count, empty = len(noisy), np.zeros(2 ** math.ceil(math.log2(len(noisy))) - len(noisy))
    levels = [np.stack([np.append(a, empty) for a in (noisy, np.ones(count), width)])]
    while levels[-1].shape[1] > 1:
        levels.append(levels[-1].reshape(3, -1, 2).sum(2))
    held = np.array([rows])
    for level in levels[-2::-1]:
        (a, b), (m, n), (u, v) = (row.reshape(-1, 2).T for row in level)
        even = held * np.where(u + v > 0, u / np.maximum(u + v, 1e-12), m / np.maximum(m + n, 1))
        foretold = even - _tilt(held, u + v)
        apart = a + (held - a - b) * m / np.maximum(m + n, 1) - foretold
        noise = std**2 * m * n / np.maximum(m + n, 1)
        left = foretold + apart * np.maximum(1 - noise / np.maximum(apart**2, 1e-12), 0)
        seen, other = _FAINT * np.sqrt(noise), held - left
        left = np.where((left < seen) & (even > 2 * seen), 0, left)
        left = np.where((other < seen) & (held - even > 2 * seen) | (n == 0), held, left)
        left = left.clip(0, held)
        held = np.stack([left, held - left], 1).ravel()
    return held[:count]


def _tilt(held: np.ndarray, width: np.ndarray) -> np.ndarray:
    """How many rows fewer the left half of each stretch holds, where density rises or falls.

    A straight line through the stretches beside it; none at a peak, a dip or an end.
    """
    solid = width > 0
    rise = np.diff(held / np.where(solid, width, 1)) * (solid[1:] & solid[:-1])
    before, after = np.append(0, rise), np.append(rise, 0)
    steady = before * after > 0
    least = np.minimum(np.abs(before), np.abs(after))
    slope = np.sign(after) * np.minimum(np.abs(before + after), 4 * least)
    return np.where(steady, slope * width / 16, 0)
