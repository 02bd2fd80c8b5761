"""Numbers to [0, 1] and back, by a column's public bounds and scale alone.

``scale = "log"`` lays a number v out by sign(v)·log(1 + |v|/u), for heavy tails: every order of
magnitude above the unit u gets the same share of [0, 1], and zero and negative numbers are fine.
The unit is the column's own resolution: 1 for integers, 10^-decimals for numeric columns, and
without decimals a ten-thousandth of the larger bound.
"""

from __future__ import annotations

import numpy as np

from understudy.data.column import Column, bounds

__all__ = ["from_unit", "to_unit"]


def to_unit(column: Column, values: np.ndarray) -> np.ndarray:
    """Values in the column's own units to [0, 1]; those outside the bounds are clamped."""
    low, high = bounds(column)
    if column.scale == "linear":
        return (np.clip(values, low, high) - low) / (high - low)
    unit = _unit(column)
    first, last = _log(np.array([low, high]), unit)
    return (_log(np.clip(values, low, high), unit) - first) / (last - first)


def from_unit(column: Column, x: np.ndarray) -> np.ndarray:
    """Values that the schema allows, nearest to what stands in [0, 1]."""
    low, high = bounds(column)
    x = np.clip(x, 0, 1).astype(np.float64)
    if column.scale == "linear":
        values = low + x * (high - low)
    else:
        unit = _unit(column)
        first, last = _log(np.array([low, high]), unit)
        place = first + x * (last - first)
        values = np.sign(place) * unit * np.expm1(np.abs(place))
    if column.kind != "numeric":
        values = np.rint(values)
    elif column.decimals is not None:
        values = np.round(values, column.decimals)
    return np.clip(values, low, high)


def _log(values: np.ndarray, unit: float) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values) / unit)


def _unit(column: Column) -> float:
    if column.kind == "integer":
        return 1.0
    if column.decimals is not None:
        return 10.0**-column.decimals
    return max(map(abs, bounds(column))) / 10_000
