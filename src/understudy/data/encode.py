"""Rows to numbers in [0, 1] and back, by the public schema alone.

Nothing is fitted: bounds and categories come from the schema, so encoding costs no
privacy and all sites agree. Values outside the bounds are clamped, which bounds what
one record can contribute; rows per person are capped by file order, which does not
depend on what the rows say. Decoding inverts this: exactly for categories, booleans,
dates and integers (spans up to 2²⁴), to the declared ``decimals`` or to 2⁻²⁴ of the
span for numeric columns and timestamps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from understudy.data.arrays import shape_images, shape_series
from understudy.data.cells import read_cells, settle, texts, to_array
from understudy.data.records import check_memory
from understudy.data.scale import from_unit, to_unit
from understudy.data.schema import Column, Schema
from understudy.data.table import Records, check_columns
from understudy.errors import DataError

__all__ = ["Block", "Encoded", "blocks", "decode", "encode", "read_column"]

MISSING_VALUE = 0.5
"""What stands in ``x`` for a missing number: the middle of its public bounds."""


@dataclass(frozen=True)
class Encoded:
    """``x`` [n, F] in [0, 1], ``y`` [n] class positions, ``person`` [n] or None.

    ``rows`` [n] gives each row's place in the records, or None if none was capped.
    """

    x: np.ndarray
    y: np.ndarray
    person: np.ndarray | None = None
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Block:
    """Features ``start:stop`` of ``x``. A "categorical" block is one-hot; "missing" is a flag."""

    column: str
    kind: str
    start: int
    stop: int


def blocks(schema: Schema) -> tuple[Block, ...]:
    """Where each column lies in ``x``, in declared order; a missing flag is a block of its own."""
    if schema.kind != "table":
        return (Block(schema.name, schema.kind, 0, schema.width),)
    found: list[Block] = []
    start = 0
    for column in schema.features:
        flag = column.missing and column.kind != "categorical"
        stop = start + column.width - flag
        found.append(Block(column.name, column.kind, start, stop))
        if flag:
            found.append(Block(column.name, "missing", stop, stop + 1))
        start += column.width
    return tuple(found)


def encode(schema: Schema, records: Records, *, capped: bool = True) -> Encoded:
    """Encode records; refuses up front what would not fit in memory.

    ``capped`` leaves out a person's rows beyond the cap. Where single records are protected it
    must be off: taking one row away would let another one in, which moves a sum by two.
    """
    check_memory(len(records) * schema.width * 4)
    whole = {"table": _encode_table, "image": _encode_images, "series": _encode_series}
    x, y = whole[schema.kind](schema, records)
    person = _persons(schema, records)
    if person is None or schema.rows_per_person is None or not capped:
        return Encoded(x, y, person)
    rows = np.flatnonzero(pd.Series(person).groupby(person).cumcount() < schema.rows_per_person)
    if len(rows) == len(y):
        return Encoded(x, y, person)
    return Encoded(x[rows], y[rows], person[rows], rows)


def decode(schema: Schema, x: np.ndarray, y: np.ndarray) -> Records:
    """Turn features [n, F] and classes [n], soft values too, into records."""
    x, y = np.asarray(x), np.asarray(y)
    _check_features(schema, x, y)
    if schema.kind == "table":
        columns = schema.columns
        frame = {c.name: to_array(c, *read_column(schema, c.name, x, y)) for c in columns}
        return Records(frame=pd.DataFrame(frame))
    shape = (len(y), *schema.shape)
    labels = None if schema.classes == ("all",) else _class_values(schema)[y]
    if schema.kind == "image":
        pixels = np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)
        return Records(images=pixels.reshape(shape), labels=labels)
    channels = x.reshape(shape).astype(np.float64)
    for i, column in enumerate(schema.columns):
        channels[:, :, i] = from_unit(column, channels[:, :, i])
    return Records(series=channels, labels=labels)


def _encode_table(schema: Schema, records: Records) -> tuple[np.ndarray, np.ndarray]:
    frame = records.frame
    if frame is None:
        raise DataError("a table", "images or series", "use the schema of this data")
    check_columns([str(c) for c in frame.columns], schema, records.person is not None)
    frame = frame.set_axis([str(c) for c in frame.columns], axis=1)
    x = np.zeros((len(frame), schema.width), np.float32)
    y = np.zeros(len(frame), np.int64)
    start = 0
    for column in schema.columns:
        cells = read_cells(column, frame[column.name], schema.missing_as)
        cells = settle(column, cells, is_label=column.name == schema.label)
        if column == schema.class_column:
            y = cells.values.astype(np.int64)
            continue
        _fill(column, cells.values, cells.missing, x[:, start : start + column.width])
        start += column.width
    return x, y


def _fill(column: Column, values: np.ndarray, missing: np.ndarray, out: np.ndarray) -> None:
    """Write one column's features into its slice of ``x``."""
    if column.kind == "categorical":
        codes = np.where(missing, len(column.categories), values).astype(np.int64)
        out[np.arange(len(codes)), codes] = 1
        return
    scaled = values if column.kind == "boolean" else to_unit(column, values)
    out[:, 0] = np.where(missing, MISSING_VALUE, scaled)
    if column.missing:
        out[:, 1] = missing


