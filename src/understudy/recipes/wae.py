"""What the recipes that train Wasserstein autoencoders have in common.

The whole autoencoder is shared. Nets may be pre-trained on auxiliary rows
that cost nothing: uniform rows drawn from the public schema, or rows that the study declares
public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.federation.recipe import State
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, Autoencoder, init, wae_loss
from understudy.recipes import public, selection, vae, warm
from understudy.recipes.options import WAEOptions
from understudy.recipes.public import Examples
from understudy.recipes.selection import VotedModel
from understudy.rng import Draws, Streams
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam

__all__ = ["UNIFORM_ROWS", "SharedWAE"]

Options = TypeVar("Options", bound=WAEOptions)
UNIFORM_ROWS = 10_000


@dataclass(frozen=True)
class SharedWAE(VotedModel[Options], ABC):
    """An autoencoder that votes move as a whole; a recipe says what a round is about."""

    @property
    @abstractmethod
    def spec(self) -> Autoencoder:
        """Both nets."""

    def uniform(self, rng: Streams) -> Examples:
        """Rows anyone can draw who knows the schema."""
        source = rng.torch("uniform")
        x = torch.rand(UNIFORM_ROWS, self.schema.width, generator=source)
        return x, torch.randint(self.schema.n_classes, (UNIFORM_ROWS,), generator=source)

    def seen(self, x: Tensor, y: Tensor) -> Examples:
        """Rows as the net sees them: as they are, unless a recipe has a layout of its own."""
        return x, y

    def init(self, *, rng: Streams) -> State:
        """A fresh autoencoder, pre-trained where auxiliary rows are asked for."""
        return self.server.start(self.first_model(rng.child("auxiliary")))

    def first_model(self, rng: Streams) -> Tensor:
        """The autoencoder ``[1, P]`` before the first round."""
        params = layers.stack(init(self.spec, rng=rng.torch("net")), 1)
        if (rows := self._auxiliary(rng)) is not None:
            seen = self.seen(*rows)
            plan = warm.steps_on(seen[1], self.options.pretrain_steps, rng=rng)
            draws = rng.draws("losses")
            params, _ = train(params, self._loss, seen, plan, Adam(1e-3), rng=draws)
        return vae.pack(self.spec, params)

    def _auxiliary(self, rng: Streams) -> Examples | None:
        if self.options.pretrain == "uniform":
            return self.uniform(rng)
        return public.rows(self.base, self.options, self.schema)  # None where no file is named

    def rows(self, data: Shards) -> Shards:
        """The sites' rows as the net sees them, and no others in store."""
        own = selection.compact(data)
        return Shards(*self.seen(own.x, own.y), own.starts, own.counts)

    def change(self, model: Tensor, rows: Shards, *, rng: Draws) -> Tensor:
        """What training on each site's rows changes in the whole autoencoder: ``[C, P]``."""
        start = model.expand(len(rows), -1)
        trained, _ = self.how.train(vae.unpack(self.spec, start), self._loss, rows, rng=rng)
        return vae.pack(self.spec, trained) - start

    def decoder(self, model: Tensor) -> Tensor:
        """The decoder of an autoencoder ``[1, P]``, to be released."""
        return vae.pack(self.spec, vae.unpack(self.spec, model), DECODER)

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        prior = batch.normal(self.spec.latent)
        rows = (batch.x, batch.y, batch.weight)
        return wae_loss(self.spec, params, *rows, penalty=self.options.penalty, prior=prior)
