"""Fidelity: how far the synthetic rows' distributions are from those of real rows.

Everything is compared with the held-out real rows, and beside it stands the same distance from
*real* training rows to those held-out rows: the floor that even perfect synthetic rows would
not beat. Per column: total variation (categories, classes), Kolmogorov-Smirnov and Wasserstein
distance (numbers, in units of the public range). Over columns:
correlations (`correlation`). Images: `pixels`, and `frechet` beside it. Intervals are by bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.data.schema import Column, Schema
from understudy.evaluate.correlation import WIDEST, associated_names, correlation_scores
from understudy.evaluate.pixels import pixel_scores
from understudy.evaluate.rows import Rows
from understudy.evaluate.score import Compared, Score, distance, weights

__all__ = ["Axis", "ColumnFit", "Fidelity", "axes", "measure_fidelity"]

CELLS = 256


@dataclass(frozen=True)
class Axis:
    """One thing to compare: a column, a channel, the label, or an image's brightness.

    ``values`` takes rows to numbers in [0, 1] (NaN where missing) or, if there are
    ``categories``, to their indices.
    """

    name: str
    kind: str
    values: Callable[[Rows], np.ndarray]
    categories: tuple[str, ...] = ()
    column: Column | None = None


@dataclass(frozen=True)
class ColumnFit:
    """The distances of one column; the first is the one it is ranked by."""

    column: str
    kind: str
    distances: tuple[Compared, ...]

    @property
    def main(self) -> Compared:
        """Total variation or Kolmogorov-Smirnov: both from 0 (same) to 1 (disjoint)."""
        return self.distances[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for scores.json."""
        found = [d.to_dict() for d in self.distances]
        return {"column": self.column, "kind": self.kind, "distances": found}


