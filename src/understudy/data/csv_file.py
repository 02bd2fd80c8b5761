"""A CSV file as a table of texts, whatever its dialect."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow

from understudy.data.dialect import SEPARATORS, Dialect, find_dialect, open_bytes
from understudy.data.records import DAMAGED, unreadable
from understudy.errors import DataError

__all__ = ["is_blank", "read_texts"]

BLOCK = 2**22
_MORE = "[" + bytes(range(0x80, 0xC0)).decode("cp1252", "ignore") + "]"
MIXED = f"[Â-ß]{_MORE}|[à-ï]{_MORE}{{2}}|[ð-ô]{_MORE}{{3}}"
"""What the letters of UTF-8 that take two to four bytes look like in cp1252."""
CheckNames = Callable[[list[str]], None]


def is_blank(path: Path) -> bool:
    """Whether a file holds nothing but blanks; what cannot be read is not."""
    try:
        return not find_dialect(path).names
    except (DataError, *DAMAGED):
        return False


def read_texts(
    path: Path, columns: Collection[str], check_names: CheckNames
) -> tuple[pd.DataFrame | None, Dialect]:
    """All cells as text, and the dialect; None if there is not even a header.

    ``columns`` should be in the header; ``check_names`` refuses one that does not fit.
    """
    try:
        dialect = find_dialect(path, columns)
        if not dialect.names:
            return None, dialect
        dialect = replace(dialect, padded=_is_padded(path, dialect))
        names = [name.strip() for name in dialect.names]
        check_names(names[:-1] if not names[-1] else names)
        try:
            frame = _read(path, dialect)
        except UnicodeError:
            dialect = replace(dialect, encoding="cp1252")  # the first lines were plain ASCII
            frame = _read(path, dialect)
        if dialect.encoding == "cp1252":
            _check_mixed(frame)
        return frame, dialect
    except (*DAMAGED, pa.ArrowException) as error:
        raise unreadable(path, error) from None


def _is_padded(path: Path, dialect: Dialect) -> bool:
    """Whether blanks stand before quotes anywhere in the file, not in its first lines alone."""
    mark, seen = f'{dialect.separator} "', ""
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, dialect.encoding, errors="replace", newline="")
        while block := text.read(BLOCK):
            if mark in seen[1 - len(mark) :] + block:
                return True
            seen = block
    return False


def _check_mixed(frame: pd.DataFrame) -> None:
    """A letter of UTF-8 beside one of another encoding: neither reads both."""
    if any(cells.str.contains(MIXED, regex=True).any() for _, cells in frame.items()):
        raise DataError("text in one encoding", "UTF-8 and another", "re-export it as UTF-8")


def _read(path: Path, dialect: Dialect) -> pd.DataFrame:
    frame = _read_padded(path, dialect) if dialect.padded else _read_plain(path, dialect)
    names = [name.strip() for name in dialect.names]
    if not names[-1]:  # lines that end in a separator
        if (frame.iloc[:, -1].str.strip() != "").any():
            raise DataError("a name for every column", "a last one without", "name it")
        frame, names = frame.iloc[:, :-1], names[:-1]
    return frame.set_axis(names, axis=1)


def _read_plain(path: Path, dialect: Dialect) -> pd.DataFrame:
    places = [str(i) for i in range(len(dialect.names))]
    encoding = dialect.encoding.removesuffix("-sig")
    try:
        table = arrow.read_csv(
            pa.input_stream(str(path), compression="detect"),
            arrow.ReadOptions(
                use_threads=False,
                block_size=BLOCK,
                column_names=places,
                skip_rows=dialect.skip,
                encoding=encoding,
            ),
            arrow.ParseOptions(
                delimiter=dialect.separator,
                newlines_in_values=True,
            ),
            arrow.ConvertOptions(column_types=dict.fromkeys(places, pa.string()), null_values=[]),
        )
    except pa.ArrowInvalid as error:
        if "Expected" in str(error) and "columns" in str(error):
            raise _uneven(path, dialect) from None
        if "UTF8" in str(error) or "utf-8" in str(error):
            raise UnicodeError from None
        raise DataError(
            "lines of cells, with quotes in pairs", "something else", "re-export it"
        ) from None
    _check_quotes(path, table)
    return table.slice(1).to_pandas()


def _check_quotes(path: Path, table: pa.Table) -> None:
    """A quote that is never closed takes all that follows into one cell, of the last line."""
    last = [column[-1].as_py() for column in table.columns] if len(table) else []
    if not any("\n" in cell or "\r" in cell for cell in last):
        return
    with open_bytes(path) as file:
        odd = sum(block.count(b'"') for block in iter(lambda: file.read(BLOCK), b"")) % 2
    if odd:
        raise DataError("quotes in pairs", "one that is not closed", "close or remove it")


def _uneven(path: Path, dialect: Dialect) -> DataError:
    """The first line with more or fewer cells than the header, by its number."""
    separator = SEPARATORS.get(dialect.separator, "the separator")
    with open_bytes(path) as file:
        lines = io.TextIOWrapper(file, dialect.encoding, errors="replace", newline="")
        for _ in range(dialect.skip):
            lines.readline()
        reader = csv.reader(lines, delimiter=dialect.separator, skipinitialspace=dialect.padded)
        odd = next((cells for cells in reader if cells and len(cells) != len(dialect.names)), [])
    return DataError(
        f"{len(dialect.names)} cells in each line, as in the header",
        f"{len(odd)} in line {dialect.skip + reader.line_num}",
        f"complete the line, or quote cells that hold {separator}",
    )


def _read_padded(path: Path, dialect: Dialect) -> pd.DataFrame:
    """Quotes after blanks, which only pandas' slower parser takes for quotes."""
    try:
        return (
            pd.read_csv(
                path,
                sep=dialect.separator,
                encoding=dialect.encoding,
                skiprows=dialect.skip,
                header=None,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
            )
            .iloc[1:]
            .reset_index(drop=True)
        )
    except pd.errors.ParserError:
        raise _uneven(path, dialect) from None
