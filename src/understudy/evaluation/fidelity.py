"""Fidelity: how far the synthetic rows' distributions are from those of real rows.

Everything is compared with the held-out real rows, and beside it stands the same distance from
*real* training rows to those held-out rows: the floor that even perfect synthetic rows would
not beat. For columns and pairs there is a ceiling too: rows drawn evenly from the public schema,
for which nobody had to be asked. Per column: total variation (categories, classes),
Kolmogorov-Smirnov and Wasserstein distance (numbers, in units of the public range). Over columns:
`pairs`, correlations (`correlation`) and joint distributions (`joints`). Of whole records:
`clouds`. Images: `pixels`, and `frechet` beside it. Intervals are by bootstrap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes, even_rows
from understudy.evaluation.clouds import MMD_REMARK, measure_clouds
from understudy.evaluation.correlation import WIDEST, associated_names, correlation_scores
from understudy.evaluation.joints import Joint, measure_joints
from understudy.evaluation.pairs import Pairs, measure_pairs
from understudy.evaluation.pixels import pixel_scores
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, Score, compare_distances, shares, weights

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
    pairs: Pairs | None = None
    coverage: Compared | None = None


def measure_fidelity(
    schema: Schema, synthetic: Rows, train: Rows, test: Rows, *, rng: np.random.Generator
) -> Fidelity:
    """Distances from ``synthetic``, and from ``train``, to ``test``."""
    if not len(synthetic) or not len(test):
        return Fidelity((), (), ("No comparison: synthetic or held-out real rows are missing.",))
    sides = {"synthetic": synthetic} | ({"real": train} if len(train) else {})
    notes = [] if len(train) else ["There are no real training rows, so distances have no floor."]
    guessed = sides | {"guess": even_rows(schema, len(synthetic), rng)}
    columns, overall = _columns(schema, guessed, test, rng)
    overall += _relations(schema, sides, test, rng)
    pairs = measure_pairs(schema, guessed, test, rng=rng)
    overall += [] if pairs is None else [pairs.mean]
    if schema.kind == "table" and len(associated_names(schema)) == WIDEST:
        notes.append(f"Correlations cover the first {WIDEST} encoded columns.")
    clouds = measure_clouds(guessed, test, rng=rng)
    if clouds is None:
        notes.append("MMD and coverage need more than five rows of each kind.")
    apart, covered = clouds or (None, None)
    return Fidelity(
        (*overall, apart) if apart else tuple(overall),
        tuple(columns),
        tuple(notes),
        remarks=(MMD_REMARK,) if apart else (),
        joints=measure_joints(schema, sides, test, rng=rng),
        pairs=pairs,
        coverage=covered,
    )


def _relations(
    schema: Schema, sides: Mapping[str, Rows], test: Rows, rng: np.random.Generator
) -> list[Compared]:
    """What goes with what, column by column of a table or pixel by pixel."""
    kinds = {"table": correlation_scores, "image": pixel_scores}
    if schema.kind not in kinds:
        return []
    measure = kinds[schema.kind]
    return _beside({side: measure(schema, rows, test, rng=rng) for side, rows in sides.items()})


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
    schema: Schema, sides: Mapping[str, Rows], test: Rows, rng: np.random.Generator
) -> tuple[list[ColumnFit], list[Compared]]:
    """Every column's distances, and their mean, under one shared bootstrap of rows."""
    drawn = [weights(len(rows), rng=rng) for rows in (*sides.values(), test)]
    columns: list[ColumnFit] = []
    mains: dict[str, list[np.ndarray]] = {side: [] for side in sides}
    for axis in axes(schema):
        cells = _cut(axis, [*sides.values(), test])
        *parts, real = (shares(c, cells.n, w) for c, w in zip(cells.sides, drawn, strict=True))
        found = {k: _distances(axis, cells, p, real) for k, p in zip(sides, parts, strict=True)}
        names = list(found["synthetic"])
        for side, draws in found.items():
            mains[side].append(draws[names[0]])
        pairs = ({side: draws[name] for side, draws in found.items()} for name in names)
        scores = (compare_distances(k, d, len(test)) for k, d in zip(names, pairs, strict=True))
        columns.append(ColumnFit(axis.name, axis.kind, tuple(scores)))
    name = f"mean {'column ' if schema.kind == 'table' else ''}distance"
    means = {side: np.mean(found, axis=0) for side, found in mains.items()}
    return columns, [compare_distances(name, means, len(test))]


def _beside(sides: Mapping[str, list[Score]]) -> list[Compared]:
    """Pair the synthetic side's scores with the real side's, if there is one."""
    ours = sides["synthetic"]
    real = sides.get("real", [None] * len(ours))
    return [Compared(s.name, s, r) for s, r in zip(ours, real, strict=True)]
