"""Gradients of single records, from what a layer saw and the gradient at its output.

For a dense layer the gradient of one record is the outer product a⊗g, so its norm is
‖a‖·‖g‖ and a weighted sum over records is one product Aᵀ(w·G): nothing of the size records ×
parameters is ever formed ("ghost" norms, Goodfellow 2015; Li et al. 2022). A dense layer that a
record uses several times (a critic sees a real row, a made-up one, and its own slope between them)
has the gradient Σₖ aₖ⊗gₖ, whose squared norm is Σₖₗ (aₖ·aₗ)(gₖ·gₗ). For a convolution
it is formed, once, and the weighted sum is a product of the weights with what was formed.
Norms from Gram matrices (mixed ghost clipping, Bu et al. 2022) need the sum as another pass
over the layer, which costs as much as forming did; kernels are small enough to hold.

A layer that is not listed has no rule and is refused: a layer that mixes records, such as
BatchNorm, has no gradient of a single record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import PrivacyError
from understudy.nets.layers import Conv, ConvTranspose, Dense, GroupNorm, Layer, Params, Tap
from understudy.nets.stacked import multiply

__all__ = ["RecordGradients", "formed_size"]


@dataclass(frozen=True)
class RecordGradients:
    """The gradients of every record of a stack of batches, by layer."""

    parts: dict[str, _Outer | _Formed]

    @classmethod
    def of(cls, total: Tensor, taps: Sequence[Tap]) -> RecordGradients:
        """From a loss summed over all records of all clients."""
        for tap in taps:
            _check_rule(tap.layer)
        slopes = torch.autograd.grad(total, [tap.out for tap in taps])
        uses: dict[str, list[tuple[Tap, Tensor]]] = {}
        for tap, slope in zip(taps, slopes, strict=True):
            uses.setdefault(tap.prefix, []).append((tap, slope))
        return cls({prefix: _part(found) for prefix, found in uses.items()})

    def square_norms(self) -> Tensor:
        """Squared L2 norm of every record's whole gradient, ``[C, B]``, in double."""
        return torch.stack([part.square_norms() for part in self.parts.values()]).sum(0)

    def without(self, records: Tensor) -> RecordGradients:
        """The same with these records ``[C, B]`` at zero."""
        return RecordGradients({name: part.without(records) for name, part in self.parts.items()})

    def weighted_sum(self, weight: Tensor) -> Params:
        """Σ over a client's records of weight × gradient, in double: ``[C, …]`` by parameter."""
        return {
            prefix + name: value
            for prefix, part in self.parts.items()
            for name, value in part.weighted_sum(weight.double()).items()
        }


_LOST = 2.0**-46  # of the square of what is added up: rounding of sums of up to 2^6 terms


@dataclass(frozen=True)
class _Outer:
    """A dense layer's uses: ``x`` [C, B, inputs] and ``slope`` [C, B, outputs] of each.

    They are never multiplied out. ``bias`` says which uses added the bias.
    """

    x: tuple[Tensor, ...]
    slope: tuple[Tensor, ...]
    bias: tuple[bool, ...]

    def square_norms(self) -> Tensor:
        total = torch.zeros(self.x[0].shape[:2], dtype=torch.float64)
        for k in range(len(self.x)):
            for other in range(k + 1):
                shared = self.bias[k] and self.bias[other]
                both = _dots(self.x, k, other) + shared
                total += (1 if other == k else 2) * both * _dots(self.slope, k, other)
        return total.clamp(min=0) + self._rounding()

    def _rounding(self) -> Tensor | float:
        """At least what cancelling uses may have lost of the norm: clipping must err upwards."""
        if len(self.x) == 1:
            return 0.0
        sizes = [
            ((_square_norms(x.double()) + bias) * _square_norms(slope.double())).sqrt()
            for x, slope, bias in zip(self.x, self.slope, self.bias, strict=True)
        ]
        return _LOST * torch.stack(sizes).sum(0).square()

    def without(self, records: Tensor) -> _Outer:
        x, slope = (tuple(_blank(v, records) for v in held) for held in (self.x, self.slope))
        return _Outer(x, slope, self.bias)

    def weighted_sum(self, weight: Tensor) -> Params:
        slopes = [slope.double() * weight.unsqueeze(2) for slope in self.slope]
        x = torch.cat(self.x, dim=1).double()
        made = multiply(x.transpose(1, 2), torch.cat(slopes, dim=1))
        moved = [slope.sum(1) for slope, bias in zip(slopes, self.bias, strict=True) if bias]
        return {"weight": made, "bias": torch.stack(moved).sum(0)}


