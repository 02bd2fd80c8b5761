"""Randomised response: one bit under pure local privacy, and MagRR's use of it.

A site that holds a bit tells the truth with probability e^ε/(1+e^ε). MagRR (jiang-thesis, ch. 5)
asks whether an update is small against the global rate, max|Δ| < r·γ, so that the server can
lower γ without seeing any update.

Guarantee: the probability of either answer differs by a factor of at most e^ε between the two
bits, and so between any two updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.chances import UNIT, Chances, gain
from understudy.privacy.clip import Receipt
from understudy.privacy.select import check_epsilon, pure_receipt
from understudy.rng import Draws

__all__ = ["Response", "debiased", "is_small", "respond"]


@dataclass(frozen=True)
class Response:
    """Randomised response at ε."""

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def truth(self) -> float:
        """The probability of a true answer."""
        return 1 / (1 + math.exp(-self.epsilon))

    @property
    def lie(self) -> float:
        """The probability of a false answer."""
        return 1 / (1 + math.exp(self.epsilon))

    @property
    def chances(self) -> Chances:
        """Of a false and of a true answer, as they are drawn."""
        return Chances.of((UNIT, gain(self.epsilon)))

    @property
    def bytes(self) -> int:
        """Of a message: the bit travels as one byte."""
        return 1


def respond(
    bits: Tensor, rule: Response, *, part: str, round: int, source: Draws
) -> tuple[Tensor, Receipt]:
    """The answers ``[C]`` (0 or 1, one byte each) of sites that hold ``bits`` ``[C]``."""
    if bits.dim() != 1 or bits.dtype != torch.bool:
        raise PrivacyError(
            "one bit per site", f"{bits.dtype} of shape {tuple(bits.shape)}", "fix the recipe"
        )
    source.check(len(bits))
    lies = torch.from_numpy(rule.chances.draw(source) == 0)
    receipt = pure_receipt("respond", rule.epsilon, part=part, round=round, source=source)
    return (bits ^ lies).to(torch.uint8), receipt


def debiased(mean: Tensor, rule: Response) -> Tensor:
    """An unbiased estimate of the mean bit from the mean answer; it may lie outside [0, 1]."""
    return (mean - rule.lie) / (rule.truth - rule.lie)


def is_small(update: Tensor, level: float) -> Tensor:
    """MagRR's bit ``[C]``: whether no coordinate of an update ``[C, d]`` reaches ``level``."""
    return update.abs().amax(dim=1) < level
