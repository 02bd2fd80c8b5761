"""What is compared one by one: columns, channels, the label, an image's brightness.

From the public schema alone, so that two releases of one schema are compared in the same way. And
the rows that anyone could draw who has only the schema (`even_rows`): what guessing is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from understudy.data.encode import blocks
from understudy.data.pictures import Picture
from understudy.data.schema import Column, Schema
from understudy.evaluation.rows import Rows

__all__ = ["Axis", "axes", "even_rows"]


@dataclass(frozen=True)
class Axis:
    """One thing to compare: a column, a channel, the label, or an image's brightness.

    ``values`` takes rows to numbers in [0, 1] (NaN where missing) or, if there are
    ``categories``, to their indices. ``of`` names a column that it is made of, if it is none.
    """

    name: str
    kind: str
    values: Callable[[Rows], np.ndarray]
    categories: tuple[str, ...] = ()
    column: Column | None = None
    of: str = ""


def axes(schema: Schema) -> tuple[Axis, ...]:
    """What is compared one by one, from the public schema alone."""
    found: list[Axis] = []
    if schema.kind == "table":
        pixels = {name for image in schema.images for name in image.pixels}
        start = 0
        for column in schema.features:
            if column.name not in pixels:
                found.append(_column_axis(column, start))
            start += column.width
        for image in schema.images:
            found += _image_axes(image, schema.place(image.pixels[0])[0])
    elif schema.kind == "series":
        for i, column in enumerate(schema.columns):
            found.append(Axis(column.name, "numeric", _channel(schema, i), column=column))
    else:
        found.append(Axis("brightness", "numeric", _brightness))
        found.append(Axis("contrast", "numeric", _contrast))
    if schema.n_classes > 1:
        name = schema.label or "class"
        found.append(Axis(name, "label", lambda rows: rows.y, schema.classes))
    return tuple(found)


def _image_axes(image: Picture, start: int) -> list[Axis]:
    """An image beside columns counts by how bright and how contrasted it is."""
    stop, first = start + len(image.pixels), image.pixels[0]
    return [
        Axis(f"{image.name} {said}", "numeric", partial(value, places=slice(start, stop)), of=first)
        for said, value in (("brightness", _brightness), ("contrast", _contrast))
    ]


def _brightness(rows: Rows, places: slice = slice(None)) -> np.ndarray:
    return rows.x[:, places].mean(1)


def _contrast(rows: Rows, places: slice = slice(None)) -> np.ndarray:
    return np.minimum(1, 2 * rows.x[:, places].std(1))


def _column_axis(column: Column, start: int) -> Axis:
    stop = start + column.width
    if column.kind == "categorical":
        names = column.categories + (("missing",) if column.missing else ())
        return Axis(column.name, column.kind, lambda r: r.x[:, start:stop].argmax(1), names, column)
    if column.kind == "boolean":
        return _boolean_axis(column, start)

    def values(rows: Rows) -> np.ndarray:
        x = rows.x[:, start]
        return np.where(rows.x[:, start + 1] > 0.5, np.nan, x) if column.missing else x

    return Axis(column.name, column.kind, values, column=column)


def _boolean_axis(column: Column, start: int) -> Axis:
    def values(rows: Rows) -> np.ndarray:
        yes = (rows.x[:, start] > 0.5).astype(np.int64)
        return np.where(rows.x[:, start + 1] > 0.5, 2, yes) if column.missing else yes

    names = column.classes + (("missing",) if column.missing else ())
    return Axis(column.name, column.kind, values, names, column)


def even_rows(schema: Schema, n: int, rng: np.random.Generator) -> Rows:
    """Tables or series drawn evenly between the public bounds and over the categories."""
    x = rng.random((n, schema.width), np.float32)
    for block in blocks(schema):
        part = x[:, block.start : block.stop]
        if block.kind == "categorical":
            part[:] = part == part.max(1, keepdims=True)
        elif block.kind in ("boolean", "missing"):
            part[:] = part < (0.5 if block.kind == "boolean" else 0)
    y = rng.choice(schema.n_classes, n, p=schema.balance)
    return Rows(x, y.astype(np.int64))


def _channel(schema: Schema, i: int) -> Callable[[Rows], np.ndarray]:
    """All time steps of a channel, as rows by steps."""
    return lambda rows: rows.x.reshape(len(rows), *schema.shape)[:, :, i]
