"""Values of bounded norm: what the Gaussian, integer and plain mechanisms have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.clip import Bounded, Receipt, clip
from understudy.privacy.mechanism import Use, add_in_order, empty_sum
from understudy.privacy.terms import Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part

__all__ = ["Clipped", "check_noise"]


@dataclass(frozen=True)
class Clipped(ABC):
    """What is clipped, and how.

    ``bound`` is the L2 norm of one unit's contribution. ``blocks`` > 1 clips that many blocks of
    the first axis to bound/√blocks each; ``rows`` is how many rows one unit may add to a sum.
    ``rate`` is that of batches of records, each drawn by its own secret coin flip at its site
    (None: all records); ``steps`` are the steps per round of the step slot.
    """

    bound: float
    blocks: int = 1
    rows: int = 1
    steps: int = 1
    rate: float | None = None

    epsilon: ClassVar[None] = None
    promises: ClassVar[bool] = False

    def bounded(self, value: Tensor | Bounded, use: Use) -> Bounded:
        """The value within its bound; one that claims to be already must agree with the plan.

        Where something is promised, a sum over records must come bounded: it cannot be clipped
        here.
        """
        if not isinstance(value, Bounded):
            if self.promises and use.unit != "site":
                raise PrivacyError(
                    f"part {use.part.name!r} bounded per {use.unit}",
                    "a raw update",
                    'form it with site.sum, or protect whole sites (privacy.unit = "site")',
                )
            return clip(value, self.bound, self.blocks)
        if value.sensitivity > self.bound * (1 + 1e-9) or value.unit != use.unit:
            raise PrivacyError(
                f"part {use.part.name!r} bounded by {self.bound:g} per {use.unit}",
                f"{value.sensitivity:g} per {value.unit}",
                "make the recipe's plan and its clipping agree",
            )
        return value if use.unit != "site" else clip(value.value, self.bound, self.blocks)

    @abstractmethod
    def add_noise(self, bounded: Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The noised value and its receipt: no noise without one."""

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """Finite and, where the server can tell, within the bound."""
        if sent.shape[1:] != part.shape or not sent.is_floating_point():
            return None
        norm = sent.double().reshape(len(sent), -1).norm(dim=1)
        seen = unit == "site" and part.where == "server"
        return torch.isfinite(norm) & (norm <= self.bound * (1 + 1e-6) if seen else True)

    def start(self, part: Part) -> Tensor:
        """Zeros in double."""
        return empty_sum(part)

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        """The sum."""
        add_in_order(total, sent)

    def bytes(self, part: Part) -> int:
        """64-bit numbers, as noise and sums are; some recipes send 32-bit ones."""
        return 8 * math.prod(part.shape)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return dict(self.__dict__)


def check_noise(mechanism: Clipped, noise: float, part: Part, unit: Unit) -> None:
    """Bound and noise are positive; batches hide records and nothing larger."""
    if mechanism.rate is not None and unit != "record":
        raise PrivacyError(
            "batches drawn record by record only where a record is protected",
            f"a batch rate for unit {unit}",
            "remove the part's rate: the coins of single rows hide no larger unit",
        )
    if not (noise > 0 and math.isfinite(noise)):
        raise PrivacyError(
            "a positive noise multiplier",
            f"{noise}",
            'set privacy.noise > 0, or trust = "none"',
        )
    if not (mechanism.bound > 0 and math.isfinite(mechanism.bound)):
        raise PrivacyError("a positive clip bound", f"{mechanism.bound}", "set privacy.clip")
    counts = (mechanism.steps, mechanism.rows, mechanism.blocks)
    if min(counts) < 1 or not (mechanism.rate is None or 0 < mechanism.rate <= 1):
        raise PrivacyError(
            "steps, rows and blocks of at least 1, and a batch rate in (0, 1]",
            f"{mechanism.steps}, {mechanism.rows}, {mechanism.blocks}, {mechanism.rate}",
            f"correct part {part.name!r}",
        )
