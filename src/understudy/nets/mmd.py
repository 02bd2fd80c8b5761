"""The maximum mean discrepancy between codes and their prior, for a stack of clients.

It sees all rows of a client together: harmless where whole updates are clipped or selected,
refused in a DP-SGD step.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["mmd"]

CODE_LIMIT = 1e3  # codes beyond it count as if they lay there, so that the value is finite


def mmd(
    z: Tensor,
    prior: Tensor,
    variance: float = 1.0,
    *,
    weight: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """The WAE's penalty ``[C]``: unbiased MMD, kernel κ/(κ+‖a−b‖²), κ = 2·latent·variance.

    ``z`` and ``prior`` are ``[C, B, latent]``; ``weight [C, B]``, a sum of one per client, says
    how much a row and its partner from the prior count (thesis eq. 4.4 if all count alike). A
    client with a single row has no pairs within, so only the term across is left. The result
    is multiplied by ``scale``.
    """
    rows = z.shape[1]
    if weight is None or torch.equal(weight, weight.new_full(weight.shape, 1 / rows)):
        pairs = _alike(rows)
    else:
        pairs = _pair_weights(weight)
    return _Mmd.apply(z, prior, pairs, 2.0 * z.shape[2] * variance, scale)


class _Mmd(torch.autograd.Function):
    """Value and gradient written out: as a graph it is thirty tiny kernels per step."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, prior: Tensor, pairs: Tensor, kappa: float, scale: float
    ) -> Tensor:
        codes = torch.nan_to_num(z, nan=0.0).clamp(-CODE_LIMIT, CODE_LIMIT)
        size, both = z.shape[1], torch.cat((codes, prior), dim=1)
        apart = both.unsqueeze(2) - both.unsqueeze(1)
        kernel = kappa / (kappa + apart.square().sum(-1))
        weighted = kernel * pairs
        slope = (weighted * kernel)[:, :size].mul_(-4 * scale / kappa)
        ctx.save_for_backward((slope.unsqueeze(-1) * apart[:, :size]).sum(2))
        return weighted.sum((1, 2)).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return ctx.saved_tensors[0] * grad.view(-1, 1, 1), None, None, None, None


def _pair_weights(weight: Tensor) -> Tensor:
    """What each pair of the 2B rows of a client counts in the MMD, ``[C, 2B, 2B]``.

    Across: −wᵢwⱼ. Within: wᵢwⱼ over the chance 1 − Σw² that a pair drawn by these weights
    is one of two different rows, which is 1/(N(N−1)) for N equal weights.
    """
    within, across = _pair_masks(weight.shape[1])
    differ = 1 - weight.square().sum(1)
    scale = torch.where(differ > 1e-6, 1 / differ, 0.0).view(-1, 1, 1)
    twice = torch.cat((weight, weight), dim=1)
    return (scale * within - across) * (twice.unsqueeze(2) * twice.unsqueeze(1))


@cache
def _alike(rows: int) -> Tensor:
    """The pair weights of a client whose rows all count, which is the common case."""
    return _pair_weights(torch.full((1, rows), 1 / rows))


@cache
def _pair_masks(size: int) -> tuple[Tensor, Tensor]:
    own = torch.kron(torch.eye(2), torch.ones(size, size))
    return own - torch.eye(2 * size), 1 - own
