"""One column's cells, whatever they came as, turned into numbers and back.

Every cell becomes a double: the number itself, days since 1970 for a date, seconds for a
timestamp, 0 or 1 for a boolean, the position in the public list for a category. What cannot
be read that way is counted, never quoted. Text and typed columns (CSV, Parquet) give the same
result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types

from understudy.data.column import Column, bounds
from understudy.data.form import ISO, Form, times_as
from understudy.data.forms import find_form
from understudy.data.moments import read_times
from understudy.data.numerals import plain_numbers, read_numbers
from understudy.data.texts import is_text, text_array, texts
from understudy.errors import DataError

__all__ = [
    "TRUTHS", "Cells", "bounds", "expected", "first_row", "read_cells", "settle", "texts",
    "to_array", "truths",
]  # fmt: skip

_NO = ("false", "no", "n", "f", "0", "0.0", "nein", "non", "nej", "falsch", "faux", "off")
_YES = ("true", "yes", "y", "t", "1", "1.0", "ja", "oui", "si", "sí", "wahr", "vrai", "on")
TRUTHS = dict.fromkeys(_NO, 0.0) | dict.fromkeys(_YES, 1.0)
_RULES = {
    "numeric": "numbers",
    "integer": "whole numbers",
    "date": "days as YYYY-MM-DD",
    "timestamp": "times as YYYY-MM-DD HH:MM:SS",
    "boolean": "true/false, yes/no or 1/0",
    "categorical": "the public categories",
}
FILL_LABEL = "fill them, or leave the rows out"
"""What to do about missing labels: no schema can allow them."""


@dataclass(frozen=True)
class Cells:
    """``values`` [n] as doubles (-1: unknown category), ``missing`` [n], ``wrong`` [n]."""

    values: np.ndarray
    missing: np.ndarray
    wrong: np.ndarray


def read_cells(
    column: Column, cells: pd.Series, missing_as: Sequence[str], form: Form | None = None
) -> Cells:
    """Read a column of text or typed cells by the public schema alone.

    ``form`` is how the file writes the column; by default it is found from the cells.
    """
    if column.kind == "categorical" and _is_public(column, cells):
        values = cells.cat.codes.to_numpy(np.float64)
        return Cells(values, values < 0, np.zeros(len(cells), bool))
    tokens = [t for t in missing_as if t not in column.classes]
    is_truth = types.is_bool_dtype(cells.dtype)
    typed = column.kind != "categorical" and (column.kind != "boolean" or is_truth)
    if is_text(cells) or not typed:
        held = text_array(cells, tokens)
        missing = held.is_null().to_numpy(zero_copy_only=False)
        values = _TEXTS[column.kind](column, held, form)
    else:
        missing = cells.isna().to_numpy(bool) | _is_token(cells, tokens)
        values = _TYPED[column.kind](cells)
    if column.is_number:  # "-200.0" means what "-200" does, in any file
        missing = missing | np.isin(values, [x for t in tokens if (x := _number(t)) is not None])
    wrong = np.isnan(values) if column.kind != "categorical" else values < 0
    if column.kind == "integer":
        wrong |= np.isfinite(values) & (values != np.rint(values))
    return Cells(np.where(missing, np.nan, values), missing, wrong & ~missing)


def expected(column: Column, form: Form | None = None) -> str:
    """What its cells are to be, in words; days and times as the schema or the file has them."""
    if column.words:
        return " or ".join(column.words)
    format = column.format or (form.format if form else "")
    return times_as(format) if format not in ("", ISO) else _RULES[column.kind]


def truths(column: Column) -> dict[str, float]:
    """What texts mean in a boolean column: its own words, and all others that do not collide."""
    own = {word.casefold(): float(i) for i, word in enumerate(column.words)}
    collide = any(TRUTHS.get(word, value) != value for word, value in own.items())
    return own if collide else TRUTHS | own


def settle(
    column: Column, cells: Cells, form: Form | None = None, *, is_label: bool = False
) -> Cells:
    """Apply the public rules: unknown categories become ``other``; the rest is refused."""
    wrong, missing = int(cells.wrong.sum()), int(cells.missing.sum())
    values = cells.values
    if wrong and column.other is not None:
        values = np.where(cells.wrong, column.categories.index(column.other), values)
    elif wrong:
        raise DataError(
            f"{expected(column, form)} in column {column.name!r}",
            f"{wrong} rows that are not{first_row(cells.wrong)}",
            "correct the rows, or name a public category as other"
            if column.kind == "categorical"
            else "correct the rows",
        )
    if missing and not column.missing:
        raise DataError(
            f"no missing cells in column {column.name!r}",
            f"{missing} rows with one{first_row(cells.missing)}",
            FILL_LABEL if is_label else "fill them, or set missing = true in the schema",
        )
    return Cells(values, cells.missing, np.zeros_like(cells.wrong))


def first_row(rows: np.ndarray) -> str:
    """Where to look first, as the end of a sentence."""
    return f", the first in row {int(rows.argmax()) + 1} below the header"


def to_array(column: Column, values: np.ndarray, missing: np.ndarray) -> pd.Series:
    """The column as pandas should hold it: typed, missing cells marked."""
    low, high = bounds(column) if column.low is not None else (0.0, 1.0)
    if column.kind == "numeric":
        return pd.Series(np.where(missing, np.nan, values))
    if column.kind == "categorical":
        codes = np.where(missing, -1, values).astype(np.int64)
        return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(column.categories)))
    if column.kind == "date":
        days = np.where(missing, 0, _clip_infinite(values, low, high)).astype(np.int64)
        return pd.Series(days.astype("datetime64[D]").astype("datetime64[s]")).mask(missing)
    if column.kind == "timestamp":
        seconds = np.where(missing, 0, _clip_infinite(values, low, high)).astype(np.int64)
        return pd.Series(seconds.astype("datetime64[s]")).mask(missing)
    whole = np.where(missing, low, _clip_infinite(values, low, high))
    plain = pd.Series(whole.astype(np.int64 if column.kind == "integer" else bool))
    if not column.missing:
        return plain
    return plain.astype("Int64" if column.kind == "integer" else "boolean").mask(missing)


def _is_public(column: Column, cells: pd.Series) -> bool:
    dtype = cells.dtype
    return isinstance(dtype, pd.CategoricalDtype) and tuple(dtype.categories) == column.categories


def _is_token(cells: pd.Series, tokens: Sequence[str]) -> np.ndarray:
    if _is_number(cells):
        numbers = [x for t in tokens if (x := _number(t)) is not None]
        return cells.isin(numbers).to_numpy(bool) if numbers else np.zeros(len(cells), bool)
    if types.is_datetime64_any_dtype(cells.dtype) or types.is_bool_dtype(cells.dtype):
        return np.zeros(len(cells), bool)
    return texts(cells).isin(tokens).to_numpy(bool)


def _number(token: str) -> float | None:
    try:
        value = float(token)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_number(cells: pd.Series) -> bool:
    return types.is_numeric_dtype(cells.dtype) and not types.is_bool_dtype(cells.dtype)


def _typed_numbers(cells: pd.Series) -> np.ndarray:
    if types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    if not types.is_numeric_dtype(cells.dtype):
        cells = pd.to_numeric(texts(cells), errors="coerce")
    return cells.to_numpy(np.float64, na_value=np.nan)


def _typed_days(cells: pd.Series) -> np.ndarray:
    if not types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    return _since(cells.dt.tz_localize(None), "D")


def _typed_seconds(cells: pd.Series) -> np.ndarray:
    """Seconds since 1970; with a zone, of universal time, without one as they stand."""
    if not types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    return _since(pd.to_datetime(cells, utc=True).dt.tz_localize(None), "s")


def _since(times: pd.Series, unit: str) -> np.ndarray:
    whole = times.to_numpy().astype(f"datetime64[{unit}]")
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64))


def _typed_truths(cells: pd.Series) -> np.ndarray:
    return cells.to_numpy(np.float64, na_value=np.nan)


_TYPED = {
    "numeric": _typed_numbers,
    "integer": _typed_numbers,
    "date": _typed_days,
    "timestamp": _typed_seconds,
    "boolean": _typed_truths,
}


def _numbers(column: Column, cells: pa.Array, form: Form | None) -> np.ndarray:
    form = find_form(column, cells) if form is None else form
    plain = plain_numbers(cells) if form in (Form(), Form("")) else None
    plain = read_numbers(cells, form) if plain is None else plain
    return plain.to_numpy(zero_copy_only=False).astype(np.float64)


def _days(column: Column, cells: pa.Array, form: Form | None) -> np.ndarray:
    times = _times(column, cells, form)
    return _since(times.where(times == times.dt.normalize()), "D")


def _seconds(column: Column, cells: pa.Array, form: Form | None) -> np.ndarray:
    return _since(_times(column, cells, form), "s")


def _times(column: Column, cells: pa.Array, form: Form | None) -> pd.Series:
    """Each different text is read once."""
    coded = cells.dictionary_encode()
    form = find_form(column, cells) if form is None else form
    seen = read_times(coded.dictionary.to_pandas().astype("str"), form.format or ISO)
    return _decoded(seen, coded)


def _truths(column: Column, cells: pa.Array, form: Form | None) -> np.ndarray:
    coded = cells.dictionary_encode()
    words = truths(column)
    seen = [words.get(text.casefold(), np.nan) for text in coded.dictionary.to_pylist()]
    return _decoded(pd.Series(seen, dtype=np.float64), coded).to_numpy()


def _codes(column: Column, cells: pa.Array, form: Form | None) -> np.ndarray:
    coded = cells.dictionary_encode()
    seen = pd.Index(column.categories).get_indexer(pd.Index(coded.dictionary.to_pandas()))
    return _decoded(pd.Series(seen, dtype=np.float64), coded).fillna(-1).to_numpy()


def _decoded(seen: pd.Series, coded: pa.DictionaryArray) -> pd.Series:
    places = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return seen.reindex(places).reset_index(drop=True)


_TEXTS = {
    "numeric": _numbers,
    "integer": _numbers,
    "date": _days,
    "timestamp": _seconds,
    "boolean": _truths,
    "categorical": _codes,
}


def _clip_infinite(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.where(np.isinf(values), np.clip(values, low, high), values)
