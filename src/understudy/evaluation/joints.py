"""Joint distributions of several columns: does the synthetic table keep what occurs together?

Jiang's thesis (§4.5.2, eq. 4.8) draws 100 sets of m attributes and averages the total variation
distance (half the L1 distance) of their joint distributions in real and in synthetic rows: the
average variation distance, AVD, for m from 2 to 6. Attributes are the schema's columns and the
label; numbers and dates are cut into `BINS` equal parts of their *public* range, and missing is a
value of its own. If there are no more than 100 sets, all are taken.

Joint distributions of many columns are sparse: a table of all combinations would not fit, so
combinations that occur are numbered by hashing. From finite rows even two samples of the same
data are far apart for large m, the more so the fewer they are: the figure means something only
beside the real floor, for which as many rows are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from understudy.data.schema import Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, compare_distances, resample, shares

__all__ = [
    "Joint",
    "attribute_codes",
    "column_sets",
    "mean_variation",
    "measure_joints",
    "variations",
]

WAYS = (2, 3, 4, 5, 6)
SETS = 100
BINS = 10
RESAMPLES = 40
SPREAD_SETS = 20


@dataclass(frozen=True)
class Joint:
    """The distance of the joint distributions of ``ways`` columns, mean over column sets."""

    ways: int
    sets: int
    distance: Compared


def attribute_codes(schema: Schema, rows: Rows) -> np.ndarray:
    """Every attribute of ``rows`` as whole numbers ``[n, A]``, by the public schema alone."""
    columns = []
    for axis in axes(schema):
        values = axis.values(rows)
        if not axis.categories:
            cell = np.minimum(np.nan_to_num(values) * BINS, BINS - 1)
            values = np.where(np.isnan(values), BINS, cell)
        columns.append(values.astype(np.int64))
    return np.column_stack(columns) if columns else np.zeros((len(rows), 0), np.int64)


def measure_joints(
    schema: Schema, sides: Mapping[str, Rows], test: Rows, *, rng: np.random.Generator
) -> tuple[Joint, ...]:
    """For tables: from synthetic (and, if there, real training) rows to ``test``, for each m."""
    if schema.kind != "table":
        return ()
    least = min(map(len, sides.values()))
    equal = [side.take(rng.permutation(len(side))[:least]) for side in sides.values()]
    codes = [attribute_codes(schema, rows) for rows in (*equal, test)]
    drawn = [resample(len(c), rng=rng, times=RESAMPLES) for c in codes]
    found = []
    for ways in (m for m in WAYS if m <= codes[0].shape[1]):
        chosen = column_sets(codes[0].shape[1], ways, rng)
        apart = dict(zip(sides, _draws(codes, drawn, chosen), strict=True))
        name = f"{ways}-way joint distance (AVD)"
        found.append(Joint(ways, len(chosen), compare_distances(name, apart, len(test))))
    return tuple(found)


def _draws(
    codes: list[np.ndarray], drawn: list[np.ndarray], chosen: list[tuple[int, ...]]
) -> np.ndarray:
    """Values over all sets, then their draws, which cost most, over some: ``[sides, 1 + T]``."""
    values = mean_variation(codes, chosen)
    some = chosen[:: max(1, len(chosen) // SPREAD_SETS)]
    return np.concatenate([values, mean_variation(codes, some, drawn)], axis=1)


def column_sets(columns: int, ways: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Up to `SETS` different sets of columns: all there are, or drawn at random."""
    if math.comb(columns, ways) <= SETS:
        return list(combinations(range(columns), ways))
    found: set[tuple[int, ...]] = set()
    while len(found) < SETS:
        drawn = rng.choice(columns, ways, replace=False)
        found.add(tuple(sorted(drawn.tolist())))
    return sorted(found)


def mean_variation(
    codes: list[np.ndarray],
    chosen: list[tuple[int, ...]],
    drawn: list[np.ndarray] | None = None,
) -> np.ndarray:
    """Distances ``[sides, T]`` of each side but the last from the last, mean over sets."""
    found = np.zeros((len(codes) - 1, 1 if drawn is None else len(drawn[0])))
    for apart in variations(codes, chosen, drawn):
        found += apart
    return found / len(chosen)


def variations(
    codes: list[np.ndarray],
    chosen: list[tuple[int, ...]],
    drawn: list[np.ndarray] | None = None,
) -> Iterator[np.ndarray]:
    """For each set of columns: the distances ``[sides, T]`` of each side but the last from it.

    ``drawn`` holds row weights ``[T, n]`` for each side; without them every row counts once.
    """
    drawn = drawn or [np.ones((1, len(side)), np.float32) for side in codes]
    whole = np.concatenate(codes)
    sizes = whole.max(0).astype(int) + 1
    cuts = np.cumsum([len(c) for c in codes])[:-1]
    for columns in chosen:
        cells, n = _cells(whole, sizes, columns)
        parts = np.split(cells, cuts)
        within = [shares(part, n, w) for part, w in zip(parts, drawn, strict=True)]
        yield np.array([np.abs(p - within[-1]).sum(1) / 2 for p in within[:-1]])


def _cells(
    codes: np.ndarray, sizes: np.ndarray, columns: tuple[int, ...]
) -> tuple[np.ndarray, int]:
    """Number the combinations that occur: a cell per row, and how many cells there are."""
    cells, n = np.zeros(len(codes), np.int64), 1
    for j in columns:
        cells, n = cells * sizes[j] + codes[:, j], n * int(sizes[j])
        if n > len(codes):
            cells, seen = pd.factorize(cells)
            n = len(seen)
    return cells, n
