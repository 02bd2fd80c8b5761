"""A first schema for a human to edit, guessed from a local file.

The draft looks at private rows, so everything in it is a guess until a person has replaced it by
public knowledge: each guess is marked, bounds are rounded outwards, and columns that look like
identifiers are left "unclassified", which `Schema.load` refuses.

Detectors (`columns`, `files`, `series`, `numbered`) return what they found; `text` writes it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from understudy.data.arrays import load_npz
from understudy.data.dialect import FileForm, find_dialect
from understudy.data.draft.columns import find_table
from understudy.data.draft.files import find_arrays, find_images
from understudy.data.draft.series import SeriesHints, find_series, looks_long
from understudy.data.draft.text import Found, Setting, render, warnings
from understudy.data.leaf import is_leaf
from understudy.data.records import check_there, file_kind
from understudy.data.table import read_frame
from understudy.errors import DataError

__all__ = ["SeriesHints", "draft"]

_UNLABELLED = (
    "No column is the label. If models are to predict one, draft again with --label COLUMN: rows "
    "then keep what tells its values apart."
)


def draft(
    path: str | Path,
    label: str | None = None,
    *,
    name: str | None = None,
    series: SeriesHints | None = None,
) -> tuple[str, list[str]]:
    """Guess a schema: (TOML text, warnings in plain words).

    With ``series`` a table is taken to hold series, as far as the hints say how.
    """
    path = Path(path)
    check_there(path)
    stem = re.split(r"\.(csv|parquet|pq|npz)", path.name)[0]
    called = Setting("name", name) if name else Setting("name", stem, "guess: the file's name")
    found = _find(path, label, series)
    kind, *others = found.settings
    found = replace(found, settings=(kind, called, *others))
    return render(found), warnings(found)


def _find(path: Path, label: str | None, series: SeriesHints | None) -> Found:
    if series is not None:
        return find_series(read_frame(path), label, series)
    if is_leaf(path):
        raise DataError("rows to draft from", "LEAF's JSON", "start from docs/series.md's FEMNIST")
    if path.is_dir():
        return find_images(path, label)
    if path.suffix == ".npz":
        return find_arrays(load_npz(path), label)
    said: list[str] = []
    frame = read_frame(path, said=said.append)
    found = find_table(frame, label, _file(path))
    if label is None:
        said.append(_UNLABELLED)
    return replace(found, warnings=(*said, *looks_long(frame, label)))


def _file(path: Path) -> tuple[Setting, ...]:
    """How the file is written, so that synthetic files are written alike."""
    if file_kind(path) != "csv":
        return ()
    dialect = find_dialect(path)
    form = {"separator": dialect.separator, "encoding": dialect.encoding}
    default = FileForm()
    said = {key: value for key, value in form.items() if value != getattr(default, key)}
    return tuple(Setting(f"file.{key}", value, "as this file") for key, value in said.items())
