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
from understudy.data.draft.columns import count_cells, find_bounds, names_someone, numbers, top
from understudy.data.draft.found import MAX_LISTED, Alert, Found, FoundColumn, Setting
from understudy.data.draft.numbered import LEAST, Wide, find_wide, misnumbered
from understudy.data.layout import LAYOUTS, PATTERN, SPACINGS
from understudy.data.series import series_times
from understudy.errors import DataError

__all__ = ["SeriesHints", "find_series", "looks_long"]

TIME = re.compile(r"(date_?time|timestamp|time|date|step|hour|minute|second|day|week|month|t)")


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
    others = [
        FoundColumn(c, why=_no_channel(frame[c], c, labelled=label is not None))
        for c in frame.columns
        if c not in known
    ]
    settings = (*top("series", layout.records), *_settings(frame, label, layout))
    return Found(settings, (*channels, *others), _repeated(frame, hints))


def looks_long(frame: pd.DataFrame, label: str | None) -> tuple[Alert, ...]:
    """Whether a table that is drafted as plain rows looks like a long table of series."""
    found = _long(_stripped(frame), label)
    if found is None:
        return ()
    series, time = found
    return (Alert("long", {"series": series, "time": time, "options": _options(*found)}),)


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
        settings += [Setting("label", label), Setting("classes", seen, "seen")]
    gaps = any(count_cells(held)[1] for held in found.cells.values())
    if gaps or found.pads:
        settings.append(Setting("fill", "middle", "empty cells" if gaps else "padding"))
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
    """The columns of a wide table; refused if many are numbered, but not as --length says."""
    names, roles, said = list(frame.columns), (label, hints.series), hints.layout == "wide"
    found = find_wide(names, roles, hints.length, said=said)
    wrong = None if found else misnumbered(names, roles, hints.length, said=said)
    if wrong and (said or _long(frame, label, hints) is None):
        raise wrong
    return found


def _numbered(frame: pd.DataFrame, hints: SeriesHints, wide: Wide) -> _Layout:
    cells = {c: pd.Series(frame[part].to_numpy().ravel()) for c, part in wide.channels.items()}
    settings = [Setting("layout", "wide", "numbered"), *_series(hints)]
    if wide.pattern != PATTERN:
        settings.append(Setting("pattern", wide.pattern))
    if wide.first:
        settings.append(Setting("first", wide.first, "first step"))
    columns = {column for part in wide.channels.values() for column in part}
    return _Layout(tuple(settings), wide.length, len(frame), cells, columns)


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
        settings.append(Setting("stride", stride, "apart" if stride >= length else "overlap"))
    if shorter:
        settings.append(Setting("pad", True, "shorter"))
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
        return [Setting("time", None, "no time", off=True)]
    time = Setting("time", hints.time)
    gaps, stamped = _gaps(frame, hints)
    if (gaps == 0).any():
        return [time, Setting("every", None, "repeats", off=True)]
    least = SPACINGS["ms"] if stamped else 0
    if not len(gaps) or not np.allclose(gaps, gaps[0], rtol=1e-6, atol=0) or gaps[0] <= least:
        return [time, Setting("every", None, "uneven", off=True)]
    return [time, Setting("every", _every(gaps[0], stamped), "spacing")]


def _gaps(frame: pd.DataFrame, hints: SeriesHints) -> tuple[np.ndarray, bool]:
    """From each step of a series to the next, and whether in nanoseconds of time stamps."""
    time, stamped = series_times(frame[hints.time], hints.time)
    codes = np.zeros(len(frame)) if hints.series is None else pd.factorize(frame[hints.series])[0]
    order = np.lexsort((time, codes))
    return np.diff(time[order])[np.diff(codes[order]) == 0], stamped


def _repeated(frame: pd.DataFrame, hints: SeriesHints) -> tuple[Alert, ...]:
    """Times that a series has twice: such a file is refused."""
    twice = 0 if hints.time is None else int((_gaps(frame, hints)[0] == 0).sum())
    return (Alert("repeats", {"time": hints.time, "rows": twice}),) if twice else ()


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


def _no_channel(cells: pd.Series, name: str, *, labelled: bool) -> str:
    """Why a column was not taken for a channel."""
    counts, _ = count_cells(cells)
    if not len(counts):
        return "no values"
    if names_someone(name):
        return "no channel"
    if len(counts) == 1:
        return "constant and no channel"
    few = len(counts) <= min(MAX_LISTED, len(cells) / 2)
    return "perhaps the classes" if few and not labelled else "no channel"


def _channel(name: str, cells: pd.Series) -> FoundColumn:
    counts, _ = count_cells(cells)
    for kind in ("integer", "numeric"):
        values = numbers(counts, kind) if len(counts) else None
        if values is not None:
            found = find_bounds(name, kind, values)
            return replace(found, notes=found.notes[:1])
    return FoundColumn(name, why="no numbers")
