"""What a plan must be to mean anything, and what a receipt must be to fit one.

Called by `plan` whenever a plan is made and whenever receipts are compared with it. Refusing
here means that nothing has been spent yet.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from understudy.errors import BudgetError, PrivacyError
from understudy.privacy.clip import Receipt, Slot, Unit
from understudy.privacy.select import Selection

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, PrivacyPlan

__all__ = ["check_plan", "check_receipt", "whole_round"]


def check_plan(plan: PrivacyPlan) -> None:
    """Refuse a plan whose promise would be void, or not hold."""
    _check_counts(plan)
    _check_phases(plan)
    _check_delta(plan.delta, plan.units)
    _check_names(plan)
    for part in plan.parts:
        _check_part(part, plan)


def _check_counts(plan: PrivacyPlan) -> None:
    for name in ("rounds", "sites", "units"):
        if getattr(plan, name) < 1:
            raise PrivacyError(f"{name} of at least 1", f"{getattr(plan, name)}", f"set {name}")
    if plan.joins is not None and plan.joins < 1:
        raise PrivacyError(
            "cohort.joins of at least 1", f"{plan.joins}", "raise it or leave it out"
        )
    if plan.rate is not None and not 0 < plan.rate <= 1:
        raise PrivacyError("a cohort rate in (0, 1]", f"{plan.rate}", "set cohort.rate, e.g. 0.1")
    if plan.rate is not None and plan.trust == "central" and plan.unit != "site":
        raise PrivacyError(
            f"every site in every round where one {plan.unit} is protected",
            "a cohort rate",
            "leave cohort.rate out: all rows of a site share its coin, so it hides no single row",
        )
    _check_size(plan)
    if plan.trust not in TRUSTS or plan.unit not in get_args(Unit):
        raise PrivacyError("a known unit and trust", f"{plan.unit}, {plan.trust}", "see `recipes`")


def _check_size(plan: PrivacyPlan) -> None:
    """A schedule that everybody knows hides nobody."""
    if plan.size is None:
        return
    if plan.trust not in ("local", "none") or plan.rate is not None:
        raise PrivacyError(
            "cohorts drawn by coin flips (cohort.rate)",
            "a fixed cohort size",
            "set cohort.rate = size/sites: a fixed size gets no amplification, and would cost "
            "about twelve times the ε that papers quote for it; it serves local trust only",
        )
    if not 1 <= plan.size <= plan.sites:
        raise PrivacyError(
            f"a cohort of 1 to {plan.sites} sites", f"{plan.size}", "correct cohort.size"
        )


def _check_phases(plan: PrivacyPlan) -> None:
    """Phases protect the same thing in the same way; only rounds, parts and cohorts differ."""
    if plan.before is None:
        return
    same = ("unit", "trust", "sites", "units", "delta")
    if any(getattr(plan, name) != getattr(plan.before, name) for name in same):
        raise PrivacyError(
            "phases with one unit, trust, δ and number of sites", "others", "fix the recipe's plan"
        )


def _check_delta(delta: float, units: int) -> None:
    if not 0 < delta < 1 / units:
        raise PrivacyError(
            f"δ above 0 and below 1/N = {1 / units:.3g} (N={units} units)",
            f"{delta}",
            "leave privacy.delta out to use min(1e-5, N^-1.1), or set a smaller one",
        )


def _check_names(plan: PrivacyPlan) -> None:
    names = [part.name for part in plan.parts]
    if len(set(names)) < len(names) or (plan.trust != "none" and not names):
        raise PrivacyError("at least one part, each with its own name", f"{names}", "fix the plan")


TRUSTS = ("central", "local", "distributed", "none")
_SLOTS_OF: dict[str, tuple[Slot, ...]] = {
    "central": ("server",),
    "local": ("client", "step"),
    "distributed": ("distributed",),
}


def _check_part(part: Part, plan: PrivacyPlan) -> None:
    trust = plan.trust
    if trust == "none":
        return
    if part.rate is not None and plan.unit != "record":
        raise PrivacyError(
            "batches drawn record by record only where a record is protected",
            f"a batch rate for unit {plan.unit}",
            "leave the part's rate out: the coins of single rows hide no larger unit",
        )
    if part.slot not in _SLOTS_OF[trust]:
        slots_here = " or ".join(_SLOTS_OF[trust])
        raise PrivacyError(f"slot {slots_here} for {trust} trust", part.slot, "fix the plan")
    if part.rule is not None:
        _check_rule(part, plan)
        return
    if not (part.noise > 0 and math.isfinite(part.noise)):
        raise PrivacyError(
            "a positive noise multiplier",
            f"{part.noise}",
            'set privacy.noise > 0, or trust = "none"',
        )
    if not (part.bound > 0 and math.isfinite(part.bound)):
        raise PrivacyError("a positive clip bound", f"{part.bound}", "set privacy.clip")
    if min(part.steps, part.rows, part.blocks) < 1 or not (part.rate is None or 0 < part.rate <= 1):
        raise PrivacyError(
            "steps, rows and blocks of at least 1, and a batch rate in (0, 1]",
            f"{part.steps}, {part.rows}, {part.blocks}, {part.rate}",
            f"correct part {part.name!r}",
        )


def _check_rule(part: Part, plan: PrivacyPlan) -> None:
    """A pure mechanism acts once, on a whole site's update, at the site."""
    plain = replace(part, bound=0.0, noise=0.0, blocks=1, rows=1, steps=1, rate=None)
    shape = (part.rule.size,) if isinstance(part.rule, Selection) else ()
    if part != plain or part.slot != "client" or plan.unit != "site" or part.shape != shape:
        raise PrivacyError(
            f"part {part.name!r} of shape {shape}, of a whole site, in the client slot",
            f"shape {part.shape}, unit {plan.unit}, slot {part.slot}, or a bound, noise or rate",
            "fix the recipe's plan",
        )


def whole_round(round: Any) -> int:
    """A round of a receipt; what is none belongs to the last phase, which refuses it."""
    return round if type(round) is int else 2**31


def check_receipt(receipt: Receipt, part: Part, plan: PrivacyPlan) -> None:
    """Refuse a receipt of another mechanism, of less noise or more ε than its part promises."""
    try:
        within = type(receipt.round) is int and plan.first <= receipt.round < plan.length
        kind = (part.slot, plan.unit, part.mechanism)
        same = (receipt.slot, receipt.unit, receipt.mechanism) == kind
        fits = within and same and (_pure if part.rule else _noised)(receipt, part)
    except TypeError:  # a field that is no number
        fits = False
    if not fits or receipt.source not in ("os", "simulation"):
        raise BudgetError(
            f"a receipt that fits the promise for part {part.name!r}",
            "less noise, another slot or unit, or a round beyond the plan",
            "do not release this run; the plan and the mechanism disagree",
        )


def _noised(receipt: Receipt, part: Part) -> bool:
    enough = receipt.std >= part.noise * receipt.bound * (1 - 1e-9)
    return enough and 0 < receipt.bound <= part.bound and receipt.epsilon == 0


def _pure(receipt: Receipt, part: Part) -> bool:
    assert part.rule is not None
    return receipt.bound == receipt.std == 0 and receipt.epsilon == part.rule.epsilon
