"""Reading files: tables here, images and series through `arrays`.

A file is read by the public schema: its columns must be the declared ones, cells are read by
declared kind (never guessed) in whatever form the file writes them, which is said, and a file
without rows is a site without rows.
No error quotes a record's values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from understudy.data.arrays import load_npz, main_array, read_arrays
from understudy.data.cells import read_cells, settle, texts, to_array
from understudy.data.csv_file import is_blank, read_texts
from understudy.data.form import Form
from understudy.data.forms import LEAST, find_forms
from understudy.data.layout import file_columns
from understudy.data.pictured import frame_of_named
from understudy.data.records import (
    SUFFIXES,
    Progress,
    Records,
    check_size,
    check_there,
    file_kind,
    some,
    unreadable,
)
from understudy.data.schema import Schema
from understudy.data.series import series_from_frame
from understudy.data.stream import write
from understudy.errors import DataError

__all__ = ["Records", "from_frame", "read", "write"]

Said = Callable[[str], None]
_log = logging.getLogger(__name__)


def read(
    path: str | Path, schema: Schema, *, progress: Progress | None = None, said: Said = _log.info
) -> Records:
    """Read a file (or a folder of images) by its public schema.

    ``progress`` is told how many image files were read, of how many; ``said`` how the file is
    written where that is out of the ordinary.
    """
    path = Path(path)
    check_there(path)
    if schema.kind == "table" or is_series_table(path, schema):
        return from_frame(read_frame(path, schema, said), schema, said)
    return read_arrays(path, schema, progress=progress)


def is_series_table(path: Path, schema: Schema) -> bool:
    """Whether the file holds series in a table, not in arrays; refused if none is declared."""
    if schema.kind != "series" or not path.is_file() or path.suffix == ".json":
        return False
    if file_kind(path) == "npz":
        return False
    _check_declared(schema)
    return True


def from_frame(frame: pd.DataFrame, schema: Schema, said: Said = _log.info) -> Records:
    """Check a table against the schema and type its columns, in declared order.

    A table of series becomes arrays, cut as the schema's layout says.
    """
    _check_declared(schema)
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    check_columns(list(frame.columns), schema)
    if schema.kind == "series":
        return series_from_frame(frame, schema)
    forms = written(frame, schema, said)
    columns = {}
    for column in schema.columns:
        form = forms.get(column.name)
        cells = read_cells(column, frame[column.name], schema.missing_as, form)
        cells = settle(column, cells, form, is_label=column.name == schema.label)
        columns[column.name] = to_array(column, cells.values, cells.missing)
    person = None if schema.person is None else texts(frame[schema.person]).to_numpy()
    return Records(frame=pd.DataFrame(columns), person=person)


def written(frame: pd.DataFrame, schema: Schema, said: Said) -> dict[str, Form]:
    """How each column of a table is written; what is out of the ordinary is ``said``."""
    least = max(LEAST, (schema.rows_per_person or 0) + 1)
    forms = find_forms(schema.columns, frame, schema.missing_as, least)
    for note in forms.notes:
        said(note)
    return forms.picked


def _check_declared(schema: Schema) -> None:
    """Refuse images in tables, and series without a layout."""
    if schema.kind == "series" and schema.layout is None:
        raise DataError(
            "a layout in the schema for series in a table",
            "none",
            "set layout = long, wide or recording, or save the series as npz",
        )
    if schema.kind == "image":
        raise DataError("images as files or arrays", "a table", "save them as npz")


def check_columns(names: Sequence[str], schema: Schema, person_apart: bool = False) -> None:
    """Refuse missing, extra and repeated columns.

    Extra names are quoted only once all declared ones were found, or where they differ from a
    declared one in case only: in a file without a header line they would be the values of the
    first record.
    """
    wanted = [n for n in file_columns(schema) if not (person_apart and n == schema.person)]
    there = set(names)
    lacking = [name for name in wanted if name not in there]
    if lacking:
        folded = {name.casefold() for name in lacking}
        alike = [name for name in names if name.casefold() in folded]  # declared, so no secret
        hint = f"rename {some(alike)}; did you mean that?" if alike else "rename or add them"
        hint = hint if alike or len(lacking) < len(wanted) else "add the header line"
        raise DataError("the declared columns", f"no {some(lacking)}", hint)
    if len(there) < len(names):
        raise DataError("each column once", "a repeated column", "rename or remove it")
    extra = there - {*wanted, *schema.ignore, schema.person}
    if extra:
        raise DataError(
            "only declared columns",
            f"also {some(sorted(extra))}",
            "describe them in the schema or list them under ignore",
        )


def read_frame(path: Path, schema: Schema | None = None, said: Said = _log.info) -> pd.DataFrame:
    """A table's raw cells without the ignored columns. Text stays text."""
    check_there(path)
    kind = file_kind(path)
    check_size(path.stat().st_size)
    if kind == "csv":
        return _read_csv(path, schema, said)
    if kind == "parquet":
        return _read_parquet(path, schema)
    if schema is None:
        raise DataError("a CSV or Parquet table", path.name, "convert it")
    arrays = load_npz(path)
    return frame_of_named(arrays, schema) if schema.images else _frame_of_arrays(arrays, schema)


def is_empty(path: Path) -> bool:
    """Whether a file holds nothing at all, not even the names of columns or arrays."""
    if not path.is_file() or not path.name.lower().removesuffix(".gz").endswith(SUFFIXES["csv"]):
        return path.is_file() and path.stat().st_size == 0
    return is_blank(path)


def _read_csv(path: Path, schema: Schema | None, said: Said) -> pd.DataFrame:
    wanted = () if schema is None else file_columns(schema)
    frame, dialect = read_texts(path, wanted, lambda names: _check_names(names, schema))
    for note in dialect.describe(None if schema is None else schema.file):
        said(f"{path.name}: {note}")
    if frame is None:
        return _no_rows(schema)
    return frame if schema is None else frame.drop(columns=list(schema.ignore), errors="ignore")


def _read_parquet(path: Path, schema: Schema | None) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import parquet

    if path.stat().st_size == 0:
        return _no_rows(schema)
    try:
        names = parquet.read_schema(path).names
        names = [n for n in names if not n.startswith("__index_level_")]
        _check_names(names, schema)
        keep = [n for n in names if schema is None or n not in schema.ignore]
        return parquet.read_table(path, columns=keep).to_pandas(ignore_metadata=False)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(path, error) from None


def _check_names(names: list[str], schema: Schema | None) -> None:
    if schema is not None:
        check_columns(names, schema)
    elif len(set(names)) < len(names):
        raise DataError("each column once", "a repeated column", "rename or remove it")


def _no_rows(schema: Schema | None) -> pd.DataFrame:
    if schema is None:
        return pd.DataFrame()
    return pd.DataFrame({name: pd.Series(dtype="str") for name in file_columns(schema)})


def _frame_of_arrays(arrays: dict[str, np.ndarray], schema: Schema) -> pd.DataFrame:
    if not arrays:
        return _no_rows(schema)
    person = {schema.person} if schema.person else set()
    x = main_array(arrays, schema)
    names = [c.name for c in schema.columns if c.name != schema.label]
    if x.ndim != 2 or x.shape[1] != len(names):
        raise DataError(f"X of shape [rows, {len(names)}]", str(list(x.shape)), "check the schema")
    frame = pd.DataFrame(x, columns=names)
    try:
        for name, key in [(schema.label, "y"), *((p, p) for p in person)]:
            if name is not None:
                frame[name] = arrays[key]
    except (KeyError, ValueError):
        raise DataError(f"an array {key!r} with one entry per row", "none", "add it") from None
    return frame
