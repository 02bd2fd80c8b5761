"""The sites of a process: what each owns, and what each decides.

A site owns its name, rows, memory, random streams, noise source, budget, allowance and noise.
It joins no more rounds of a phase than its allowance, which follows from public numbers and its
own cap, and its participation is counted before any noise is drawn. A simulation holds many
sites as arrays, so that a stack of them can be trained at once; a site on a network holds itself.
With one seed the result is the same: whatever a site draws comes from its own streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.columns import Columns
from understudy.data.shards import Shards
from understudy.errors import PrivacyError
from understudy.federation.budget import Budget
from understudy.federation.memory import Memories, SiteMemory
from understudy.federation.recipe import Recipe, State, Task
from understudy.federation.site import Columned, Site, seal
from understudy.privacy.clip import Sealed
from understudy.rng import Draws, NoiseSource, Streams

__all__ = ["Sites"]


@dataclass
class Sites:
    """``ids`` are the sites' numbers in the study, ``allowance`` ``[phases, N]`` rounds left.

    Parties that hold columns are sites whose rows differ in width: they are asked one by one.
    """

    recipe: Recipe
    names: Sequence[str]
    ids: np.ndarray
    data: Shards | Columns
    memory: SiteMemory | Memories
    streams: Streams
    source: NoiseSource
    allowance: np.ndarray
    noise: np.ndarray | None = None
    budgets: Sequence[Budget] = ()

    def __len__(self) -> int:
        return len(self.data)

    def charge(self, client: int, run: str, payer: str) -> tuple[int, str] | None:
        """A site pays for a run by its own ledger, if it keeps one, before its first round.

        Gives the ledger's position (`Ledger.position`) after that.
        """
        return self.budgets[client].charge(run, self.recipe.plan, payer) if self.budgets else None

    def note(self, client: int, run: str, round: int) -> tuple[int, str] | None:
        """A site notes a round in its own ledger, if it keeps one: the ledger's position."""
        return self.budgets[client].join(run, round) if self.budgets else None

    def willing(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Those of ``clients`` whose budget lets them join."""
        may = self.allowance[self.recipe.plan.phase(round)][clients] > 0
        return clients if may.all() else clients[may]

    def join(self, clients: np.ndarray, round: int) -> np.ndarray:
        """The willing ones among ``clients``; the round is counted for them."""
        willing = self.willing(clients, round)
        self.allowance[self.recipe.plan.phase(round)][willing] -= 1
        return willing

    def answer(
        self, task: Task, round: int, clients: np.ndarray, memory: State | None = None
    ) -> tuple[Sealed, State]:
        """Train and seal a stack of sites that have joined; and what they are to remember.

        The caller commits that memory (`SiteMemory.scatter`) together with the sealed update. A
        fork, whose own copy is old, is given ``memory``.
        """
        site = self._site(round, clients)
        site.memory = site.memory if memory is None else memory
        update, kept = self.recipe.local(task, site)
        return seal(site, update), kept

    def held(self, task: Task, round: int, client: int) -> Columned:
        """One party's half of a product sum, the same whenever it is asked; its noise apart."""
        update, _ = self.recipe.local(task, self._site(round, np.array([client])))
        (found,) = update.values()
        if not isinstance(found, Columned):
            raise PrivacyError("what site.columns returned", "another update", "fix the recipe")
        return found

    def _site(self, round: int, clients: np.ndarray) -> Site:
        ids = self.ids[clients]
        return Site(
            names=tuple(self.names[client] for client in clients),
            data=self.data.take(clients),
            memory=self.memory.gather(clients),
            plan=self.recipe.plan,
            round=round,
            rng=self.streams.sites("local", round, ids),
            secret=self.source.sites(round, ids),
            noise=self._own_noise(clients),
            ids=tuple(ids.tolist()),
            together=self._together(round),
        )

    def _together(self, round: int) -> Draws | None:
        """Where parties hold columns of the same records, the coins of their batches."""
        plan = self.recipe.plan
        sampled = any(part.mechanism.rate for part in plan.at(round).parts)
        return self.source.together(round) if plan.held == "columns" and sampled else None

    def _own_noise(self, clients: np.ndarray) -> Tensor | None:
        return None if self.noise is None else torch.from_numpy(self.noise[clients])

    def alone(self, client: int, memory: SiteMemory) -> Sites:
        """One of the sites as a process of its own would hold it."""
        here = slice(client, client + 1)
        return Sites(
            self.recipe,
            self.names[here],
            self.ids[here],
            self.data.take([client]),
            memory,
            self.streams,
            self.source,
            self.allowance[:, here].copy(),
            None if self.noise is None else self.noise[here],
            self.budgets[here],
        )
