"""Encoded values as a person would write them: in the column's own units."""

from __future__ import annotations

import numpy as np

from understudy.data.column import bounds
from understudy.data.scale import from_unit
from understudy.evaluation.axes import Axis
from understudy.evaluation.words import figure

__all__ = ["natural"]

_HOUR, _WEEK = 3600, 7 * 86_400  # seconds


def natural(axis: Axis, x: float, span: float = 1.0) -> str:
    """An encoded value in the column's units, as finely as a ``span`` of the axis asks for."""
    if axis.column is None:
        return figure(x, 2)
    column, value = axis.column, float(from_unit(axis.column, np.array(x)))
    if column.kind == "date":
        return str(np.datetime64(int(value), "D"))
    low, high = bounds(column)
    step = span * (high - low)
    if column.kind == "timestamp":
        return _moment(value, step)
    if column.kind == "integer":
        return f"{round(value):,}"
    if column.scale == "log":
        return _figures(value)
    digits = int(np.clip(1 - np.floor(np.log10(step)), 0, 6)) if step > 0 else 2
    return figure(value, 0 if value == round(value) else digits)


def _moment(seconds: float, wide: float) -> str:
    """A time to the day where a range is weeks, else to the minute or the second."""
    unit = "D" if wide >= _WEEK else "m" if wide >= _HOUR else "s"
    when = np.datetime64(int(seconds), "s").astype(f"datetime64[{unit}]")
    return str(when).replace("T", " ")


def _figures(value: float) -> str:
    """Three figures; thousands in full, and powers of ten from a million on."""
    size = abs(value)
    return f"{value:.3g}" if size < 1000 else f"{value:,.0f}" if size < 1e6 else f"{value:.2g}"
