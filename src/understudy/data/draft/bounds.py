"""Bounds for a draft: round, near most rows, and never the extremes themselves."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["heavy", "months", "outwards", "robust"]

TAIL = 0.005
"""The share of rows at either end that bounds need not hold."""
FAR = 3.0
"""Extremes further away than this many times the span of most rows are left to be clamped."""
HEAVY = 20.0
"""A tail is heavy if it reaches so many times as far as half of the rows."""


def outwards(low: float, high: float) -> tuple[float, float]:
    """Round bounds outwards to a tenth of their span or so, to steps of 1, 2 or 5.

    Never on the extremes, but for zero.
    """
    span = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high), 1e-9)
    step, digits = _step(span / 10)
    down, up = 0.0 - _above(-low, step, digits), _above(high, step, digits)
    return down, up if up > down else step


def months(low: float, high: float, unit: str) -> tuple[object, object]:
    """Times (days or seconds since 1970) rounded outwards to whole months, of long spans years."""
    kind = f"datetime64[{unit}]"
    first, last = (np.int64(v).astype(kind) for v in (low - 1, high + 1))
    years = (last - first) > np.timedelta64(4 * 365, "D")
    whole = "datetime64[Y]" if years else "datetime64[M]"
    stop = (last.astype(whole) + 1).astype(kind) - 1
    return first.astype(whole).astype(kind).item(), stop.item()


def robust(values: np.ndarray, counts: np.ndarray) -> tuple[float, float, bool]:
    """Low, high and whether rows beyond them were left out: far ones, at most 1 in 200 each."""
    order = np.argsort(values)
    values, share = values[order], np.cumsum(counts[order]) / counts.sum()
    low, high = values[np.searchsorted(share, (TAIL, 1 - TAIL))]
    reach = FAR * (high - low)
    ends = values[0], values[-1]
    low = ends[0] if low - ends[0] <= reach else low
    high = ends[1] if ends[1] - high <= reach else high
    return float(low), float(high), (low, high) != ends


def heavy(values: np.ndarray, counts: np.ndarray) -> bool:
    """Whether numbers that are never negative have a heavy tail."""
    if values.min() < 0 or len(values) <= 20:
        return False
    order = np.argsort(values)
    share = np.cumsum(counts[order]) / counts.sum()
    middle, far = values[order][np.searchsorted(share, (0.5, 1 - TAIL))]
    return bool(middle > 0 and far > HEAVY * middle)


def _step(least: float) -> tuple[float, int]:
    """The next larger of 1, 2 and 5 times a power of ten, and its decimals."""
    power = math.floor(math.log10(least))
    for times in (1, 2, 5, 10):
        if times * 10.0**power >= least:
            return times * 10.0**power, -power
    return 10.0 ** (power + 1), -power


def _above(value: float, step: float, digits: int) -> float:
    """The next multiple of the step; zero stays, and is never crossed."""
    if value == 0:
        return 0.0
    up = round((math.floor(value / step) + 1) * step, digits)
    if up <= value:  # the division rounded past the value
        up = round(up + step, digits)
    return min(up, 0.0) if value < 0 else up
