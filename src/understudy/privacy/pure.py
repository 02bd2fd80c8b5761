"""What mechanisms of pure ε have in common: they act once, on a whole site's update, at the site.

Any two updates are protected alike, so no sensitivity enters, and no sampling is claimed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import Event
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.mechanism import Use, empty_sum
from understudy.privacy.terms import Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase

__all__ = ["MOST_EPSILON", "Pure", "check_epsilon", "raw"]

MOST_EPSILON = 30.0
P = TypeVar("P", bound="Pure")


class Pure(ABC):
    """See the module's paragraph; `epsilon` is what one use costs."""

    name: ClassVar[str]
    promises: ClassVar[bool] = True
    steps: ClassVar[int] = 1
    rate: ClassVar[None] = None
    epsilon: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of what a site's update must be."""

    def check(self, part: Part, unit: Unit) -> None:
        """Of a whole site, at the site, in the mechanism's own shape."""
        if part.where != "client" or unit != "site" or part.shape != self.shape:
            raise PrivacyError(
                f"part {part.name!r} of shape {self.shape}, of a whole site, in the client slot",
                f"shape {part.shape}, unit {unit}, slot {part.where}",
                "fix the recipe's plan",
            )

    def start(self, part: Part) -> Tensor:
        return empty_sum(part)

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """Nothing is left for the server to do."""
        return total, ()

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> Receipt:
        """Nothing was bounded and nothing noised: what counts is ε."""
        return Receipt(
            round, part.name, part.where, self.name, unit, 0.0, 0.0, source, self.epsilon
        )

    def admits(self, receipt: Receipt) -> bool:
        """Exactly the promised ε."""
        return receipt.bound == receipt.std == 0 and receipt.epsilon == self.epsilon

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """ε per participation; a server that asks a site knows that it took part."""
        return Event((), None, phase.participations, self.epsilon)

    def std_of_sum(self, part: Part, phase: Phase) -> float:
        return 0.0

    def with_noise(self: P, noise: float) -> P:
        return self

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def raw(value: Tensor | Bounded) -> Tensor:
    """An update as it is: what is chosen from it needs no bound."""
    if not isinstance(value, Tensor):
        raise PrivacyError("a raw update", "a Bounded value", "fix the recipe")
    return value


def check_epsilon(epsilon: float) -> None:
    """Refuse an ε per update that is no positive number or beyond what is useful."""
    if not (isinstance(epsilon, float) and 0 < epsilon <= MOST_EPSILON):
        raise PrivacyError(
            f"an ε per update above 0 and up to {MOST_EPSILON:g}",
            f"{epsilon}",
            "set privacy.epsilon_per_update, or privacy.epsilon in total, in this range",
        )
