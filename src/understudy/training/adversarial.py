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
        return (self.critic_loss if now == CRITIC else self.generator_loss)(params, batch)

    def critic_loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The critic's, on real rows and as many made-up ones of the same labels."""
        z, mix = batch.normal(self.generator.latent), batch.uniform()
        with torch.no_grad():
            fake = self.critic.seen(self.generator.rows(params, z, batch.y))
        real = self.critic.seen(batch.x)
        return (batch.weight * self.critic.losses(params, real, fake, batch.y, mix)).sum(1)

    def generator_loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The generator's, on made-up rows with the labels of the batch."""
        fake = self.generator.rows(params, batch.normal(self.generator.latent), batch.y)
        losses = self.critic.generator_losses(params, self.critic.seen(fake), batch.y)
        return (batch.weight * losses).sum(1)


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
    rows, order = (torch.zeros(len(labels), 1), labels), Turns(rule, (GENERATOR,))
    draws, loss = rng.draws("latents"), pair.generator_loss
    moved, kept = train(params, loss, rows, plan, order, state, rng=draws)
    return {n: p for n, p in moved.items() if n.startswith(GENERATOR)}, kept
