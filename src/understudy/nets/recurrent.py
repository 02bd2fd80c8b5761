"""Recurrent layers for a stack of clients.

A small LSTM is bound by the number of kernels it starts, not by arithmetic, so all clients
of the stack take each time step together: the inputs of all steps are projected in one
batched product, then every step is one product in place and six elementwise kernels. The
backward pass is written out too: what does not depend on the way back is computed for all
steps at once, and weights get their gradient from one product over all steps. Each record
is a sequence of its own, so records never meet; there is no rule for the gradient of a
single record all the same, and `pergrad` refuses these layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["DensePerStep", "Lstm"]


@dataclass(frozen=True)
class Lstm:
    """A long short-term memory (Hochreiter & Schmidhuber 1997; forget gate, no peepholes).

    Takes sequences ``[C, B, steps, inputs]`` or, with ``repeat``, one vector ``[C, B,
    inputs]`` that every one of so many steps sees; gives the outputs of all steps
    ``[C, B, steps, outputs]``. States start at zero. Columns of the weights belong to the
    gates output, input, forget, cell, in this order: the three sigmoids are neighbours.
    """

    inputs: int
    outputs: int
    repeat: int = 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weights of the input and of the last output, and bias, of one client."""
        gates = 4 * self.outputs
        return {
            "weight": (self.inputs, gates),
            "recurrent": (self.outputs, gates),
            "bias": (gates,),
        }

    def start(self, rng: torch.Generator) -> dict[str, Tensor]:
        """Glorot-uniform and orthogonal weights; forget gates start open (bias 1)."""
        bound = math.sqrt(6 / (self.inputs + 4 * self.outputs))
        weight = (torch.rand(self.shapes["weight"], generator=rng) * 2 - 1) * bound
        bias = torch.zeros(4, self.outputs)
        bias[2] = 1.0
        recurrent = _orthogonal(self.shapes["recurrent"], rng)
        return {"weight": weight, "recurrent": recurrent, "bias": bias.flatten()}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, steps, inputs]`` or ``[C, B, inputs]`` → ``[C, B, steps, outputs]``."""
        rows = x if self.repeat else x.transpose(1, 2).flatten(1, 2)  # step by step
        steps = self.repeat or x.shape[2]
        weights = (params["weight"], params["recurrent"], params["bias"])
        return _Sequence.apply(rows, *weights, steps, bool(self.repeat)).transpose(1, 2)


@dataclass(frozen=True)
class DensePerStep:
    """One dense layer for every time step: ``[C, B, steps, inputs] → [C, B, steps, outputs]``."""

    inputs: int
    outputs: int
    activation: str = "linear"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weight and bias of one client."""
        return {"weight": (self.inputs, self.outputs), "bias": (self.outputs,)}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """All steps of all records in one product, before the activation."""
        flat = torch.baddbmm(params["bias"].unsqueeze(1), x.flatten(1, 2), params["weight"])
        return flat.unflatten(1, x.shape[1:3])


