"""A first schema for series in a table: layout, steps and channels guessed for a human to edit.

As in `draft`, everything that was read off the rows is marked as a guess. What a file cannot
tell (how long a window of one recording should be) must be said.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from understudy.data.cells import texts
from understudy.data.draft import (
    CLASSES,
    CONSTANT,
    EMPTY,
    HEADER,
    MAX_LISTED,
    as_label,
    bounded,
    count_cells,
    decide,
    head,
    names_someone,
    numbers,
    warn,
)
from understudy.data.draft_wide import LEAST, Wide, find_wide, misnumbered
from understudy.data.layout import LAYOUTS, PATTERN, SPACINGS
from understudy.data.schema_toml import toml_key, toml_value
from understudy.data.series import series_times
from understudy.errors import DataError

__all__ = ["SeriesHints", "draft_series", "series_in"]

TIME = re.compile(r"(date_?time|timestamp|time|date|step|hour|minute|second|day|week|month|t)")
Entry = tuple[dict[str, object], list[str]]


@dataclass(frozen=True)
class SeriesHints:
    """What the user says of the table; what is None is guessed."""

    layout: str | None = None
    series: str | None = None
    time: str | None = None
    length: int | None = None
    stride: int | None = None


@dataclass(frozen=True)
class _Found:
    """What a table was taken for: lines of settings, and the cells and columns of its channels."""

    settings: list[str]
    length: int
    records: int
    cells: dict[str, pd.Series]
    columns: set[str]
    pads: bool = False


def draft_series(
    frame: pd.DataFrame, label: str | None, name: str, hints: SeriesHints
) -> tuple[str, list[str]]:
    """Guess a schema of series: (TOML text, warnings in plain words)."""
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    _check_hints(frame, label, hints)
    stepped = hints.layout is None and (hints.series or hints.time or hints.stride)
    steps = hints.layout in ("long", "recording") or stepped
    wide = None if steps else _wide(frame, label, hints)
    if wide is None:
        hints = replace(hints, time=hints.time or _time(frame, label, hints))
        found = _draft_steps(frame, label, hints)
    else:
        found = _draft_wide(frame, hints, wide)
    if not found.cells:
        raise DataError("columns of numbers to take as channels", "none", "check the file")
    roles = {label, hints.series, hints.time}
    left = [c for c in frame.columns if c not in found.columns | roles]
    entries = {channel: _channel(held) for channel, held in found.cells.items()}
    for c in left:
        remark = _no_channel(frame[c], c, labelled=label is not None)
        entries[c] = {"kind": "unclassified"}, [remark]
    lines = [*head("series", name, found.records), *_settings(frame, label, found)]
    for column, (entry, remarks) in entries.items():
        lines += ["", f"[columns.{toml_key(column)}]", *(f"# {remark}" for remark in remarks)]
        lines += [f"{key} = {toml_value(value)}" for key, value in entry.items()]
    warnings = warn(list(entries), list(entries.values()), classes=label is not None)
    return HEADER + "\n".join(lines) + "\n", [*_repeated(frame, hints), *warnings]


def series_in(frame: pd.DataFrame, label: str | None) -> list[str]:
    """A warning if a table that is drafted as plain rows looks like a long table of series."""
    found = _long(frame.set_axis([str(c).strip() for c in frame.columns], axis=1), label)
    if found is None:
        return []
    return [
        f"This looks like series, a row per {found[0]} and {found[1]}, but was drafted as a plain "
        f"table. If they are series, draft it again with {_options(*found)}"
    ]


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
    return f"--series {shlex.quote(series)} --time {shlex.quote(time)}"


def _settings(frame: pd.DataFrame, label: str | None, found: _Found) -> list[str]:
    """Shape, layout, classes and the rule for missing values."""
    lines = [f"shape = {toml_value((found.length, len(found.cells)))}", *found.settings]
    if label is not None:
        seen = sorted(texts(frame[label]).dropna().unique())
        lines.append(f"label = {toml_value(label)}")
        lines.append(f"classes = {toml_value(seen)}  # guess: those seen")
    gaps = any(count_cells(held)[1] for held in found.cells.values())
    if gaps or found.pads:
        why = "some cells are empty" if gaps else "for the steps that pad adds"
        lines.append(f'fill = "middle"  # guess: {why}; also "previous", or a number')
    return lines


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
            "--time and --stride for long tables and recordings", "a wide one", "leave them out"
        )


def _wide(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> Wide | None:
    """The columns of a wide table; refused if many are numbered, but not as --length says."""
    names, roles, said = list(frame.columns), (label, hints.series), hints.layout == "wide"
    found = find_wide(names, roles, hints.length, said=said)
    wrong = None if found else misnumbered(names, roles, hints.length, said=said)
    if wrong and (said or _long(frame, label, hints) is None):
        raise wrong
    return found


def _draft_wide(frame: pd.DataFrame, hints: SeriesHints, wide: Wide) -> _Found:
    cells = {c: pd.Series(frame[part].to_numpy().ravel()) for c, part in wide.channels.items()}
    settings = ['layout = "wide"  # guess: the columns are numbered', *_series(hints)]
    if wide.pattern != PATTERN:
        settings.append(f"pattern = {toml_value(wide.pattern)}")
    if wide.first:
        settings.append(f"first = {wide.first}  # the number of the first step")
    columns = {column for part in wide.channels.values() for column in part}
    return _Found(settings, wide.length, len(frame), cells, columns)


def _draft_steps(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> _Found:
    """A long table, or one recording."""
    layout = hints.layout or ("long" if hints.series else "recording")
    suggested = None if hints.series else _long(frame, label, hints)
    if layout == "long" and (hints.series is None or hints.time is None):
        do = f"add {_options(*suggested)}" if suggested else "name the columns"
        raise DataError("--series and --time of a long table", "one missing", do)
    if hints.layout is None and suggested:
        raise DataError(
            "--series, for a table in which times repeat",
            "none",
            f"add {_options(*suggested)}, or --layout recording if it is one series",
        )
    counts = _counts(frame, hints)
    length = hints.length or _common(counts)
    if length > counts.max():
        raise DataError(f"a series of --length {length}", "shorter ones", "lower --length")
    longer, shorter = bool((counts > length).any()), bool((counts < length).any())
    stride = hints.stride or (1 if layout == "recording" else length if longer else None)
    settings = [f"layout = {toml_value(layout)}", *_series(hints), *_clock(frame, hints)]
    settings += [f"stride = {stride}{_remark(stride, length)}"] if stride else []
    settings += ["pad = true  # guess: some series are shorter"] if shorter else []
    many = np.maximum((counts - length) // (stride or length) + 1, 1)
    cells = {c: frame[c] for c in frame.columns if _is_channel(frame[c], c, label, hints)}
    return _Found(settings, length, int(many.sum()), cells, set(cells), shorter)


def _counts(frame: pd.DataFrame, hints: SeriesHints) -> np.ndarray:
    if hints.series is None:
        return np.array([len(frame)])
    return texts(frame[hints.series]).value_counts().to_numpy()


def _common(counts: np.ndarray) -> int:
    if len(counts) > 1 and (counts == counts[0]).all():
        return int(counts[0])
    raise DataError(
        "--length: how many steps a record has", "series that do not tell", "add --length 24, say"
    )


def _time(frame: pd.DataFrame, label: str | None, hints: SeriesHints) -> str | None:
    """The first column that is called like a time."""
    free = [c for c in frame.columns if c not in (label, hints.series)]
    return next((c for c in free if TIME.fullmatch(c.lower())), None)


def _series(hints: SeriesHints) -> list[str]:
    return [] if hints.series is None else [f"series = {toml_value(hints.series)}"]


def _clock(frame: pd.DataFrame, hints: SeriesHints) -> list[str]:
    """The time column, and the spacing of its steps if it is the same everywhere."""
    if hints.time is None:
        return ["# time = …  # no such column was found: the order of the rows counts"]
    lines = [f"time = {toml_value(hints.time)}"]
    gaps, stamped = _gaps(frame, hints)
    if (gaps == 0).any():
        return [*lines, "# every = …  # times repeat within a series: mend that first"]
    least = SPACINGS["ms"] if stamped else 0
    if not len(gaps) or not np.allclose(gaps, gaps[0], rtol=1e-6, atol=0) or gaps[0] <= least:
        return [*lines, "# every = …  # the steps are not evenly spaced: only their order counts"]
    return [*lines, f"every = {toml_value(_every(gaps[0], stamped))}  # guess: the spacing seen"]


def _gaps(frame: pd.DataFrame, hints: SeriesHints) -> tuple[np.ndarray, bool]:
    """From each step of a series to the next, and whether in nanoseconds of time stamps."""
    time, stamped = series_times(frame[hints.time], hints.time)
    codes = np.zeros(len(frame)) if hints.series is None else pd.factorize(frame[hints.series])[0]
    order = np.lexsort((time, codes))
    return np.diff(time[order])[np.diff(codes[order]) == 0], stamped


def _repeated(frame: pd.DataFrame, hints: SeriesHints) -> list[str]:
    """A warning if a series has a time twice: no file is read so."""
    twice = 0 if hints.time is None else int((_gaps(frame, hints)[0] == 0).sum())
    if not twice:
        return []
    return [
        f"Times repeat: {twice} rows have a time ({hints.time!r}) that their series already has, "
        "which is refused. Remove repeated rows, or name the column that tells the series apart "
        "(--series)."
    ]


def _every(gap: float, stamped: bool) -> float | str:
    if not stamped:
        return float(gap)
    unit = next(u for u in reversed(SPACINGS) if gap % SPACINGS[u] == 0 or u == "ms")  # largest
    return f"{int(gap) // SPACINGS[unit]}{unit}"


def _remark(stride: int, length: int) -> str:
    if stride >= length:
        return "  # guess: windows that share no step"
    return f"  # windows overlap: a step is in many records; {length} keeps them apart"


def _is_channel(cells: pd.Series, name: str, label: str | None, hints: SeriesHints) -> bool:
    if name in (label, hints.series, hints.time) or names_someone(name):
        return False
    counts, _ = count_cells(cells)
    values = numbers(counts, "numeric") if len(counts) else None
    return values is not None and bool((values != values[0]).any())


def _no_channel(cells: pd.Series, name: str, *, labelled: bool) -> str:
    """Why a column was not taken for a channel, and what it can be."""
    counts, _ = count_cells(cells)
    if not len(counts):
        return EMPTY
    if len(counts) == 1 and not names_someone(name):
        return f'{CONSTANT}. kind = "ignore", or public bounds and a channel more in shape'
    few = len(counts) <= min(MAX_LISTED, len(cells) / 2)
    if few and not labelled and not names_someone(name):
        return f'{CLASSES}: then draft again with {as_label(name)}. Otherwise kind = "ignore"'
    return 'DECIDE: it is no channel. kind = "ignore", or name it as person'


def _channel(cells: pd.Series) -> Entry:
    counts, _ = count_cells(cells)
    for kind in ("integer", "numeric"):
        values = numbers(counts, kind) if len(counts) else None
        if values is not None:
            entry, remarks = bounded(kind, values)
            return entry, remarks[:1]
    return {"kind": "unclassified"}, [decide("it holds no numbers")]
