"""Encoded rows with their classes: what every measure here is taken of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["NOUNS", "Rows"]

NOUNS = {"table": "rows", "image": "images", "series": "series"}
"""What one calls the rows of each kind of schema."""


@dataclass(frozen=True)
class Rows:
    """Encoded rows: ``x`` float32 [n, F] in [0, 1], ``y`` int64 [n]."""

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
