"""Fixed layers: public maps of every record by itself, with nothing to learn.

Weights behind them are fewer and tell more: where noise or votes are shared by all weights of a
net, that is worth more than any of them. Values are ``[C, B, …]``, as in `layers`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from understudy.errors import StudyError

__all__ = ["Contrast", "Cosines", "check_frequencies"]

_KEPT = 8  # matrices in store: many releases of other sizes, opened in turn, do not fill memory
_MOST = 10**8  # numbers of one side's matrix: a short description must not fill memory
_FLAT, _SPREAD = 0.05, 0.35  # of grey between 0 and 1: of a nearly even image, and of a usual one


@dataclass(frozen=True)
class Contrast:
    """Every record without its mean and at about one spread: brightness and light are no news."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Nothing to learn."""
        return {}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, F] → [C, B, F]``; an even record becomes zeros, but for rounding."""
        x = x - x.mean(-1, keepdim=True)
        return x * (_SPREAD / (x.std(-1, correction=0, keepdim=True) + _FLAT))


@dataclass(frozen=True)
class Cosines:
    """A fixed map between a grid of values and its lowest cosine frequencies.

    A decoder that ends in it has far fewer parameters to share, so the same noise multiplier
    perturbs far fewer numbers, and what noise remains is smooth. ``analyse`` goes from values
    ``[C, B, ∏shape]`` to coefficients ``[C, B, ∏kept]``; otherwise the way back. When analysing,
    ``slope`` raises high frequencies, faint in pictures: f is multiplied by (1 + |f|)^slope.
    """

    shape: tuple[int, ...]
    kept: tuple[int, ...]
    analyse: bool = False
    slope: float = 0.0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Nothing to learn."""
        return {}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Transform along every axis of the grid in turn."""
        grid = x.reshape(*x.shape[:2], *(self.shape if self.analyse else self.kept))
        for n, k in zip(self.shape, self.kept, strict=True):
            matrix = cosine_matrix(n, k) if self.analyse else cosine_matrix(n, k).T
            grid = torch.tensordot(grid, matrix, dims=([2], [1]))  # the axis moves last
        out = grid.flatten(2)
        return out * _loudness(self.kept, self.slope) if self.slope else out


def check_frequencies(features: int, shape: tuple[int, ...], kept: tuple[int, ...]) -> None:
    """Refuse ``kept`` where records of so many features have no such `Cosines`, or huge ones."""
    whole = len(kept) == len(shape) and math.prod(shape) == features
    sides = list(zip(shape, kept, strict=False))
    if not whole or not all(1 <= k <= n for n, k in sides):
        found = f"{kept} of {shape}"
        raise StudyError("at most as many frequencies as values per side", found, "lower them")
    if any(n * k > _MOST for n, k in sides):
        found = " and ".join(f"{n:,} × {k:,}" for n, k in sides)
        wanted = f"at most {_MOST:,} values × frequencies for each side"
        raise StudyError(wanted, found, "keep fewer frequencies, or use the values themselves")


@lru_cache(maxsize=_KEPT)
def cosine_matrix(n: int, kept: int) -> Tensor:
    """The first ``kept`` rows of the orthonormal cosine transform of length ``n``."""
    k, i = torch.arange(kept).double()[:, None], torch.arange(n).double()[None, :]
    rows = torch.cos(math.pi * (i + 0.5) * k / n) * math.sqrt(2 / n)
    rows[0] /= math.sqrt(2)
    return rows.float()


@lru_cache(maxsize=_KEPT)
def _loudness(kept: tuple[int, ...], slope: float) -> Tensor:
    """``[∏kept]``: what every frequency is multiplied by."""
    axes = torch.meshgrid(*(torch.arange(k).double() for k in kept), indexing="ij")
    away = torch.stack(axes).square().sum(0).sqrt()
    return ((1 + away) ** slope).flatten().float()
