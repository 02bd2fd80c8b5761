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
from pandas.api import types

from understudy.data.column import Column, bounds
from understudy.errors import DataError

__all__ = ["TRUTHS", "Cells", "bounds", "read_cells", "settle", "to_array"]

TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0}
TRUTHS |= {"y": 1.0, "n": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}
RULES = {
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


def read_cells(column: Column, cells: pd.Series, missing_as: Sequence[str]) -> Cells:
    """Read a column of text or typed cells by the public schema alone."""
    if column.kind == "categorical" and _is_public(column, cells):
        values = cells.cat.codes.to_numpy(np.float64)
        return Cells(values, values < 0, np.zeros(len(cells), bool))
    tokens = [t for t in missing_as if t not in column.categories]
    missing = cells.isna().to_numpy(bool) | _is_token(cells, tokens)
    values = _READERS[column.kind](column, cells)
    if column.kind in ("numeric", "integer"):  # "-200.0" means what "-200" does, in any file
        missing |= np.isin(values, [x for t in tokens if (x := _number(t)) is not None])
    wrong = np.isnan(values) if column.kind != "categorical" else values < 0
    if column.kind == "integer":
        wrong |= np.isfinite(values) & (values != np.rint(values))
    return Cells(np.where(missing, np.nan, values), missing, wrong & ~missing)


def settle(column: Column, cells: Cells, *, is_label: bool = False) -> Cells:
    """Apply the public rules: unknown categories become ``other``; the rest is refused."""
    wrong, missing = int(cells.wrong.sum()), int(cells.missing.sum())
    values = cells.values
    if wrong and column.other is not None:
        values = np.where(cells.wrong, column.categories.index(column.other), values)
    elif wrong:
        raise DataError(
            f"{RULES[column.kind]} in column {column.name!r}",
            f"{wrong} rows that are not",
            "correct the rows, or name a public category as other"
            if column.kind == "categorical"
            else "correct the rows",
        )
    if missing and not column.missing:
        raise DataError(
            f"no missing cells in column {column.name!r}",
            f"{missing} rows with one",
            FILL_LABEL if is_label else "fill them, or set missing = true in the schema",
        )
    return Cells(values, cells.missing, np.zeros_like(cells.wrong))


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


_DAY = r"\d{4}-\d\d-\d\d"
_WHOLE = r"^([+-]?\d+)\.0+$"  # 3.0 is the category "3", whatever the rest of the column holds


def texts(cells: pd.Series) -> pd.Series:
    """Cells as a CSV file would hold them, without surrounding blanks; missing stays missing."""
    plain = cells.astype("string").str.strip()
    if types.is_float_dtype(cells.dtype):
        return plain.str.replace(_WHOLE, r"\1", regex=True)
    if types.is_object_dtype(cells.dtype):  # cell by cell: a row is read alike beside any other
        numbers = cells.map(lambda cell: isinstance(cell, float)).astype(bool)
        return plain.mask(numbers, plain.str.replace(_WHOLE, r"\1", regex=True))
    return plain


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


def _numbers(column: Column, cells: pd.Series) -> np.ndarray:
    if types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    if not types.is_numeric_dtype(cells.dtype):
        cells = pd.to_numeric(texts(cells), errors="coerce")
    return cells.to_numpy(np.float64, na_value=np.nan)


def _days(column: Column, cells: pd.Series) -> np.ndarray:
    if _is_number(cells) or types.is_bool_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    if not types.is_datetime64_any_dtype(cells.dtype):
        cells = pd.to_datetime(texts(cells), format="%Y-%m-%d", errors="coerce")
    stamps = cells.dt.tz_localize(None).to_numpy().astype("datetime64[D]")
    return np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64))


def _seconds(column: Column, cells: pd.Series) -> np.ndarray:
    """Seconds since 1970; with a zone, of universal time, without one as they stand."""
    if _is_number(cells) or types.is_bool_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    if not types.is_datetime64_any_dtype(cells.dtype):
        cells = texts(cells)
        cells = cells.where(cells.str.match(_DAY))  # ISO 8601 also takes 2020 for a day
    stamps = pd.to_datetime(cells, errors="coerce", format="ISO8601", utc=True)
    whole = stamps.dt.tz_localize(None).to_numpy().astype("datetime64[s]")
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64))


def _truths(column: Column, cells: pd.Series) -> np.ndarray:
    if types.is_bool_dtype(cells.dtype):
        return cells.to_numpy(np.float64, na_value=np.nan)
    return texts(cells).str.lower().map(TRUTHS).to_numpy(np.float64, na_value=np.nan)


def _codes(column: Column, cells: pd.Series) -> np.ndarray:
    return pd.Index(column.categories).get_indexer(pd.Index(texts(cells))).astype(np.float64)


_READERS = {
    "numeric": _numbers,
    "integer": _numbers,
    "date": _days,
    "timestamp": _seconds,
    "boolean": _truths,
    "categorical": _codes,
}


def _clip_infinite(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.where(np.isinf(values), np.clip(values, low, high), values)
