"""Rows that a classifier is asked about, and its answers.

A release's schema declares the label as a column; rows to be predicted have none, or have
one to measure with. So features are read and encoded by the schema without its label and
person column (both may be in the file and are then passed over), and labels apart.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from understudy.data.arrays import load_npz
from understudy.data.cells import texts, to_array
from understudy.data.encode import encode
from understudy.data.images import IMAGE_FILES
from understudy.data.records import Progress, Records, file_kind
from understudy.data.schema import Schema
from understudy.data.table import from_frame, read, read_frame
from understudy.errors import DataError

__all__ = ["as_records", "features", "labels", "predictions", "read_rows"]


def read_rows(path: str | Path, schema: Schema, *, progress: Progress | None = None) -> Records:
    """Read a file by the release's public schema; labels may be absent, persons are left out."""
    path, whole = Path(path), _impersonal(schema)
    if _is_pile(path):
        return read(path, _unlabelled(schema), progress=progress)
    if schema.kind == "image" or schema.label is None or not path.is_file():
        return _matched(read(path, whole, progress=progress))
    if file_kind(path) == "npz":
        return _matched(read(path, whole if "y" in load_npz(path) else _unlabelled(schema)))
    frame = read_frame(path)
    if schema.label not in frame:
        return from_frame(frame, _unlabelled(schema))
    _check_labels(schema, frame[schema.label])
    return from_frame(frame, whole)


def as_records(schema: Schema, rows: Records | pd.DataFrame) -> Records:
    """Rows of either form; of a table's columns all but label and person."""
    if isinstance(rows, pd.DataFrame):
        return from_frame(rows, _unlabelled(schema))
    if not isinstance(rows, Records):
        raise DataError(
            "rows as a pandas DataFrame or as Records",
            type(rows).__name__,
            "wrap arrays, Records(images=…) or Records(series=…); understudy predict reads files",
        )
    return rows


def features(schema: Schema, rows: Records) -> np.ndarray:
    """Encoded features ``[n, F]``; labels are not looked at."""
    return encode(_unlabelled(schema), replace(rows, labels=None)).x


def labels(schema: Schema, rows: Records) -> np.ndarray | None:
    """The class position of each row ``[n]``, or None if the rows have no labels."""
    held = rows.labels is not None if rows.frame is None else schema.label in rows.frame
    return encode(_impersonal(schema), rows).y if held else None


def predictions(schema: Schema, rows: Records, probability: np.ndarray) -> pd.DataFrame:
    """A table: the likeliest class, as the data would hold it, then a column per class.

    Records that were cut from tables of series say in front which series, and where in it.
    """
    best, column = probability.argmax(1), schema.label_column
    if column is None:
        said = pd.Series(pd.Categorical.from_codes(best, categories=pd.Index(schema.classes)))
    else:
        said = to_array(column, best.astype(np.float64), np.zeros(len(best), bool))
    each = {f"probability_{name}": probability[:, k] for k, name in enumerate(schema.classes)}
    return pd.DataFrame({**_places(schema, rows), "predicted": said, **each})


def _places(schema: Schema, rows: Records) -> dict[str, np.ndarray]:
    found = {"series": rows.recording if schema.series else None}
    found["start"] = rows.start if schema.stride else None
    return {name: held for name, held in found.items() if held is not None}


def _impersonal(schema: Schema) -> Schema:
    """Who a row is about does not matter here; no cap on a person's rows applies."""
    named = () if schema.person in (None, schema.series) else (schema.person,)
    return replace(schema, person=None, rows_per_person=None, ignore=(*schema.ignore, *named))


def _unlabelled(schema: Schema) -> Schema:
    """The features alone; a file may hold the label, but it is not read."""
    bare = _impersonal(schema)
    named = () if schema.label is None else (schema.label,)
    return replace(
        bare,
        columns=schema.features,
        label=None,
        classes=(),
        balance=None,
        rules=(),
        ignore=(*bare.ignore, *named),
    )


def _is_pile(path: Path) -> bool:
    """Whether image files lie directly in a folder, not sorted by class; read by name."""
    return path.is_dir() and any(file.suffix.lower() in IMAGE_FILES for file in path.iterdir())


def _matched(rows: Records) -> Records:
    """Labels, where there are some, must be as many as the records."""
    if rows.labels is not None and np.shape(rows.labels) != (len(rows),):
        raise DataError(
            "a label for each record, or no y", "more or fewer", "correct y, or drop it"
        )
    return rows


def _check_labels(schema: Schema, cells: pd.Series) -> None:
    """Some labels are of no use: what cannot be measured would look as if it had been."""
    tokens = set(schema.missing_as) - set(schema.classes)
    missing = int((cells.isna() | texts(cells).isin(tokens)).sum())
    if missing:
        raise DataError(
            f"a label in every row, or no column {schema.label!r}",
            f"{missing} rows without",
            "fill them, or remove the column: it is not needed to predict",
        )
