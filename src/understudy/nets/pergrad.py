"""Gradients of single records, from what a layer saw and the gradient at its output.

For a dense layer the gradient of one record is the outer product a⊗g, so its norm is
‖a‖·‖g‖ and a weighted sum over records is one product Aᵀ(w·G): nothing of the size records ×
parameters is ever formed ("ghost" norms, Goodfellow 2015; Li et al. 2022). For a convolution
the gradient of one record is formed, or its norm found from two small Gram matrices, whichever
is less work (mixed ghost clipping, Bu et al. 2022), and the weighted sum is the ordinary
backward pass of the layer on weighted output gradients.

A layer that is not listed has no rule and is refused: a layer that mixes records, such as
BatchNorm, has no gradient of a single record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional, grad

from understudy.errors import PrivacyError
from understudy.nets.layers import Conv, ConvTranspose, Dense, GroupNorm, Layer, Params, Tap

__all__ = ["RecordGradients"]


@dataclass(frozen=True)
class RecordGradients:
    """The gradients of every record of a stack of batches, held as factors."""

    taps: tuple[Tap, ...]
    slopes: tuple[Tensor, ...]  # gradient of the summed loss at each layer's output

    @classmethod
    def of(cls, total: Tensor, taps: Sequence[Tap]) -> RecordGradients:
        """From a loss summed over all records of all clients."""
        for tap in taps:
            _check_rule(tap.layer)
        if len({tap.prefix for tap in taps}) < len(taps):
            raise PrivacyError("layers that are used once", "one used twice", "fix the loss")
        slopes = torch.autograd.grad(total, [tap.out for tap in taps])
        return cls(tuple(taps), slopes)

    def square_norms(self) -> Tensor:
        """Squared L2 norm of every record's whole gradient, ``[C, B]``, in double."""
        pairs = zip(self.taps, self.slopes, strict=True)
        return torch.stack([_square_norm(t.layer, t.x, g).double() for t, g in pairs]).sum(0)

    def without(self, records: Tensor) -> RecordGradients:
        """The same with these records ``[C, B]`` at zero."""

        def blank(value: Tensor) -> Tensor:
            mask = records.reshape(*records.shape, *[1] * (value.dim() - 2))
            return value.masked_fill(mask, 0)

        taps = tuple(replace(tap, x=blank(tap.x)) for tap in self.taps)
        return RecordGradients(taps, tuple(blank(slope) for slope in self.slopes))

    def weighted_sum(self, weight: Tensor) -> Params:
        """Σ over a client's records of weight × gradient: ``[C, …]`` by parameter name."""
        found: Params = {}
        for tap, slope in zip(self.taps, self.slopes, strict=True):
            shaped = weight.reshape(*weight.shape, *[1] * (slope.dim() - 2)).to(slope.dtype)
            for name, value in _sum(tap.layer, tap.x, slope * shaped).items():
                found[tap.prefix + name] = value
        return found


def _check_rule(layer: Layer) -> None:
    if not isinstance(layer, Dense | Conv | ConvTranspose | GroupNorm):
        raise PrivacyError(
            "layers whose gradient is known record by record (dense, convolutions, GroupNorm)",
            type(layer).__name__,
            "leave it out at record level: a layer that mixes records (BatchNorm) cannot be clipped"
            " per record; use GroupNorm",
        )


def _square_norm(layer: Layer, x: Tensor, g: Tensor) -> Tensor:
    if isinstance(layer, Dense):
        return (x.square().sum(-1) + 1) * g.square().sum(-1)
    if isinstance(layer, GroupNorm):
        scale, shift = _norm_gradients(layer, x, g)
        return scale.square().sum(-1) + shift.square().sum(-1)
    big, small = _patches(layer, x, g)
    bias = g.flatten(3).sum(3).square().sum(-1)
    return _product_norm(big, small).reshape(g.shape[:2]) + bias


def _patches(layer: Layer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The two factors of a convolution's gradient: ``[C·B, 9·k, L]`` and ``[C·B, k, L]``.

    A transposed convolution is a convolution with the roles of input and output exchanged.
    """
    assert isinstance(layer, Conv | ConvTranspose)
    wide, narrow = (x, g) if isinstance(layer, Conv) else (g, x)
    patches = functional.unfold(wide.flatten(0, 1), 3, padding=1, stride=layer.stride)
    return patches, narrow.flatten(0, 1).flatten(2)


def _product_norm(a: Tensor, b: Tensor) -> Tensor:
    """‖a bᵀ‖² for every record, formed or by Gram matrices, whichever is less work."""
    length, both = a.shape[2], a.shape[1] + b.shape[1]
    if length * both < a.shape[1] * b.shape[1]:
        return (a.transpose(1, 2) @ a * (b.transpose(1, 2) @ b)).sum((1, 2))
    return (b @ a.transpose(1, 2)).square().sum((1, 2))


def _norm_gradients(layer: GroupNorm, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of scale and shift of every record, ``[C, B, channels]``."""
    return (g * layer.normalised(x)).flatten(3).sum(3), g.flatten(3).sum(3)


def _sum(layer: Layer, x: Tensor, g: Tensor) -> Params:
    """Gradient summed over the records of each client, given weighted output gradients."""
    if isinstance(layer, Dense):
        return {"weight": torch.bmm(x.transpose(1, 2), g), "bias": g.sum(1)}
    if isinstance(layer, GroupNorm):
        scale, shift = _norm_gradients(layer, x, g)
        return {"scale": scale.sum(1), "shift": shift.sum(1)}
    assert isinstance(layer, Conv | ConvTranspose)
    weight = torch.stack([_conv_sum(layer, a, b) for a, b in zip(x, g, strict=True)])
    return {"weight": weight, "bias": g.flatten(3).sum((1, 3))}


def _conv_sum(layer: Conv | ConvTranspose, x: Tensor, g: Tensor) -> Tensor:
    """One client's weight gradient by the ordinary backward pass."""
    wide, narrow = (x, g) if isinstance(layer, Conv) else (g, x)
    shape = layer.shapes["weight"]
    return grad.conv2d_weight(wide, list(shape), narrow, stride=layer.stride, padding=1)
