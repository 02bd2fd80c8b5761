"""Noise on products of columns that parties hold apart: one noisy matrix VᵀV for all of them.

Row k of V is one record: v = (v₁, …, v_M), party i holding vᵢ. The sum of all vvᵀ has blocks within
a party, which it noises itself, and blocks across two parties, of which each of the two holds a
share (`federation.products`) and to which **each adds noise of its own, in full**. So whoever is
not both of them lacks at least one full noise in every number that depends on others' columns.

*Whole numbers.* A party scales vᵢ by 2^16 and rounds it, record by record; ‖vᵢ‖² ≤ Rᵢ² holds for
the whole numbers, since a row that rounding took beyond it is rounded towards zero. All products
are then exact: nothing is lost or rounded in the sum, and wrapping around is excluded by `check`.

*Sensitivity.* Numbers on the diagonal get noise of variance σ², all others σ²/2. In units of the
noise one record has squared norm (Σ vₖ⁴ + 2·Σ_{k<l} vₖ²vₗ²)/σ² = ‖v‖⁴/σ² ≤ (Σ Rᵢ²)²/σ². So a sum
is one Gaussian mechanism with multiplier z = σ/Σ Rᵢ², over all blocks and parties together.

*Noise.* Discrete Gaussians, each as N(0, σ² − 9) rounded at random to the lattice (`integer` has
the argument): the 9 is added to every variance, and `gap` bounds what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import Event
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.discrete import REACH, TAIL, discrete_gaussian
from understudy.privacy.integer import LATTICE, lattice, signed
from understudy.privacy.mechanism import Use
from understudy.privacy.terms import Unit
from understudy.rng import Draws

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase

__all__ = ["MODULUS", "SCALE", "Products"]

SCALE = 2.0**16  # whole numbers in one unit of a feature
MODULUS = 62  # bits: shares travel modulo 2^62


@dataclass(frozen=True)
class Products:
    """``widths`` and ``norms`` (Rᵢ²) of each party's features; ``most`` records, a public number.

    Guarantee: to whoever sees the sum and all but one party's noise, one use is a Gaussian
    mechanism with multiplier ``noise`` for a record at all parties, up to `gap`. It breaks if a
    party does not add its noise, or does not bound its rows: it can then read others' rows.
    """

    widths: tuple[int, ...]
    norms: tuple[float, ...]
    most: int
    noise: float = 0.0

    name: ClassVar[str] = "products"
    promises: ClassVar[bool] = True
    epsilon: ClassVar[None] = None
    rate: ClassVar[None] = None
    steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        object.__setattr__(self, "norms", tuple(self.norms))

    @property
    def bound(self) -> float:
        """Σ Rᵢ²: the most that one record's vvᵀ measures."""
        return math.fsum(self.norms)

    @property
    def variances(self) -> tuple[float, float]:
        """Of one noise on the diagonal and off it, in units of the grid."""
        whole = (self.noise * self.bound * SCALE**2) ** 2 * (1 + 1e-12)
        return whole + LATTICE**2, whole / 2 + LATTICE**2

    def spans(self) -> list[slice]:
        """Where each party's features lie in the matrix."""
        ends = np.cumsum(self.widths).tolist()
        return [slice(end - width, end) for end, width in zip(ends, self.widths, strict=True)]

    def check(self, part: Part, unit: Unit) -> None:
        """One matrix of all parties, positive noise, and no sum that could wrap around."""
        total = sum(self.widths)
        fits = len(self.widths) == len(self.norms) >= 2 and min(self.widths) >= 1
        if not fits or part.shape != (total, total) or part.where != "client" or unit == "site":
            raise PrivacyError("products of all parties' columns", "another part", "fix the plan")
        if not (self.noise > 0 and math.isfinite(self.noise) and min(self.norms) > 0):
            raise PrivacyError("a positive noise and positive bounds", "others", "fix the plan")
        reach = self.most * self.bound * SCALE**2 + 2 * (REACH + 1) * math.sqrt(self.variances[0])
        if self.most < 1 or reach >= 2.0 ** (MODULUS - 1):
            raise PrivacyError(
                f"sums of {part.name!r} within {MODULUS} bits",
                f"more, for {self.most:,} records at z = {self.noise:.3g}",
                "declare fewer records, or ask for a larger ε",
            )

    def rounded(self, features: Tensor, party: int) -> np.ndarray:
        """A party's features ``[n, dᵢ]`` as whole numbers ``[most, dᵢ]``, padded with zeros.

        Guarantee: every row has squared norm at most Rᵢ², in units of the grid; a row that is not
        finite counts as zero. How many rows there are does not show.
        """
        if features.shape[1] != self.widths[party] or len(features) > self.most:
            raise PrivacyError(
                f"{self.widths[party]} features of at most {self.most:,} records",
                "more records" if len(features) > self.most else "other features",
                "fix the recipe, or raise records in the schema",
            )
        limit = math.floor(self.norms[party] * SCALE**2)
        scaled = features.double() * SCALE
        scaled = torch.where(torch.isfinite(scaled).all(1, keepdim=True), scaled, 0.0)
        norm = scaled.norm(dim=1, keepdim=True)
        scaled = scaled * (math.sqrt(limit) * (1 - 2.0**-40) / norm.clamp(min=1e-300)).clamp(max=1)
        near, inward = scaled.round().long(), scaled.trunc().long()
        over = near.square().sum(1, keepdim=True) > limit
        found = np.zeros((self.most, self.widths[party]), np.int64)
        found[: len(features)] = torch.where(over, inward, near).numpy()
        return found

    def noises(self, party: int, draws: Draws) -> tuple[np.ndarray, list[np.ndarray]]:
        """A party's own noise: on its own block (upper triangle), and on those with each other."""
        diagonal, beside = (discrete_gaussian(v) for v in self.variances)
        width = self.widths[party]
        own = np.zeros((width, width), np.int64)
        own[np.triu_indices(width, 1)] = beside.draw(draws, width * (width - 1) // 2)[0]
        own[np.diag_indices(width)] = diagonal.draw(draws, width)[0]
        others = [w for i, w in enumerate(self.widths) if i != party]
        return own, [beside.draw(draws, width * w)[0].reshape(width, w) for w in others]

    def add_noise(
        self, blocks: Sequence[np.ndarray], party: int, use: Use
    ) -> tuple[list[np.ndarray], Receipt]:
        """A party's own block, as its upper triangle, and its shares of those with each other.

        All with its own noise, modulo 2^64, and the receipt of that noise.
        """
        own, others = self.noises(party, use.draws)
        noises = (own[np.triu_indices(len(own))], *others)
        noised = [b + noise.view(np.uint64) for b, noise in zip(blocks, noises, strict=True)]
        return noised, self.receipt(use.part, use.unit, use.round, use.source)

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """Never: products are sealed in the legs of `federation.products`."""
        raise PrivacyError("the legs of a product sum", "one exchange", "fix the runtime")

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """Whole numbers below the modulus: a share shows no more."""
        if sent.dtype != torch.int64 or sent.dim() != 2:
            return None
        return ((sent >= 0) & (sent < 2**MODULUS)).all(dim=1)

    def start(self, part: Part) -> Tensor:
        return torch.zeros(part.shape, dtype=torch.int64)

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        """Never: see `seal`."""
        raise PrivacyError("the legs of a product sum", "one exchange", "fix the runtime")

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The matrix as numbers again; its noise is in it."""
        return signed(total, MODULUS).double() / SCALE**2, ()

    def receipt(self, part: Part, unit: Unit, round: int, source: str) -> Receipt:
        """Bound, and the deviation of one noise on the diagonal."""
        std = self.noise * self.bound
        return Receipt(round, part.name, part.where, self.name, unit, self.bound, std, source)

    def admits(self, receipt: Receipt) -> bool:
        """At least the promised noise for the bound it was added to."""
        enough = receipt.std >= self.noise * receipt.bound * (1 - 1e-9)
        return enough and 0 < receipt.bound <= self.bound and receipt.epsilon == 0

    def gap(self, part: Part) -> float:
        """How far from the Gaussian mechanism, over all numbers of the matrix."""
        return math.prod(part.shape) * (lattice(LATTICE**2) + 2 * TAIL)

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        return Event((self.noise / factor,), None, phase.participations, gap=self.gap(part))

    def std_of_sum(self, part: Part, phase: Phase) -> float:
        """On the diagonal; off it less by √2 within a party, and the same across two."""
        return math.sqrt(self.variances[0]) / SCALE**2

    def with_noise(self, noise: float) -> Products:
        return replace(self, noise=noise)

    def bytes(self, part: Part) -> int:
        """What the busiest party sends: its masked rows, and its shares of all products."""
        widest, total = max(self.widths), sum(self.widths)
        return 8 * (self.most * widest + widest * total)

    def describe(self, part: Part) -> str:
        return (
            f"{part.name}: products of {sum(self.widths)} features at {len(self.widths)} parties, "
            f"squared norm at most {self.bound:.4g} a record, noise z = {self.noise:.4g} added by "
            "every party to each product it has a part in"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "widths": list(self.widths), "norms": list(self.norms)}
