"""Which columns and pairs are worst, by name, and in which way a column is off.

A column is named if it is farther from the real rows than another real sample, beyond what the
choice of rows explains; so are pairs whose relation is lost (`pairs`). How a column is off is said
by the one fact that shows it best: a category or a single value that occurs too often or too
rarely, or where the middle of its values lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.fidelity import ColumnFit, Fidelity
from understudy.evaluation.natural import natural
from understudy.evaluation.pairs import PairFit
from understudy.evaluation.rows import Rows
from understudy.evaluation.words import percentage

__all__ = ["ATOM", "WorstColumn", "atoms", "excess", "worst_columns", "worst_pairs"]

ATOM = 0.05
"""A single value of a number that holds this share of the rows is shown by itself."""
LARGE, FEW = 0.15, 16
LEAST = 0.02
MOST = 5


@dataclass(frozen=True)
class WorstColumn:
    """A column that is off: its distance, the floor, and how it is off."""

    column: str
    measure: str
    synthetic: float
    floor: float | None
    how: str


def excess(fit: ColumnFit) -> float:
    """How much farther from real rows than another real sample."""
    real = fit.main.real
    return fit.main.synthetic.value - (real.value if real else 0.0)


def worst_columns(
    schema: Schema, fidelity: Fidelity, test: Rows, synthetic: Rows
) -> tuple[WorstColumn, ...]:
    """The columns that are off, the farthest first."""
    by_name = {axis.name: axis for axis in axes(schema)}
    found = sorted(filter(_is_off, fidelity.columns), key=lambda fit: -excess(fit))[:MOST]
    return tuple(
        WorstColumn(
            fit.column,
            fit.main.name,
            fit.main.synthetic.value,
            fit.main.real.value if fit.main.real else None,
            _how(by_name[fit.column], test, synthetic),
        )
        for fit in found
    )


def _is_off(fit: ColumnFit) -> bool:
    """Beyond chance, where that is known, and by enough to matter."""
    contrast = fit.main.contrast
    sure = contrast is None or contrast.lost is None or contrast.lost.low > 0
    return sure and excess(fit) > LEAST


def worst_pairs(fidelity: Fidelity) -> tuple[PairFit, ...]:
    """The pairs whose relation is lost, by more than two real samples differ anyway."""
    pairs = () if fidelity.pairs is None else fidelity.pairs.worst
    return tuple(p for p in pairs if p.beyond > LEAST + 0.25 * (p.floor or 0))[:MOST]


def atoms(axis: Axis, sides: list[np.ndarray]) -> list[float]:
    """Single values that hold `ATOM` or more of the rows of a side, in order.

    Where there are more than `FEW` values, those that hold less than `LARGE` must stand out from
    the values beside them: of fifty whole numbers several may hold that much.
    """
    if axis.categories:
        return []
    found: set[float] = set()
    for values in sides:
        seen, counts = np.unique(values[np.isfinite(values)], return_counts=True)
        share = counts / max(1, values.size)
        around = np.pad(share, 2)
        beside = (around[:-4] + around[1:-3] + around[3:-1] + around[4:]) / 4
        stands = (share > 2 * beside) | (share >= LARGE) | (len(seen) <= FEW)
        found |= set(seen[(share >= ATOM) & stands].tolist())
    return sorted(found)


def _how(axis: Axis, test: Rows, synthetic: Rows) -> str:
    real, ours = axis.values(test), axis.values(synthetic)
    if axis.categories:
        shares = [np.bincount(v, minlength=len(axis.categories)) / len(v) for v in (real, ours)]
        k = int(np.abs(shares[1] - shares[0]).argmax())
        return _too_often(axis.categories[k], shares[1][k], shares[0][k])
    single = atoms(axis, [real, ours]) if axis.column is not None else []
    gaps = {a: (float((ours == a).mean()), float((real == a).mean())) for a in single}
    gaps |= {np.nan: (float(np.isnan(ours).mean()), float(np.isnan(real).mean()))}
    value, (mine, theirs) = max(gaps.items(), key=lambda gap: abs(gap[1][0] - gap[1][1]))
    if abs(mine - theirs) >= ATOM:
        return _too_often("missing" if np.isnan(value) else natural(axis, value), mine, theirs)
    return _middle(axis, real, ours)


def _too_often(name: str, ours: float, real: float) -> str:
    return f"{name}: {percentage(ours)} of rows, real {percentage(real)}"


def _middle(axis: Axis, real: np.ndarray, ours: np.ndarray) -> str:
    """Where the middle 80 % of the values lie."""
    if not np.isfinite(real).any() or not np.isfinite(ours).any():
        return "no values on one side"
    ends = [np.nanquantile(v, [0.1, 0.9]) for v in (ours, real)]
    span = max(float(np.ptp(ends)), 1e-9)
    (a, b), (c, d) = ([natural(axis, x, span) for x in pair] for pair in ends)
    return f"middle 80 %: {a} to {b}, real {c} to {d}"
