"""What every mechanism can do: the seam between a plan and what protects a part.

A mechanism is a value. It knows how a site seals a part with it (`seal`), what a well-formed
reply looks like (`fits`), how replies add up (`accumulate`), what the server adds to the sum
(`complete`), what is charged (`receipt`) and what it costs (`event`). Plans, sites and the server
only ever ask the mechanism, so a new one needs no change anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from understudy.privacy.account import Event
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.terms import Unit
from understudy.rng import Draws

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase

__all__ = ["Mechanism", "Use", "add_in_order", "empty_sum"]


@dataclass(frozen=True)
class Use:
    """One use of a mechanism: for which part, unit and round, and what it may draw from.

    ``noise`` holds the multiplier of each site ``[C]`` where sites want more than the plan's.
    """

    part: Part
    unit: Unit
    round: int
    draws: Draws
    noise: Tensor | None = None

    @property
    def source(self) -> str:
        """Where the randomness comes from, as receipts name it."""
        return "simulation" if self.draws.is_simulation else "os"


class Mechanism(Protocol):
    """See the module's paragraph. ``name`` stands in receipts and in the plan's JSON."""

    name: ClassVar[str]
    promises: ClassVar[bool]  # False: nothing is protected, and nothing is charged

    @property
    def epsilon(self) -> float | None:
        """What one use costs where that is pure ε; None for noise, whose cost depends on δ."""

    @property
    def rate(self) -> float | None:
        """The rate of secret batches of records, where there are any."""

    @property
    def steps(self) -> int:
        """How often it acts in one round."""

    def check(self, part: Part, unit: Unit) -> None:
        """Refuse a part for which the promise would be void or not hold."""

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """At the site: what may leave, ``[C, …]``, and the receipts of what was done to it."""

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """At the server: which replies ``[C]`` are acceptable; None if none has the right form."""

    def start(self, part: Part) -> Tensor:
        """At the server: the sum of no replies."""

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        """Add replies to the sum so far, in place and in order, so that stacking cannot matter."""

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """At the server: the sum with the server's noise, if that is where it is added."""

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> Receipt | None:
        """What is charged for one step, before anything is drawn; None if nothing is promised."""

    def admits(self, receipt: Receipt) -> bool:
        """Whether a receipt shows at least the protection promised."""

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """What one unit is exposed to over a phase; ``factor`` multiplies the sensitivity."""

    def std_of_sum(self, part: Part, phase: Phase) -> float:
        """Of the noise in every number of the sum, if all who are asked answer."""

    def with_noise(self, noise: float) -> Mechanism:
        """The same with another noise multiplier, where there is one."""

    def bytes(self, part: Part) -> int:
        """What one site sends of the part, at most."""

    def describe(self, part: Part) -> str:
        """In words, for `understudy plan`."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; the class takes it back as keywords."""


def empty_sum(part: Part) -> Tensor:
    """Zeros in double."""
    return torch.zeros(part.shape, dtype=torch.float64)


def add_in_order(total: Tensor, values: Tensor) -> None:
    """Add one site after the other, in double: the sum does not depend on how they are stacked."""
    for value in values:
        total += value
