"""Adversarial training over a stack of clients: a critic and a generator take turns.

Both nets of a client are one set of parameters, of which a step moves one (`optim.Turns`): some
steps of the critic on real and made-up rows, then one of the generator against it. Every client
makes its own rows, with its own draws and its own labels. A server that holds a critic but no rows
moves the generator alone (`train_generator`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.nets.gan import CRITIC, GENERATOR, Critic, GeneratorNet
from understudy.nets.layers import Params
from understudy.rng import Streams
from understudy.training import batches
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam, Sgd, Turns, turn

__all__ = ["Adversaries", "train_generator"]


@dataclass(frozen=True)
class Adversaries:
    """A generator, its critic, and how often the critic moves before the generator does."""

    generator: GeneratorNet
    critic: Critic
    critic_steps: int = 5

    def turns(self, rule: Adam | Sgd) -> Turns:
        """Both nets by this rule: the critic's steps, then one of the generator."""
        return Turns(rule, (CRITIC,) * self.critic_steps + (GENERATOR,))

    def loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """That of the net whose turn it is, for each client ``[C]``."""
        now = turn(self.turns(Sgd()), batch.step)
        found = self._critic_losses if now == CRITIC else self.generator_losses
        return (batch.weight * found(params, batch)).sum(1)

    def _critic_losses(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        z, mix = batch.normal(self.generator.latent), batch.uniform()
        return self._against(params, (batch.x, batch.y), z, mix)

    def _against(
        self, params: Mapping[str, Tensor], rows: tuple[Tensor, Tensor], z: Tensor, mix: Tensor
    ) -> Tensor:
        """The critic's losses ``[C, B]`` on rows and as many made-up ones of the same labels."""
        x, y = rows
        with torch.no_grad():
            fake = self.critic.seen(self.generator.rows(params, z, y), y)
        return self.critic.losses(params, self.critic.seen(x, y), fake, mix)

    def generator_losses(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The generator's losses ``[C, B]``: made-up rows with the labels of the batch."""
        fake = self.generator.rows(params, batch.normal(self.generator.latent), batch.y)
        return self.critic.generator_losses(params, self.critic.seen(fake, batch.y))


def train_generator(
    pair: Adversaries,
    params: Params,
    state: Params,
    rule: Adam | Sgd,
    size: tuple[int, int],
    *,
    rng: Streams,
) -> tuple[Params, Params]:
    """Move generators ``[C, …]`` against critics that stand still, without any rows.

    ``size`` is (steps, batch). Labels are drawn evenly. ``state`` is the optimiser's, of the
    generators alone; both come back changed.
    """
    labels = torch.arange(max(1, pair.generator.labels))
    members = len(next(iter(params.values())))
    held = batches.Holdings(None, *(torch.full((members,), n).numpy() for n in (0, len(labels))))
    plan = batches.steps(held, *size, rng=rng.draws("batches"))

    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return (batch.weight * pair.generator_losses(params, batch)).sum(1)

    rows, order = (torch.zeros(len(labels), 1), labels), Turns(rule, (GENERATOR,))
    moved, kept = train(params, loss, rows, plan, order, state, rng=rng.draws("latents"))
    return {n: p for n, p in moved.items() if n.startswith(GENERATOR)}, kept
