"""Who is attacked, and what an attacker holds.

Members are real rows that the sites held, controls real rows that they did not, in equal numbers:
an attack must do better on the first than on the second, or it has found out nothing about those
who took part. Further controls are the attacker's reference, what he knows of people in general.
The numbers are public constants, whatever the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.rows import Rows, keys

__all__ = [
    "FEWEST",
    "Targets",
    "columns",
    "draw_targets",
    "placed",
    "unusable",
    "values",
]

MOST, REFERENCE, SYNTHETIC = 1000, 5000, 20_000
FEWEST = 30
SHARED = 0.01  # controls that may be copies of members beyond what chance gives


@dataclass(frozen=True)
class Targets:
    """Rows of each side; ``members`` and ``controls`` are equally many.

    ``others`` are members that nobody asks about: what members have in common, and a leak is not.
    """

    schema: Schema
    synthetic: Rows
    members: Rows
    controls: Rows
    reference: Rows
    others: Rows

    @property
    def n(self) -> int:
        """Members, and as many controls."""
        return len(self.members)


def draw_targets(
    schema: Schema, synthetic: Rows, real: Rows, controls: Rows, *, rng: np.random.Generator
) -> Targets:
    """Draw targets and a reference; a control is in one of them only, and a member is no other."""
    n = min(MOST, len(real), len(controls) // 2)
    order = rng.permutation(len(controls))
    chosen = rng.permutation(len(synthetic))[:SYNTHETIC]
    members = rng.permutation(len(real))
    return Targets(
        schema,
        synthetic.take(chosen),
        real.take(members[:n]),
        controls.take(order[:n]),
        controls.take(order[n : n + REFERENCE]),
        real.take(members[n : n + REFERENCE]),
    )


def unusable(real: Rows, controls: Rows) -> str:
    """Why these rows can show nothing, or an empty string."""
    if min(len(real), len(controls) // 2) < FEWEST:
        return (
            f"at least {FEWEST} members and {2 * FEWEST} controls are needed, there are "
            f"{len(real)} and {len(controls)}"
        )
    shared, twins = _copies(real, controls)
    if shared - twins > SHARED + 3 * np.sqrt(0.25 / len(controls)):
        return (
            f"{100 * shared:.0f} % of the controls are also among the members (by chance: "
            f"{100 * twins:.0f} %); give --test rows that no site held"
        )
    return ""


def _copies(real: Rows, controls: Rows) -> tuple[float, float]:
    """Share of controls with a copy among the members, and of members with a copy among others."""
    a, b = keys(real), keys(controls)
    _, back, count = np.unique(a, return_inverse=True, return_counts=True)
    return float(np.isin(b, a).mean()), float((count[back] > 1).mean())


def placed(schema: Schema, rows: Rows) -> np.ndarray:
    """Rows as points ``[n, F]``: the label is a feature, another category is a distance of 1."""
    x = rows.x.astype(np.float64)
    for start, width in _categories(schema):
        x[:, start : start + width] *= 0.5**0.5
    if schema.n_classes < 2:
        return x
    return np.hstack([x, 0.5**0.5 * np.eye(schema.n_classes)[rows.y.astype(np.int64)]])


def _categories(schema: Schema) -> list[tuple[int, int]]:
    if schema.kind != "table":
        return []
    found = [(schema.place(column.name)[0], column) for column in schema.features]
    return [(start, column.width) for start, column in found if column.kind == "categorical"]


def columns(schema: Schema) -> list[tuple[str, np.ndarray]]:
    """What an attacker may want to know or know already: names, and features of `placed`.

    Columns and label of a table, the last step of each channel of a series, the class of an image.
    """
    found: list[tuple[str, np.ndarray]] = []
    if schema.kind == "table":
        for column in schema.features:
            start = schema.place(column.name)[0]
            found.append((column.name, np.arange(start, start + column.width)))
    elif schema.kind == "series":
        last = schema.width - len(schema.columns)
        found = [(c.name, np.array([last + i])) for i, c in enumerate(schema.columns)]
    if schema.n_classes > 1:
        name = schema.label or "class"
        found.append((name, schema.width + np.arange(schema.n_classes)))
    return found


def values(schema: Schema, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """A table's cells as numbers ``[n, columns]``, NaN where missing, and which are categories."""
    found = axes(schema)
    cells = np.column_stack([np.asarray(axis.values(rows), np.float64) for axis in found])
    return cells, np.array([bool(axis.categories) for axis in found])
