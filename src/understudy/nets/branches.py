"""A generator with layers that all parties share and a branch for each (Jiang 2023 §6.5.2).

Noise passes the common layers, then every branch makes the columns of one party: chances of
yes-or-no features, a softmax over each one-hot group. Parameters are named ``common.`` and
``branch0.``, ``branch1.``, …, with a leading axis of one, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.config import Described
from understudy.nets.gan import heads
from understudy.nets.layers import Dense, Net, Params

__all__ = ["BranchedNet"]

_COMMON = "common."


@dataclass(frozen=True)
class BranchedNet(Described):
    """The public description, which a release carries."""

    thing: ClassVar[str] = "a generator with branches"

    latent: int
    widths: tuple[int, ...]  # the common layers
    hidden: int  # of every branch
    outputs: tuple[int, ...]  # of each branch
    groups: tuple[int, ...]  # widths of one-hot groups, 1 for yes or no, branch after branch

    def __post_init__(self) -> None:
        if sum(self.groups) != sum(self.outputs) or not (self.widths and self.outputs):
            raise StudyError("groups that fill the branches", "others", "correct the groups")
        _ = self._cut

    @cached_property
    def _cut(self) -> tuple[tuple[int, ...], ...]:
        """The groups of each branch."""
        left, found = list(self.groups), []
        for width in self.outputs:
            own: list[int] = []
            while left and sum(own) < width:
                own.append(left.pop(0))
            if sum(own) != width:
                raise StudyError("groups within one branch", "one across two", "correct the groups")
            found.append(tuple(own))
        return tuple(found)

    @cached_property
    def common(self) -> Net:
        """Noise to what all branches see."""
        pairs = zip((self.latent, *self.widths), self.widths, strict=False)
        return tuple(Dense(a, b) for a, b in pairs)

    def branch(self, party: int) -> Net:
        """What all branches see to the logits of one party's columns."""
        return layers.mlp((self.widths[-1], self.hidden, self.outputs[party]), "relu")

    def shapes(self, party: int | None = None) -> dict[str, tuple[int, ...]]:
        """Of the common layers and of all branches, or of one party's."""
        found = layers.shapes(self.common, _COMMON)
        for i in range(len(self.outputs)) if party is None else (party,):
            found |= layers.shapes(self.branch(i), f"branch{i}.")
        return found

    def init(self, *, rng: torch.Generator) -> Params:
        """Parameters without the leading axis."""
        found = layers.init(self.common, _COMMON, rng=rng)
        for i in range(len(self.outputs)):
            found |= layers.init(self.branch(i), f"branch{i}.", rng=rng)
        return found

    def rows(self, params: Mapping[str, Tensor], z: Tensor, party: int) -> Tensor:
        """Chances ``[C, B, outputs]`` of one party's features."""
        shared = layers.apply(self.common, params, z, _COMMON)
        logits = layers.apply(self.branch(party), params, shared, f"branch{party}.")
        return heads(logits, self._cut[party])

    def joint(self, params: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Chances of all features, branch after branch ``[C, B, Σ outputs]``.

        ``z [C, B, latent]`` is behind all branches; with an axis before, each has its own.
        """
        each = z if z.dim() == 4 else [z] * len(self.outputs)
        rows = [self.rows(params, own, party) for party, own in enumerate(each)]
        return torch.cat(rows, dim=-1)