@dataclass(frozen=True)
class Fidelity:
    """All distances, smaller is closer; what could not be measured and why; how to read them."""

    overall: tuple[Compared, ...]
    columns: tuple[ColumnFit, ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for scores.json."""
        return {
            "overall": [s.to_dict() for s in self.overall],
            "columns": [c.to_dict() for c in self.columns],
            "notes": list(self.notes),
            "remarks": list(self.remarks),
        }


def measure_fidelity(
    schema: Schema, synthetic: Rows, train: Rows, test: Rows, *, rng: np.random.Generator
) -> Fidelity:
    """Distances from ``synthetic``, and from ``train``, to ``test``."""
    if not len(synthetic) or not len(test):
        return Fidelity((), (), ("Without synthetic and held-out real rows nothing is compared.",))
    notes = [] if len(train) else ["No real training rows: distances have no floor beside them."]
    sides = [s for s in (synthetic, train) if len(s)]
    columns, overall = _columns(schema, sides, test, rng)
    if schema.kind == "table":
        overall += _beside([correlation_scores(schema, s, test, rng=rng) for s in sides])
        if len(associated_names(schema)) == WIDEST:
            notes.append(f"Correlations are of the first {WIDEST} encoded columns.")
    if schema.kind == "image":
        overall += _beside([pixel_scores(schema, s, test, rng=rng) for s in sides])
    return Fidelity(tuple(overall), tuple(columns), tuple(notes))


def axes(schema: Schema) -> tuple[Axis, ...]:
    """What is compared one by one, from the public schema alone."""
    found: list[Axis] = []
    if schema.kind == "table":
        start = 0
        for column in schema.features:
            found.append(_column_axis(column, start))
            start += column.width
    elif schema.kind == "series":
        for i, column in enumerate(schema.columns):
            found.append(Axis(column.name, "numeric", _channel(schema, i), column=column))
    else:
        found.append(Axis("brightness", "numeric", lambda rows: rows.x.mean(1)))
        found.append(Axis("contrast", "numeric", lambda rows: np.minimum(1, 2 * rows.x.std(1))))
    if schema.n_classes > 1:
        name = schema.label or "class"
        found.append(Axis(name, "label", lambda rows: rows.y, schema.classes))
    return tuple(found)


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

    names = ("false", "true") + (("missing",) if column.missing else ())
    return Axis(column.name, column.kind, values, names, column)


def _channel(schema: Schema, i: int) -> Callable[[Rows], np.ndarray]:
    """All time steps of a channel, as rows by steps."""
    return lambda rows: rows.x.reshape(len(rows), *schema.shape)[:, :, i]


@dataclass(frozen=True)
class _Cells:
    """A column cut into cells, for fast reweighting: ``codes`` per row and side."""

    sides: tuple[np.ndarray, ...]
    edges: np.ndarray
    n: int


def _cut(axis: Axis, groups: list[Rows]) -> _Cells:
    values = [axis.values(rows) for rows in groups]
    if axis.categories:
        return _Cells(tuple(v[:, None] for v in values), np.zeros(0), len(axis.categories))
    seen = np.concatenate([v[np.isfinite(v)].ravel() for v in values])
    edges = np.unique(np.quantile(seen, np.linspace(0, 1, CELLS))) if len(seen) else np.zeros(1)
    codes = [np.searchsorted(edges, v, side="left") for v in values]
    codes = [np.where(np.isfinite(v), c, len(edges)) for v, c in zip(values, codes, strict=True)]
    return _Cells(tuple(c.reshape(len(c), -1) for c in codes), edges, len(edges) + 1)


def _histograms(codes: np.ndarray, n: int, drawn: np.ndarray) -> np.ndarray:
    """Cell shares ``[T, n]`` of rows' codes ``[rows, m]`` under weights ``[T, rows]``."""
    m = codes.shape[1]
    flat = codes.ravel()
    counts = [np.bincount(flat, np.repeat(w, m), minlength=n) for w in drawn]
    found = np.asarray(counts)
    return found / found.sum(1, keepdims=True)


def _distances(axis: Axis, cells: _Cells, p: np.ndarray, q: np.ndarray) -> dict[str, np.ndarray]:
    """Distances ``[T]`` between cell shares ``[T, n]``; missing values are a cell of their own."""
    if axis.categories:
        return {"total variation": np.abs(p - q).sum(1) / 2}
    gap = np.abs(np.cumsum(p - q, axis=1))[:, :-1]
    steps = np.diff(cells.edges, append=cells.edges[-1])
    return {"Kolmogorov-Smirnov": gap.max(1), "Wasserstein": (gap * steps).sum(1)}


def _columns(
    schema: Schema, sides: list[Rows], test: Rows, rng: np.random.Generator
) -> tuple[list[ColumnFit], list[Compared]]:
    """Every column's distances, and their mean, under one shared bootstrap of rows."""
    drawn = [weights(len(rows), rng=rng) for rows in (*sides, test)]
    columns: list[ColumnFit] = []
    mains: list[list[np.ndarray]] = [[] for _ in sides]
    for axis in axes(schema):
        cells = _cut(axis, [*sides, test])
        shares = [_histograms(c, cells.n, w) for c, w in zip(cells.sides, drawn, strict=True)]
        found = [_distances(axis, cells, p, shares[-1]) for p in shares[:-1]]
        for draws, kept in zip(found, mains, strict=True):
            kept.append(next(iter(draws.values())))
        scores = [[distance(k, d, len(test)) for k, d in side.items()] for side in found]
        columns.append(ColumnFit(axis.name, axis.kind, tuple(_beside(scores))))
    name = f"mean {'column ' if schema.kind == 'table' else ''}distance"
    overall = [[distance(name, np.mean(m, axis=0), len(test))] for m in mains]
    return columns, _beside(overall)


def _beside(sides: list[list[Score]]) -> list[Compared]:
    """Pair the synthetic side's scores with the real side's, if there is one."""
    real = sides[1] if len(sides) > 1 else [None] * len(sides[0])
    return [Compared(s.name, s, r) for s, r in zip(sides[0], real, strict=True)]
