"""Whether a local file fits the public schema, in plain words.

The findings count private rows. They are for the person who holds the file, and no
part of any release.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from understudy.data.cells import FILL_LABEL, bounds, expected, first_row, read_cells
from understudy.data.encode import encode
from understudy.data.form import Form
from understudy.data.keeping import broken
from understudy.data.layout import overlap_notes
from understudy.data.records import Progress
from understudy.data.schema import Column, Schema
from understudy.data.series import channel_cells
from understudy.data.table import (
    Records,
    Said,
    from_frame,
    is_empty,
    is_series_table,
    read,
    read_frame,
    written,
)
from understudy.errors import DataError

__all__ = ["Finding", "check"]

EMPTY = (
    "the file is empty: no columns, no rows. A run takes it for a site without rows; "
    "if there should be some, export it again"
)


@dataclass(frozen=True)
class Finding:
    """One line of the answer. ``level``: ok, note (handled by a public rule) or error."""

    level: str
    text: str
    column: str | None = None
    rows: int = 0


def check(schema: Schema, path: str | Path, *, progress: Progress | None = None) -> list[Finding]:
    """Read a file by the schema and say what was found, errors last."""
    path = Path(path)
    if is_empty(path):
        return [Finding("error", EMPTY)]
    notes: list[Finding] = []

    def say(text: str) -> None:
        notes.append(Finding("note", text))

    try:
        if path.exists() and is_series_table(path, schema):
            return [*notes, *_check_series(schema, read_frame(path, schema, say))]
        if schema.kind != "table" or not path.is_file():
            return _check_arrays(schema, read(path, schema, progress=progress))
        found = _check_table(schema, read_frame(path, schema, say), say)
        return [*notes, *found]
    except DataError as error:
        return [Finding("error", str(error))]


def _check_table(schema: Schema, frame: pd.DataFrame, say: Said) -> list[Finding]:
    if frame.empty:
        return _no_rows(schema)
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    forms = written(frame, schema, say)
    found = [
        finding
        for column in schema.columns
        for finding in _check_column(schema, column, frame[column.name], forms.get(column.name))
    ]
    errors = [f for f in found if f.level == "error"]
    touched = {f.column for f in found}
    clean = sum(column.name not in touched for column in schema.columns)
    ok = Finding("ok", f"{clean} of {len(schema.columns)} columns fit as they are")
    notes = [f for f in found if f.level == "note"]
    if not errors:
        notes += _check_rows(schema, from_frame(frame, schema, lambda _: None))
    return [_count(schema, len(frame)), ok, *notes, *errors]


def _check_series(schema: Schema, frame: pd.DataFrame) -> list[Finding]:
    """Cells first, then what only whole series show: steps, lengths, windows."""
    if frame.empty:
        return _no_rows(schema)
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    pairs = zip(schema.columns, channel_cells(frame, schema), strict=True)
    found = [finding for pair in pairs for finding in _check_column(schema, *pair)]
    if any(f.level == "error" for f in found):
        found.sort(key=lambda finding: finding.level == "error")
        return [Finding("ok", f"{len(frame)} rows", rows=len(frame)), *found]
    records = from_frame(frame, schema)
    found += [Finding("note", note, schema.time) for note in overlap_notes(schema)]
    return [_count(schema, len(records)), *found, *_check_rows(schema, records)]


def _no_rows(schema: Schema) -> list[Finding]:
    """Of a table without rows, its header is all that can fit."""
    return [Finding("ok", "the declared columns are there"), _count(schema, 0)]


def _check_column(
    schema: Schema, column: Column, cells: pd.Series, form: Form | None = None
) -> list[Finding]:
    read = read_cells(column, cells, schema.missing_as, form)
    wrong, missing = int(read.wrong.sum()), int(read.missing.sum())
    found = []
    if wrong and column.other is not None:
        many = "1 unknown category becomes" if wrong == 1 else f"{wrong} unknown categories become"
        text = f"{many} {column.other!r}"
        found.append(Finding("note", text, column.name, wrong))
    elif wrong:
        text = f"{_cells(wrong)} not {expected(column, form)}"
        if column.kind == "categorical":
            text = f"{_cells(wrong)} none of the public categories"
        text += first_row(read.wrong)
        text += "; set other, or correct them" if column.kind == "categorical" else ""
        found.append(Finding("error", text, column.name, wrong))
    if missing:
        level, rule = _missing_rule(schema, column)
        first = first_row(read.missing) if level == "error" else ""
        text = f"{_cells(missing)} missing{first}{rule}"
        found.append(Finding(level, text, column.name, missing))
    if column.low is not None:
        found += _clamped(column, read.values)
    return found


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"


def _missing_rule(schema: Schema, column: Column) -> tuple[str, str]:
    if schema.kind == "series":
        if schema.fill is None:
            return "error", "; fill them, or set fill"
        said = f"{schema.fill:g}" if isinstance(schema.fill, float) else f"the {schema.fill} value"
        return "note", f" and become {said}"
    if column.name == schema.label:
        return "error", f"; {FILL_LABEL}"
    return ("note", "") if column.missing else ("error", "; fill them, or set missing = true")


def _clamped(column: Column, values: np.ndarray) -> list[Finding]:
    low, high = bounds(column)
    outside = int(((values < low) | (values > high)).sum())
    noun, are = ("value", "is") if outside == 1 else ("values", "are")
    text = f"{outside} {noun} outside {column.low} to {column.high} {are} clamped"
    return [Finding("note", text, column.name, outside)] if outside else []


def _check_arrays(schema: Schema, records: Records) -> list[Finding]:
    found = []
    for i, column in enumerate(schema.columns if records.series is not None else ()):
        found += _clamped(column, np.asarray(records.series)[:, :, i])
    return [_count(schema, len(records)), *found, *_check_rows(schema, records)]


def _check_rows(schema: Schema, records: Records) -> list[Finding]:
    """What only whole rows show: rules, classes, persons, and that they can be encoded."""
    encoded = encode(schema, records)
    found = _check_rules(schema, records.frame)
    seen = len(np.unique(encoded.y))
    if len(encoded) and seen < schema.n_classes:
        found.append(Finding("note", f"{seen} of {schema.n_classes} classes occur", schema.label))
    capped = len(records) - len(encoded)
    if capped:
        text = f"{capped} rows beyond {schema.rows_per_person} per person are left out"
        found.append(Finding("note", text, schema.person, capped))
    return found


def _check_rules(schema: Schema, frame: pd.DataFrame | None) -> list[Finding]:
    if frame is None:
        return []
    text = "{} rows break the rule: {}; they are used as they are".format
    return [Finding("note", text(n, r), rows=n) for r, n in broken(schema, frame) if n]


def _count(schema: Schema, rows: int) -> Finding:
    if rows == 0:
        return Finding("note", "no rows: the site can take part and contributes nothing")
    what = "series" if schema.kind == "series" else "rows"
    if rows > schema.records:
        text = f"{rows} {what}, more than the {schema.records} records declared for all sites"
        return Finding("note", text, rows=rows)
    return Finding("ok", f"{rows} {what}", rows=rows)
