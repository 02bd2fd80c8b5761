"""What noised sums over sampled records cost against those who know every sample.

Parties that hold columns share their batches, so an insider knows in how many of T steps a record
took part: m, binomial with rate q. Given m the steps are one Gaussian mechanism with multiplier
z/√m, and m depends on no record. So the price is exact: δ(ε) is the mean of the Gaussian's δ over
m. By Rényi divergence, with μ = 1/z, one step has log(1 − q + q·exp(α(α − 1)μ²/2))/(α − 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom

__all__ = ["Seen", "gaussian_delta", "seen_epsilon", "seen_epsilon_rdp"]

_LEFT_OUT = 1e-3  # of δ: the chance of more steps than are added up, paid for in full
_ORDERS = 1 + np.geomspace(1e-3, 1e4, 2000)


@dataclass(frozen=True)
class Seen:
    """``count`` steps with multiplier ``noise`` and known samples of rate ``rate``.

    ``more`` is the μ² of Gaussian mechanisms that act on every record besides.
    """

    noise: float
    rate: float
    count: int
    more: float = 0.0


def gaussian_delta(epsilon: float, mu: np.ndarray) -> np.ndarray:
    """δ(ε) of Gaussian mechanisms whose sensitivity is μ times their deviation (exact)."""
    mu = np.asarray(mu, np.float64)
    safe = np.where(mu > 0, mu, 1.0)
    first = np.exp(log_ndtr(safe / 2 - epsilon / safe))
    second = np.exp(epsilon + log_ndtr(-safe / 2 - epsilon / safe))
    return np.where(mu > 0, np.maximum(first - second, 0.0), 0.0)


def seen_epsilon(seen: Seen, delta: float) -> float:
    """The least ε at δ, rounded up."""
    most = int(binom.isf(_LEFT_OUT * delta, seen.count, seen.rate))
    taken = np.arange(most + 1)
    chance = binom.pmf(taken, seen.count, seen.rate)
    mu = np.sqrt(taken / seen.noise**2 + seen.more)
    rest = float(binom.sf(most, seen.count, seen.rate))

    def excess(epsilon: float) -> float:
        return float(chance @ gaussian_delta(epsilon, mu)) + rest - delta

    if excess(0.0) <= 0:
        return 0.0
    top = 1.0
    while excess(top) > 0:
        top *= 2
        if not math.isfinite(top) or top > 1e6:
            return math.inf
    return float(brentq(excess, 0.0, top, xtol=1e-9, rtol=1e-12)) * (1 + 1e-9) + 1e-8


def seen_epsilon_rdp(seen: Seen, delta: float) -> float:
    """The same by Rényi divergence: an upper bound, as a check."""
    a = _ORDERS
    one = np.logaddexp(
        np.log1p(-seen.rate) if seen.rate < 1 else -np.inf,
        math.log(seen.rate) + a * (a - 1) / (2 * seen.noise**2),
    )
    rdp = seen.count * one / (a - 1) + a * seen.more / 2
    found = rdp + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)
    return float(max(found.min(), 0.0))