def _dots(held: tuple[Tensor, ...], k: int, other: int) -> Tensor:
    """Inner products ``[C, B]`` of two uses, in double: no product can leave its range."""
    if k == other:
        return _square_norms(held[k].double())
    return (held[k].double() * held[other].double()).sum(2)


@dataclass(frozen=True)
class _Formed:
    """Every other layer: a gradient per record ``[C, B, …]`` by parameter."""

    values: Mapping[str, Tensor]

    def square_norms(self) -> Tensor:
        return torch.stack([_square_norms(value) for value in self.values.values()]).sum(0)

    def without(self, records: Tensor) -> _Formed:
        return _Formed({name: _blank(value, records) for name, value in self.values.items()})

    def weighted_sum(self, weight: Tensor) -> Params:
        sums = {name: _weighted(value, weight) for name, value in self.values.items()}
        if "weight" in sums:  # a kernel, formed as [side, side, wide, narrow]
            sums["weight"] = sums["weight"].permute(0, 4, 3, 1, 2)
        return sums


def _square_norms(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value.flatten(2), dim=2).double().square()


def _blank(value: Tensor, records: Tensor) -> Tensor:
    return value.masked_fill(records.reshape(*records.shape, *[1] * (value.dim() - 2)), 0)


def _weighted(value: Tensor, weight: Tensor) -> Tensor:
    """``[C, B, …]`` and ``[C, B]`` in double → ``[C, …]``."""
    total = multiply(weight.unsqueeze(1), value.flatten(2).double())
    return total.reshape(len(value), *value.shape[2:])


def _check_rule(layer: Layer) -> None:
    if not isinstance(layer, Dense | Conv | ConvTranspose | GroupNorm):
        raise PrivacyError(
            "layers whose gradient is known record by record (dense, convolutions, GroupNorm)",
            type(layer).__name__,
            "leave it out at record level: a layer that mixes records (BatchNorm) cannot be clipped"
            " per record; use GroupNorm",
        )


def _part(uses: Sequence[tuple[Tap, Tensor]]) -> _Outer | _Formed:
    if isinstance(uses[0][0].layer, Dense):
        return _outer(uses)
    if len(uses) > 1:
        raise PrivacyError(
            "layers that are used once, but for dense ones", "one used twice", "fix the loss"
        )
    tap, slope = uses[0]
    return _formed(tap.layer, tap.x, slope)


def _outer(uses: Sequence[tuple[Tap, Tensor]]) -> _Outer:
    """Used backwards, what a layer was given stands at its output and the slope at its input."""
    pairs = [(slope, tap.x) if tap.backwards else (tap.x, slope) for tap, slope in uses]
    x, slope = zip(*pairs, strict=True)
    return _Outer(x, slope, tuple(not tap.backwards for tap, _ in uses))


def _formed(layer: Layer, x: Tensor, slope: Tensor) -> _Formed:
    shift = slope.flatten(3).sum(3)
    if isinstance(layer, GroupNorm):
        scale = (slope * layer.normalised(x)).flatten(3).sum(3)
        return _Formed({"scale": scale, "shift": shift})
    assert isinstance(layer, Conv | ConvTranspose)
    # A transposed convolution is a convolution with input and output exchanged.
    wide, narrow = (x, slope) if isinstance(layer, Conv) else (slope, x)
    side, padding = (layer.kernel, layer.padding) if isinstance(layer, Conv) else (3, 1)
    return _Formed({"weight": _kernels(wide, narrow, layer.stride, side, padding), "bias": shift})


def _kernels(wide: Tensor, narrow: Tensor, stride: int, side: int, padding: int) -> Tensor:
    """Gradients of kernels, ``[C, B, side, side, wide channels, narrow channels]``.

    Patches are cut with channels last, where three neighbours are one run of memory: 72 µs a
    record of the image VAE, against 302 for ``unfold``.
    """
    padded = functional.pad(wide.flatten(0, 1).permute(0, 2, 3, 1), (0, 0, *[padding] * 4))
    windows = padded.unfold(1, side, stride).unfold(2, side, stride)  # [C·B, H, W, wide, k, k]
    patches = windows.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)  # [C·B, L, k²·wide]
    narrow = narrow.flatten(0, 1).permute(0, 2, 3, 1).flatten(1, 2)  # [C·B, L, narrow]
    formed = multiply(patches.transpose(1, 2), narrow)
    return formed.reshape(*wide.shape[:2], side, side, wide.shape[2], -1)


def formed_size(params: Mapping[str, Tensor]) -> int:
    """How many numbers per record are held for these ``[C, …]`` parameters: the kernels'."""
    return sum(p[0].numel() for p in params.values() if p.dim() == 5)
