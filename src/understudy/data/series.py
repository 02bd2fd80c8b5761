"""Series from tables and back: rows to records [n, L, ch], by the public schema alone.

Rows are sorted by time within their series, checked for steps that are missing or there twice,
and cut into windows where the schema gives a stride. No step loops over series. What is
missing is filled within each record, never from its neighbours: a record must not carry
another one's values (the claim would count them once only). No error quotes a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import pandas as pd

from understudy.data.cells import Cells, bounds, read_cells, settle, texts
from understudy.data.column import Column
from understudy.data.form import Form
from understudy.data.forms import LEAST, find_form
from understudy.data.layout import file_columns, spacing, wide_names
from understudy.data.records import Records, check_memory
from understudy.data.schema import Schema
from understudy.data.texts import is_text, text_array
from understudy.errors import DataError, OutputError

__all__ = ["channel_cells", "fill_missing", "series_from_frame", "series_times", "series_to_frame"]

OFF_GRID = 1e-3
"""Time stamps may be off the declared spacing by this share of it (rounding in files)."""
NEAR = (1700, 2250)
"""Years whose nanoseconds since 1970 fit 64 bits."""
NO_TIME = np.iinfo(np.int64).min
_POINTS = r"^(\d\d)\.(\d\d)\.(\d{4})(?!\d)"  # 24.12.2021: with points the day stands first
_FORMS = {
    True: ("time stamps", "write them as 2021-12-24 18:00 or 24.12.2021 18:00"),
    False: ("numbers", "correct them"),
}


def series_from_frame(frame: pd.DataFrame, schema: Schema) -> Records:
    """The records of a table, by its declared layout."""
    if schema.layout == "wide":
        return _from_wide(frame, schema)
    rows = _ordered(frame, schema)
    windows = _cut(rows, schema)
    frame = frame.iloc[rows.order]
    return Records(
        series=_take(_values(frame, schema), windows, schema),
        labels=_of_record(frame, schema.label, windows, "one class"),
        person=_of_record(frame, schema.person, windows, "one person"),
        recording=rows.names[rows.codes[windows.first]],
        start=windows.first - rows.starts[rows.codes[windows.first]],
    )


def series_to_frame(
    records: Records, schema: Schema, layout: str | None = None, *, first: int = 0
) -> pd.DataFrame:
    """Records as a long or wide table, in the schema's own form; series count from ``first``."""
    layout = layout or ("wide" if schema.layout == "wide" else "long")
    if layout not in ("long", "wide"):
        raise OutputError("long or wide tables of series", repr(layout), "choose one")
    if records.series is None:
        raise OutputError("series", "other records", "use the schema of this data")
    number = np.arange(first, first + len(records))
    return pd.DataFrame((_to_wide if layout == "wide" else _to_long)(records, schema, number))


def channel_cells(frame: pd.DataFrame, schema: Schema) -> list[pd.Series]:
    """The raw cells of each channel; a wide table's steps one after the other, row by row."""
    if schema.layout != "wide":
        return [frame[column.name] for column in schema.columns]
    parts = [wide_names(schema, column.name) for column in schema.columns]
    return [pd.Series(frame[part].to_numpy().ravel()) for part in parts]


def fill_missing(series: np.ndarray, schema: Schema) -> np.ndarray:
    """Series [n, L, ch] without NaN, by the schema's rule, each record by itself."""
    gaps = np.isnan(series)
    if not gaps.any():
        return series
    if schema.fill is None:
        raise DataError(
            "no missing values in series",
            f"{int(gaps.any(axis=(1, 2)).sum())} series with some",
            'fill them, or set fill in the schema (a number, "middle" or "previous")',
        )
    if schema.fill == "previous":
        series = _carried(series, gaps)
        gaps = np.isnan(series)
    middle = [sum(bounds(column)) / 2 for column in schema.columns]
    stand_in = np.array(middle) if isinstance(schema.fill, str) else np.float64(schema.fill)
    return np.where(gaps, stand_in, series)


