"""Draws from a few outcomes whose chances are whole multiples of 2^−64w, chosen from integers.

Pure ε is a statement about every outcome, however rare, so its chances may not be left to
double precision: 52 random bits know no chance below 2^−52. Here chances are integers of as
many 64-bit words as the rarest outcome needs to be right to one part in 2^80, and a draw
compares random words with them. One word decides almost always; where it ties with an edge,
the others are drawn too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import accumulate

import numpy as np

from understudy.rng import Draws

__all__ = ["UNIT", "Chances", "gain"]

UNIT = 2**128  # what `gain` is a multiple of 1 of
_PRECISION = 80  # bits to which the chance of every outcome is right
_KEPT = 256  # leading bits of a mass that are looked at


@dataclass(frozen=True)
class Chances:
    """Outcome i has the chance ``weights[i]`` / 2^(64·``words``); none is zero."""

    weights: tuple[int, ...]
    words: int

    @classmethod
    def of(cls, masses: Sequence[int]) -> Chances:
        """Chances in proportion to positive integers, each within 2^−79 of its own size."""
        total, least, most = sum(masses), min(masses), max(masses)
        rarest = total.bit_length() - least.bit_length() + 1
        words = -(-(rarest + _PRECISION) // 64)
        weights = [_scaled(mass, total, 64 * words) for mass in masses]
        weights[masses.index(most)] += (1 << 64 * words) - sum(weights)
        return cls(tuple(weights), words)

    @cached_property
    def _edges(self) -> tuple[int, ...]:
        """Outcome i is drawn below edge i and not below edge i − 1."""
        return tuple(accumulate(self.weights[:-1]))

    @cached_property
    def _leading(self) -> np.ndarray:
        return np.array([edge >> 64 * (self.words - 1) for edge in self._edges], np.uint64)

    def draw(self, source: Draws) -> np.ndarray:
        """One outcome per site ``[C]``."""
        return self.draw_each(source, np.ones(len(source), np.int64))

    def draw_each(self, source: Draws, counts: np.ndarray) -> np.ndarray:
        """``counts[c]`` outcomes for site c, site after site."""
        first = source.words_each(counts)
        found = np.searchsorted(self._leading, first, side="right")
        tied = (found > 0) & (self._leading[found - 1] == first)
        site = np.repeat(np.arange(len(source)), counts)
        for i in np.flatnonzero(tied):
            rest = source.take([int(site[i])]).words(self.words - 1)[0]
            number = int(first[i])
            for word in rest.tolist():
                number = number << 64 | word
            found[i] = bisect_right(self._edges, number)
        return found


def gain(epsilon: float) -> int:
    """e^ε in multiples of 1/`UNIT`, lowered by 2^−50 of it.

    That is far more than `Chances` are off by, so ratios that should be e^ε are never above it.
    """
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(epsilon).exp() * UNIT * (1 - Decimal(2) ** -50)
        return max(UNIT, int(exact))


def _scaled(mass: int, total: int, bits: int) -> int:
    """mass·2^bits / total, from their leading bits."""
    cut, drop = (max(0, n.bit_length() - _KEPT) for n in (mass, total))
    shift = bits + cut - drop
    mass, total = mass >> cut, total >> drop
    return (mass << shift) // total if shift >= 0 else (mass >> -shift) // total
