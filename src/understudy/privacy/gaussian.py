"""The Gaussian mechanism.

Drawing the noise and writing its receipt are one call, and only `Bounded` values are
accepted. The noise is drawn in double precision, from the operating system unless the
source is a simulation; like all floating-point noise it carries a caveat on the claim
(the precision attacks of arXiv 2207.13793 concern the addition, not the sampler).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.clip import Bounded, Receipt, Slot
from understudy.rng import Draws

__all__ = ["add_noise", "analytic_delta", "analytic_noise"]


def add_noise(
    bounded: Bounded,
    noise: float | Tensor,
    *,
    part: str,
    slot: Slot,
    round: int,
    source: Draws,
) -> tuple[Tensor, Receipt]:
    """Add N(0, (noise·sensitivity)²) to every coordinate.

    ``noise`` is the multiplier z, one number or one per site; ``source`` draws for each row
    of ``bounded``. Guarantee: one call is a Gaussian mechanism with multiplier min(z) for the
    unit and relation of ``bounded``.
    """
    if not isinstance(bounded, Bounded):
        raise PrivacyError(
            "a Bounded value", type(bounded).__name__, "clip it first (privacy.clip)"
        )
    multiplier = torch.as_tensor(noise, dtype=torch.float64)
    if not bool((multiplier > 0).all() and torch.isfinite(multiplier).all()):
        raise PrivacyError(
            "a positive, finite noise multiplier", "another value", "set privacy.noise"
        )
    scale = (multiplier * bounded.sensitivity).reshape(-1, *[1] * (bounded.value.dim() - 1))
    source.check(len(bounded.value))
    draw = torch.from_numpy(source.normal(tuple(bounded.value.shape[1:])))
    receipt = Receipt(
        round=round,
        part=part,
        slot=slot,
        mechanism="gaussian",
        unit=bounded.unit,
        bound=bounded.sensitivity,
        std=float(multiplier.min()) * bounded.sensitivity,
        source="simulation" if source.is_simulation else "os",
    )
    return bounded.value.double() + draw * scale, receipt


def _phi(t: float) -> float:
    return 0.5 * math.erfc(-t / math.sqrt(2))


def analytic_delta(epsilon: float, noise: float) -> float:
    """δ(ε) of one Gaussian mechanism with multiplier z (Balle & Wang 2018; FedVAE eq. 4.4.8–9)."""
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
