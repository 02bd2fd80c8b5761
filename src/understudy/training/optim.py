"""Optimisers whose state carries the client axis.

A step runs over the parameters of many clients in one fused kernel. State is a plain
``dict[str, Tensor [C, …]]``, so a site can keep it, or a part of it, as memory between
rounds. Adam's step counts are per parameter and client: clients that join at different times
have taken different numbers, and an encoder may keep its history while a decoder starts afresh.
`Turns` lets two nets of one stack move by turns, as adversaries do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["VECTOR", "Adam", "Optimiser", "Sgd", "Step", "Turns", "start", "stepper", "turn"]

STEPS = "steps"  # Adam's slot of counts, one number per client
VECTOR = 16  # numbers in the longest vector that a kernel computes at once


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015)."""

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, which keeps nothing between steps."""

    rate: float = 1e-2


@dataclass(frozen=True)
class Turns:
    """Parameters that move in turn: at each step those under one prefix, by ``rule``."""

    rule: Adam | Sgd
    order: tuple[str, ...]  # of prefixes, over and over


Optimiser = Adam | Sgd | Turns
Step = Callable[[Sequence[Tensor]], None]


def start(
    optimiser: Optimiser,
    params: Mapping[str, Tensor],
    *,
    empty: Callable[[str, Sequence[int]], Tensor] = lambda name, shape: torch.empty(*shape),
) -> dict[str, Tensor]:
    """A fresh state for the clients in ``params`` (``[C, …]`` each); ``empty`` gives storage."""
    wanted = {
        f"{slot}.{n}": p.shape[:1] if slot == STEPS else p.shape
        for slot in slots(optimiser)
        for n, p in params.items()
    }
    return {n: empty(n, shape).zero_() for n, shape in wanted.items()}


def slots(optimiser: Optimiser) -> tuple[str, ...]:
    """The tensors an optimiser keeps for each parameter."""
    rule = optimiser.rule if isinstance(optimiser, Turns) else optimiser
    return ("mean", "square", STEPS) if isinstance(rule, Adam) else ()


def turn(optimiser: Optimiser, step: int) -> str:
    """The prefix of the parameters that move at a step."""
    if not isinstance(optimiser, Turns):
        return ""
    return optimiser.order[step % len(optimiser.order)]


def stepper(
    optimiser: Optimiser, params: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> Step:
    """A step in place for every client in these tensors, given gradients in their order.

    The clients take all their steps together, so what depends on their histories is
    prepared once.
    """
    values = list(params.values())
    rule = optimiser.rule if isinstance(optimiser, Turns) else optimiser
    if isinstance(rule, Adam):
        held = [[state[f"{slot}.{n}"] for n in params] for slot in slots(rule)]
        return _adam(rule, values, held)
    return lambda grads: torch._foreach_add_(values, list(grads), alpha=-rule.rate)


def _adam(optimiser: Adam, values: list[Tensor], held: list[list[Tensor]]) -> Step:
    means, squares, steps = held
    alike = all(bool((s == s[0]).all()) for s in steps if len(s))
    together = alike and not any(math.prod(v.shape[1:]) % VECTOR for v in values)
    counts = [s[0] for s in steps] if together else _rows(steps)
    # Where histories differ so does the bias correction, and where a client's numbers do not fill
    # whole vectors the kernel rounds the last of them otherwise: it then gets one row per client.
    values, means, squares = (t if together else _rows(t) for t in (values, means, squares))

    def step(grads: Sequence[Tensor]) -> None:
        torch._foreach_add_(steps, 1)
        slopes = list(grads) if together else _rows(grads)
        # The kernel behind torch.optim.Adam(fused=True), without its bookkeeping per call.
        torch._fused_adam_(
            values, slopes, means, squares, [], counts,
            lr=optimiser.rate, beta1=optimiser.beta1, beta2=optimiser.beta2, eps=optimiser.eps,
            weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip

    return step


def _rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [row for tensor in tensors for row in tensor.unbind()]
