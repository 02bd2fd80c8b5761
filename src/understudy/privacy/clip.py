"""Bounding what one protected unit can contribute, and the types that prove it.

`Bounded` is the only thing noise can be added to; `Sealed` is the only thing that can
leave a site. Both are made here and in the mechanisms of this package, nowhere else,
so a value that was never clipped cannot be noised and a value that was never sealed
cannot be sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.terms import Kind, Slot, Unit

__all__ = ["Bounded", "Receipt", "Sealed", "clip", "clipped_moments", "clipped_sum", "counted"]

_RUN = 1 << 14  # numbers
_SLACK = 1 - 1e-6  # clip a hair below the bound, so that float32 rounding cannot exceed it


@dataclass(frozen=True)
class Bounded:
    """A value whose dependence on one unit is bounded in L2 norm.

    For a site's update the sensitivity is the norm of the update itself; for a sum over
    records it is what one unit can add to the sum. ``value`` is ``[C, …]``, one row per site.
    """

    value: Tensor
    sensitivity: float
    unit: Unit


@dataclass(frozen=True)
class Receipt:
    """What one mechanism did, in plan fields only: nothing here depends on data.

    Who was in the cohort, how many rows there were and how often a bound was hit
    are left out on purpose.
    """

    round: int
    part: str
    where: Slot
    mechanism: str
    unit: Unit
    bound: float
    std: float
    source: str
    epsilon: float = 0.0  # of a mechanism that is pure: a selection or a response


@dataclass(frozen=True)
class Sealed:
    """What may travel: named parts ``[C, …]``, their kind, and the receipts of their noise."""

    kind: Kind
    round: int
    parts: dict[str, Tensor]
    receipts: tuple[Receipt, ...]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))


def clip(update: Tensor, bound: float, blocks: int = 1) -> Bounded:
    """Scale each site's update ``[C, …]`` into an L2 ball of radius ``bound``.

    With ``blocks`` > 1 the second axis holds that many blocks (FedVAE's decoders, one per
    class); each is clipped to ``bound/√blocks``, so that the whole stays within ``bound``
    and counts as one event. An update that is not finite counts as zero.

    Guarantee: the norm of every row is at most ``bound``. It breaks if the result is
    changed afterwards, which is why it is frozen into `Bounded`.
    """
    if not bound > 0:
        raise PrivacyError(
            "a clip bound above 0", f"{bound}", "set privacy.clip to a positive number"
        )
    width = math.prod(update.shape[1:]) // blocks
    flat = update.detach().reshape(len(update), blocks, width).to(torch.float64, copy=True)
    norm = _norms(flat).unsqueeze(2)
    limit = bound * _SLACK / blocks**0.5
    if not bool((norm <= limit).all()):  # else all are within, and stay as they are
        scale = torch.where(norm > limit, limit / norm, torch.ones_like(norm))
        flat.mul_(scale).masked_fill_(~torch.isfinite(norm), 0.0)
    # Scaled in double and kept in no less than float32: coarser types would round past the bound.
    scaled = flat.to(torch.promote_types(update.dtype, torch.float32))
    return Bounded(scaled.reshape(update.shape), bound, "site")


def _norms(flat: Tensor) -> Tensor:
    """L2 norms of ``[C, blocks, n]`` along n, in runs that no kernel shares out among threads.

    So a site's norm is the same whoever is beside it.
    """
    norms = [run.norm(dim=2) for run in flat.split(_RUN, dim=2)]
    return torch.stack(norms).norm(dim=0) if len(norms) > 1 else norms[0]


def clipped_sum(
    chunks: Iterator[tuple[Tensor, Tensor]], sites: int, shape: tuple[int, ...], bound: float
) -> Tensor:
    """Sum rows by site after clipping each row to L2 norm ``bound``.

    ``chunks`` yields rows ``[n, d]`` and, for each, the index of its (site, group) cell;
    ``shape`` is a site's whole sum, ``(groups, d)``. Rows that are not finite count as zero.

    Guarantee: adding or removing one row moves the result by at most ``bound`` in L2,
    because a row enters exactly one cell.
    """
    groups, width = shape
    total = torch.zeros(sites * groups, width, dtype=torch.float64)
    for rows, cell in chunks:
        total.index_add_(0, cell, clip(rows, bound).value.double())
    return total.reshape(sites, groups, width)


def clipped_moments(
    pieces: Iterator[tuple[Tensor, int]],
    sites: int,
    shape: tuple[int, ...],
    bound: float,
    weights: tuple[float, float],
) -> Tensor:
    """Sum φ = (a, b·z, svec(zzᵀ)) of rows z by site, each φ clipped to L2 norm ``bound``.

    As `clipped_sum` of φ with ``weights`` (a, b), but φ is never formed: its norm follows from that
    of z, and what clips it weighs the row in its cell's product. ``pieces`` yields rows ``[n, d]``
    of one (site, group) cell; svec is the upper triangle, off-diagonals times √2.

    Guarantee: adding or removing one row moves the result by at most ``bound`` in L2, because a
    row enters exactly one cell, and svec keeps the norm of zzᵀ.
    """
    groups, width = shape
    total = torch.zeros(sites * groups, width, dtype=torch.float64)
    for rows, cell in pieces:
        z = rows.to(torch.float64, copy=True)  # where it lies in memory would show in the product
        share = _shares(z, bound, weights)
        z[share == 0] = 0
        held, d = z * share[:, None], z.shape[1]
        total[cell, 0] += weights[0] * share.sum()
        total[cell, 1 : 1 + d] += weights[1] * held.sum(0)
        total[cell, 1 + d :] += _triangle(z.T @ held)
    return total.reshape(sites, groups, width)


def _shares(z: Tensor, bound: float, weights: tuple[float, float]) -> Tensor:
    """How much of φ of each row is within ``bound``; none of a row that is not finite."""
    square = (z**2).sum(1)
    norm = (weights[0] ** 2 + weights[1] ** 2 * square + square**2).sqrt()
    share = (bound * _SLACK / norm).clamp(max=1)
    return torch.where(torch.isfinite(norm), share, torch.zeros_like(share))


def _triangle(square: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix, row by row, off-diagonals times √2."""
    row, column = torch.triu_indices(*square.shape)
    found = square[row, column]
    found[row != column] *= math.sqrt(2)
    return found


def counted(
    chunks: Iterator[tuple[Tensor, Tensor]], sites: int, sizes: Sequence[int], bound: float
) -> Tensor:
    """Histograms ``[sites, Σ sizes]`` of coded columns, side by side, each count worth
    ``bound``/√columns.

    ``chunks`` yields codes ``[n, columns]`` and the site of each row. A code outside its column's
    own counts as the nearest.

    Guarantee: adding or removing one row moves the result by at most ``bound`` in L2, because a
    row enters exactly one cell of each column.
    """
    total = torch.zeros(sites, sum(sizes), dtype=torch.float64)
    parts = total.split(list(sizes), dim=1)
    for codes, site in chunks:
        for part, code, size in zip(parts, codes.T, sizes, strict=True):
            cell = site * size + code.clamp(0, size - 1)
            part += torch.bincount(cell, minlength=sites * size).reshape(sites, size)
    return total * (bound * _SLACK / len(sizes) ** 0.5)
