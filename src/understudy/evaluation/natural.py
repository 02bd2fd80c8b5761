"""Encoded values as a person would write them: in the column's own units."""

from __future__ import annotations

import numpy as np

from understudy.data.column import bounds
from understudy.data.scale import from_unit
from understudy.evaluation.axes import Axis
from understudy.evaluation.words import figure

__all__ = ["natural"]


def natural(axis: Axis, x: float, span: float = 1.0) -> str:
    """An encoded value in the column's units, as finely as a ``span`` of the axis asks for."""
    if axis.column is None:
        return figure(x, 2)
    column, value = axis.column, float(from_unit(axis.column, np.array(x)))
    if column.kind == "date":
        return str(np.datetime64(int(value), "D"))
    if column.kind == "timestamp":
        return str(np.datetime64(int(value), "m" if span > 1e-6 else "s"))
    if column.kind == "integer":
        return f"{round(value):,}"
    if column.scale == "log":
        return f"{value:,.3g}" if abs(value) < 1e6 else f"{value:.2g}"
    low, high = bounds(column)
    step = span * (high - low)
    digits = int(np.clip(1 - np.floor(np.log10(step)), 0, 6)) if step > 0 else 2
    return figure(value, 0 if value == round(value) else digits)
