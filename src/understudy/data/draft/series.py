"""What series a table holds: layout, steps and channels.

A file cannot show how long a window of one recording should be: the user says so.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from understudy.data.cells import texts
from understudy.data.draft.columns import (
    CONSTANT,
    KEEP,
    MAX_LISTED,
    count_cells,
    find_bounds,
    names_someone,
    numbers,
    top,
)
from understudy.data.draft.numbered import LEAST, Wide, find_wide
from understudy.data.draft.text import Found, FoundColumn, Setting
from understudy.data.layout import LAYOUTS, PATTERN, SPACINGS
from understudy.data.series import series_times
from understudy.errors import DataError

__all__ = ["SeriesHints", "find_series", "looks_long"]

TIME = re.compile(r"(date_?time|timestamp|time|date|step|hour|minute|second|day|week|month|t)")
APART = "guess: windows that share no step"
OVERLAP = "windows overlap: a step is in many records; the length in shape keeps them apart"


@dataclass(frozen=True)
class SeriesHints:
    """What the user says of the table; what is None is guessed."""

    layout: str | None = None
    series: str | None = None
    time: str | None = None
    length: int | None = None
    stride: int | None = None


@dataclass(frozen=True)
class _Layout:
    """How a table holds series: settings, and the cells and columns of its channels."""

    settings: tuple[Setting, ...]
    length: int
    records: int
    cells: dict[str, pd.Series]
    columns: set[str]
    pads: bool = False


def find_series(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> Found:
    """A table of series, as far as the hints say how."""
    frame = _stripped(frame)
    _check_hints(frame, label, hints)
    stepped = hints.layout is None and (hints.series or hints.time or hints.stride)
    steps = hints.layout in ("long", "recording") or stepped
    wide = None if steps else _wide(frame, label, hints)
    if wide is None:
        hints = replace(hints, time=hints.time or _time(frame, label, hints))
    layout = _steps(frame, label, hints) if wide is None else _numbered(frame, hints, wide)
    if not layout.cells:
        raise DataError("columns of numbers to take as channels", "none", "check the file")
    known = {*layout.columns, label, hints.series, hints.time}
    channels = [_channel(name, held) for name, held in layout.cells.items()]
    others = [_no_channel(frame[c], c, label) for c in frame.columns if c not in known]
    settings = (*top("series", layout.records), *_settings(frame, label, layout))
    return Found(settings, (*channels, *others))


def looks_long(frame: pd.DataFrame, label: str | None) -> tuple[str, ...]:
    """The warning if a table that is drafted as plain rows looks like a long table of series."""
    found = _long(_stripped(frame), label)
    if found is None:
        return ()
    said = "This looks like series, a row per {} and {}, but was drafted as a plain table. ".format
    return (f"{said(*found)}If they are series, draft it again with {_options(*found)}",)


def _stripped(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis([str(c).strip() for c in frame.columns], axis=1)


def _long(
    frame: pd.DataFrame, label: str | None, hints: SeriesHints | None = None
) -> tuple[str, str] | None:
    """The columns that tell series and their steps apart, if the times repeat in each of several.

    Of the columns that, together with the time, no two rows share, the one with the fewest values.
    """
    hints = hints or SeriesHints()
    time = hints.time or _time(frame, label, hints)
    if time is None or frame[time].nunique() > len(frame) / 2:
        return None
    values = {c: frame[c].nunique() for c in frame.columns if c not in (label, time)}
    several = [c for c, many in values.items() if 1 < many <= len(frame) / LEAST]
    for column in sorted(several, key=values.__getitem__):
        if not frame.duplicated([column, time]).any():
            return column, time
    return None


def _options(series: str, time: str) -> str:
    """The options that name the columns of a long table, as a shell takes them."""
    return f"--series {shlex.quote(series)} --time {shlex.quote(time)}"


def _settings(frame: pd.DataFrame, label: str | None, found: _Layout) -> list[Setting]:
    """Shape, layout, classes and the rule for missing values."""
    settings = [Setting("shape", (found.length, len(found.cells))), *found.settings]
    if label is not None:
        seen = sorted(texts(frame[label]).dropna().unique())
        settings += [Setting("label", label), Setting("classes", seen, "guess: those seen")]
    gaps = any(count_cells(held)[1] for held in found.cells.values())
    if gaps or found.pads:
        what = "some cells are empty" if gaps else "for the steps that pad adds"
        remark = f'guess: {what}; also "previous", or a number'
        settings.append(Setting("fill", "middle", remark))
    return settings


def _check_hints(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> None:
    if frame.empty:
        raise DataError("rows to draft from", "none", "use a site's file that has rows")
    if hints.layout not in (None, *LAYOUTS):
        raise DataError("--layout long, wide or recording", repr(hints.layout), "choose one")
    for what, column in (("label", label), ("series", hints.series), ("time", hints.time)):
        if column is not None and column not in frame:
            raise DataError(f"--{what} among the columns", repr(column), "check its name")
    if hints.layout == "wide" and (hints.time or hints.stride):
        raise DataError(
            "--time and --stride for long tables and recordings",
            "a wide one",
            "remove these options",
        )


def _wide(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> Wide | None:
    """The columns of a wide table; misnumbered ones of a long table are refused later."""
    said = hints.layout == "wide"
    try:
        return find_wide(list(frame.columns), (label, hints.series), hints.length, said=said)
    except DataError:
        if said or _long(frame, label, hints) is None:
            raise
    return None


def _numbered(frame: pd.DataFrame, hints: SeriesHints, wide: Wide) -> _Layout:
    cells = {c: pd.Series(frame[part].to_numpy().ravel()) for c, part in wide.channels.items()}
    settings = [Setting("layout", "wide", "guess: the columns are numbered"), *_series(hints)]
    if wide.pattern != PATTERN:
        settings.append(Setting("pattern", wide.pattern))
    if wide.steps.start:
        settings.append(Setting("first", wide.steps.start, "the number of the first step"))
    columns = {column for part in wide.channels.values() for column in part}
    return _Layout(tuple(settings), len(wide.steps), len(frame), cells, columns)


def _steps(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> _Layout:
    """A long table, or one recording."""
    layout = hints.layout or ("long" if hints.series else "recording")
    _check_long(frame, label, hints, layout)
    counts = _counts(frame, hints)
    length = hints.length or _common(counts)
    if length > counts.max():
        raise DataError(f"a series of --length {length}", "shorter ones", "lower --length")
    longer, shorter = bool((counts > length).any()), bool((counts < length).any())
    stride = hints.stride or (1 if layout == "recording" else length if longer else None)
    settings = [Setting("layout", layout), *_series(hints), *_clock(frame, hints)]
    if stride:
        settings.append(Setting("stride", stride, APART if stride >= length else OVERLAP))
    if shorter:
        settings.append(Setting("pad", True, "guess: some series are shorter"))
    many = np.maximum((counts - length) // (stride or length) + 1, 1)
    cells = {c: frame[c] for c in frame.columns if _is_channel(frame[c], c, label, hints)}
    return _Layout(tuple(settings), length, int(many.sum()), cells, set(cells), shorter)


def _check_long(frame: pd.DataFrame, label: str | None, hints: SeriesHints, layout: str) -> None:
    """Refuse a long table whose columns of series and time were not named."""
    found = None if hints.series else _long(frame, label, hints)
    if layout == "long" and (hints.series is None or hints.time is None):
        do = f"add {_options(*found)}" if found else "name the columns"
        raise DataError("--series and --time of a long table", "one missing", do)
    if hints.layout is None and found:
        raise DataError(
            "--series, for a table in which times repeat",
            "none",
            f"add {_options(*found)}, or --layout recording if it is one series",
        )


def _counts(frame: pd.DataFrame, hints: SeriesHints) -> np.ndarray:
    if hints.series is None:
        return np.array([len(frame)])
    return texts(frame[hints.series]).value_counts().to_numpy()


def _common(counts: np.ndarray) -> int:
    if len(counts) > 1 and (counts == counts[0]).all():
        return int(counts[0])
    raise DataError(
        "--length: how many steps a record has", "none", "add it: --length 24, for example"
    )


def _time(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> str | None:
    """The first column that is called like a time."""
    free = [c for c in frame.columns if c not in (label, hints.series)]
    return next((c for c in free if TIME.fullmatch(c.lower())), None)


def _series(hints: SeriesHints) -> list[Setting]:
    return [] if hints.series is None else [Setting("series", hints.series)]


def _clock(frame: pd.DataFrame, hints: SeriesHints) -> list[Setting]:
    """The time column, and the spacing of its steps if it is the same everywhere."""
    if hints.time is None:
        none = "no such column was found: the order of the rows counts"
        return [Setting("time", None, none, off=True)]
    gaps, stamped = _gaps(frame, hints)
    least = SPACINGS["ms"] if stamped else 0
    every = Setting("every", None, "the steps are not evenly spaced: only their order counts", True)
    if (gaps == 0).any():
        every = Setting("every", None, "times repeat within a series: fix that first", True)
    elif len(gaps) and np.allclose(gaps, gaps[0], rtol=1e-6, atol=0) and gaps[0] > least:
        every = Setting("every", _every(gaps[0], stamped), "guess: the spacing seen")
    return [Setting("time", hints.time), every]


def _gaps(frame: pd.DataFrame, hints: SeriesHints) -> tuple[np.ndarray, bool]:
    """From each step of a series to the next, and whether in nanoseconds of time stamps."""
    time, stamped = series_times(frame[hints.time], hints.time)
    codes = np.zeros(len(frame)) if hints.series is None else pd.factorize(frame[hints.series])[0]
    order = np.lexsort((time, codes))
    return np.diff(time[order])[np.diff(codes[order]) == 0], stamped


def _every(gap: float, stamped: bool) -> float | str:
    if not stamped:
        return float(gap)
    unit = next(u for u in reversed(SPACINGS) if gap % SPACINGS[u] == 0 or u == "ms")  # largest
    return f"{int(gap) // SPACINGS[unit]}{unit}"


def _is_channel(cells: pd.Series, name: str, label: str | None, hints: SeriesHints) -> bool:
    if name in (label, hints.series, hints.time) or names_someone(name):
        return False
    counts, _ = count_cells(cells)
    values = numbers(counts, "numeric") if len(counts) else None
    return values is not None and bool((values != values[0]).any())


def _no_channel(cells: pd.Series, name: str, label: str | None) -> FoundColumn:
    """What a human may make of a column that was not taken for a channel."""
    counts, _ = count_cells(cells)
    why, choice = "no channel, as identifiers are none", 'kind = "ignore", or name it as person'
    if not len(counts):
        why = "no values"
    elif len(counts) == 1 and not names_someone(name):
        why, choice = CONSTANT, f'kind = "ignore", or {KEEP.lower()} and one more channel in shape'
    elif len(counts) <= min(MAX_LISTED, len(cells) / 2) and not (label or names_someone(name)):
        option = f"--label {shlex.quote(name)}" if name.isprintable() else "--label"
        why = f"no channel; if it holds the classes, draft again with {option}"
        choice = 'Otherwise kind = "ignore"'
    return FoundColumn(name, why=why, choice=choice)


def _channel(name: str, cells: pd.Series) -> FoundColumn:
    counts, _ = count_cells(cells)
    for kind in ("integer", "numeric"):
        values = numbers(counts, kind) if len(counts) else None
        if values is not None:
            return find_bounds(name, kind, values)
    return FoundColumn(name, why="no numbers")
