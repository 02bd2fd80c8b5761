"""Days and times as files write them: 24.12.2021, 12/24/21 1:05 PM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from understudy.data.form import ISO, Form

__all__ = [
    "DAYS", "MOMENTS", "count_swapped", "day_first", "in_two_orders", "read_times", "time_forms",
]  # fmt: skip

SAMPLE = 200
FEW = 5
"""So many texts are looked at for formats that are worth counting."""
_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
_SHORT = ("%Y.%m.%d", "%Y%m%d", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y")
_WORDY = ("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y")
DAYS = (*_DAYS, *_SHORT, *_WORDY)
CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
MOMENTS = tuple(f"{day}{gap}{clock}" for day in DAYS for clock in CLOCKS for gap in " T")


def time_forms(cells: pa.Array, formats: Sequence[str]) -> list[Form]:
    """The format that all cells have, or most; two where day and month could change places."""
    seen = pd.Series(pc.unique(cells.drop_null()).to_pandas())
    first = seen.head(SAMPLE)
    possible = [f for f in formats if _parses(seen.iloc[0], f)] if len(seen) else []
    for format in (ISO, *possible) if len(seen) else ():
        if _fits(first, format) and _fits(seen, format):
            swapped = _swapped(format)
            both = (format, swapped) if swapped in formats and _fits(seen, swapped) else (format,)
            return [Form(format=f) for f in both]
    return _most_fit(seen, formats)


def _most_fit(seen: pd.Series, formats: Sequence[str]) -> list[Form]:
    """The format of more than half of the texts: the others are what is wrong."""
    possible = [f for f in formats if any(_parses(text, f) for text in seen.head(FEW))]
    count = {f: int(read_times(seen, f).notna().sum()) for f in (ISO, *possible)}
    best = max(count, key=count.__getitem__)
    return [Form(format=best)] if count[best] > len(seen) / 2 else []


def _parses(text: str, format: str) -> bool:
    """Whether one text has a format; quick, so that few formats are tried on all."""
    try:
        datetime.strptime(text, format)
    except ValueError:
        return False
    return True


def _swapped(format: str) -> str:
    """Day and month in each other's place."""
    return format.translate({ord("d"): "m", ord("m"): "d"})


def _fits(cells: pd.Series, format: str) -> bool:
    return not read_times(cells, format).isna().any()


_DAY = r"\d{4}-\d\d-\d\d"  # ISO 8601 also takes 2020 for a day


def read_times(cells: pd.Series, format: str) -> pd.Series:
    """Texts as times, of universal time if they have a zone; NaT where the format does not fit."""
    if format == ISO:
        cells = cells.where(cells.str.match(_DAY).fillna(False))
    times = pd.to_datetime(cells, format=format, errors="coerce", utc=True)
    return times.dt.tz_localize(None)


def day_first(format: str) -> bool | None:
    """Whether the day stands before the month; None where the year comes first, or a name."""
    if format.startswith("%Y") or "%b" in format or "%B" in format or format == ISO:
        return None
    return format.index("%d") < format.index("%m")


def in_two_orders(cells: pa.Array) -> bool:
    """Whether all texts are days or times, but some with the day first and some with the month."""
    seen = pd.Series(pc.unique(cells.drop_null()).to_pandas())
    possible = [f for f in (*DAYS, *MOMENTS) if len(seen) and _parses(seen.iloc[0], f)]
    for format in (f for f in possible if day_first(f) is not None):
        both = [read_times(seen, f).notna() for f in (format, _swapped(format))]
        if (both[0] | both[1]).all():
            return True
    return False


def count_swapped(cells: pa.Array, form: Form) -> int:
    """How many cells could be read with day and month in each other's place."""
    other = _swapped(form.format)
    if day_first(form.format) is None:
        return 0
    coded = cells.dictionary_encode()
    fits = read_times(coded.dictionary.to_pandas().astype("str"), other).notna().to_numpy()
    return int(fits[coded.indices.to_numpy()].sum())
