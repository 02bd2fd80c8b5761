"""Fidelity: how far the synthetic rows' distributions are from those of real rows.

Everything is compared with the held-out real rows, and beside it stands the same distance from
*real* training rows to those held-out rows: the floor that even perfect synthetic rows would
not beat. Per column: total variation (categories, classes), Kolmogorov-Smirnov and Wasserstein
distance (numbers, in units of the public range). Over columns:
correlations (`correlation`) and joint distributions (`joints`). Of whole records: `clouds`. Images:
`pixels`, and `frechet` beside it. Intervals are by bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.clouds import MMD_REMARK, measure_clouds
from understudy.evaluation.correlation import WIDEST, associated_names, correlation_scores
from understudy.evaluation.joints import Joint, measure_joints
from understudy.evaluation.pixels import pixel_scores
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score, distance, shares, weights

__all__ = ["ColumnFit", "Fidelity", "measure_fidelity"]

CELLS = 256


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


@dataclass(frozen=True)
class Fidelity:
    """All distances, smaller is closer; what could not be measured and why; how to read them.

    ``coverage`` is the one figure of which more is better.
    """

    overall: tuple[Compared, ...]
    columns: tuple[ColumnFit, ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    joints: tuple[Joint, ...] = ()
    coverage: Compared | None = None


def measure_fidelity(
    schema: Schema, synthetic: Rows, train: Rows, test: Rows, *, rng: np.random.Generator
) -> Fidelity:
    """Distances from ``synthetic``, and from ``train``, to ``test``."""
    if not len(synthetic) or not len(test):
        return Fidelity((), (), ("No comparison: synthetic or held-out real rows are missing.",))
    notes = [] if len(train) else ["There are no real training rows, so distances have no floor."]
    sides = [s for s in (synthetic, train) if len(s)]
    columns, overall = _columns(schema, sides, test, rng)
    if schema.kind == "table":
        overall += _beside([correlation_scores(schema, s, test, rng=rng) for s in sides])
        if len(associated_names(schema)) == WIDEST:
            notes.append(f"Correlations cover the first {WIDEST} encoded columns.")
    if schema.kind == "image":
        overall += _beside([pixel_scores(schema, s, test, rng=rng) for s in sides])
    joints = measure_joints(schema, sides, test, rng=rng)
    clouds = measure_clouds(sides, test, rng=rng)
    if clouds is None:
        notes.append("MMD and coverage need more than five rows of each kind.")
        return Fidelity(tuple(overall), tuple(columns), tuple(notes), joints=joints)
    overall.append(clouds[0])
    said = tuple(overall), tuple(columns), tuple(notes), (MMD_REMARK,)
    return Fidelity(*said, joints=joints, coverage=clouds[1])


@dataclass(frozen=True)
class _Cells:
    """A column cut into cells, for fast reweighting: ``codes`` per row and side."""

    sides: tuple[np.ndarray, ...]
    edges: np.ndarray
    n: int


def _cut(axis: Axis, groups: list[Rows]) -> _Cells:
    values = [axis.values(rows) for rows in groups]
    if axis.categories:
        return _Cells(tuple(values), np.zeros(0), len(axis.categories))
    seen = np.concatenate([v[np.isfinite(v)].ravel() for v in values])
    edges = np.unique(np.quantile(seen, np.linspace(0, 1, CELLS))) if len(seen) else np.zeros(1)
    codes = [np.searchsorted(edges, v, side="left") for v in values]
    codes = [np.where(np.isfinite(v), c, len(edges)) for v, c in zip(values, codes, strict=True)]
    return _Cells(tuple(codes), edges, len(edges) + 1)


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
        *parts, real = (shares(c, cells.n, w) for c, w in zip(cells.sides, drawn, strict=True))
        found = [_distances(axis, cells, part, real) for part in parts]
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
