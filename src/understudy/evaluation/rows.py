"""Encoded rows with their classes: what every measure here is taken of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["NOUNS", "Rows", "joined", "keys", "same_rows"]

NOUNS = {"table": "rows", "image": "images", "series": "series"}
"""What one calls the rows of each kind of schema."""


@dataclass(frozen=True)
class Rows:
    """Encoded rows: ``x`` float32 [n, F] in [0, 1], ``y`` int64 [n] (a numeric label: float64)."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: np.ndarray) -> Rows:
        """The rows at ``index``."""
        return Rows(self.x[index], self.y[index])

    def some(self, most: int, rng: np.random.Generator) -> Rows:
        """At most so many rows, drawn at random, in their order."""
        return self.take(np.sort(rng.permutation(len(self))[:most]))


def same_rows(a: Rows, b: Rows) -> bool:
    """Whether both sides hold the same rows, in any order."""
    return 0 < len(a) == len(b) and np.array_equal(np.sort(keys(a)), np.sort(keys(b)))


def keys(rows: Rows) -> np.ndarray:
    """Each row, label included, as one value that can be compared and sorted."""
    whole = np.column_stack([rows.x, rows.y]).astype(np.float32)
    return np.ascontiguousarray(whole).view(f"V{4 * whole.shape[1]}").ravel()


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one part after the other."""
    return Rows(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))