@dataclass(frozen=True)
class _Sorted:
    """A file's rows in order: ``order`` [n] sorts them by series and time; ``codes`` [n]
    then is each row's series, ``starts`` and ``counts`` [k] are its place, ``names`` [k] its id.
    """

    order: np.ndarray
    codes: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    names: np.ndarray


@dataclass(frozen=True)
class _Windows:
    """Where records begin: the ``first`` row [w] of each, and how many rows it has (``held``)."""

    first: np.ndarray
    held: np.ndarray


def _ordered(frame: pd.DataFrame, schema: Schema) -> _Sorted:
    codes, names = _series_of(frame, schema)
    time = None
    if schema.time is not None:
        time, _ = series_times(frame[schema.time], schema.time, schema.every)
    order = np.argsort(codes, kind="stable") if time is None else np.lexsort((time, codes))
    codes = codes[order]
    if time is not None:
        _check_steps(time[order], codes, schema)
    counts = np.bincount(codes, minlength=len(names))
    return _Sorted(order, codes, np.cumsum(counts) - counts, counts, names)


def _series_of(frame: pd.DataFrame, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Each row's series as a number, in order of first appearance, and the series' names."""
    if schema.series is None:
        return np.zeros(len(frame), np.int64), np.zeros(min(1, len(frame)), np.int64)
    codes, names = _coded(frame[schema.series], schema.missing_as)
    lacking = int((codes < 0).sum())
    if lacking:
        raise DataError(
            f"a series in every row ({schema.series!r})", f"{lacking} rows without", "name it"
        )
    return codes, names


def _coded(cells: pd.Series, missing_as: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Cells as numbers [n] (-1: missing) and the text of each; texts of different cells only."""
    codes, values = pd.factorize(cells)
    names = texts(pd.Series(values))
    again, distinct = pd.factorize(names.mask(names.isin(missing_as)))
    return np.append(again, -1)[codes].astype(np.int64), np.asarray(distinct, dtype=object)


def series_times(
    cells: pd.Series, name: str | None, every: float | str | None = None
) -> tuple[np.ndarray, bool]:
    """Time to sort by: (numbers as they are, False), or (nanoseconds of time stamps, True).

    ``every`` says which; without it, cells that are not all numbers are time stamps.
    """
    stamped = isinstance(every, str)
    found = None if stamped else _numbers(cells)
    if found is None or (every is None and np.isnan(found).any()):
        found, stamped = _stamps(cells), True
    wrong = found == NO_TIME if stamped else ~np.isfinite(found)
    if wrong.any():
        form, do = _FORMS[stamped]
        raise DataError(f"{form} in column {name!r}", f"{int(wrong.sum())} rows that are not", do)
    return found, stamped


def _numbers(cells: pd.Series) -> np.ndarray | None:
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return None
    if not pd.api.types.is_numeric_dtype(cells.dtype):
        cells = pd.to_numeric(texts(cells), errors="coerce")
    if pd.api.types.is_integer_dtype(cells.dtype) and not cells.isna().any():
        return cells.to_numpy(np.int64)  # nanoseconds would not fit a double
    return cells.to_numpy(np.float64, na_value=np.nan)


def _stamps(cells: pd.Series) -> np.ndarray:
    """Nanoseconds since 1970; the smallest integer for what is no time, or too far from 1970."""
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        stamps = _iso(cells)
    else:
        stamps = _iso(cells := texts(cells))
        if stamps.isna().any():
            stamps = stamps.fillna(_iso(cells.str.replace(_POINTS, r"\3-\2-\1", regex=True)))
    near = stamps.dt.year.between(*NEAR).to_numpy(bool)
    whole = stamps.to_numpy().astype("datetime64[ns]").astype(np.int64)
    return np.where(near, whole, NO_TIME)


def _iso(cells: pd.Series) -> pd.Series:
    stamps = pd.to_datetime(cells, errors="coerce", format="ISO8601", utc=True)
    return stamps.dt.tz_localize(None)


def _check_steps(time: np.ndarray, codes: np.ndarray, schema: Schema) -> None:
    """Refuse steps that are there twice, and those that the declared spacing shows to lack."""
    gaps = np.diff(time)[np.diff(codes) == 0]
    twice = int((gaps == 0).sum())
    if twice:
        raise DataError(
            f"each time step once ({schema.time!r})",
            f"{twice} rows at a time that their series already has",
            "remove repeated rows, or name the column that tells the series apart",
        )
    if schema.every is None:
        return
    steps = gaps / spacing(schema.every)
    whole = np.rint(steps)
    off = int((np.abs(steps - whole) > OFF_GRID).sum())
    lacking = int((whole - 1)[whole > 1].sum())
    if off or lacking:
        raise DataError(
            f"a row every {_words(schema.every)} ({schema.time!r})",
            f"{lacking} steps missing, {off} rows off the step",
            "add the missing rows (empty cells become the schema's fill), "
            "or leave every out if only the order counts",
        )


def _words(every: float | str) -> str:
    return every if isinstance(every, str) else f"{every:g}"


def _cut(rows: _Sorted, schema: Schema) -> _Windows:
    """One record per series, or windows of it at the public stride."""
    length, counts = schema.shape[0], rows.counts
    _check_lengths(counts, schema)
    if schema.stride is None:
        return _Windows(rows.starts, np.minimum(counts, length))
    many = np.maximum((counts - length) // schema.stride + 1, 1)
    check_memory(int(many.sum()) * schema.width * 8)
    nth = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    first = np.repeat(rows.starts, many) + nth * schema.stride
    return _Windows(first, np.minimum(np.repeat(counts, many), length))


def _check_lengths(counts: np.ndarray, schema: Schema) -> None:
    length = schema.shape[0]
    short = 0 if schema.pad else int((counts < length).sum())
    long = 0 if schema.stride else int((counts > length).sum())
    if not short and not long:
        return
    cures = ["pad = true lengthens shorter ones (fill says with what)"] * bool(short)
    cures += ["stride = … cuts longer ones into windows"] * bool(long)
    least = "at least " if schema.stride else ""
    raise DataError(
        f"series of {least}{length} steps each",
        f"{short} shorter and {long} longer of {len(counts)}",
        f"say in the schema what to do: {'; '.join(cures)}",
    )


def _values(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Cells to doubles [rows, ch], missing ones as NaN."""
    found = []
    for column, cells in zip(schema.columns, channel_cells(frame, schema), strict=True):
        read = read_cells(column, cells, schema.missing_as, _form(column, cells, schema))
        nothing = np.zeros(len(cells), bool)
        found.append(settle(column, Cells(read.values, nothing, read.wrong)).values)
    return np.stack(found, axis=1)


def _form(column: Column, cells: pd.Series, schema: Schema) -> Form | None:
    """How a channel is written: no single series, nor person, decides how others are read."""
    if not is_text(cells):
        return None
    most = schema.shape[0] * (schema.rows_per_person or 1)
    return find_form(column, text_array(cells, schema.missing_as), max(LEAST, most + 1))


def _take(values: np.ndarray, windows: _Windows, schema: Schema) -> np.ndarray:
    """The values of each window [w, L, ch]; steps beyond a padded one's end are missing."""
    steps = np.arange(schema.shape[0])
    rows = windows.first[:, None] + steps
    if not len(rows) or int(windows.held.min()) == schema.shape[0]:
        found = values[rows]
    else:
        beyond = steps >= windows.held[:, None]
        found = values[np.minimum(rows, len(values) - 1)]
        found[beyond] = np.nan
    return fill_missing(found, schema)


def _of_record(
    frame: pd.DataFrame, name: str | None, windows: _Windows, rule: str
) -> np.ndarray | None:
    """A column that says the same in all rows of a record, once per record."""
    if name is None:
        return None
    codes, values = _coded(frame[name])
    changes = np.cumsum(np.diff(codes, prepend=codes[:1]) != 0)
    last = windows.first + windows.held - 1
    mixed = int((changes[last] != changes[windows.first]).sum())
    if mixed:
        raise DataError(
            f"{rule} per record (column {name!r})",
            f"{mixed} records with several",
            "correct the rows, or cut the series where it changes",
        )
    return np.array([*values, None], dtype=object)[codes[windows.first]]


def _from_wide(frame: pd.DataFrame, schema: Schema) -> Records:
    flat = _values(frame, schema)
    held = flat.reshape(len(frame), *schema.shape)
    labels, person, name = (
        None if key is None else texts(frame[key]).to_numpy(object)
        for key in (schema.label, schema.person, schema.series)
    )
    series = fill_missing(held, schema)
    start = np.zeros(len(frame), np.int64)
    return Records(series=series, labels=labels, person=person, recording=name, start=start)


def _carried(series: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """The last value before each gap of the same record; gaps at its beginning stay."""
    steps = np.arange(series.shape[1])[None, :, None]
    last = np.maximum.accumulate(np.where(gaps, 0, steps), axis=1)
    return np.take_along_axis(series, last, axis=1)


def _to_long(records: Records, schema: Schema, number: np.ndarray) -> dict[str, np.ndarray]:
    held = np.asarray(records.series)
    n, length, channels = held.shape
    series, time = _names(schema)
    columns = {series: np.repeat(number, length), time: np.tile(_clock(schema), n)}
    columns |= _label(records, schema, length)
    return columns | _channels(schema, held.reshape(n * length, channels))


def _to_wide(records: Records, schema: Schema, number: np.ndarray) -> dict[str, np.ndarray]:
    held = np.asarray(records.series)
    columns = {} if schema.series is None else {schema.series: number}
    columns |= _label(records, schema, 1)
    wanted = len(columns) + schema.width
    for channel, values in _channels(schema, held).items():
        columns |= dict(zip(wide_names(schema, channel), values.T, strict=True))
    if len(columns) < wanted:
        raise OutputError(
            "a different name for each column", "a repeated one", "use the long layout"
        )
    return columns


def _names(schema: Schema) -> tuple[str, str]:
    """What the columns for series and step are called: as declared, or a name that is free."""
    return schema.series or _free("series", schema), schema.time or _free("step", schema)


def _free(name: str, schema: Schema) -> str:
    """The name, lengthened until no declared column has it."""
    taken = {*file_columns(schema)}
    return next(tried for i in count() if (tried := name + "_" * i) not in taken)


def _clock(schema: Schema) -> np.ndarray:
    """The time of each step: counted from 0 at the declared spacing, or from 1970 on."""
    steps = np.arange(schema.shape[0])
    if schema.every is None:
        return steps
    if isinstance(schema.every, str):
        stamps = (steps * int(spacing(schema.every))).astype("datetime64[ns]")
        return np.datetime_as_string(stamps, unit="ms").astype(object)
    return steps.astype(np.int64) * int(schema.every) if _whole(schema) else steps * schema.every


def _whole(schema: Schema) -> bool:
    return isinstance(schema.every, float) and schema.every.is_integer()


def _label(records: Records, schema: Schema, repeats: int) -> dict[str, np.ndarray]:
    if records.labels is None:
        return {}
    return {schema.label or _free("label", schema): np.repeat(records.labels, repeats)}


def _channels(schema: Schema, held: np.ndarray) -> dict[str, np.ndarray]:
    """Each channel's values [..., ch], whole numbers where it is declared so."""
    whole = [column.kind == "integer" for column in schema.columns]
    return {
        column.name: np.rint(held[..., i]).astype(np.int64) if whole[i] else held[..., i]
        for i, column in enumerate(schema.columns)
    }
