"""The discrete Gaussian, drawn exactly: integers k with chances in proportion to exp(−k²/2σ²).

By rejection (after Canonne, Kamath & Steinke 2020, arXiv 2004.00010, with buckets in place of
their geometric proposals): a bucket of 2^m neighbouring integers by exact integer chances, one of
them uniformly, kept with the chance exp(−k²/2σ²) over the bucket's own. Doubles decide wherever
they can be sure; the few draws within their error are decided with as many digits and random bits
as it takes. So rounding errors of floating point enter no chance, however rare the outcome.

Integers further than `REACH`·σ from zero, or a bucket more, are left out. Together they have a
chance below `TAIL`, which those who use this count into their δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache

import numpy as np

from understudy.errors import PrivacyError
from understudy.privacy.chances import Chances
from understudy.rng import Draws

__all__ = ["REACH", "TAIL", "DiscreteGaussian", "discrete_gaussian"]

REACH = 16.0  # in σ: where the distribution ends
TAIL = 2 * math.exp(-(REACH**2) / 2)  # it is sub-Gaussian with its own σ
_WIDEST = 2.0**46  # σ up to which every integer within reach is exact as a double
_UNSURE = 2.0**-44  # doubles are right about a chance to within less than this
_DIGITS = 100


@lru_cache(maxsize=64)
def discrete_gaussian(variance: float) -> DiscreteGaussian:
    """The sampler for this σ², with its table."""
    return DiscreteGaussian(variance)


@dataclass(frozen=True)
class DiscreteGaussian:
    """Integers around zero; ``variance`` is the parameter σ², taken as the exact binary number."""

    variance: float

    def __post_init__(self) -> None:
        if not 0.25 <= self.variance <= _WIDEST**2:
            raise PrivacyError(
                f"discrete noise of σ between 0.5 and {_WIDEST:.0e}",
                f"σ² = {self.variance:g}",
                "correct the noise multiplier or the bound",
            )

    @property
    def std(self) -> float:
        return math.sqrt(self.variance)

    @cached_property
    def width(self) -> int:
        """Integers in a bucket: a power of two, at most σ/8."""
        return 1 << max(0, math.floor(math.log2(self.std)) - 3)

    @cached_property
    def first(self) -> np.ndarray:
        """The lowest integer of each bucket."""
        reach = math.ceil(REACH * self.std / self.width)
        return np.arange(-reach, reach + 1, dtype=np.int64) * self.width

    @cached_property
    def nearest(self) -> np.ndarray:
        """The distance from zero of each bucket's nearest integer."""
        return np.where(self.first < 0, -self.first - self.width + 1, self.first)

    @cached_property
    def chances(self) -> Chances:
        """Of the buckets, as if all their integers had the chance of the nearest."""
        with localcontext() as context:
            context.prec = _DIGITS
            unit = Decimal(2) ** 256
            return Chances.of([int(self._mass(int(k)) * unit) for k in self.nearest])

    @cached_property
    def _scale(self) -> Decimal:
        """What the mass of an integer is multiplied by, so that no bucket's chance is exceeded."""
        with localcontext() as context:
            context.prec = _DIGITS
            pairs = zip(self.chances.weights, self.nearest, strict=True)
            least = min(Decimal(weight) / self._mass(int(k)) for weight, k in pairs)
            return least * (1 - Decimal(10) ** -60)

    def _mass(self, k: int) -> Decimal:
        """exp(−k²/2σ²), to the digits of the context."""
        return (-Decimal(k * k) / (2 * Decimal(self.variance))).exp()

    def draw(self, source: Draws, n: int) -> np.ndarray:
        """``[C, n]`` integers, each site's from its own stream."""
        drawn = np.empty(len(source) * n, np.int64)
        left = np.arange(len(drawn))
        while len(left):
            found, kept = self._propose(source, np.bincount(left // n, minlength=len(source)))
            drawn[left[kept]] = found[kept]
            left = left[~kept]
        return drawn.reshape(len(source), n)

    def _propose(self, source: Draws, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An integer for each, and whether it is kept."""
        bucket = self.chances.draw_each(source, counts)
        words = source.words_each(2 * counts).reshape(-1, 2)
        found = self.first[bucket] + (words[:, 0] & np.uint64(self.width - 1)).astype(np.int64)
        near, far = self.nearest[bucket].astype(float), np.abs(found).astype(float)
        chance = np.exp((near - far) * (near + far) / (2 * self.variance))
        level = words[:, 1].astype(np.float64) * 2.0**-64
        kept = level < chance
        site = np.repeat(np.arange(len(source)), counts)
        for i in np.flatnonzero(np.abs(level - chance) <= _UNSURE):
            own = source.take([int(site[i])])
            kept[i] = self._keeps(int(found[i]), int(bucket[i]), int(words[i, 1]), own)
        return found, kept

    def _keeps(self, k: int, bucket: int, level: int, source: Draws) -> bool:
        """Whether a uniform number that begins with the bits of ``level`` is below the chance."""
        digits, bits = _DIGITS, 64
        while True:
            with localcontext() as context:
                context.prec = digits
                chance = self._mass(k) * self._scale / self.chances.weights[bucket]
                error = chance * Decimal(10) ** (10 - digits)
                low, high = (Decimal(level + i) / 2**bits for i in (0, 1))
                if high <= chance - error or low >= chance + error:
                    return bool(high <= chance - error)
            level = level << 64 | int(source.words(1)[0, 0])
            digits, bits = digits + 40, bits + 64
