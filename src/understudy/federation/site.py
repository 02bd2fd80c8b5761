"""The sites' half of a round: run the recipe's local part and seal what comes out.

A networked site runs this with a stack of one; a simulation runs it with a chunk of the
cohort. A site joins no more rounds than its allowance, which follows from public numbers
only, and its participation is counted before any noise is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from understudy.data.shards import Shards
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import Recipe, Task
from understudy.federation.slots import Private, seal
from understudy.privacy.clip import Sealed
from understudy.rng import NoiseSource, Streams

__all__ = ["Sites"]


@dataclass
class Sites:
    """N sites in one process: their rows, memory, allowances and own noise levels."""

    recipe: Recipe
    data: Shards
    memory: SiteMemory
    streams: Streams
    source: NoiseSource
    allowance: np.ndarray
    noise: np.ndarray | None = None

    def join(self, clients: np.ndarray) -> np.ndarray:
        """Those of ``clients`` whose budget lets them join; they are charged for the round."""
        willing = clients[self.allowance[clients] > 0]
        self.allowance[willing] -= 1
        return willing

    def answer(self, task: Task, round: int, clients: np.ndarray) -> Sealed:
        """Train and seal a stack of sites that have joined."""
        private = Private(self.recipe.plan, round, self.source)
        rng = self.streams.child("local", round, int(clients[0]))
        update, kept = self.recipe.local(
            task, self.memory.gather(clients), self.data.take(clients), private, rng=rng
        )
        noise = None if self.noise is None else torch.from_numpy(self.noise[clients])
        sealed = seal(self.recipe.plan, update, private, self.source, noise)
        self.memory.scatter(clients, kept)
        return sealed
