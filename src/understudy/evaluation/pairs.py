"""Pairs of columns: which relations between two columns are lost.

The joint distribution of two columns in synthetic rows is compared with that in held-out real
rows by total variation, as in `joints`, but here values are cut where the *real* rows have their
quantiles, and rare categories are taken together: narrow columns within wide public bounds are
seen, and every cell has rows. (That uses real rows, as everything here that is internal.) A pair
is at least as far off as each of its two columns alone; `PairFit.beyond` is what is left when
that, and the floor of two real samples, is taken off: the relation itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.joints import mean_variation, variations
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, compare_distances, resample

__all__ = ["PAIR_DISTANCE", "Cut", "PairFit", "Pairs", "measure_pairs"]

PAIR_DISTANCE = "mean distance of pairs"
MOST_CELLS, LEAST_CELLS, ROWS_PER_CELL = 10, 2, 10
WIDEST = 120
KEPT = 12
SPREAD_PAIRS, RESAMPLES = 20, 40


@dataclass(frozen=True)
class PairFit:
    """Two columns: the distance of their joint distribution, its floor, and what lies beyond."""

    first: str
    second: str
    synthetic: float
    floor: float | None
    beyond: float


@dataclass(frozen=True)
class Pairs:
    """The mean over all pairs, and the pairs that are worst beyond their columns, worst first."""

    mean: Compared
    worst: tuple[PairFit, ...]
    columns: int


def measure_pairs(
    schema: Schema, sides: Mapping[str, Rows], test: Rows, *, rng: np.random.Generator
) -> Pairs | None:
    """From synthetic (real, guessed) rows to ``test``, for tables of two columns or more."""
    found = axes(schema)
    found = (*found[: WIDEST - 1], found[-1])[: len(found)]
    if schema.kind != "table" or len(found) < 2:
        return None
    least = min(map(len, sides.values()))
    groups = [*(side.some(least, rng) for side in sides.values()), test]
    codes = _codes(found, groups)
    chosen: list[tuple[int, ...]] = list(combinations(range(len(found)), 2))
    apart = np.array([d[:, 0] for d in variations(codes, chosen)])
    alone = np.array([d[:, 0] for d in variations(codes, [(j,) for j in range(len(found))])])
    mean = _mean(codes, chosen, apart, tuple(sides), rng)
    return Pairs(mean, _worst(found, chosen, apart, alone, "real" in sides), len(found))


@dataclass(frozen=True)
class Cut:
    """A column cut into cells: numbers at ``edges``, categories by ``places``; missing comes last.

    The first cell of numbers is what lies below all real ones.
    """

    axis: Axis
    edges: np.ndarray
    places: np.ndarray

    @classmethod
    def at_quantiles(cls, axis: Axis, real: Rows, rows: int) -> Cut:
        """Cut where the real rows have their quantiles, so finely that ``rows`` fill the cells."""
        most = int(np.clip(np.sqrt(rows / ROWS_PER_CELL), LEAST_CELLS, MOST_CELLS))
        values = axis.values(real)
        if axis.categories:
            order = np.argsort(-np.bincount(values, minlength=len(axis.categories)), kind="stable")
            return cls(axis, np.zeros(0), np.minimum(np.argsort(order), most - 1))
        seen = values[np.isfinite(values)]
        steps = np.linspace(0, 1, most + 1)[:-1]
        edges = np.unique(np.quantile(seen, steps)) if len(seen) else np.zeros(0)
        return cls(axis, edges, np.zeros(0, np.int64))

    @property
    def n(self) -> int:
        """How many cells there are."""
        return int(self.places.max()) + 1 if self.axis.categories else len(self.edges) + 2

    def codes(self, rows: Rows) -> np.ndarray:
        """The cell of every row."""
        values = self.axis.values(rows)
        if self.axis.categories:
            return self.places[values]
        cell = np.searchsorted(self.edges, values, side="right")
        return np.where(np.isnan(values), len(self.edges) + 1, cell)


def _codes(found: tuple[Axis, ...], groups: list[Rows]) -> list[np.ndarray]:
    """Every column of every group in cells ``[n, A]``."""
    cuts = [Cut.at_quantiles(axis, groups[-1], min(map(len, groups))) for axis in found]
    return [np.column_stack([cut.codes(rows) for cut in cuts]) for rows in groups]


def _mean(
    codes: list[np.ndarray],
    chosen: list[tuple[int, ...]],
    apart: np.ndarray,
    sides: tuple[str, ...],
    rng: np.random.Generator,
) -> Compared:
    """The mean over pairs; its spread, which costs most, over some of them."""
    drawn = [resample(len(c), rng=rng, times=RESAMPLES) for c in codes]
    some = chosen[:: max(1, len(chosen) // SPREAD_PAIRS)]
    draws = np.concatenate([apart.mean(0)[:, None], mean_variation(codes, some, drawn)], axis=1)
    return compare_distances(PAIR_DISTANCE, dict(zip(sides, draws, strict=True)), len(codes[-1]))


def _worst(
    found: tuple[Axis, ...],
    chosen: list[tuple[int, ...]],
    apart: np.ndarray,
    alone: np.ndarray,
    floored: bool,
) -> tuple[PairFit, ...]:
    floors = apart[:, 1] if floored else np.zeros(len(apart))
    own = alone[:, 0] - (alone[:, 1] if floored else 0)
    explained = own[np.array(chosen)].max(1).clip(0)
    beyond = apart[:, 0] - floors - explained
    order = np.argsort(-beyond, kind="stable")[:KEPT]
    return tuple(
        PairFit(
            found[chosen[i][0]].name,
            found[chosen[i][1]].name,
            synthetic=float(apart[i, 0]),
            floor=float(floors[i]) if floored else None,
            beyond=float(beyond[i]),
        )
        for i in order
    )
