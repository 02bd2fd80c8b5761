"""Small convolutions of a whole stack of clients as one batched matrix product, and pooling.

With a handful of rows and channels per client, a convolution per client is mostly overhead
and a grouped one is slower still. Cutting the patches out once, with positions last so that
whole rows of an image are copied, and multiplying them with every client's kernels takes a
third to three quarters of the time (LeNet, 10 rows, one thread, forward and backward:
0.54 → 0.17 ms per client for its first convolution, 0.47 → 0.37 for its second). Patches
need kernel² times the memory of the input, so this is for few channels only. Pooling is
written as a few comparisons of whole arrays, because torch's own goes window by window and
takes four times as long (0.38 → 0.10 ms per client for both of LeNet's).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from understudy.nets.stacked import multiply

__all__ = ["convolve", "halve"]


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Stride 1, no padding: ``[C, B, I, H, W] → [C, B, O, H−k+1, W−k+1]``, channels before rows."""
    return _Patches.apply(x, weight, bias)


def halve(x: Tensor) -> Tensor:
    """The largest value of every 2×2 square: ``[…, H, W] → […, ⌊H/2⌋, ⌊W/2⌋]``."""
    return _Halves.apply(x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2])


class _Patches(torch.autograd.Function):
    """Autograd would scatter overlapping windows back one by one, which takes twice as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        clients, rows, inputs = x.shape[:3]
        kernel = weight.shape[-1]
        windows = x.unfold(3, kernel, 1).unfold(4, kernel, 1)  # [C, B, I, H, W, k, k]
        height, width = windows.shape[3:5]
        patches = windows.permute(0, 2, 5, 6, 1, 3, 4).reshape(
            clients, inputs * kernel**2, rows * height * width
        )
        ctx.save_for_backward(patches, weight)
        ctx.shape = x.shape
        out = multiply(weight.flatten(2), patches, bias.unsqueeze(2))
        return out.view(clients, -1, rows, height, width).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        patches, weight = ctx.saved_tensors
        flat = grad.transpose(1, 2).flatten(2)  # [C, O, B·H·W]
        slope = multiply(flat, patches.transpose(1, 2)).view_as(weight)
        back = _overlapped(ctx.shape, weight, flat) if ctx.needs_input_grad[0] else None
        return back, slope, flat.sum(2)


def _overlapped(shape: tuple[int, ...], weight: Tensor, grad: Tensor) -> Tensor:
    """Add up what every patch says about its pixels: first along rows, then along columns."""
    clients, rows, inputs, height, width = shape
    kernel = weight.shape[-1]
    high, wide = height - kernel + 1, width - kernel + 1
    slopes = multiply(weight.flatten(2).transpose(1, 2), grad)
    slopes = slopes.view(clients, inputs, kernel, kernel, rows, high, wide)
    tall = grad.new_zeros(clients, inputs, kernel, rows, height, wide)
    whole = grad.new_zeros(clients, inputs, rows, height, width)
    for i in range(kernel):
        tall[..., i : i + high, :] += slopes[:, :, i]
    for i in range(kernel):
        whole[..., i : i + wide] += tall[:, :, i]
    return whole.transpose(1, 2)


class _Halves(torch.autograd.Function):
    """The larger of two neighbours, first down and then across; a tie goes to the first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows = torch.maximum(x[..., 0::2, :], x[..., 1::2, :])
        ctx.save_for_backward(x, rows)
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, rows = ctx.saved_tensors
        wide, whole = torch.empty_like(rows), torch.empty_like(x)
        _share(grad, rows[..., 0::2], rows[..., 1::2], wide[..., 0::2], wide[..., 1::2])
        _share(wide, x[..., 0::2, :], x[..., 1::2, :], whole[..., 0::2, :], whole[..., 1::2, :])
        return whole


def _share(
    grad: Tensor, first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor
) -> None:
    """Give each gradient to the larger of two values, without a branch."""
    won = torch.ops.aten.threshold_backward(grad, second - first, 0)
    to_second.copy_(won)
    torch.sub(grad, won, out=to_first)
