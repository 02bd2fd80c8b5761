"""The Gaussian mechanism, and `Plain`, the honest name for no mechanism at all.

Drawing the noise and writing its receipt are one call, and only `Bounded` values are accepted.
The noise is drawn in double precision, from the operating system unless the source is a
simulation; like all floating-point noise it carries a caveat on the claim (the precision attacks
of arXiv 2207.13793 concern the addition, not the sampler).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import Event
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.clipped import Clipped, Noised
from understudy.privacy.mechanism import Use
from understudy.privacy.terms import Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase

__all__ = ["NO_BOUND", "Gaussian", "Plain"]

NO_BOUND = 1e9  # of updates that are sent as they are, without privacy


@dataclass(frozen=True)
class Plain(Clipped):
    """Nothing is promised: the value is sent as it is, or clipped to ``bound`` and no more.

    The honest way to write a run without privacy: its claim says that nothing is protected.
    """

    bound: float = NO_BOUND

    name: ClassVar[str] = "plain"

    def check(self, part: Part, unit: Unit) -> None:
        """Anything goes."""

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        if use.part.where == "step" and isinstance(value, Tensor):
            return value, ()
        return self.bounded(value, use).value, ()

    def add_noise(self, bounded: Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        return bounded.value.double(), ()

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        return total, ()

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> None:
        """Nothing is charged."""

    def admits(self, receipt: Receipt) -> bool:
        return False

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """Without noise: it costs infinity."""
        return Event((0.0,), None, phase.participations)

    def std_of_sum(self, part: Part, phase: Phase) -> float:
        return 0.0

    def with_noise(self, noise: float) -> Plain:
        return self

    def describe(self, part: Part) -> str:
        limit = f", clipped to norm {self.bound:.4g}" if self.bound < NO_BOUND else ""
        return f"{part.name}: sent as it is{limit}"


@dataclass(frozen=True)
class Gaussian(Noised):
    """Add N(0, (noise·bound)²) to every coordinate of a clipped value.

    Added at the site (client slot), by the server to the sum (server slot), or by the site to
    every step of its training (step slot). Guarantee: one use is a Gaussian mechanism with
    multiplier ``noise`` for the plan's unit under add-or-remove-one. It breaks if the value
    was not clipped, which is why only `Bounded` values can be noised.
    """

    name: ClassVar[str] = "gaussian"

    def check(self, part: Part, unit: Unit) -> None:
        """Bound and noise are positive; batches hide records and nothing larger."""
        self.check_noise(part, unit)
        if part.where == "distributed":
            raise PrivacyError("integer noise in shares", "floating-point noise", "fix the plan")

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """Clipped for the server to noise, noised here, or noised step by step before."""
        if use.part.where == "step":
            if not isinstance(value, Tensor):
                raise PrivacyError("what site.step returned", "a Bounded value", "fix the recipe")
            return value, ()
        bounded = self.bounded(value, use)
        return (bounded.value, ()) if use.part.where == "server" else self.add_noise(bounded, use)

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """Noise on the sum, never on the mean: drop-outs then change no sensitivity."""
        if use.part.where != "server":
            return total, ()
        noised, receipts = self.add_noise(Bounded(total[None], self.bound, use.unit), use)
        return noised[0], receipts

    def add_noise(self, bounded: Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The noised value and its receipt: no noise without one."""
        if not isinstance(bounded, Bounded):
            raise PrivacyError("a Bounded value", type(bounded).__name__, "clip it first")
        use.draws.check(len(bounded.value))
        level = torch.tensor(self.noise, dtype=torch.float64)
        level = level if use.noise is None else use.noise.double().clamp(min=self.noise)
        if not bool((level > 0).all() and torch.isfinite(level).all()):
            raise PrivacyError(
                "a positive, finite noise multiplier", "another value", "set privacy.noise"
            )
        scale = (level * bounded.sensitivity).reshape(-1, *[1] * (bounded.value.dim() - 1))
        draw = torch.from_numpy(use.draws.normal(tuple(bounded.value.shape[1:])))
        receipt = self.receipt(use.part, bounded.unit, use.round, use.source)
        real = (bounded.sensitivity, float(level.min()) * bounded.sensitivity)
        receipt = replace(receipt, bound=real[0], std=real[1])
        return bounded.value.double() + draw * scale, (receipt,)

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """A batch is its site's secret, so every adversary is in the dark about it."""
        noise = (self.noise / factor,)
        if part.where == "step" or self.rate:
            return Event(noise, self.rate, phase.participations * self.steps)
        rounds = phase.rounds if amplified and phase.rate else phase.participations
        return Event(noise, phase.rate if amplified else None, rounds)

    def std_of_sum(self, part: Part, phase: Phase) -> float:
        """The server's noise; where sites add it, that of all who are asked."""
        return self.std * math.sqrt(1.0 if part.where == "server" else phase.cohort)

    def describe(self, part: Part) -> str:
        who = "by the server" if part.where == "server" else "by the site"
        steps = f" in each of {self.steps} step(s) a round" if part.where == "step" else ""
        batches = f", batches by coin flips at rate {self.rate:.3g}" if self.rate else ""
        return (
            f"{part.name}: clipped to norm {self.bound:.4g}, noise z = {self.noise:.4g} added "
            f"{who}{steps}{batches}"
        )
