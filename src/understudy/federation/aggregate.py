"""The server's half of a round: check replies, sum them, fill the server slot.

In the server slot noise is added to the **sum**, which is then divided by the planned
cohort qN, so that drop-outs change neither sensitivity nor divisor. Replies that are
private as they stand are averaged over those received. A reply that does not fit the
plan is left out and the round goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.clip import Bounded, Sealed
from understudy.privacy.gaussian import add_noise
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.rng import NoiseSource

__all__ = ["aggregate"]


def aggregate(
    plan: PrivacyPlan, replies: Iterable[Sealed], round: int, *, source: NoiseSource
) -> dict[str, Tensor]:
    """The total of each part: noised, then averaged or summed as the plan says."""
    sums = {p.name: torch.zeros(p.shape, dtype=torch.float64) for p in plan.parts}
    received = 0
    for sealed in replies:
        good = _acceptable(plan, sealed, round)
        received += int(good.sum())
        for part in plan.parts:
            sums[part.name] += sealed.parts[part.name][good].double().sum(0)
    return {p.name: _total(plan, p, sums[p.name], received, round, source) for p in plan.parts}


def _total(
    plan: PrivacyPlan, part: Part, total: Tensor, received: int, round: int, source: NoiseSource
) -> Tensor:
    if part.slot == "server" and plan.trust != "none":
        bounded = Bounded(total[None], part.bound, plan.unit)
        noised, _ = add_noise(
            bounded, part.noise, part=part.name, slot="server", round=round, source=source
        )
        total = noised[0]
    if part.combine == "sum":
        return total.float()
    divisor = plan.cohort if part.slot == "server" else max(received, 1)
    return (total / divisor).float()


def _acceptable(plan: PrivacyPlan, sealed: Sealed, round: int) -> Tensor:
    """Which sites of the stack sent something that fits the plan ``[C]``."""
    expected = {"central": "entrusted", "local": "noised", "none": "not private"}.get(plan.trust)
    if sealed.kind != expected:
        raise PrivacyError(
            f"replies of kind {expected!r}", f"{sealed.kind!r}", "check the study hash"
        )
    good = torch.ones(len(sealed), dtype=torch.bool)
    if sealed.round != round or set(sealed.parts) != {p.name for p in plan.parts}:
        return ~good
    for part in plan.parts:
        good &= _fits(part, sealed.parts[part.name], check_norm=plan.unit == "site")
    return good


def _fits(part: Part, value: Tensor, *, check_norm: bool) -> Tensor:
    """Right shape, finite and, where the server can tell, within the bound."""
    if tuple(value.shape[1:]) != part.shape:
        return torch.zeros(len(value), dtype=torch.bool)
    norm = value.double().reshape(len(value), -1).norm(dim=1)
    within = torch.isfinite(norm)
    if check_norm and part.slot == "server":
        within &= norm <= part.bound * (1 + 1e-6)
    return within
