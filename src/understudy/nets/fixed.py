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
from torch.nn import functional

from understudy.errors import StudyError
from understudy.nets import patches
from understudy.nets.layers import Fixed
from understudy.nets.stacked import product

__all__ = ["Cosines", "Standardise", "Strokes", "check_frequencies", "check_strokes"]

_KEPT = 8  # matrices in store: many releases of other sizes, opened in turn, do not fill memory
_MOST = 10**8  # numbers of one side's matrix: a short description must not fill memory
_FLAT, _SPREAD = 0.05, 0.35  # of grey between 0 and 1: of a nearly even image, and of a usual one
_KERNEL, _STROKES, _CELLS = 5, 8, 7  # side of a stroke, how many there are, cells per side
_FAINT = 0.1  # a stroke's answer where there is hardly any
_AT_ONCE = 1 << 18  # answers held at a time: they fit a cache


@dataclass(frozen=True)
class Standardise(Fixed):
    """Every image without its mean and at about one spread: brightness and light are no news."""

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, F] → [C, B, F]``; an even record becomes zeros, but for rounding."""
        x = x - x.mean(-1, keepdim=True)
        spread = x.square().mean(-1, keepdim=True).sqrt()
        return x * (_SPREAD / (spread + _FLAT))


@dataclass(frozen=True)
class Cosines(Fixed):
    """A fixed map between a grid of values and its lowest cosine frequencies.

    A decoder that ends in it has far fewer parameters to share, so the same noise multiplier
    perturbs far fewer numbers, and what noise remains is smooth. ``analyse`` goes from values
    ``[C, B, ∏shape]`` to coefficients ``[C, B, ∏kept]``; otherwise the way back.
    """

    shape: tuple[int, ...]
    kept: tuple[int, ...]
    analyse: bool = False

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Transform along every axis of the grid in turn."""
        grid = x.reshape(*x.shape[:2], *(self.shape if self.analyse else self.kept))
        for n, k in zip(self.shape, self.kept, strict=True):
            matrix = _cosine_matrix(n, k) if self.analyse else _cosine_matrix(n, k).T
            grid = _along(grid, matrix)
        return grid.flatten(2)


@dataclass(frozen=True)
class Strokes(Fixed):
    """Which strokes are where in an image: a convolution with nothing to learn.

    Images are standardised first. The kernels are the lowest cosines of 5×5 pixels and their
    negatives: edges and bars of several directions, dark and light. The largest answer of every
    2×2 square counts, averaged over at most 7×7 cells; then each map is brought to about one
    strength and loses its mean. Values ``[C, B, ∏shape]`` become ``[C, B, outputs]``; colours are
    seen one by one.
    """

    shape: tuple[int, ...]

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of the grid in which strokes are counted."""
        height, width = (min(_CELLS, math.ceil(side / 2)) for side in self.shape[:2])
        return height, width

    @property
    def outputs(self) -> int:
        """Numbers that stand for an image."""
        return 2 * _STROKES * math.prod(self.shape[2:]) * math.prod(self.cells)

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Image by image, as many at once as fit a bounded memory."""
        x = Standardise()({}, x)
        size = max(1, _AT_ONCE // (_STROKES * math.prod(self.shape)))
        parts = [self._maps(part) for part in x.flatten(0, 1).split(size)]
        return torch.cat(parts).reshape(*x.shape[:2], self.outputs)

    def _maps(self, rows: Tensor) -> Tensor:
        height, width, colours = (*self.shape, 1)[:3]
        images = (
            rows.reshape(-1, height, width, colours).movedim(-1, 1).reshape(-1, 1, height, width)
        )
        margin = _KERNEL // 2
        sides = (margin, margin + width % 2, margin, margin + height % 2)  # even ones can be halved
        answers = functional.conv2d(functional.pad(images, sides), _kernels())
        maps = torch.cat((patches.halve(answers), patches.halve(-answers)), dim=1).relu()
        for side, cells in zip(maps.shape[2:], self.cells, strict=True):
            maps = _along(maps, _averages(side, cells))
        maps = maps.flatten(2)
        maps = maps / (maps.square().mean(-1, keepdim=True).sqrt() + _FAINT)
        return (maps - maps.mean(-1, keepdim=True)).reshape(len(rows), self.outputs)


def _along(grid: Tensor, matrix: Tensor) -> Tensor:
    """A matrix ``[k, n]`` applied to the third axis of ``[C, B, n, …]``, which moves last."""
    last = grid.movedim(2, -1)
    whole = matrix.T.expand(len(grid), -1, -1)
    return product(last.flatten(1, -2), whole).reshape(*last.shape[:-1], len(matrix))


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


def check_strokes(features: int, shape: tuple[int, ...]) -> None:
    """Refuse a ``shape`` that records of so many features do not have, a huge or a tiny one."""
    fits = len(shape) in (2, 3) and math.prod(shape) == features <= _MOST
    if not fits or max(shape[:2]) <= 2:  # one cell says nothing once it has lost its mean
        found = f"{features:,} for the shape {shape}" if shape else "a table"
        wanted = f"images larger than 2×2, of at most {_MOST:,} values, for strokes to be seen in"
        raise StudyError(wanted, found, "correct the shape, or let pixels be seen")


@lru_cache(maxsize=_KEPT)
def _cosine_matrix(n: int, kept: int) -> Tensor:
    """The first ``kept`` rows of the orthonormal cosine transform of length ``n``."""
    k, i = torch.arange(kept).double()[:, None], torch.arange(n).double()[None, :]
    rows = torch.cos(math.pi * (i + 0.5) * k / n) * math.sqrt(2 / n)
    rows[0] /= math.sqrt(2)
    return rows.float()


@lru_cache(maxsize=1)
def _kernels() -> Tensor:
    """``[strokes, 1, 5, 5]``: products of cosines, the lowest first, without the even one."""
    waves, side = _cosine_matrix(_KERNEL, _KERNEL), range(_KERNEL)
    lowest = sorted((a * a + b * b, a, b) for a in side for b in side)[1 : _STROKES + 1]
    return torch.stack([torch.outer(waves[a], waves[b]) for _, a, b in lowest])[:, None]


@lru_cache(maxsize=_KEPT)
def _averages(n: int, cells: int) -> Tensor:
    """``[cells, n]``: the mean of each cell's values; a product is faster than torch's pooling."""
    at = torch.arange(n)[None, :]
    cell = torch.arange(cells)[:, None]
    inside = (at >= cell * n // cells) & (at < -(-(cell + 1) * n // cells))
    return inside / inside.sum(1, keepdim=True)
