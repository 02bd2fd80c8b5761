"""Releases of parties that hold columns: are relations across parties kept as well as within?

What one party could have kept alone (pairs of its own columns) is measured apart from what only
all of them together can know (pairs of columns at two parties): distances of joint distributions
(`joints`, AVD) and of correlations, each within and across. A column that several parties hold is
within each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.correlation import WIDEST, associated_names, correlations
from understudy.evaluation.joints import SETS, attribute_codes, mean_variation
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import Compared, compare_distances, resample

__all__ = ["measure_parties", "pairs_apart"]

_RESAMPLES = 20
Parties = Sequence[Sequence[str]]


def pairs_apart(names: Sequence[str], parties: Parties) -> dict[str, list[tuple[int, int]]]:
    """Pairs of columns by place: ``within`` one party, and ``across`` two."""
    held = [{i for i, columns in enumerate(parties) if name in columns} for name in names]
    pairs = list(combinations(range(len(names)), 2))
    return {
        "within": [(i, j) for i, j in pairs if held[i] & held[j]],
        "across": [(i, j) for i, j in pairs if not held[i] & held[j]],
    }


def measure_parties(
    schema: Schema,
    parties: Parties,
    sides: Mapping[str, Rows],
    test: Rows,
    *,
    rng: np.random.Generator,
) -> tuple[Compared, ...]:
    """From synthetic (and real training) rows to ``test``: AVD and correlations, each twice."""
    least = min(map(len, sides.values()))
    groups = [*(side.some(least, rng) for side in sides.values()), test]
    drawn = [resample(len(rows), rng=rng, times=_RESAMPLES) for rows in groups]
    found = _joints(schema, parties, groups, drawn, rng)
    found |= _correlations(schema, parties, groups, drawn)
    return tuple(
        compare_distances(name, dict(zip(sides, draws, strict=True)), len(test))
        for name, draws in found.items()
    )


Draws = dict[str, np.ndarray]
"""Of each distance, by name: the value and its draws for every side ``[sides, 1 + T]``."""


def _joints(
    schema: Schema,
    parties: Parties,
    groups: list[Rows],
    drawn: list[np.ndarray],
    rng: np.random.Generator,
) -> Draws:
    codes, found = [attribute_codes(schema, rows) for rows in groups], {}
    names = [axis.of or axis.name for axis in axes(schema)]
    for where, pairs in pairs_apart(names, parties).items():
        some = [pairs[i] for i in sorted(rng.permutation(len(pairs))[:SETS].tolist())]
        if some:
            parts = [mean_variation(codes, [*some], weights) for weights in (None, drawn)]
            found[f"2-way joint distance (AVD) {where} parties"] = np.concatenate(parts, axis=1)
    return found


def _correlations(
    schema: Schema, parties: Parties, groups: list[Rows], drawn: list[np.ndarray]
) -> Draws:
    """Mean absolute differences of correlations between features of different columns."""
    owner, found = _columns_of(schema), {}
    for where, pairs in pairs_apart(owner, parties).items():
        chosen = np.array([p for p in pairs if owner[p[0]] != owner[p[1]]]).reshape(-1, 2)
        if len(chosen):
            found[f"mean correlation difference {where} parties"] = np.array(
                [
                    [_apart(schema, side, groups[-1], both, chosen) for both in _turns(drawn, i)]
                    for i, side in enumerate(groups[:-1])
                ]
            )
    return found


def _columns_of(schema: Schema) -> list[str]:
    """The column of each feature that correlations are taken of."""
    label = 0 if schema.n_classes < 2 else 1 if schema.n_classes == 2 else schema.n_classes
    names = [column.name for column in schema.features for _ in range(column.width)]
    found = names[: max(1, WIDEST - label)] + [schema.label or "class"] * label
    return found[: len(associated_names(schema))]


def _turns(drawn: list[np.ndarray], side: int) -> list[tuple[np.ndarray | None, np.ndarray | None]]:
    """Weights of a side and of the test rows: first every row once, then as drawn."""
    pairs = list(zip(drawn[side], drawn[-1], strict=True))
    return [(None, None), *pairs]


def _apart(
    schema: Schema,
    side: Rows,
    test: Rows,
    weights: tuple[np.ndarray | None, np.ndarray | None],
    chosen: np.ndarray,
) -> float:
    a, b = correlations(schema, side, weights[0]), correlations(schema, test, weights[1])
    return float(np.abs(a - b)[chosen[:, 0], chosen[:, 1]].mean())
