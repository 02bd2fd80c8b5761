from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.nets import layers
from understudy.nets.gan import CRITIC, GENERATOR, Critic, GeneratorNet
from understudy.rng import Streams
from understudy.training import batches, optim
from understudy.training.adversarial import Adversaries, train_generator
from understudy.training.loop import train
from understudy.training.optim import Adam, Sgd, Turns, turn

CLIENTS, ROWS = 3, 40


def pair(**terms) -> Adversaries:
    return Adversaries(GeneratorNet(2, 2, 2, (16,)), Critic(2, 2, (16,), **terms), 2)


def nets(made: Adversaries, clients: int = CLIENTS) -> layers.Params:
    rng = Streams.from_seed(0)
    both = layers.init(made.generator.net, GENERATOR, rng=rng.torch("generator"))
    both |= layers.init(made.critic.net, CRITIC, rng=rng.torch("critic"))
    return layers.stack(both, clients)


def rows(clients: int = CLIENTS) -> tuple[Tensor, Tensor]:
    """Class 0 lies low on the first feature, class 1 high; the second is always high."""
    y = torch.arange(ROWS * clients) % 2
    noise = 0.05 * torch.randn(len(y), 2, generator=torch.Generator().manual_seed(1))
    return torch.stack((0.2 + 0.6 * y, torch.full((len(y),), 0.8)), dim=1) + noise, y


def planned(steps: int, clients: int = CLIENTS) -> batches.Batches:
    starts, counts = np.arange(clients) * ROWS, np.full(clients, ROWS)
    rng = Streams.from_seed(2).sites("batches", 0, range(clients))
    return batches.steps(batches.Holdings(None, starts, counts), steps, 16, rng=rng)


def trained(made: Adversaries, steps: int, rule: Adam | Sgd, clients: int = CLIENTS):
    params = nets(made, clients)
    rng = Streams.from_seed(3).sites("losses", 0, range(clients))
    state = optim.start(made.turns(rule), params)
    return train(
        params, made.loss, rows(clients), planned(steps, clients), made.turns(rule), state, rng=rng
    )


def moved(made: Adversaries, steps: int) -> set[str]:
    params, _ = trained(made, steps, Sgd(0.1))
    return {n for n, value in nets(made).items() if not torch.equal(value, params[n])}


def test_nets_move_by_turns() -> None:
    made = pair()
    assert [turn(made.turns(Sgd()), step) for step in range(4)] == [
        CRITIC, CRITIC, GENERATOR, CRITIC,
    ]  # fmt: skip
    assert all(name.startswith(CRITIC) for name in moved(made, 2))
    assert any(name.startswith(GENERATOR) for name in moved(made, 3))


def test_a_net_that_stands_still_keeps_its_optimiser_s_state() -> None:
    _, state = trained(pair(), 2, Adam(1e-3))
    assert all(not value.any() for name, value in state.items() if GENERATOR in name)
    counts = [value for name, value in state.items() if name.startswith(f"steps.{CRITIC}")]
    assert counts and all((value == 2).all() for value in counts)


@pytest.mark.parametrize("loss", ["wasserstein", "gan"])
def test_a_generator_learns_each_class(loss: str) -> None:
    made = replace(pair(loss=loss, penalty=1.0), critic_steps=4)
    params, _ = trained(made, 400, Adam(4e-3, 0.0, 0.9), 1)
    z = torch.randn(1, 400, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(400)[None] % 2
    found = made.generator.rows(params, z, y)[0]
    for label, first in ((0, 0.2), (1, 0.8)):
        mean = found[y[0] == label].mean(0)
        assert torch.allclose(mean, torch.tensor([first, 0.8]), atol=0.1), mean


def test_clients_train_alike_in_any_company() -> None:
    together, _ = trained(pair(), 6, Adam(1e-3))
    alone, _ = trained(pair(), 6, Adam(1e-3), 1)
    assert all(torch.equal(alone[n][0], together[n][0]) for n in alone)


def test_a_server_moves_the_generator_alone() -> None:
    made, rule = pair(), Adam(1e-2, 0.5, 0.9)
    params = nets(made, 1)
    own = {n: p for n, p in params.items() if n.startswith(GENERATOR)}
    found, kept = train_generator(
        made, params, optim.start(rule, own), rule, (3, 8), rng=Streams.from_seed(0)
    )
    assert found.keys() == own.keys()
    assert any(not torch.equal(found[n], own[n]) for n in own)
    assert all((v == 3).all() for n, v in kept.items() if n.startswith("steps."))


def test_turns_of_one_net_are_plain_training() -> None:
    made, rule = pair(), Adam(1e-3)
    rng = Streams.from_seed(3).sites("losses", 0, range(CLIENTS))
    critics = {n: p for n, p in nets(made).items() if n.startswith(CRITIC)}
    whole = nets(made)

    def loss(params, batch):
        return made.critic_loss({**whole_of(whole, batch), **params}, batch)

    def whole_of(params, batch):
        return {n: p[batch.members] for n, p in params.items() if n.startswith(GENERATOR)}

    plain, _ = train(critics, loss, rows(), planned(4), rule, rng=rng)
    rng = Streams.from_seed(3).sites("losses", 0, range(CLIENTS))
    turns = Turns(rule, (CRITIC,))
    both, _ = train(whole, made.critic_loss, rows(), planned(4), turns, rng=rng)
    assert all(torch.equal(both[n], plain[n]) for n in plain)
