"""Optimisers whose state carries the client axis.

A step runs over the parameters of many clients in one fused kernel. State is a plain
``dict[str, Tensor [C, …]]``, so a site can keep it as memory between rounds; step counts
are per client, because clients that join at different times have taken different numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Adam", "Optimiser", "Sgd", "advance", "start"]

STEPS = "steps"


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015)."""

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, with heavy-ball momentum if asked for."""

    rate: float = 1e-2
    momentum: float = 0.0


Optimiser = Adam | Sgd


def start(
    optimiser: Optimiser,
    params: Mapping[str, Tensor],
    *,
    empty: Callable[[str, Sequence[int]], Tensor] = lambda name, shape: torch.empty(*shape),
) -> dict[str, Tensor]:
    """A fresh state for the clients in ``params`` (``[C, …]`` each); ``empty`` gives storage."""
    clients = len(next(iter(params.values())))
    wanted = {f"{slot}.{n}": p.shape for slot in slots(optimiser) for n, p in params.items()}
    return {n: empty(n, shape).zero_() for n, shape in {**wanted, STEPS: (clients,)}.items()}


def slots(optimiser: Optimiser) -> tuple[str, ...]:
    """The tensors an optimiser keeps for each parameter."""
    if isinstance(optimiser, Adam):
        return ("mean", "square")
    return ("velocity",) if optimiser.momentum else ()


def advance(
    optimiser: Optimiser,
    params: Mapping[str, Tensor],
    grads: Sequence[Tensor],
    state: Mapping[str, Tensor],
) -> None:
    """One step in place, for every client in these tensors."""
    with torch.no_grad():
        if isinstance(optimiser, Adam):
            _adam(optimiser, params, grads, state)
        else:
            _sgd(optimiser, params, grads, state)


def _adam(
    optimiser: Adam,
    params: Mapping[str, Tensor],
    grads: Sequence[Tensor],
    state: Mapping[str, Tensor],
) -> None:
    steps = state[STEPS].add_(1)
    means, squares = ([state[f"{slot}.{n}"] for n in params] for slot in slots(optimiser))
    values, slopes, counts = list(params.values()), list(grads), [steps[0]] * len(params)
    if not bool((steps == steps[0]).all()):  # bias correction differs: one row per client
        values, slopes, means, squares = map(_rows, (values, slopes, means, squares))
        counts = [*steps.unbind()] * len(params)
    # The kernel behind torch.optim.Adam(fused=True), without its bookkeeping per call.
    torch._fused_adam_(
        values, slopes, means, squares, [], counts,
        lr=optimiser.rate, beta1=optimiser.beta1, beta2=optimiser.beta2, eps=optimiser.eps,
        weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip


def _rows(tensors: list[Tensor]) -> list[Tensor]:
    return [row for tensor in tensors for row in tensor.unbind()]


def _sgd(
    optimiser: Sgd,
    params: Mapping[str, Tensor],
    grads: Sequence[Tensor],
    state: Mapping[str, Tensor],
) -> None:
    moves = list(grads)
    if optimiser.momentum:
        moves = [state[f"velocity.{n}"] for n in params]
        torch._foreach_mul_(moves, optimiser.momentum)
        torch._foreach_add_(moves, list(grads))
    torch._foreach_add_(list(params.values()), moves, alpha=-optimiser.rate)
    state[STEPS].add_(1)
