"""Columns dealt out to parties by how they correlate.

It looks at the rows, so no study may be made of it where they are secret.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from understudy import Records, Schema
from understudy.data.encode import encode

__all__ = ["deal"]


def deal(
    schema: Schema, records: Records, parties: int, how: Literal["together", "apart"]
) -> tuple[tuple[str, ...], ...]:
    """The columns of so many parties: those that correlate at one party, or dealt apart."""
    names = [column.name for column in schema.columns]
    order = _chain(_strengths(schema, records))
    shares = np.array_split(order, parties)
    if how == "apart":
        shares = [order[i::parties] for i in range(parties)]
    return tuple(tuple(names[i] for i in sorted(share.tolist())) for share in shares)


def _strengths(schema: Schema, records: Records) -> np.ndarray:
    """How strongly each pair of columns hangs together: the largest correlation of features."""
    rows, names = encode(schema, records), [column.name for column in schema.columns]
    owner = [names.index(c.name) for c in schema.features for _ in range(c.width)]
    features = rows.x.astype(np.float64)
    if schema.n_classes > 1 and schema.label is not None:
        features = np.hstack([features, np.eye(schema.n_classes)[rows.y]])
        owner += [names.index(schema.label)] * schema.n_classes
    features += 1e-9 * np.arange(len(features))[:, None]  # a constant column correlates with none
    seen = np.abs(np.corrcoef(features.T))
    found, at = np.zeros((len(names), len(names))), np.array(owner)
    np.maximum.at(found, (at[:, None], at[None, :]), np.nan_to_num(seen))
    return found


def _chain(strength: np.ndarray) -> np.ndarray:
    """Columns in an order in which neighbours correlate: from each to its nearest that is left."""
    left, order = set(range(1, len(strength))), [0]
    while left:
        here = max(left, key=lambda i: (strength[order[-1], i], -i))
        left.remove(here)
        order.append(here)
    return np.array(order)
