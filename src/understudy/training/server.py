"""The server's optimiser: what it makes of the noised mean of a round.

Adam, or SGD with heavy-ball momentum, on the mean change that the sites propose; its rate falls
along a cosine, if asked for, and the parameters of the last rounds are averaged. All of it is
post-processing of noised values, so it costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["ServerOptimiser"]

_SQUARE_DECAY = 0.99
_EPS = 1e-6


@dataclass(frozen=True)
class ServerOptimiser:
    """State is a plain dict: the parameters under ``name`` and what the optimiser keeps."""

    name: str
    rounds: int
    kind: Literal["adam", "sgd"] = "adam"
    rate: float = 0.016
    momentum: float = 0.9
    average: float = 0.2  # share of the last rounds that is averaged
    decay: Literal["cosine", "none"] = "cosine"

    def start(self, params: Tensor) -> dict[str, Tensor]:
        """The state before the first round."""
        zeros = {n: torch.zeros_like(params) for n in ("velocity", "square", "average")}
        return {self.name: params, **zeros, "round": torch.zeros(1), "averaged": torch.zeros(1)}

    def step(self, state: dict[str, Tensor], mean: Tensor) -> dict[str, Tensor]:
        """θ ← θ + rate·direction of the mean change."""
        done = float(state["round"]) + 1
        fresh = 1 - self.momentum if self.kind == "adam" else 1.0
        velocity = self.momentum * state["velocity"] + fresh * mean
        square = _SQUARE_DECAY * state["square"] + (1 - _SQUARE_DECAY) * mean.square()
        move = velocity
        if self.kind == "adam":
            scale = (square / (1 - _SQUARE_DECAY**done)).sqrt() + _EPS
            move = velocity / (1 - self.momentum**done) / scale
        fall = _decay((done - 1) / self.rounds) if self.decay == "cosine" else 1.0
        params = state[self.name] + self.rate * fall * move
        late = done > self.rounds * (1 - self.average)
        return {
            self.name: params,
            "velocity": velocity,
            "square": square,
            "average": state["average"] + params * late,
            "averaged": state["averaged"] + late,
            "round": torch.tensor([done]),
        }

    def released(self, state: dict[str, Tensor]) -> Tensor:
        """The average of the last rounds that took place, or the last parameters."""
        count = float(state["averaged"])
        return state["average"] / count if count else state[self.name]


def _decay(progress: float) -> float:
    """From 1 to 0.05 along a cosine."""
    return 0.05 + 0.475 * (1 + math.cos(math.pi * progress))
