"""Public features of a row: where moments are taken, and the way back.

Nothing is fitted: the space follows from the schema alone, so all sites agree on it and it
costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.fft
from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema

__all__ = [
    "BOUND",
    "COUNT",
    "FEW",
    "MEAN",
    "Space",
    "Weights",
    "norm",
    "phi_width",
    "space",
    "unsvec",
    "within",
]

Weights = tuple[float, float]
"""a and b: those of the count and of the means in φ = (a, b·z, svec(zzᵀ))."""

COUNT, MEAN = 0.3, 0.5
FEW: Weights = (2.0, 4.0)
"""Of rows so few that the noise hides their second moments."""


def norm(weights: Weights) -> float:
    """‖φ‖ at most."""
    return math.hypot(*weights, 1.0)


BOUND = norm((COUNT, MEAN))


@dataclass(frozen=True)
class Space:
    """Public features of a row x: ``(x − origin) @ into``; ``back`` leads to x again.

    Scaled so that a typical record has norm about 1. ``expected`` guesses the variance of each
    feature within a class; it matters only where the noise hides the real one.
    """

    origin: np.ndarray
    into: np.ndarray
    back: np.ndarray
    expected: np.ndarray


def space(schema: Schema, coefficients: int) -> Space:
    """The feature space of a schema."""
    return _columns(schema) if schema.kind == "table" else _cosines(schema, coefficients)


def _columns(schema: Schema) -> Space:
    """Columns as they are, centred: numbers at a third of their range (generous upper bounds are
    the rule), one-hot blocks at equal shares; each column with about the same weight."""
    origin, scale, guess = np.empty((3, schema.width))
    total = 0.0
    for block in blocks(schema):
        at, k = slice(block.start, block.stop), block.stop - block.start
        if block.kind == "categorical":
            terms = 1 / k, 1.0, 0.7 * (1 - 1 / k) / k, 1.0
        elif block.kind in ("boolean", "missing"):
            terms = 0.5, math.sqrt(2), 0.15, 1.0
        else:
            terms = 1 / 3, 3.5, 0.014, 0.6
        origin[at], scale[at], guess[at] = terms[:3]
        total += terms[3]
    scale /= math.sqrt(total)
    return Space(origin, np.diag(scale), np.diag(1 / scale), guess * scale**2)


def _cosines(schema: Schema, coefficients: int) -> Space:
    """The lowest cosine frequencies of each channel, those above about 3 weighted up: they carry
    less energy, and the noise does not know."""
    image = schema.kind == "image"
    height, width = schema.shape[:2] if image else (schema.shape[0], 1)
    channels = schema.width // (height * width)
    vertical, horizontal = (scipy.fft.dct(np.eye(n), norm="ortho", axis=0) for n in (height, width))
    places = [(math.hypot(i, j), i, j, k) for i, j, k in np.ndindex(height, width, channels)]
    chosen = sorted(places)[:coefficients]
    waves = [
        np.multiply.outer(np.outer(vertical[i], horizontal[j]), np.eye(channels)[k]).ravel()
        for _, i, j, k in chosen
    ]
    rise = np.sqrt(1 + (np.array([f for f, *_ in chosen]) / 3) ** 2)
    weight = rise / ((0.6 if image else 0.3) * math.sqrt(schema.width))
    origin = np.full(schema.width, 0.0 if image else 0.5)
    basis = np.stack(waves)
    return Space(
        origin, (basis * weight[:, None]).T, basis / weight[:, None], 0.4 / rise / sum(1 / rise)
    )


def phi_width(d: int) -> int:
    """Numbers in φ = (a, b·z, svec(zzᵀ)) of d features z."""
    return 1 + d + d * (d + 1) // 2


def within(z: Tensor) -> Tensor:
    """Rows ``[n, d]`` with ‖z‖ ≤ 1 enforced, so that ‖φ‖ ≤ `norm`."""
    return z * (1 / z.norm(dim=1, keepdim=True).clamp(min=1.0))


def unsvec(v: np.ndarray, d: int) -> np.ndarray:
    """The symmetric matrices ``[…, d, d]`` of svec: upper triangles, off-diagonals times √2."""
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((*v.shape[:-1], d, d))
    matrix[..., rows, columns] = v / np.where(rows == columns, 1.0, math.sqrt(2))
    matrix[..., columns, rows] = matrix[..., rows, columns]
    return matrix
