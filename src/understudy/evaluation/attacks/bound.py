"""What a privacy claim allows an attack at most.

An attack is a test of whether a record took part, whatever it looks at. If the claim holds, its
rates obey TPR ≤ e^ε·FPR + δ and the same with both complements (Kairouz, Oh and Viswanath 2015), so

    TPR - FPR ≤ (e^ε - 1 + 2δ) / (e^ε + 1)

(Humphries et al. 2023, arXiv 2010.12112, Theorem 3.1). For which ε? Members and controls are
compared in *one* release, made from as many rows either way: to a control, the data differ from
those that had it by one row **replaced**. So a claim under "replace one" counts as it stands; one
under "add or remove one" counts twice, for the row that left and the one that came: 2ε and
(1 + e^ε)·δ. A claim that protects whole sites or persons holds for each of their rows. Attacks
that guess something other than membership obey it too: being right about the target is an event.

Noise that is added to everyone (no secret sample) is exactly a Gaussian of μ = √Σ 1/z², and for it
TPR - FPR ≤ 2Φ(μ/2) - 1 (Dong, Roth and Su 2022), which is smaller. The smallest bound counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from understudy.privacy.account import Event, round_up
from understudy.privacy.claim import Claim

__all__ = ["Bound", "advantage_bound", "allowed"]


@dataclass(frozen=True)
class Bound:
    """The largest advantage that is compatible with a claim, and how it follows."""

    value: float
    unit: str
    words: str


def advantage_bound(epsilon: float, delta: float) -> float:
    """The largest TPR − FPR of any test between neighbours under (ε, δ)."""
    small = math.exp(-epsilon)
    return min(1.0, (1 - small + 2 * min(1.0, delta) * small) / (1 + small))


def allowed(claims: Iterable[Claim]) -> Bound | None:
    """The smallest bound of these claims: whoever sees more than the release sees the release."""
    found = [bound for claim in claims for bound in _bounds(claim)]
    return min(found, key=lambda bound: bound.value, default=None)


def _bounds(claim: Claim) -> list[Bound]:
    if claim.epsilon is None:
        return []
    replaced = claim.relation == "replace one"
    epsilon, delta = claim.epsilon, claim.delta
    if not replaced:
        epsilon, delta = 2 * epsilon, delta * (1 + math.exp(min(epsilon, 700.0)))
    how = "" if replaced else ", counted twice, for one row that left and one that came"
    said = f"ε = {round_up(claim.epsilon)} ({claim.relation}{how})"
    found = [Bound(advantage_bound(epsilon, delta), claim.unit, f"from {said}")]
    mu = (1.0 if replaced else 2.0) * _gaussian(claim.events)
    if math.isfinite(mu):
        value = 2 * NormalDist().cdf(mu / 2) - 1 + 2 * sum(e.gap * e.count for e in claim.events)
        found.append(Bound(min(1.0, value), claim.unit, f"from the noise behind {said}"))
    return found


def _gaussian(events: Iterable[Event]) -> float:
    """μ of events that are Gaussian noise on everyone; infinity where some are not."""
    total = 0.0
    for event in events:
        if event.epsilon or not event.noise or event.rate not in (None, 1.0):
            return math.inf
        total += event.count / event.merged**2 if event.private else math.inf
    return math.sqrt(total)
