"""Generators and critics for a stack of clients, by the Wasserstein or the GAN loss.

A conditional generator turns a latent and a label into a row in [0, 1], with a first layer of each
class's own; a critic has a score for each class and gives a row that of its label. Critics are
dense with leaky activations, so a critic's slope at a row is written out as a second pass through
the same weights, backwards: the gradient of the penalty (Gulrajani et al. 2017) is then an ordinary
one, also record by record (`pergrad`). No layer and no loss here lets one record see another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.autoencoder import cross_entropy
from understudy.nets.config import Described
from understudy.nets.fixed import Cosines, check_frequencies
from understudy.nets.layers import Net, Tapped
from understudy.nets.stacked import product, sigmoid

__all__ = ["CRITIC", "GENERATOR", "Critic", "GeneratorNet", "heads"]

CRITIC, GENERATOR = "critic.", "generator."
_LEAK = 0.2  # slope of leaky activations below zero
_LEAST = 1e-9  # of a chance, so that a draw is always possible


@dataclass(frozen=True)
class GeneratorNet(Described):
    """The public description of a conditional generator, which a release carries."""

    thing: ClassVar[str] = "a generator"

    features: int
    latent: int = 32
    labels: int = 0  # classes that it is told; 0: none
    widths: tuple[int, ...] = (128,)
    blocks: tuple[int, ...] = ()  # widths of one-hot blocks, 1 for a number; (): numbers only
    flags: tuple[int, ...] = ()  # features that are yes or no
    shape: tuple[int, ...] = ()  # of images
    cosines: tuple[int, ...] = ()  # frequencies kept per axis of ``shape``; (): no basis

    def __post_init__(self) -> None:
        if self.blocks and (sum(self.blocks) != self.features or min(self.blocks) < 1):
            found = f"{sum(self.blocks)} of {self.features}"
            raise StudyError("blocks that cover all features", found, "correct the blocks")
        if self.cosines:
            check_frequencies(self.features, self.shape, self.cosines)

    @cached_property
    def net(self) -> Net:
        """Latent (and label) to logits of the row."""
        values = math.prod(self.cosines) if self.cosines else self.features
        first = (self.latent + 1) * self.labels if self.labels else self.latent
        net = layers.mlp((first, *self.widths, values), "relu")
        return (*net, Cosines(self.shape, self.cosines)) if self.cosines else net

    def rows(self, params: Mapping[str, Tensor], z: Tensor, y: Tensor) -> Tensor:
        """Rows ``[C, B, features]`` in [0, 1] from latents and labels ``[C, B]``."""
        if self.labels:
            label = functional.one_hot(y, self.labels).to(z.dtype)
            z = torch.cat(((z.unsqueeze(-1) * label.unsqueeze(-2)).flatten(-2), label), dim=-1)
        logits = layers.apply(self.net, params, z, GENERATOR)
        return heads(logits, self.blocks)

    def settled(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        """Rows ``[n, features]`` with one value of every one-hot block, drawn by its chance."""
        out, start = rows.clone(), 0
        for width in self.blocks:
            if width > 1:
                here = slice(start, start + width)
                picked = torch.multinomial(rows[:, here].clamp(min=_LEAST), 1, generator=rng)
                out[:, here] = functional.one_hot(picked[:, 0], width).to(rows.dtype)
            start += width
        level = torch.rand(len(rows), len(self.flags), generator=rng)
        out[:, list(self.flags)] = (rows[:, list(self.flags)] > level).to(rows.dtype)
        return out


@dataclass(frozen=True)
class Critic:
    """A dense critic: what it sees of a row, and by which loss it is trained."""

    features: int
    labels: int = 0
    widths: tuple[int, ...] = (128,)
    loss: Literal["wasserstein", "gan"] = "wasserstein"
    penalty: float = 10.0  # weight of the gradient penalty
    shape: tuple[int, ...] = ()
    cosines: tuple[int, ...] = ()  # as the generator's: frequencies that it sees

    @property
    def values(self) -> int:
        """Numbers that it sees of a row, before the label."""
        return math.prod(self.cosines) if self.cosines else self.features

    @cached_property
    def net(self) -> Net:
        """What it sees, to a score for each class."""
        return layers.mlp((self.values, *self.widths, max(1, self.labels)), "leaky")

    def seen(self, x: Tensor) -> Tensor:
        """Rows as the net is given them, ``[C, B, values]``."""
        x = 2 * x - 1
        return Cosines(self.shape, self.cosines, analyse=True)({}, x) if self.cosines else x

    def scores(self, params: Mapping[str, Tensor], seen: Tensor, y: Tensor) -> Tensor:
        """The score ``[C, B]`` of each record as one of its class."""
        return (layers.apply(self.net, params, seen, CRITIC) * self._asked(y)).sum(-1)

    def _asked(self, y: Tensor) -> Tensor:
        """One-hot of which score counts, ``[C, B, scores]``."""
        return functional.one_hot(y if self.labels else 0 * y, max(1, self.labels)).float()

    def losses(
        self, params: Mapping[str, Tensor], real: Tensor, fake: Tensor, y: Tensor, mix: Tensor
    ) -> Tensor:
        """What the critic lowers, per record ``[C, B]``.

        ``real`` and ``fake`` are `seen` rows, one of each per record; ``mix [C, B]`` in (0, 1) says
        where between them the penalty looks.
        """
        scores = self.scores(params, real, y), self.scores(params, fake, y)
        if self.loss == "wasserstein":
            found = scores[1] - scores[0]
        else:
            found = _verdict(scores[0], 1.0) + _verdict(scores[1], 0.0)
        if not self.penalty:
            return found
        between = mix.unsqueeze(-1) * real + (1 - mix).unsqueeze(-1) * fake
        steep = torch.linalg.vector_norm(self.slopes(params, between, y), dim=-1)
        return found + self.penalty * (steep - 1).square()

    def generator_losses(self, params: Mapping[str, Tensor], fake: Tensor, y: Tensor) -> Tensor:
        """What the generator lowers, per made-up record ``[C, B]``; not saturating."""
        scores = self.scores(params, fake, y)
        return -scores if self.loss == "wasserstein" else _verdict(scores, 1.0)

    def slopes(self, params: Mapping[str, Tensor], seen: Tensor, y: Tensor) -> Tensor:
        """The score's gradient at ``seen`` ``[C, B, values]``, as a function of the weights.

        Leaky activations are straight on either side of zero, so which side each unit is on is a
        constant of the pass back.
        """
        sides, back = self._sides(params, seen), self._asked(y)
        for place in reversed(range(len(self.net))):
            prefix, layer = f"{CRITIC}{place}.", self.net[place]
            given = back * sides[place] if place < len(sides) else back
            back = product(given, params[f"{prefix}weight"].transpose(1, 2))
            if isinstance(params, Tapped) and prefix.startswith(params.only):
                back = params.tap(prefix, layer, given, back, backwards=True)
        return back

    @torch.no_grad()
    def _sides(self, params: Mapping[str, Tensor], seen: Tensor) -> list[Tensor]:
        """The slope of every hidden unit: 1, or the leak."""
        found = []
        for place, layer in enumerate(self.net[:-1]):
            own = {name: params[f"{CRITIC}{place}.{name}"] for name in layer.shapes}
            side = torch.where((out := layer(own, seen)) > 0, 1.0, _LEAK)
            found.append(side)
            seen = out * side
        return found


def heads(logits: Tensor, blocks: tuple[int, ...]) -> Tensor:
    """Chances ``[…, F]``: a softmax over each one-hot block, a sigmoid for each number."""
    if all(width == 1 for width in blocks):
        return sigmoid(logits)
    single = sigmoid(logits)
    parts, start = [], 0
    for width, many in ((width, len([*run])) for width, run in groupby(blocks)):
        here = slice(start, start + width * many)
        if width > 1:
            groups = logits[..., here].unflatten(-1, (many, width))
            parts.append(torch.softmax(groups, dim=-1).flatten(-2))
        else:
            parts.append(single[..., here])
        start += width * many
    return torch.cat(parts, dim=-1)


def _verdict(scores: Tensor, truth: float) -> Tensor:
    """Cross-entropy of a score, read as the logit of "real"."""
    found: Tensor = cross_entropy(scores.unsqueeze(-1), torch.full((1,), truth))
    return found