def _orthogonal(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Rows of unit length at right angles, drawn uniformly."""
    normals = torch.randn(shape[::-1], generator=rng, dtype=torch.float64)
    q, r = torch.linalg.qr(normals)
    return (q * r.diagonal().sign()).T.float().contiguous()


class _Sequence(torch.autograd.Function):
    """All steps of an LSTM: rows ``[C, steps·B, inputs]`` → outputs ``[C, steps, B, outputs]``.

    With ``repeated`` there is one row ``[C, B, inputs]`` for all steps, projected once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        recurrent: Tensor,
        bias: Tensor,
        steps: int,
        repeated: bool,
    ) -> Tensor:
        gates = torch.baddbmm(bias.unsqueeze(1), rows, weight)
        batch = rows.shape[1] // (1 if repeated else steps)
        if repeated:
            gates = gates.unsqueeze(1).repeat(1, steps, 1, 1)
        gates = gates.view(len(rows), steps, batch, -1)
        kept = gates, *_run(gates, recurrent)
        ctx.save_for_backward(rows, weight, recurrent, *kept)
        ctx.repeated = repeated
        return kept[-1]

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor, Tensor, None, None]:
        rows, weight, recurrent, gates, cells, squashed, outputs = ctx.saved_tensors
        slopes = _slopes(grad, recurrent, gates, cells, squashed)  # [C, steps, B, 4·outputs]
        later, earlier = slopes[:, 1:].flatten(1, 2), outputs[:, :-1].flatten(1, 2)
        again = torch.bmm(earlier.transpose(1, 2), later)
        flat = slopes.sum(1) if ctx.repeated else slopes.flatten(1, 2)
        back = torch.bmm(flat, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        return back, torch.bmm(rows.transpose(1, 2), flat), again, flat.sum(1), None, None


def _run(gates: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Forward through time: turns projections into gates in place.

    Returns cell states, their tanh and the outputs, ``[C, steps, B, outputs]`` each.
    """
    units = recurrent.shape[1]
    shape = (*gates.shape[:3], units)
    cells, squashed, outputs = (gates.new_empty(shape) for _ in range(3))
    whole, open_ = gates.unbind(1), gates[..., : 3 * units].unbind(1)
    parts = [gate.unbind(1) for gate in gates.split(units, dim=3)]
    before: tuple[Tensor, Tensor] | None = None
    for step, (output, enter, forget, new) in enumerate(zip(*parts, strict=True)):
        if before:
            whole[step].baddbmm_(before[0], recurrent)
        open_[step].sigmoid_()
        new.tanh_()
        cell, bounded, out = cells[:, step], squashed[:, step], outputs[:, step]
        torch.mul(enter, new, out=cell)
        if before:
            cell.addcmul_(forget, before[1])
        torch.tanh(cell, out=bounded)
        before = torch.mul(bounded, output, out=out), cell
    return cells, squashed, outputs


def _slopes(
    grad: Tensor, recurrent: Tensor, gates: Tensor, cells: Tensor, squashed: Tensor
) -> Tensor:
    """Backward through time: gradients at the projections, ``[C, steps, B, 4·outputs]``."""
    units = recurrent.shape[1]
    slopes, through = _factors(gates, cells, squashed)
    whole, outer = slopes.unbind(1), slopes[..., :units].unbind(1)
    inner = slopes[..., units:].unflatten(3, (3, units)).unbind(1)
    forget = gates[..., 2 * units : 3 * units].unbind(1)
    outs, factors = grad.clone().unbind(1), through.unbind(1)
    back, carried = recurrent.transpose(1, 2), torch.zeros_like(factors[0])
    for step in reversed(range(len(whole))):
        out = outs[step]
        if step + 1 < len(whole):
            out.baddbmm_(whole[step + 1], back)
        carried.addcmul_(out, factors[step])
        outer[step].mul_(out)
        inner[step].mul_(carried.unsqueeze(2))
        carried.mul_(forget[step])
    return slopes


def _factors(gates: Tensor, cells: Tensor, squashed: Tensor) -> tuple[Tensor, Tensor]:
    """What the gradient of an output, or a cell, is multiplied with on its way.

    To the projections ``[…, 4·outputs]``, and from an output to its cell ``[…, outputs]``.
    """
    output, enter, forget, new = gates.chunk(4, dim=3)
    factors = torch.empty_like(gates)
    to_output, to_enter, to_forget, to_new = factors.chunk(4, dim=3)
    torch.mul(squashed, output * (1 - output), out=to_output)
    torch.mul(new, enter * (1 - enter), out=to_enter)
    to_forget[:, :1] = 0.0
    forget = forget[:, 1:]
    torch.mul(cells[:, :-1], forget * (1 - forget), out=to_forget[:, 1:])
    torch.mul(enter, 1 - new.square(), out=to_new)
    return factors, output * (1 - squashed.square())