def _encode_images(schema: Schema, records: Records) -> tuple[np.ndarray, np.ndarray]:
    images = shape_images(schema, records.images)
    x = np.divide(images.reshape(len(images), schema.width), np.float32(255), dtype=np.float32)
    return x, _classes(schema, records.labels, len(images))


def _encode_series(schema: Schema, records: Records) -> tuple[np.ndarray, np.ndarray]:
    series = shape_series(schema, records.series)
    x = np.empty(series.shape, np.float32)
    for i, column in enumerate(schema.columns):
        x[:, :, i] = to_unit(column, series[:, :, i])
    return x.reshape(len(series), schema.width), _classes(schema, records.labels, len(series))


def _class_values(schema: Schema) -> np.ndarray:
    """The classes as files hold them: whole numbers if all their names are, else text."""
    if all(n.removeprefix("-").isdecimal() and n == str(int(n)) for n in schema.classes):
        return np.array([int(name) for name in schema.classes])
    return np.array(schema.classes)


def _classes(schema: Schema, labels: np.ndarray | None, n: int) -> np.ndarray:
    """Labels to class positions: by name, or by position if they are numbers and no name is."""
    if labels is None and schema.classes == ("all",):
        return np.zeros(n, np.int64)
    if labels is None or len(labels) != n:
        raise DataError("a label for each record", "missing labels", "add y to the file")
    labels, named = np.asarray(labels), _class_values(schema)
    if labels.dtype.kind in "iu" and named.dtype.kind == "U":
        y = labels.astype(np.int64)
    else:
        y = pd.Index(schema.classes).get_indexer(pd.Index(texts(pd.Series(labels))))
    unknown = int(((y < 0) | (y >= schema.n_classes)).sum())
    if unknown:
        wanted = f"labels among the {schema.n_classes} public classes"
        raise DataError(wanted, f"{unknown} that are not", "fix y")
    return y.astype(np.int64)


def _persons(schema: Schema, records: Records) -> np.ndarray | None:
    if schema.person is None:
        return None
    if not len(records):
        return np.zeros(0, np.int64)
    values = records.person
    if values is None and records.frame is not None and schema.person in records.frame:
        values = records.frame[schema.person].to_numpy()
    if values is None or len(values) != len(records):
        raise DataError(f"the person column {schema.person!r}", "none", "add it to the data")
    names = texts(pd.Series(values))
    codes = pd.factorize(names.mask(names.isin(schema.missing_as)))[0]
    if lacking := int((codes < 0).sum()):
        wanted = f"a person in every row ({schema.person!r})"
        raise DataError(wanted, f"{lacking} without", "fill them")
    return codes.astype(np.int64)


def read_column(
    schema: Schema, name: str, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One column of encoded rows: its cells as numbers (see `cells`), and which are missing."""
    if schema.class_column is not None and name == schema.class_column.name:
        return y.astype(np.float64), np.zeros(len(y), bool)
    start, column = schema.place(name)
    return _read_features(column, x[:, start : start + column.width])


def _read_features(column: Column, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and missing mask from one column's features, soft or not."""
    if column.kind == "categorical":
        codes = part.argmax(1)
        missing = codes == len(column.categories)
        return codes.astype(np.float64), missing
    missing = part[:, 1] > 0.5 if column.missing else np.zeros(len(part), bool)
    if column.kind == "boolean":
        return (part[:, 0] > 0.5).astype(np.float64), missing
    return from_unit(column, part[:, 0]), missing


def _check_features(schema: Schema, x: np.ndarray, y: np.ndarray) -> None:
    if x.shape != (len(y), schema.width) or not np.isfinite(x).all():
        raise DataError(
            f"finite features [{len(y)}, {schema.width}]",
            f"{list(x.shape)}, or values that are not finite",
            "use the schema the generator was trained with",
        )
    if len(y) and not 0 <= y.min() <= y.max() < schema.n_classes:
        raise DataError(
            f"classes 0 to {schema.n_classes - 1}", "classes outside that range", "check the labels"
        )
