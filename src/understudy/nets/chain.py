"""Dense layers in a row that are being trained, for a stack of clients, as one operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from understudy.nets.stacked import multiply, write_product

__all__ = ["dense_chain"]


def dense_chain(
    x: Tensor, activations: tuple[str, ...], leaves: tuple[tuple[Tensor, Tensor], ...]
) -> Tensor:
    """Run weights and biases ``leaves`` with activations "linear" or "relu" on ``[C, B, …]``.

    Every leaf has a ``scratch`` buffer, where its gradient is written.
    """
    return _Chain.apply(x, leaves[0][0], activations, leaves)


class _Chain(torch.autograd.Function):
    """Dense layers in a row, one node of the graph, gradients in the optimiser's own buffers.

    With many small clients a step is megabytes of weight gradients and little arithmetic:
    page faults of fresh tensors and graph nodes would cost more than the products. So a
    parameter with a ``scratch`` buffer (the training loop sets it) gets its gradient written
    there and reports none of its own.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,  # any of the leaves: it tells the graph that there is something to learn
        activations: tuple[str, ...],
        leaves: tuple[tuple[Tensor, Tensor], ...],
    ) -> Tensor:
        kept = [x]
        for activation, (weight, bias) in zip(activations, leaves, strict=True):
            x = multiply(x, weight, bias.unsqueeze(1))
            kept.append(x.relu_() if activation == "relu" else x)
        ctx.save_for_backward(*kept)
        ctx.activations, ctx.leaves = activations, leaves
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        kept = ctx.saved_tensors
        for i in reversed(range(len(ctx.leaves))):
            weight, bias = ctx.leaves[i]
            if ctx.activations[i] == "relu":
                grad = torch.ops.aten.threshold_backward(grad, kept[i + 1], 0)
            _write_gradient(weight, bias, kept[i], grad)
            if i or ctx.needs_input_grad[0]:
                grad = multiply(grad, weight.transpose(1, 2))
        return (grad if ctx.needs_input_grad[0] else None), None, None, None


def _write_gradient(weight: Any, bias: Any, x: Tensor, grad: Tensor) -> None:
    if weight.scratch_used:  # the layer was applied twice in one step
        weight.scratch.add_(multiply(x.transpose(1, 2), grad))
        bias.scratch.add_(grad.sum(1))
    else:
        write_product(x.transpose(1, 2), grad, weight.scratch)
        torch.sum(grad, 1, out=bias.scratch)
    weight.scratch_used = bias.scratch_used = True
