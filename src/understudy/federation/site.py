"""The sites' half of a round: run the recipe's local part and seal what comes out.

A networked site runs this with a stack of one; a simulation runs it with a chunk of the
cohort. A site joins no more rounds of a phase than its allowance, which follows from public
numbers only, and its participation is counted before any noise is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import Recipe, Task, Update
from understudy.federation.slots import Private, seal
from understudy.privacy.clip import Bounded, Sealed
from understudy.privacy.plan import PrivacyPlan
from understudy.rng import NoiseSource, Streams

__all__ = ["Sites"]


@dataclass
class Sites:
    """N sites in one process: their rows, memory, allowances ``[phases, N]`` and own noise."""

    recipe: Recipe
    data: Shards
    memory: SiteMemory
    streams: Streams
    source: NoiseSource
    allowance: np.ndarray
    noise: np.ndarray | None = None

    def join(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Those of ``clients`` whose budget lets them join; they are charged for the round."""
        left = self.allowance[self.recipe.plan.phase(round)]
        willing = clients[left[clients] > 0]
        left[willing] -= 1
        return willing

    def answer(self, task: Task, round: int, clients: np.ndarray) -> Sealed:
        """Train and seal a stack of sites that have joined."""
        source = self.source.sites(round, clients)
        private = Private(self.recipe.plan, round, source)
        rng = self.streams.sites("local", round, clients)
        data = self.data.take(clients)
        update, kept = self.recipe.local(task, self.memory.gather(clients), data, private, rng=rng)
        if self.recipe.plan.unit == "site":
            update = _silence_empty(update, data.counts == 0, self.recipe.plan.at(round))
        noise = None if self.noise is None else torch.from_numpy(self.noise[clients])
        sealed = seal(self.recipe.plan, update, private, source, noise)
        self.memory.scatter(clients, kept)
        return sealed


def _silence_empty(update: Update, empty: Tensor, plan: PrivacyPlan) -> Update:
    """A site without rows sends zero, whatever the recipe made of it.

    The empty-site claim rests on it: zero and a clipped update are S apart, two clipped
    updates 2S. What was noised step by step is left alone: silence would give it away.
    """

    def silence(value: Tensor) -> Tensor:
        return value.masked_fill(empty.reshape(-1, *[1] * (value.dim() - 1)), 0)

    return {
        name: replace(value, value=silence(value.value))
        if isinstance(value, Bounded)
        else (value if plan.part(name).slot == "step" else silence(value))
        for name, value in update.items()
    }
