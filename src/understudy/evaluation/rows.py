"""Encoded rows with their classes: what every measure here is taken of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["NOUNS", "Rows", "same_rows"]

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
    if len(a) != len(b) or not len(a):
        return False
    first, second = (np.column_stack([rows.x, rows.y.astype(np.float32)]) for rows in (a, b))
    return bool(np.array_equal(_in_order(first), _in_order(second)))


def _in_order(x: np.ndarray) -> np.ndarray:
    return np.sort(np.ascontiguousarray(x).view(f"V{x.shape[1] * x.itemsize}").ravel())
