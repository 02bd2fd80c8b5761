"""The server's half of a round: check replies, sum them, fill the server slot.

In the server slot noise is added to the **sum**, which is then divided by the planned
cohort qN, so that drop-outs change neither sensitivity nor divisor. Replies that are
private as they stand are averaged over those received. A reply that does not fit the
plan is left out and the round goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.clip import Bounded, Sealed
from understudy.privacy.gaussian import add_noise
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection, fits, spread
from understudy.rng import Draws, NoiseSource

__all__ = ["aggregate"]


def aggregate(
    plan: PrivacyPlan, replies: Iterable[Sealed], round: int, *, source: NoiseSource
) -> dict[str, Tensor]:
    """The total of each part: noised, then averaged or summed as the plan says."""
    plan = plan.at(round)
    sums = {p.name: torch.zeros(p.shape, dtype=torch.float64) for p in plan.parts}
    draws = source.server("noise", round)
    received = 0
    for sealed in replies:
        good = _acceptable(plan, sealed, round)
        if not bool(good.any()):
            continue
        received += int(good.sum())
        for part in plan.parts:
            _add(part, sealed.parts[part.name][good], sums[part.name])
    return {p.name: _total(plan, p, sums[p.name], received, round, draws) for p in plan.parts}


def _add(part: Part, values: Tensor, total: Tensor) -> None:
    """Add replies one by one, so that rounding does not depend on how they were stacked.

    Coordinates stand for their sign, and sums of signs are exact.
    """
    if isinstance(part.rule, Selection):
        total += spread(values, part.rule.size)
        return
    for value in values:
        total += value


def _total(
    plan: PrivacyPlan, part: Part, total: Tensor, received: int, round: int, source: Draws
) -> Tensor:
    if part.slot == "server" and plan.trust != "none":
        bounded = Bounded(total[None], part.bound, plan.unit)
        noised, receipt = add_noise(
            bounded, part.noise, part=part.name, slot="server", round=round, source=source
        )
        plan.admits([receipt])
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
    if sealed.round != round or not (_well_formed(plan, sealed) and _receipted(plan, sealed)):
        return torch.zeros(0, dtype=torch.bool)
    good = torch.ones(len(sealed), dtype=torch.bool)
    for part in plan.parts:
        good &= _fits(part, sealed.parts[part.name], check_norm=plan.unit == "site")
    return good


def _well_formed(plan: PrivacyPlan, sealed: Sealed) -> bool:
    """The planned parts in the planned shapes, all for the same number of sites."""
    if set(sealed.parts) != {part.name for part in plan.parts}:
        return False
    values = [(part, sealed.parts[part.name]) for part in plan.parts]
    shaped = all(v.dim() and len(v) and _has_form(part, v) for part, v in values)
    return shaped and len({len(v) for _, v in values}) == 1


def _has_form(part: Part, value: Tensor) -> bool:
    """The shape and type in which a part travels."""
    if isinstance(part.rule, Selection):
        return value.shape[1:] == (1 + part.rule.output,) and value.dtype == torch.int32
    if isinstance(part.rule, Response):
        return value.shape[1:] == () and value.dtype == torch.uint8
    return value.shape[1:] == part.shape and value.is_floating_point()


def _receipted(plan: PrivacyPlan, sealed: Sealed) -> bool:
    """Whether noise that the sites should have added is receipted, no more and no less."""
    if plan.trust != "local":
        return True
    try:
        plan.admits(sealed.receipts)
        found = Counter((receipt.part, receipt.round) for receipt in sealed.receipts)
    except (PrivacyError, AttributeError, TypeError):
        return False
    return found == {(part.name, sealed.round): part.steps for part in plan.parts}


def _fits(part: Part, value: Tensor, *, check_norm: bool) -> Tensor:
    """Finite, or a possible choice; and, where the server can tell, within the bound."""
    if isinstance(part.rule, Selection):
        return fits(value, part.rule)
    if isinstance(part.rule, Response):
        return value <= 1
    norm = value.double().reshape(len(value), -1).norm(dim=1)
    within = torch.isfinite(norm)
    if check_norm and part.slot == "server":
        within &= norm <= part.bound * (1 + 1e-6)
    return within
