"""Federated averaging at a site: local epochs or steps of an optimiser, from the shared model on.

A recipe unpacks the shared model, lets `Local.train` run, and sends what has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.info import RecipeInfo
from understudy.federation.recipe import Stateless
from understudy.nets.layers import Params
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.rng import Draws
from understudy.settings import Settings
from understudy.study import Training
from understudy.training import batches
from understudy.training.loop import Loss, train
from understudy.training.optim import Adam, Optimiser, Sgd

__all__ = ["Local", "Trained"]

_BATCH, _RATE = 32, 1e-3
Options = TypeVar("Options", bound=Settings)


@dataclass(frozen=True)
class Trained(Stateless, Generic[Options]):
    """What recipes hold whose sites train a net."""

    schema: Schema
    plan: PrivacyPlan
    options: Options
    training: Training
    base: Path = Path()  # where the study file lies

    info: ClassVar[RecipeInfo]

    @property
    def part(self) -> Part:
        """The first part of an update, of most recipes the only one."""
        return self.plan.own.parts[0]


@dataclass(frozen=True)
class Local:
    """How sites train: ``[training]``, and so many steps where the study gives no epochs."""

    training: Training
    steps: int = 1

    @property
    def optimiser(self) -> Optimiser:
        """Adam at 1e-3 unless the study says otherwise."""
        rate = self.training.rate or _RATE
        return Sgd(rate) if self.training.optimiser == "sgd" else Adam(rate)

    def draw(self, rows: batches.Holdings, *, rng: Draws) -> batches.Batches:
        size, source = self.training.batch or _BATCH, rng.child("batches")
        if self.training.epochs:
            return batches.epochs(rows, self.training.epochs, size, rng=source)
        return batches.steps(rows, self.steps, size, rng=source)

    def train(
        self,
        params: Mapping[str, Tensor],
        loss: Loss,
        data: Shards,
        state: Mapping[str, Tensor] | None = None,
        *,
        rows: batches.Holdings | None = None,
        rng: Draws,
    ) -> tuple[Params, Params]:
        """Train a stack of models ``[C, …]``, one per site or by ``rows``; see `loop.train`."""
        plan = self.draw(batches.Holdings.of(data) if rows is None else rows, rng=rng)
        return train(params, loss, (data.x, data.y), plan, self.optimiser, state, rng=rng)
