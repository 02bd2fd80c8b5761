"""A critic of whole rows for VertiGAN, at the server (in the spirit of VFLGAN, arXiv 2404.09722).

A party's critic sees that party's columns alone, so nothing in VertiGAN teaches what goes together
across parties. This one sees pairs of yes-or-no features of all parties: of all critics xᵀWx with
‖W‖ = 1 it is the one that tells the generator's rows best from real ones, so what the generator
lowers is the distance ‖E xxᵀ − R‖ of second moments. R comes from fedmoments for parties, whose two
noisy sums are a phase of their own before VertiGAN's (`vertical`): all here is post-processing.

VFLGAN's joint critic is shown noised embeddings of rows instead, which would leave the parties at
every step and have to be paid for each time. Two sums are paid for once, and the server may learn
from them as often as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.nets.branches import BranchedNet
from understudy.release.generator import Generator
from understudy.rng import Streams

__all__ = ["JointCritic"]

_DRAWS, _CHUNK = 20_000, 5000
_BATCH = 1000


@dataclass(frozen=True)
class JointCritic:
    """``places`` are the generator's outputs in the order of the whole table's ``layout``."""

    layout: OneHot
    places: Sequence[int]

    def moments(self, made: Generator, *, rng: Streams) -> Tensor:
        """R ``[W, W]``: second moments of draws of the generator that fedmoments gave.

        Its diagonal has the means: the same for what is yes or no, but not for pixels.
        """
        width = self.layout.width
        total, means = torch.zeros(width, width), torch.zeros(width)
        for i in range(0, _DRAWS, _CHUNK):
            x, y = made.rows(_CHUNK, rng=rng.child("rows", i))
            rows = self.layout.encode(x.float(), y)
            total += rows.T @ rows
            means += rows.sum(0)
        total.diagonal().copy_(means)
        return total / _DRAWS

    def slopes(
        self, net: BranchedNet, params: Mapping[str, Tensor], moments: Tensor, *, rng: Streams
    ) -> dict[str, Tensor]:
        """How the distance falls, by name of the generator's parameters ``[1, …]``."""
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        z = torch.randn(1, _BATCH, net.latent, generator=rng.torch("joint"))
        distance = self.distance(net.joint(leaves, z)[0], moments)
        found = torch.autograd.grad(distance, list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    def distance(self, chances: Tensor, moments: Tensor) -> Tensor:
        """‖E xxᵀ − R‖ of rows drawn by the chances ``[B, outputs]``, given their noise apart.

        Two values of one column never occur together, whatever the chances: only single ones count.
        """
        x = chances[:, torch.tensor(self.places)]
        off = (x.T @ x / len(x) - moments) * self._apart()
        return (off.square().sum() + (x.mean(0) - moments.diagonal()).square().sum()).sqrt()

    def _apart(self) -> Tensor:
        """One for two features of different columns ``[W, W]``."""
        widths = [group.width for group in self.layout.groups] + [self.layout.label]
        column = torch.repeat_interleave(torch.arange(len(widths)), torch.tensor(widths))
        return (column[:, None] != column).float()
