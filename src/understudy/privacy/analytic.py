"""Closed forms of one Gaussian mechanism (Balle & Wang 2018; FedVAE eq. 4.4.8–9)."""

from __future__ import annotations

import math

__all__ = ["analytic_delta", "analytic_noise"]


def _phi(t: float) -> float:
    return 0.5 * math.erfc(-t / math.sqrt(2))


def analytic_delta(epsilon: float, noise: float) -> float:
    """δ(ε) of one Gaussian mechanism with multiplier z."""
    a, b = 0.5 / noise, epsilon * noise
    tail = _phi(-a - b)
    return _phi(a - b) - (math.exp(epsilon + math.log(tail)) if tail > 0 else 0.0)


def analytic_noise(epsilon: float, delta: float) -> float:
    """The smallest multiplier z for which one Gaussian mechanism is (ε, δ)-DP, from above."""
    low, high = 1e-9, 1.0
    while analytic_delta(epsilon, high) > delta:
        high *= 2
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if analytic_delta(epsilon, middle) > delta else (low, middle)
    return high
