"""How large must ε be, given how often a test was right? Lower bounds, with their confidence.

`falsified` and `least_noise` work on the whole trade-off curve of a plan: under its promise, a test
with false-positive rate α misses at least T(α), which follows from δ(ε) at every ε (Kairouz et al.
2015; Dong et al. 2022). Rates are bounded by Clopper and Pearson at `CONFIDENCE`. A test below the
curve proves that the noise is smaller than promised; the largest share of the promised noise that
the curve still allows gives an ε that the run has at least, if nothing but the noise is off
("tight auditing", Nasr et al. 2023). `one_run_bound` is Theorem 5.2 of Steinke et al. (2023);
`separate_bound` is the definition of (ε, δ), read backwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta, binom

from understudy.privacy.account import Event, cost, profile

__all__ = ["CONFIDENCE", "Rates", "least_epsilon", "one_run_bound", "rates", "separate_bound"]

CONFIDENCE = 0.999
GRID = np.concatenate([np.linspace(0, 3, 16), np.linspace(3.5, 12, 18)])
WEAKEST, STRONGEST = 0.2, 20.0  # shares of the promised noise that are told apart


@dataclass(frozen=True)
class Rates:
    """How often a test said "present" without the canary, and "absent" with it, at most."""

    false_positive: float
    false_negative: float
    runs: int


def rates(present: np.ndarray, absent: np.ndarray) -> Rates:
    """Upper ends of both error rates, both true with `CONFIDENCE`; above 0 means present."""
    wrong = int((absent > 0).sum()), int((present <= 0).sum())
    ends = [_upper(k, len(side)) for k, side in zip(wrong, (absent, present), strict=True)]
    return Rates(ends[0], ends[1], len(present))


def _upper(hits: int, n: int) -> float:
    if hits == n:
        return 1.0
    return float(beta.ppf(1 - (1 - CONFIDENCE) / 2, hits + 1, n - hits))


def least_epsilon(
    found: Rates, events: Sequence[Event], whole: Sequence[Event], delta: float
) -> float:
    """The ε at δ that the ``whole`` run has at least, from a test on its first ``events``.

    All noise is scaled by the largest factor that the test allows (a pure ε: by the smallest ε).
    """
    factor = _largest(found, events)
    return 0.0 if factor >= STRONGEST else float(cost(_scaled(whole, factor), delta).epsilon)


def _largest(found: Rates, events: Sequence[Event]) -> float:
    """The most noise, as a share of the promised, under which the test is still possible."""
    low, high = WEAKEST, STRONGEST
    if _possible(found, _scaled(events, high)):
        return high
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _possible(found, _scaled(events, middle)) else (low, middle)
    return high


def _scaled(events: Sequence[Event], factor: float) -> list[Event]:
    return [
        replace(e, noise=tuple(factor * z for z in e.noise), epsilon=e.epsilon / factor, gap=0.0)
        for e in events
    ]


def _possible(found: Rates, events: Sequence[Event]) -> bool:
    """Whether both rates are above the trade-off curve of these events."""
    deltas = np.array(profile(events, GRID.tolist()))
    a, b = found.false_positive, found.false_negative
    grow = np.exp(GRID)
    return bool(np.all(1 - b <= grow * a + deltas) and np.all(1 - a <= grow * b + deltas))


def separate_bound(found: Rates, delta: float) -> float:
    """The ε at δ that error rates over independent runs leave: nothing is assumed of the noise."""
    ways = (
        (found.false_positive, found.false_negative),
        (found.false_negative, found.false_positive),
    )
    told = [math.log((1 - delta - other) / one) for one, other in ways if other < 1 - delta]
    return max([0.0, *told])


def one_run_bound(right: int, guesses: int, canaries: int, delta: float) -> float:
    """The ε that a run has at least in which so many of all guesses about canaries were right."""
    low, high = 0.0, 20.0
    if not _unlikely(right, guesses, canaries, 0.0, delta):
        return 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        out = _unlikely(right, guesses, canaries, middle, delta)
        low, high = (middle, high) if out else (low, middle)
    return low


def _unlikely(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> bool:
    """Whether so many right guesses are too many for (ε, δ)."""
    law = binom(guesses, 1 / (1 + math.exp(-epsilon)))
    least = law.sf(right - 1)
    steps = np.arange(1, right + 1)
    excess = 2 * (law.sf(right - steps - 1) - least) / steps
    return float(least + canaries * delta * max(excess.max(initial=0.0), 0.0)) < 1 - CONFIDENCE
