"""Rows as the lines of a CSV file, in the words, signs and formats of the schema."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types

from understudy.data.column import Column
from understudy.data.schema import Schema

__all__ = ["header", "lines"]

PIECE = 2**17
DAY, MOMENT = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"


def header(frame: pd.DataFrame, separator: str) -> str:
    """The first line."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerow(frame.columns)
    return text.getvalue()


def lines(frame: pd.DataFrame, schema: Schema | None, separator: str) -> bytes:
    """All other lines, in UTF-8."""
    known = {column.name: column for column in schema.columns} if schema is not None else {}
    if len(frame) > PIECE:  # texts of one array are at most 2³¹ bytes
        starts = range(0, len(frame), PIECE)
        return b"".join(lines(frame.iloc[i : i + PIECE], schema, separator) for i in starts)
    if frame.empty:
        return b""
    cells = []
    for name in frame.columns:
        texts = cell_texts(known.get(name), frame[name])
        cells.append(texts if _is_safe(known.get(name), separator) else _quoted(texts, separator))
    if len(cells) == 1:  # a blank line would be no row
        cells = [pc.if_else(pc.equal(pc.fill_null(cells[0], ""), ""), pa.scalar('""'), cells[0])]
    options = {"null_handling": "replace", "null_replacement": ""}
    rows = pc.binary_join_element_wise(*cells, separator, **options)
    whole = pc.binary_join_element_wise(rows, pa.scalar(""), "\n")
    return b"".join(_body(chunk) for chunk in getattr(whole, "chunks", [whole]))


def _body(held: pa.Array) -> bytes:
    """The texts of an array one after the other, as they lie in memory."""
    return held.buffers()[2].to_pybytes()


def cell_texts(column: Column | None, cells: pd.Series) -> pa.Array:
    """A column's cells as texts; missing ones are null."""
    kind = column.kind if column is not None else _kind(cells)
    if kind == "boolean":
        return _words(column.classes if column is not None else ("false", "true"), cells)
    if kind in ("date", "timestamp"):
        plain = DAY if kind == "date" else MOMENT
        return _times(cells, (column.format if column is not None else None) or plain)
    if column is not None and column.is_number:
        return _numbers(column, cells)
    if isinstance(cells.dtype, pd.CategoricalDtype) or kind != "text":
        return _whole(pa.array(cells, from_pandas=True).cast(pa.string()))
    return _whole(pa.array(cells.astype("string"), pa.string(), from_pandas=True))


def _kind(cells: pd.Series) -> str:
    """The kind of a column that no schema declares; days are times at midnight throughout."""
    if types.is_bool_dtype(cells.dtype):
        return "boolean"
    if types.is_datetime64_any_dtype(cells.dtype):
        there = cells.dropna()
        return "date" if (there == there.dt.normalize()).all() else "timestamp"
    return "numeric" if types.is_numeric_dtype(cells.dtype) else "text"


def _whole(held: pa.Array | pa.ChunkedArray) -> pa.Array:
    return held.combine_chunks() if isinstance(held, pa.ChunkedArray) else held


def _words(words: tuple[str, ...], cells: pd.Series) -> pa.Array:
    missing = cells.isna().to_numpy(bool)
    codes = np.where(missing, 0, cells.fillna(False).astype(np.int8))
    return pa.array(np.array(words, object)[codes], pa.string(), mask=missing)


def _times(cells: pd.Series, format: str) -> pa.Array:
    held = _whole(pa.array(cells.astype("datetime64[s]"), from_pandas=True))
    return pc.strftime(held, format=format.replace("%f", "000000"))


def _numbers(column: Column, cells: pd.Series) -> pa.Array:
    held = _whole(pa.array(cells, from_pandas=True))
    if column.thousands or ((column.prefix or column.suffix) and column.decimals is not None):
        text = _grouped(column, held)
    else:
        whole = column.kind == "integer" or column.decimals == 0
        text = _plain(held, whole)
        if column.decimal == ",":
            text = pc.replace_substring(text, ".", ",")
    if column.prefix:
        text = pc.replace_substring_regex(text, "^(-?)", rf"\1{column.prefix}", max_replacements=1)
    return (
        pc.binary_join_element_wise(text, pa.scalar(column.suffix), "") if column.suffix else text
    )


def _plain(held: pa.Array, whole: bool) -> pa.Array:
    """Whole numbers without a fraction; others as shortly as they can be read again."""
    if whole and pc.all(pc.is_finite(held)).as_py() is not False:
        held = held.cast(pa.int64())
    return held.cast(pa.string())


def _grouped(column: Column, held: pa.Array) -> pa.Array:
    """Digits in groups of three, and as many decimals as the schema says."""
    places = "" if column.kind == "integer" else f".{column.decimals or 0}f"
    places = "" if column.decimals is None else places
    signs = str.maketrans({",": column.thousands, ".": column.decimal or "."})
    values = held.to_pylist()
    texts = [None if v is None else f"{v:,{places}}".translate(signs) for v in values]
    return pa.array(texts, pa.string())


def _is_safe(column: Column | None, separator: str) -> bool:
    """Whether no text of a column can hold the separator, a quote or a line break."""
    if column is None:
        return False
    signs = (column.decimal or ".", column.thousands, column.prefix, column.suffix)
    said = (*column.classes, *(signs if column.is_number else (column.format or "",)))
    return not any(re.search(_special(separator), text) for text in said)


def _special(separator: str) -> str:
    return rf'[{re.escape(separator)}"\r\n]'


def _quoted(cells: pa.Array, separator: str) -> pa.Array:
    """Texts that hold the separator, a quote or a line break stand in quotes."""
    needs = pc.match_substring_regex(cells, _special(separator))
    if not pc.any(needs).as_py():
        return cells
    doubled = pc.replace_substring(cells, '"', '""')
    inside = pc.binary_join_element_wise(pa.scalar('"'), doubled, pa.scalar('"'), "")
    return pc.if_else(needs, inside, cells)
