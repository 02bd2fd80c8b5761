"""Stacked optimisers against torch's own, client by client."""

from __future__ import annotations

import pytest
import torch

from understudy.training import optim
from understudy.training.optim import Adam, Sgd

TWINS = {
    "adam": (Adam(1e-2), lambda p: torch.optim.Adam(p, lr=1e-2)),
    "sgd": (Sgd(1e-2), lambda p: torch.optim.SGD(p, lr=1e-2)),
}


def gradient(step: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(step)
    return [torch.randn(3, 4, 2, generator=rng), torch.randn(3, 2, generator=rng)]


def params() -> dict[str, torch.Tensor]:
    return dict(zip("wb", gradient(99), strict=True))


@pytest.mark.parametrize("ours, theirs", TWINS.values(), ids=TWINS)
def test_a_stack_steps_like_torch(ours, theirs):
    stacked, twin = params(), [p.clone().requires_grad_() for p in params().values()]
    state, reference = optim.start(ours, stacked), theirs(twin)
    for step in range(5):
        optim.stepper(ours, stacked, state)(gradient(step))
        for p, g in zip(twin, gradient(step), strict=True):
            p.grad = g
        reference.step()
    for got, wanted in zip(stacked.values(), twin, strict=True):
        torch.testing.assert_close(got, wanted.detach())


def test_clients_with_different_histories_step_as_if_alone():
    ours, together = Adam(1e-2), params()
    state = optim.start(ours, together)
    late = slice(0, 2)  # these two take three steps more
    for step in range(3):
        part = {n: p[late] for n, p in together.items()}
        own = {n: s[late] for n, s in state.items()}
        optim.stepper(ours, part, own)([g[late] for g in gradient(step)])
    optim.stepper(ours, together, state)(gradient(7))
    assert all(state[f"steps.{name}"].tolist() == [4, 4, 1] for name in together)

    alone = {n: p[2:] for n, p in params().items()}
    optim.stepper(ours, alone, optim.start(ours, alone))([g[2:] for g in gradient(7)])
    for name in alone:
        torch.testing.assert_close(together[name][2:], alone[name])


def test_plain_sgd_keeps_nothing():
    assert not optim.start(Sgd(), params())


def test_parameters_may_have_histories_of_their_own():
    ours, whole = Adam(1e-2), params()
    names = list(whole)
    state = optim.start(ours, whole)
    kept = {n: p.clone() for n, p in whole.items() if n == names[0]}
    own = {n: s.clone() for n, s in state.items() if n.endswith(names[0])}
    optim.stepper(ours, kept, own)(gradient(3)[:1])
    whole[names[0]], state = (
        kept[names[0]].clone(),
        {**state, **{n: s.clone() for n, s in own.items()}},
    )
    optim.stepper(ours, whole, state)(gradient(7))
    optim.stepper(ours, kept, own)(gradient(7)[:1])
    torch.testing.assert_close(whole[names[0]], kept[names[0]])
