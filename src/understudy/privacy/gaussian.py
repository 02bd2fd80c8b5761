"""The Gaussian mechanism, and `Plain`, the honest name for no mechanism at all.

Drawing the noise and writing its receipt are one call, and only `Bounded` values are accepted.
The noise is drawn in double precision, from the operating system unless the source is a
simulation; like all floating-point noise it carries a caveat on the claim (the precision attacks
of arXiv 2207.13793 concern the addition, not the sampler).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import Event
from understudy.privacy.clip import Bounded, Receipt, clip
from understudy.privacy.mechanism import Use, add_in_order
from understudy.privacy.terms import Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase

__all__ = ["NO_BOUND", "Gaussian", "Plain"]

NO_BOUND = 1e9  # of updates that are sent as they are, without privacy


@dataclass(frozen=True)
class _Clipped:
    """What both have in common: values of bounded norm.

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

    def bounded(self, value: Tensor | Bounded, use: Use) -> Bounded:
        """The value within its bound; one that claims to be already must agree with the plan."""
        if not isinstance(value, Bounded):
            return clip(value, self.bound, self.blocks)
        if value.sensitivity > self.bound * (1 + 1e-9) or value.unit != use.unit:
            raise PrivacyError(
                f"part {use.part.name!r} bounded by {self.bound:g} per {use.unit}",
                f"{value.sensitivity:g} per {value.unit}",
                "make the recipe's plan and its clipping agree",
            )
        return value if use.unit != "site" else clip(value.value, self.bound, self.blocks)

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """Finite and, where the server can tell, within the bound."""
        if sent.shape[1:] != part.shape or not sent.is_floating_point():
            return None
        norm = sent.double().reshape(len(sent), -1).norm(dim=1)
        seen = unit == "site" and part.where == "server"
        return torch.isfinite(norm) & (norm <= self.bound * (1 + 1e-6) if seen else True)

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        """The sum."""
        add_in_order(total, sent)

    def bytes(self, part: Part) -> int:
        """32-bit numbers."""
        return 4 * math.prod(part.shape)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Plain(_Clipped):
    """Nothing is promised: the value is sent as it is, or clipped to ``bound`` and no more.

    The honest way to write a run without privacy: its claim says that nothing is protected.
    """

    bound: float = NO_BOUND

    name: ClassVar[str] = "plain"
    promises: ClassVar[bool] = False

    def check(self, part: Part, unit: Unit) -> None:
        """Anything goes."""

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The value itself."""
        if use.part.where == "step" and isinstance(value, Tensor):
            return value, ()
        return self.bounded(value, use).value, ()

    def add_noise(self, bounded: Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """None is added."""
        return bounded.value.double(), ()

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The sum as it is."""
        return total, ()

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> None:
        """Nothing is charged."""

    def admits(self, receipt: Receipt) -> bool:
        """No receipt can be of this."""
        return False

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """Without noise: it costs infinity."""
        return Event((0.0,), None, phase.participations)

    def with_noise(self, noise: float) -> Plain:
        """There is none to change."""
        return self

    def describe(self, part: Part) -> str:
        """What is done to it, if anything."""
        limit = f", clipped to norm {self.bound:.4g}" if self.bound < NO_BOUND else ""
        return f"{part.name}: sent as it is{limit}"


@dataclass(frozen=True)
class Gaussian(_Clipped):
    """Add N(0, (noise·bound)²) to every coordinate of a clipped value.

    Added at the site (client slot), by the server to the sum (server slot), or by the site to
    every step of its training (step slot). Guarantee: one use is a Gaussian mechanism with
    multiplier ``noise`` for the plan's unit under add-or-remove-one. It breaks if the value
    was not clipped, which is why only `Bounded` values can be noised.
    """

    noise: float = 0.0

    name: ClassVar[str] = "gaussian"
    promises: ClassVar[bool] = True

    @property
    def std(self) -> float:
        """Of the noise in every coordinate."""
        return self.noise * self.bound

    def check(self, part: Part, unit: Unit) -> None:
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

    def bounded(self, value: Tensor | Bounded, use: Use) -> Bounded:
        """As a plain value, but a sum over records must come bounded: it cannot be clipped here."""
        if use.unit != "site" and not isinstance(value, Bounded):
            raise PrivacyError(
                f"part {use.part.name!r} bounded per {use.unit}",
                "a raw update",
                'form it with site.sum, or protect whole sites (privacy.unit = "site")',
            )
        return super().bounded(value, use)

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

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> Receipt:
        """Bound and standard deviation."""
        return Receipt(round, part.name, part.where, self.name, unit, self.bound, self.std, source)

    def admits(self, receipt: Receipt) -> bool:
        """At least the promised noise for the bound it was added to."""
        enough = receipt.std >= self.noise * receipt.bound * (1 - 1e-9)
        return enough and 0 < receipt.bound <= self.bound and receipt.epsilon == 0

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """A batch is its site's secret, so every adversary is in the dark about it."""
        noise = (self.noise / factor,)
        if part.where == "step" or self.rate:
            return Event(noise, self.rate, phase.participations * self.steps)
        rounds = phase.rounds if amplified and phase.rate else phase.participations
        return Event(noise, phase.rate if amplified else None, rounds)

    def with_noise(self, noise: float) -> Gaussian:
        """The same with multiplier z."""
        return replace(self, noise=noise)

    def describe(self, part: Part) -> str:
        """Bound, noise, and who adds it."""
        who = {"server": "by the server", "client": "by the site", "step": "by the site"}
        steps = f" in each of {self.steps} step(s) a round" if part.where == "step" else ""
        batches = f", batches by coin flips at rate {self.rate:.3g}" if self.rate else ""
        return (
            f"{part.name}: clipped to norm {self.bound:.4g}, noise z = {self.noise:.4g} added "
            f"{who.get(part.where, 'in shares')}{steps}{batches}"
        )
