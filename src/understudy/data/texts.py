"""Cells as texts, as a CSV file would hold them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types

__all__ = ["is_text", "text_array", "texts"]

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


def is_text(cells: pd.Series) -> bool:
    """Whether cells are texts, or of no type in particular."""
    dtype = cells.dtype
    return types.is_object_dtype(dtype) or isinstance(dtype, pd.StringDtype)


def text_array(cells: pd.Series, missing: Sequence[str]) -> pa.Array:
    """The texts [n] without surrounding blanks; null where a cell is missing or says so."""
    whole = cells if isinstance(cells.dtype, pd.StringDtype) else texts(cells)
    held = pa.array(whole, pa.string(), from_pandas=True)
    held = held.combine_chunks() if isinstance(held, pa.ChunkedArray) else held
    held = pc.utf8_trim_whitespace(held)
    gone = pc.is_in(held, value_set=pa.array(list(missing), pa.string()))
    return pc.if_else(gone, pa.scalar(None, pa.string()), held)
