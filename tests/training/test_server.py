"""The server's optimiser: plain steps, Adam's direction, the cosine, the average of the last."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from understudy.training.server import ServerOptimiser

START = torch.tensor([1.0, -2.0, 0.5])


def walk(server: ServerOptimiser, means: list[Tensor]) -> list[dict[str, Tensor]]:
    """The states after each of these means."""
    state, seen = server.start(START), []
    for mean in means:
        state = server.step(state, mean)
        seen.append(state)
    return seen


def cosine(progress: float) -> float:
    return 0.05 + 0.95 * (1 + math.cos(math.pi * progress)) / 2


def test_sgd_of_rate_one_first_takes_the_mean_as_it_is() -> None:
    mean = torch.tensor([0.3, 0.0, -4.0])
    for momentum in (0.0, 0.9):
        server = ServerOptimiser("p", 10, "sgd", 1.0, momentum)
        torch.testing.assert_close(walk(server, [mean])[0]["p"], START + mean)


def test_plain_sgd_adds_up_the_means_along_the_cosine() -> None:
    means = [torch.randn(3, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    end = walk(ServerOptimiser("p", 4, "sgd", 0.5, 0.0), means)[-1]["p"]
    steps = [0.5 * cosine(i / 4) * mean for i, mean in enumerate(means)]
    torch.testing.assert_close(end, START + torch.stack(steps).sum(0))


def test_momentum_carries_a_change_on_after_it_has_stopped() -> None:
    mean = torch.ones(3)
    states = walk(ServerOptimiser("p", 100, "sgd", 1.0, 0.9), [mean, 0 * mean])
    torch.testing.assert_close(states[1]["velocity"], 0.9 * mean)
    assert (states[1]["p"] > states[0]["p"]).all()


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_adam_follows_the_sign_at_its_rate_whatever_the_size(size: float) -> None:
    mean = size * torch.tensor([1.0, -1.0, 2.0])
    moved = walk(ServerOptimiser("p", 50, "adam", 0.1, 0.9), [mean])[0]["p"] - START
    torch.testing.assert_close(moved, 0.1 * mean.sign(), rtol=2e-3, atol=1e-6)


def test_adam_takes_smaller_steps_where_the_mean_is_noise() -> None:
    draws = torch.Generator().manual_seed(0)
    means = [torch.cat([torch.ones(1), torch.randn(1, generator=draws)]) for _ in range(60)]
    server = ServerOptimiser("p", 60, "adam", 0.1, 0.9)
    state = server.start(torch.zeros(2))
    for mean in means:
        state = server.step(state, mean)
    steady, noisy = state["p"].abs().tolist()
    assert noisy < steady / 2


def test_the_rate_falls_from_all_of_it_to_a_twentieth() -> None:
    server = ServerOptimiser("p", 1000, "sgd", 1.0, 0.0)
    places = [START, *(s["p"] for s in walk(server, [torch.ones(3)] * 1000))]
    moves = [float(b[0] - a[0]) for a, b in pairwise(places)]
    assert moves[0] == pytest.approx(1.0)
    assert moves[-1] == pytest.approx(0.05, abs=1e-3)
    assert moves[500] == pytest.approx(0.525, abs=1e-3)
    assert all(a >= b - 1e-3 for a, b in pairwise(moves))


@pytest.mark.parametrize("share, kept", [(0.2, 2), (0.5, 5), (1.0, 10), (0.05, 1)])
def test_the_last_share_of_the_rounds_is_averaged(share: float, kept: int) -> None:
    server = ServerOptimiser("p", 10, "sgd", 1.0, 0.0, share)
    states = walk(server, [torch.full((3,), 0.1 * i) for i in range(10)])
    expected = torch.stack([s["p"] for s in states[-kept:]]).mean(0)
    torch.testing.assert_close(server.released(states[-1]), expected)


def test_without_averaging_the_last_parameters_are_released() -> None:
    server = ServerOptimiser("p", 3, "sgd", 1.0, 0.0, 0.0)
    last = walk(server, [torch.ones(3)] * 3)[-1]
    assert torch.equal(server.released(last), last["p"])


def test_a_run_whose_last_rounds_were_void_releases_what_it_has() -> None:
    server = ServerOptimiser("p", 10, average=0.2)
    for done in (0, 1, 8):  # the rounds that are averaged never took place
        states = walk(server, [torch.ones(3)] * done)
        state = states[-1] if states else server.start(START)
        assert torch.equal(server.released(state), state["p"])
    nine = walk(server, [torch.ones(3)] * 9)[-1]
    torch.testing.assert_close(server.released(nine), nine["p"])


def test_a_step_leaves_the_state_before_it_alone() -> None:
    server = ServerOptimiser("p", 4)
    state = server.start(START.clone())
    before = {name: value.clone() for name, value in state.items()}
    server.step(state, torch.ones(3))
    assert all(torch.equal(state[name], before[name]) for name in before)


def test_a_mean_of_zeros_moves_nothing() -> None:
    for kind in ("adam", "sgd"):
        server = ServerOptimiser("p", 4, kind)  # type: ignore[arg-type]
        assert torch.equal(walk(server, [torch.zeros(3)])[0]["p"], START)
