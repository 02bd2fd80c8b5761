"""The baselines a federation is measured against: one VAE, no noise, no exchange.

``central`` pools all sites' rows in one place, which is what a federation avoids; with
``site = k`` it sees only that site's rows, which is what a site could do on its own. Neither
is private, so both need ``trust = "none"`` and run in simulation only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo, State, Task, make_plan
from understudy.federation.slots import Private
from understudy.privacy.plan import NO_BOUND, PrivacyPlan
from understudy.recipes import catalogue
from understudy.recipes.fedvae import FedVAE, decoder_shape
from understudy.recipes.options import CentralOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study, options

__all__ = ["CentralVAE"]


@dataclass(frozen=True)
class CentralVAE:
    """FedVAE with one site that trains for long, once."""

    schema: Schema
    plan: PrivacyPlan
    vae: FedVAE
    site: int

    info: ClassVar[RecipeInfo] = catalogue.CENTRAL

    @classmethod
    def build(cls, study: Study) -> CentralVAE:
        """One site, one round, no bound that bites."""
        own = options(CentralOptions, study.options)
        if not -1 <= own.site < study.n_sites:
            raise StudyError(
                f"recipe.site from -1 to {study.n_sites - 1}", str(own.site), "correct it"
            )
        shape = decoder_shape(study.schema, own)
        plan = make_plan(study, cls.info, {"decoder": shape}, bound=NO_BOUND, sites=1, rounds=1)
        plan = replace(plan, rate=None, joins=None)  # the one site always takes part
        return cls(study.schema, plan, FedVAE(study.schema, plan, own, study.training), own.site)

    def init(self, *, rng: Streams) -> State:
        """As FedVAE."""
        return self.vae.init(rng=rng)

    def memory(self) -> State:
        """As FedVAE."""
        return self.vae.memory()

    def task(self, state: State, round: int) -> Task:
        """As FedVAE."""
        return self.vae.task(state, round)

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[dict[str, Tensor], State]:
        """As FedVAE, for many more steps."""
        return self.vae.local(task, memory, data, private, rng=rng)

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """As FedVAE."""
        return self.vae.step(state, total, rng=rng)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """With the pooled rows at hand, class proportions are not estimated but balanced."""
        return self.vae.finish(state, rng=rng)

    def rows(self, data: Shards) -> Shards:
        """The one site this baseline sees."""
        if self.site >= 0:
            return data.take([self.site])
        return Shards(
            data.x, data.y, torch.zeros(1, dtype=torch.long), data.counts.sum().reshape(1)
        )
