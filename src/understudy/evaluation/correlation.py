"""What goes with what: correlations of encoded columns, and how far two sets of rows differ.

The correlation-matrix distance is CMD = 1 - tr(R₁R₂)/(‖R₁‖‖R₂‖) of Jiang's thesis (eq. 4.9), with
Frobenius norms; the mean absolute difference stands beside it because it is easier to picture.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from understudy.data.schema import Column, Schema
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Score, distance, resample

__all__ = [
    "WIDEST",
    "associated_names",
    "correlation_scores",
    "correlations",
    "matrix_distance",
    "pearson",
]

WIDEST = 300
RESAMPLES = 100
WORK = 2e10


def associated_names(schema: Schema) -> tuple[str, ...]:
    """Names of the columns that `correlations` compares, in order."""
    names = [name for column in schema.features for name in _features(column)]
    label = [] if schema.n_classes < 2 else [f"{schema.label} = {c}" for c in schema.classes]
    label = label[1:] if schema.n_classes == 2 else label
    return tuple((names[: max(1, WIDEST - len(label))] + label)[:WIDEST])


def _features(column: Column) -> list[str]:
    if column.kind == "categorical":
        names = [f"{column.name} = {c}" for c in column.categories]
    else:
        names = [column.name]
    return names + [f"{column.name} missing"] * column.missing


def _associated(schema: Schema, rows: Rows) -> np.ndarray:
    """The encoded columns and the label, ``[n, W]`` with W at most `WIDEST`."""
    if schema.n_classes < 2:
        return rows.x[:, :WIDEST]
    label = np.eye(schema.n_classes, dtype=np.float32)[rows.y]
    label = label[:, 1:] if schema.n_classes == 2 else label
    return np.hstack([rows.x[:, : max(1, WIDEST - label.shape[1])], label])[:, :WIDEST]


def correlations(schema: Schema, rows: Rows, drawn: np.ndarray | None = None) -> np.ndarray:
    """Pearson correlations ``[W, W]`` of the encoded columns and the label."""
    return pearson(_associated(schema, rows), drawn)


def matrix_distance(a: np.ndarray, b: np.ndarray) -> float:
    """The distance of correlation matrices; both have ones on the diagonal, so neither is zero."""
    apart = 1 - (a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(apart, 0, 1))


def pearson(x: np.ndarray, drawn: np.ndarray | None = None) -> np.ndarray:
    """Correlations under row weights; a constant column correlates with none but itself."""
    x = x.astype(np.float64)
    w = np.full(len(x), 1 / len(x)) if drawn is None else drawn / drawn.sum()
    x = x - w @ x
    cover = (x * w[:, None]).T @ x
    spread = np.sqrt(np.diag(cover))
    live = spread > 1e-6
    scale = np.where(live, 1 / np.where(live, spread, 1), 0)
    found = np.clip(cover * scale[:, None] * scale[None], -1, 1)
    np.fill_diagonal(found, 1)
    return found


def correlation_scores(
    schema: Schema, side: Rows, test: Rows, *, rng: np.random.Generator
) -> list[Score]:
    """Both distances between two sets of rows; fewer bootstrap draws where they are dear."""
    width = len(associated_names(schema))
    if width < 2:
        return []
    times = int(np.clip(WORK / ((len(side) + len(test)) * width**2), 20, RESAMPLES))
    draws = np.array(list(_draws(schema, side, test, times, rng)))
    names = ("mean correlation difference", "correlation-matrix distance")
    return [distance(name, draws[:, i], len(test)) for i, name in enumerate(names)]


def _draws(
    schema: Schema, side: Rows, test: Rows, times: int, rng: np.random.Generator
) -> Iterator[tuple[float, float]]:
    for t in range(times + 1):
        drawn = [resample(len(r), rng=rng, times=1)[0] if t else None for r in (side, test)]
        a, b = (correlations(schema, r, w) for r, w in zip((side, test), drawn, strict=True))
        off = ~np.eye(len(a), dtype=bool)
        yield float(np.abs(a - b)[off].mean()), matrix_distance(a, b)
