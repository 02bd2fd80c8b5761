"""Directions: public coordinates in which a dense layer is taught.

Weight by weight a gradient says little: what a layer sees goes together, and some of it is loud.
Here a change of the layer is written in the main directions of what it sees of `pictures` that
are made up, each at about one strength: fewer numbers, and each tells more. Where a site can say
but one of them (SignDS), that is worth a lot. With centre μ and basis A, W = W₀ + A·v and
b = b₀ + c − μ·A·v, so a gradient of (v, c) follows from one of (W, b), and a step back.

Everything is public and made of random numbers: no row is looked at. What a net computes, and so a
release, is as without directions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.nets import layers
from understudy.nets.layers import Dense, Net, Params
from understudy.nets.pictures import made_up

__all__ = ["MOST_INPUTS", "Directions"]

MOST_INPUTS = 3000  # of the layer: the basis of more is slow to find and long to send

_PICTURES, _FEWEST = 8192, 256  # that are drawn; the fewer, the larger they are
_PIXELS, _AT_ONCE = 1 << 28, 1 << 24  # in all, and held at a time
_SEEN = 512  # pictures that go through the layers before at a time


@dataclass(frozen=True)
class Directions:
    """Of the first dense layer of a net; what comes before it is fixed, or has found `kernels`."""

    net: Net
    kept: int
    faint: float = 0.3  # of the mean variance: directions fainter than it are raised less

    @property
    def first(self) -> int:
        """Which layer of the net it is."""
        return next(i for i, layer in enumerate(self.net) if isinstance(layer, Dense))

    @property
    def inputs(self) -> int:
        """Of the layer: as many directions there are."""
        return layers.shapes(self.net)[f"{self.first}.weight"][0]

    @property
    def only(self) -> tuple[str, ...]:
        """Prefixes of the parameters that are taught: this layer's and those after it."""
        return tuple(f"{i}." for i in range(self.first, len(self.net)))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters as they are taught: the layer's weights are ``[kept, outputs]``."""
        plain = {n: s for n, s in layers.shapes(self.net).items() if n.startswith(self.only)}
        weight = f"{self.first}.weight"
        return {**plain, weight: (self.kept, plain[weight][1])}

    @property
    def drawn(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `draw` makes."""
        return {"centre": (self.inputs,), "basis": (self.inputs, self.kept)}

    @property
    def size(self) -> int:
        """How many numbers are taught."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @torch.no_grad()
    def draw(
        self, shape: tuple[int, ...], kernels: Mapping[str, Tensor], *, rng: torch.Generator
    ) -> Params:
        """Centre ``[F]`` and basis ``[F, kept]`` of what the layer sees of made-up pictures."""
        most = max(_FEWEST, min(_PICTURES, _PIXELS // math.prod(shape)))
        size = max(1, min(most, _AT_ONCE // math.prod(shape)))
        counts = (min(size, most - done) for done in range(0, most, size))
        parts = (part for count in counts for part in made_up(count, shape, rng=rng).split(_SEEN))
        before = self.net[: self.first]
        rows = torch.cat([layers.apply(before, kernels, part[None])[0] for part in parts])
        centre = rows.mean(0)
        rows = (rows - centre).double()
        variance, basis = torch.linalg.eigh(rows.T @ rows / len(rows))
        loud = (variance.clamp(min=0) + self.faint * variance.mean()).rsqrt()
        return {"centre": centre, "basis": (basis * loud).flip(1)[:, : self.kept].float()}

    def taught(self, change: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Changes ``[C, P]`` of the net, as gradients, in these coordinates ``[C, P′]``."""
        params = layers.unflatten(self.net, change)
        weight, bias = (params[f"{self.first}.{name}"] for name in ("weight", "bias"))
        off = drawn["centre"][:, None] * bias.unsqueeze(1)
        seen = (weight - off).mT @ drawn["basis"]  # one product for all clients
        params[f"{self.first}.weight"] = seen.mT
        return layers.concatenated(params, self.shapes)

    def moved(self, step: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """A step ``[C, P′]`` in these coordinates as one of the net's parameters ``[C, P]``."""
        still = {n: step.new_zeros(len(step), *s) for n, s in layers.shapes(self.net).items()}
        params = still | layers.separated(step, self.shapes)
        weight = drawn["basis"] @ params[f"{self.first}.weight"]
        params[f"{self.first}.weight"] = weight
        params[f"{self.first}.bias"] = params[f"{self.first}.bias"] - drawn["centre"] @ weight
        return layers.flatten(self.net, params)
