"""Noise in shares: every site adds a part of it, in whole numbers, and only the sum is ever seen.

The mechanism of the distributed slot (after Kairouz, Liu & Steinke 2021, arXiv 2102.06387). A
site clips, scales to a grid of whole numbers, rounds, adds a discrete Gaussian share and reduces
modulo 2^b; masks hide everything but the sum over the survivors of the round (`federation`).

*Shares.* At least t sites survive a round and at most c of them tell the adversary their shares, so
at least t − c unknown shares are in every sum; each has the variance σ²/(t − c).

*Sensitivity.* All in units of the grid, with s the clip bound and d numbers in the part. A number
x becomes ⌊x⌋ or ⌊x⌋ + 1, by a uniform number u that depends on no data.

- A site is protected: its rounded update is its contribution. Its squared norm is compared with
  Δ² = s² + d/4 + 5.3·(s + √d/2), which rounding exceeds with a chance below 2^−20; it is then drawn
  again and at last rounded towards zero, which makes no number larger. So ‖·‖ ≤ Δ always holds.
- A record or person is protected: the site's *sum* x is rounded. With u as it is, a unit that moves
  x by v, ‖v‖ ≤ s, moves each rounded number by less than |v| + 1, and those it leaves alone not at
  all. So Δ = s + √d bounds it, whatever u is. A share of s is set aside besides for the sum in
  double precision: n²·2^−52 for n units, at least 2^−12.

*Noise.* Shares σ ≥ 4.5 and their sum are, up to a factor that `gap` bounds, what one gets by adding
N(0, σ² − 9) to the integers and rounding that at random to the lattice (`lattice` has the
argument). Rounding is post-processing, so every accountant of the Gaussian holds for it, in any
dimension, for any number of rounds and with secret batches: multiplier z = √(σ² − 9)/Δ.

*Modulus.* Reduction is post-processing of the noised sum and reveals nothing. That the sum does not
wrap around is a matter of being right: its chance is counted into `gap` all the same.

There is no rotation: it evens out the numbers of an update, but the range of the noise, 16σ, is
what fills the bits, so that it would save less than a byte a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import Event
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.clipped import Noised
from understudy.privacy.discrete import REACH, TAIL, discrete_gaussian
from understudy.privacy.mechanism import Use
from understudy.privacy.terms import Unit
from understudy.rng import Draws

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase

__all__ = ["LATTICE", "MOST_BITS", "Grid", "IntegerGaussian", "default_shares", "lattice", "signed"]

MOST_BITS = 56
_LEVELS = 4096.0  # the clip bound in units of the grid, at least
_PER_ROOT = {True: 32.0, False: 1024.0}  # the same over √d: rounded norms are checked, or counted
_LEAST_SHARE = 4.5  # σ of a share in units of the grid, at least
LATTICE = 3.0  # σ of the random rounding in the argument
_RETRIES = 3
_EXCESS = math.sqrt(2 * math.log(2**20))  # 5.3
_SUMMED = 2.0**-12  # of the bound, for sums in double precision


def default_shares(
    asked: int, sites: int | None = None, colluders: int | None = None
) -> tuple[int, int]:
    """(t, c) for ``asked`` of all ``sites``: a tenth of all may collude, a fifth may drop out.

    Of 3, 5, 20 and 1,000 sites that is (3, 1), (4, 1), (16, 2) and (800, 100). At least two
    survivors are honest, and no two sums of a round can be had over different survivors
    (2t > n + c).
    """
    c = max(1, (sites or asked) // 10) if colluders is None else colluders
    return min(asked, max(-(-4 * asked // 5), c + 2, (asked + c) // 2 + 1)), c


@dataclass(frozen=True)
class Grid:
    """Whole numbers in the place of an update: multiples of ``spacing``, a power of two.

    ``limit`` is Δ, the most that one unit moves them in L2 norm; ``variance`` that of one share.
    """

    spacing: float
    limit: float
    variance: float

    @property
    def squared(self) -> int:
        """The largest squared norm that is within the limit."""
        return math.floor(self.limit**2)


@dataclass(frozen=True)
class IntegerGaussian(Noised):
    """Discrete Gaussian shares on a clipped and rounded value; see the module's paragraph.

    ``asked`` sites are asked in a round, at least ``survivors`` (t) answer to the end, or there is
    no sum, and up to ``colluders`` (c) of them tell the adversary their shares. ``most`` is how
    many units are in a sum at most; ``whole``: the unit is the site.

    Guarantee: to whoever sees sums and c shares, one use is a Gaussian mechanism with multiplier
    ``noise`` for the plan's unit, up to `gap`. It breaks if more than c sites collude, if a sum
    over fewer than t sites is revealed, or if a site's own share is not drawn.
    """

    asked: int = 1
    survivors: int = 1
    colluders: int = 0
    most: int = 1
    whole: bool = False

    name: ClassVar[str] = "integer"

    @property
    def shares(self) -> tuple[int, int, int]:
        """(n, t, c)."""
        return self.asked, self.survivors, self.colluders

    @property
    def honest(self) -> int:
        """Shares in every sum that the adversary does not know."""
        return self.survivors - self.colluders

    def check(self, part: Part, unit: Unit) -> None:
        """Shares in their own slot, and a modulus that holds the sum."""
        self.check_noise(part, unit)
        whole = unit == "site"
        alone = part.where == "client" and part.party is not None and self.shares == (1, 1, 0)
        placed = part.where == "distributed" or alone  # a party's noise on its own columns is whole
        if not placed or self.whole != whole or self.steps != 1:
            raise PrivacyError(
                f"shares of one {unit}'s noise in the distributed slot",
                f"slot {part.where}, {self.steps} step(s), whole sites: {self.whole}",
                "fix the recipe's plan",
            )
        if self.most < 1 or self.honest < 1:
            raise PrivacyError("at least one unit and one honest share", "none", "fix the plan")
        if self.bits(part) > MOST_BITS or self.grid(part).squared >= 2**53:
            raise PrivacyError(
                f"sums of {part.name!r} within {MOST_BITS} bits",
                f"{self.bits(part)} bits needed for {self.most:,} units at z = {self.noise:.3g}",
                "declare fewer records, ask fewer sites, or ask for a larger ε",
            )

    def grid(self, part: Part) -> Grid:
        """As fine as makes rounding negligible beside clip bound and noise."""
        return _grid(self, math.prod(part.shape))

    def bits(self, part: Part) -> int:
        """Of the modulus: whole bytes that hold every sum of the units, and its noise."""
        grid = self.grid(part)
        noise = REACH * math.sqrt(grid.variance * self.asked)
        reach = self.most * grid.limit + self.asked + noise
        return 8 * math.ceil(math.log2(2 * reach + 2) / 8)

    def gap(self, part: Part) -> float:
        """How far from the Gaussian mechanism: in chances' ratio (its logarithm), and outright."""
        grid, numbers = self.grid(part), math.prod(part.shape)
        sums = self.asked * lattice(grid.variance / 2) + lattice(LATTICE**2)
        return numbers * (sums + (self.asked + 1) * TAIL)

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """Whole numbers modulo 2^b ``[C, …]``, the site's share of the noise in them."""
        return self.add_noise(self.bounded(value, use), use)

    def add_noise(self, bounded: Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The share and its receipt: no noise without one."""
        if not isinstance(bounded, Bounded):
            raise PrivacyError("a Bounded value", type(bounded).__name__, "clip it first")
        use.draws.check(len(bounded.value))
        grid = self.grid(use.part)
        numbers = self._rounded(bounded.value.flatten(1), grid, use.draws)
        noise = discrete_gaussian(grid.variance).draw(use.draws, numbers.shape[1])
        shares = (numbers + torch.from_numpy(noise)) & (2 ** self.bits(use.part) - 1)
        receipt = self.receipt(use.part, bounded.unit, use.round, use.source)
        receipt = replace(receipt, std=math.sqrt(grid.variance) * grid.spacing)
        return shares.reshape(bounded.value.shape), (receipt,)

    def _rounded(self, value: Tensor, grid: Grid, draws: Draws) -> Tensor:
        """Whole numbers ``[C, d]``; of a whole site, within the limit for sure."""
        scaled = value.double() / grid.spacing  # exact: the spacing is a power of two
        scaled = scaled.masked_fill(~torch.isfinite(scaled), 0.0).clamp(-(2.0**52), 2.0**52)
        found = _randomly(scaled, draws)
        if not self.whole:
            return found
        for _ in range(_RETRIES):
            above = torch.nonzero(_squares(found) > grid.squared)[:, 0]
            if not len(above):
                return found
            found[above] = _randomly(scaled[above], draws.take(above.tolist()))
        above = _squares(found) > grid.squared
        return torch.where(above[:, None], scaled.trunc().long(), found)

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """Whole numbers within the modulus: a share shows no more."""
        if sent.shape[1:] != part.shape or sent.dtype != torch.int64:
            return None
        flat = sent.reshape(len(sent), -1)
        return ((flat >= 0) & (flat < 2 ** self.bits(part))).all(dim=1)

    def start(self, part: Part) -> Tensor:
        return torch.zeros(part.shape, dtype=torch.int64)

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        """The sum modulo 2^64, which 2^b divides: `complete` reduces it."""
        total += sent.sum(dim=0)

    def complete(self, total: Tensor, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """The sum as numbers again; its noise is in it."""
        return signed(total, self.bits(use.part)).double() * self.grid(use.part).spacing, ()

    def event(self, part: Part, phase: Phase, *, factor: float, amplified: bool) -> Event:
        """Whoever sees the sums knows who was asked: only a site's secret batches hide anything."""
        noise = (self.noise / factor,)
        return Event(noise, self.rate, phase.participations, gap=self.gap(part))

    def against(self, colluders: int) -> IntegerGaussian:
        """As seen by an adversary with fewer shares: t/(t − c) times the variance, or more."""
        known = self.survivors - colluders
        return replace(self, noise=self.noise * math.sqrt(known / self.honest), colluders=colluders)

    @property
    def surplus(self) -> float:
        """How much more noise is in a sum than a trusted server would add, if all answer."""
        return math.sqrt(self.asked / self.honest)

    def std_of_sum(self, part: Part, phase: Phase) -> float:
        """Of the shares of all who are asked, rounding included."""
        grid = self.grid(part)
        return grid.spacing * math.sqrt(self.asked * (grid.variance + 0.25))

    def bytes(self, part: Part) -> int:
        return self.bits(part) // 8 * math.prod(part.shape)

    def describe(self, part: Part) -> str:
        batches = f", batches by coin flips at rate {self.rate:.3g}" if self.rate else ""
        return (
            f"{part.name}: clipped to norm {self.bound:.4g}, whole numbers of {self.bits(part)} "
            f"bits, noise z = {self.noise:.4g} from any {self.honest} of {self.asked} "
            f"shares{batches}"
        )

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@lru_cache(maxsize=1024)
def _grid(terms: IntegerGaussian, numbers: int) -> Grid:
    """See `IntegerGaussian.grid`; for a part of so many numbers."""
    root = math.sqrt(numbers)
    shares = _LEAST_SHARE * math.sqrt(terms.honest) / terms.noise
    levels = max(_LEVELS, _PER_ROOT[terms.whole] * root, shares)
    spacing = 2.0 ** math.floor(math.log2(terms.bound / levels))
    s = terms.bound / spacing
    if terms.whole:
        limit = math.sqrt(s**2 + numbers / 4 + _EXCESS * (s + root / 2))
    else:
        limit = s * (1 + max(_SUMMED, terms.most**2 * 2.0**-52)) + root
    variance = ((terms.noise * limit) ** 2 + LATTICE**2) / terms.honest
    return Grid(spacing, limit, variance * (1 + 1e-12))


def signed(total: Tensor, bits: int) -> Tensor:
    """The numbers nearest to zero that are these modulo 2^bits."""
    reduced = total & (2**bits - 1)
    return torch.where(reduced >= 2 ** (bits - 1), reduced - 2**bits, reduced)


def lattice(variance: float) -> float:
    """How much Σ exp(−(k − a)²/2σ²) over whole k depends on a: the logarithm of its range.

    By Poisson summation it is √(2π)σ·(1 + 2·Σ exp(−2π²σ²m²)·cos 2πma) over m ≥ 1: constant but for
    5·exp(−2π²σ²), if σ ≥ 1. Two facts follow, both for the ratio of chances, number by number.

    1. The sum of two discrete Gaussians of variances a, b has the chances of one of variance
       a + b, times such a sum of variance ab/(a + b), divided by its mean. Adding up shares of
       variance v one by one, ab/(a + b) ≥ v/2: so a sum of n is off by n times this, at v/2.
    2. Add N(0, a) to a whole number and draw a discrete Gaussian of variance b around the result:
       the outcome has the chances of a discrete Gaussian of variance a + b, off by this, at b.
    """
    return 5 * math.exp(-2 * math.pi**2 * variance)


def _randomly(value: Tensor, draws: Draws) -> Tensor:
    """⌊x⌋, or one more with the chance of x − ⌊x⌋."""
    below = value.floor()
    level = torch.from_numpy(draws.uniform(value.shape[1]))
    return (below + (level < value - below)).long()


def _squares(numbers: Tensor) -> Tensor:
    """The squared norm of each row: exact below 2^53, and whatever is above is beyond any limit."""
    return numbers.double().square().sum(dim=1)
