"""Randomised response: one bit under pure local privacy, and MagRR's use of it.

A site that holds a bit tells the truth with probability e^ε/(1+e^ε). MagRR (Jiang 2023, ch. 5)
asks whether an update is small against the global rate, max|Δ| < r·γ, so that the server can
lower γ without seeing any update.

Guarantee: the probability of either answer differs by a factor of at most e^ε between the two
bits, and so between any two updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import round_up
from understudy.privacy.chances import UNIT, Chances, gain
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.mechanism import Use, add_in_order
from understudy.privacy.pure import Pure, check_epsilon, raw
from understudy.privacy.terms import Unit
from understudy.rng import Draws

if TYPE_CHECKING:
    from understudy.privacy.plan import Part

__all__ = ["Response", "debiased", "is_small", "respond"]


@dataclass(frozen=True)
class Response(Pure):
    """Randomised response at ε."""

    epsilon: float

    name: ClassVar[str] = "respond"

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
    def shape(self) -> tuple[int, ...]:
        return ()

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The bit, or its opposite."""
        answers = respond(raw(value), self, use.draws)
        return answers, (self.receipt(use.part, use.unit, use.round, use.source),)

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """A bit in a byte."""
        return sent <= 1 if sent.dim() == 1 and sent.dtype == torch.uint8 else None

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        add_in_order(total, sent)

    def bytes(self, part: Part) -> int:
        return 1

    def describe(self, part: Part) -> str:
        price = round_up(self.epsilon)
        return f"{part.name}: one bit, true with chance {self.truth:.3g}, ε = {price}"


def respond(bits: Tensor, rule: Response, draws: Draws) -> Tensor:
    """The answers ``[C]`` (0 or 1, one byte each) of sites that hold ``bits`` ``[C]``."""
    if bits.dim() != 1 or bits.dtype != torch.bool:
        raise PrivacyError(
            "one bit per site", f"{bits.dtype} of shape {tuple(bits.shape)}", "fix the recipe"
        )
    draws.check(len(bits))
    lies = torch.from_numpy(rule.chances.draw(draws) == 0)
    return (bits ^ lies).to(torch.uint8)


def debiased(mean: Tensor, rule: Response) -> Tensor:
    """An unbiased estimate of the mean bit from the mean answer; it may lie outside [0, 1]."""
    return (mean - rule.lie) / (rule.truth - rule.lie)


def is_small(update: Tensor, level: float) -> Tensor:
    """MagRR's bit ``[C]``: whether no coordinate of an update ``[C, d]`` reaches ``level``."""
    return update.abs().amax(dim=1) < level
