"""What the pool shows of a generator's rows: a few of them, and columns as bars, images or lines.

All of it is drawn from the generator, so it costs no privacy. It is made where the push is checked,
and kept as JSON, so that pages need neither PyTorch nor the release.
"""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from typing import Any

import numpy as np

from understudy.data.column import Column, bounds
from understudy.data.records import Records
from understudy.data.scale import from_unit, to_unit
from understudy.data.schema import Schema
from understudy.release.bundle import Release

__all__ = ["preview"]

_ROWS, _SHOWN, _COLUMNS, _BINS, _BARS = 400, 6, 36, 20, 12
_CLASSES, _EACH, _SERIES, _CHANNELS = 10, 8, 5, 12
_SEED = 1  # the same for all, so that nobody can pick rows that flatter


def preview(release: Release) -> dict[str, Any]:
    """``{"kind": …}`` with ``rows`` and ``columns``, a PNG ``sheet``, or ``channels``."""
    schema = release.schema
    if schema.kind == "image":
        return {"kind": "image", **_sheet(release)}
    drawn = release.sample(_ROWS, seed=_SEED)
    return _lines(schema, drawn) if schema.kind == "series" else _table(schema, drawn)


def _table(schema: Schema, drawn: Records) -> dict[str, Any]:
    frame = drawn.frame
    assert frame is not None
    label_first = sorted(schema.columns, key=lambda column: column.name != schema.label)
    shown = label_first[:_COLUMNS]
    head = frame[[column.name for column in shown]].head(_SHOWN)
    rows = [[_cell(value) for value in row] for row in head.itertuples(index=False)]
    columns = [_bars(column, frame[column.name].to_numpy()) for column in shown]
    more = max(0, len(schema.columns) - _COLUMNS)
    return {"kind": "table", "rows": rows, "columns": columns, "more": more}


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:40]


def _bars(column: Column, values: np.ndarray) -> dict[str, Any]:
    """A column's name and how often each value, or each range of values, was drawn."""
    if column.kind in ("numeric", "integer"):
        return _histogram(column, values.astype(float))
    if column.kind in ("date", "timestamp"):
        years, counts = np.unique([str(value)[:4] for value in values], return_counts=True)
        return _counted(column, "years", years.tolist(), counts)
    names, counts = np.unique(values.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_BARS]
    return _counted(column, "categories", [str(names[i])[:40] for i in order], counts[order])


def _histogram(column: Column, numbers: np.ndarray) -> dict[str, Any]:
    """On the public range, so that all releases of an exchange can be held against each other."""
    low, high = bounds(column)
    known = numbers[np.isfinite(numbers)]
    if column.kind == "integer" and high - low < _BINS:
        values = np.arange(low, high + 1)
        counts, labels = (known[:, None] == values).sum(0), [f"{value:.0f}" for value in values]
    else:
        counts, _ = np.histogram(to_unit(column, known), _BINS, (0, 1))
        edges = from_unit(column, np.linspace(0, 1, _BINS + 1))
        labels = [f"{start:.4g} to {end:.4g}" for start, end in pairwise(edges)]
    ends = [f"{low:.6g}", f"{high:.6g}"]
    return {**_counted(column, "numeric", labels, counts), "ends": ends}


def _counted(column: Column, kind: str, labels: list[str], counts: np.ndarray) -> dict[str, Any]:
    return {"name": column.name, "kind": kind, "labels": labels, "counts": counts.tolist()}


def _lines(schema: Schema, drawn: Records) -> dict[str, Any]:
    """A few series, channel by channel."""
    assert drawn.series is not None
    some = drawn.series[:_SERIES].astype(float).round(4)
    shown = schema.columns[:_CHANNELS]
    channels = [
        {"name": column.name, "range": bounds(column), "lines": some[:, :, i].tolist()}
        for i, column in enumerate(shown)
    ]
    return {"kind": "series", "channels": channels, "more": len(schema.columns) - len(shown)}


def _sheet(release: Release) -> dict[str, Any]:
    """A PNG with a line of images for each class."""
    schema, each = release.schema, []
    labels = list(schema.classes[:_CLASSES]) if release.generator.conditional else []
    asked: list[str | None] = [*labels] if len(labels) > 1 else [None]
    for label in asked:
        images = release.sample(_EACH if label else _EACH * 4, label=label, seed=_SEED)
        assert images.images is not None
        each.append(images.images)
    pile = np.concatenate(each)
    lines = [np.concatenate(list(pile[i : i + _EACH]), 1) for i in range(0, len(pile), _EACH)]
    return {"classes": labels, "sheet": _png(np.concatenate(lines, 0)), "across": _EACH}


def _png(pixels: np.ndarray) -> str:
    """As the address of an image, which holds the image itself."""
    from PIL import Image

    file = io.BytesIO()
    flat = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels
    Image.fromarray(flat.astype(np.uint8)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
