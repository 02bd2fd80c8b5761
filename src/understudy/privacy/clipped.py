"""Values of bounded norm: what the Gaussian, integer and plain mechanisms have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.clip import Bounded, Receipt, clip
from understudy.privacy.mechanism import Use, add_in_order, empty_sum
from understudy.privacy.terms import Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part

__all__ = ["Clipped", "Noised"]


N = TypeVar("N", bound="Noised")


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

    name: ClassVar[str]
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
        return empty_sum(part)

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        add_in_order(total, sent)

    def bytes(self, part: Part) -> int:
        """64-bit numbers, as noise and sums are; some recipes send 32-bit ones."""
        return 8 * math.prod(part.shape)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Noised(Clipped):
    """What is clipped and noised: ``noise`` is the multiplier z, over the shares of a sum.

    ``honest`` of these shares are unknown to the adversary; each has 1/√honest of the deviation.
    """

    noise: float = 0.0

    promises: ClassVar[bool] = True

    @property
    def honest(self) -> int:
        """One, where a noise is not shared."""
        return 1

    def std_for(self, bound: float) -> float:
        """The deviation of one noise, or share of it, that is added to a value of this bound."""
        return self.noise * bound / math.sqrt(self.honest)

    @property
    def std(self) -> float:
        """Of one noise on a value of the whole bound."""
        return self.std_for(self.bound)

    def check_noise(self, part: Part, unit: Unit) -> None:
        """Bound and noise are positive; batches hide records and nothing larger."""
        if self.rate is not None and unit != "record":
            raise PrivacyError(
                "batches drawn record by record only where a record is protected",
                f"a batch rate for unit {unit}",
                "remove the part's rate: the coins of single rows hide no larger unit",
            )
        if not (self.noise > 0 and math.isfinite(self.noise)):
            raise PrivacyError(
                "a positive noise multiplier",
                f"{self.noise}",
                'set privacy.noise > 0, or trust = "none"',
            )
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise PrivacyError("a positive clip bound", f"{self.bound}", "set privacy.clip")
        counts = (self.steps, self.rows, self.blocks)
        if min(counts) < 1 or not (self.rate is None or 0 < self.rate <= 1):
            raise PrivacyError(
                "steps, rows and blocks of at least 1, and a batch rate in (0, 1]",
                f"{self.steps}, {self.rows}, {self.blocks}, {self.rate}",
                f"correct part {part.name!r}",
            )

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> Receipt:
        """Bound, and the least standard deviation of one noise."""
        return Receipt(round, part.name, part.where, self.name, unit, self.bound, self.std, source)

    def admits(self, receipt: Receipt) -> bool:
        """At least the promised noise for the bound it was added to."""
        enough = receipt.std >= self.std_for(receipt.bound) * (1 - 1e-9)
        return enough and 0 < receipt.bound <= self.bound and receipt.epsilon == 0

    def with_noise(self: N, noise: float) -> N:
        """The same with multiplier z."""
        return replace(self, noise=noise)
