"""What a plan must be to mean anything, and what a receipt must be to fit one.

Called by `plan` whenever a plan is made and whenever receipts are compared with it. Refusing
here means that nothing has been spent yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from understudy.errors import BudgetError, PrivacyError
from understudy.privacy.clip import Receipt
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.terms import Slot, Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part, Phase, PrivacyPlan

__all__ = ["check_plan", "check_receipt"]

_SLOTS_OF: dict[str, tuple[Slot, ...]] = {
    "central": ("server",),
    "local": ("client", "step"),
    "distributed": ("distributed",),
    "none": get_args(Slot),
}


def check_plan(plan: PrivacyPlan) -> None:
    """Refuse a plan whose promise would be void, or not hold."""
    if plan.trust not in _SLOTS_OF or plan.unit not in get_args(Unit):
        raise PrivacyError(
            "a known unit and trust", f"{plan.unit}, {plan.trust}", "see understudy recipes"
        )
    if plan.units < 1 or not plan.phases:
        raise PrivacyError("at least one unit and one phase", "none", "fix the plan")
    _check_delta(plan.delta, plan.units)
    for phase in plan.phases:
        _check_phase(phase, plan)
        _check_parts(phase, plan)
        if plan.trust == "distributed":
            _check_shares(phase, plan)
        if plan.held == "columns":
            _check_parties(phase, plan)


def _check_parties(phase: Phase, plan: PrivacyPlan) -> None:
    """Parties that hold columns: all in every round, and all parts on one sample of the records."""
    parties = {part.party for part in phase.parts}
    known = parties <= {None, *range(phase.sites)}
    if phase.sites < 2 or phase.rate is not None or phase.size is not None or not known:
        raise PrivacyError(
            "two parties or more, all of them in every round",
            f"{phase.sites} and cohorts",
            "remove [cohort]: a party that stays away leaves its columns out",
        )
    if plan.unit == "site" or plan.trust not in ("local", "none"):
        raise PrivacyError(
            "records protected by noise that every party adds itself",
            f"unit {plan.unit}, trust {plan.trust}",
            'set unit = "record" and trust = "local", or leave both out',
        )
    if len({(part.mechanism.rate, part.mechanism.steps) for part in phase.parts}) > 1:
        raise PrivacyError(
            "parts of all parties with one rate and one number of steps", "several", "fix the plan"
        )


def _check_phase(phase: Phase, plan: PrivacyPlan) -> None:
    for name in ("rounds", "sites"):
        if getattr(phase, name) < 1:
            raise PrivacyError(f"{name} of at least 1", f"{getattr(phase, name)}", f"set {name}")
    if phase.sites != plan.sites:
        raise PrivacyError("phases with one number of sites", "others", "fix the recipe's plan")
    if phase.joins is not None and phase.joins < 1:
        raise PrivacyError("cohort.joins of at least 1", f"{phase.joins}", "raise or remove it")
    if phase.rate is not None and not 0 < phase.rate <= 1:
        raise PrivacyError("a cohort rate in (0, 1]", f"{phase.rate}", "set cohort.rate, e.g. 0.1")
    if phase.rate is not None and plan.trust == "central" and plan.unit != "site":
        raise PrivacyError(
            f"every site in every round where one {plan.unit} is protected",
            "a cohort rate",
            "remove cohort.rate: all rows of a site share its coin, so it hides no single row",
        )
    _check_size(phase, plan)


def _check_shares(phase: Phase, plan: PrivacyPlan) -> None:
    """Enough honest shares in every sum, and no two sums over different survivors."""
    t, c = phase.shares
    asked = int(phase.cohort)
    if phase.rate is not None:
        raise PrivacyError(
            "every site in every round, or cohort.size, where noise is added in shares",
            "cohort.rate",
            "remove it: the server knows whom it asked, so the coin flips hide nobody",
        )
    terms = {p.mechanism.shares for p in phase.parts if isinstance(p.mechanism, IntegerGaussian)}
    if terms != {(asked, t, c)} or (t, c) != plan.phases[0].shares:
        raise PrivacyError("parts with one t and one c", "several", "fix the recipe's plan")
    _check_survivors(asked, t, c)


def _check_survivors(asked: int, t: int, c: int) -> None:
    if asked < 2 or t > asked:
        raise PrivacyError(
            f"privacy.survivors of at most {asked}, the sites asked in a round",
            f"{t}",
            'lower it, or add sites; with fewer than three, use trust = "local"',
        )
    if not 0 <= c <= t - 2:
        raise PrivacyError(
            f"privacy.colluders from 0 to {t - 2}: at least two of {t} survivors must be honest",
            f"{c}",
            'lower it, or raise privacy.survivors; where hardly any site is trusted, use "local"',
        )
    if 2 * t <= asked + c:
        raise PrivacyError(
            f"privacy.survivors of at least {(asked + c) // 2 + 1}: more than half of {asked} "
            f"sites and {c} colluder(s)",
            f"{t}",
            "raise it: with fewer, a server could get two sums of one round over different sites",
        )


def _check_size(phase: Phase, plan: PrivacyPlan) -> None:
    """A schedule that everybody knows hides nobody."""
    if phase.size is None:
        return
    if plan.trust == "central" or phase.rate is not None:
        raise PrivacyError(
            "cohorts drawn by coin flips (cohort.rate)",
            "a fixed cohort size",
            "set cohort.rate = size/sites: a fixed size gets no amplification, and would cost "
            "about twelve times the ε that papers quote for it; it serves the other trusts",
        )
    if not 1 <= phase.size <= phase.sites:
        raise PrivacyError(
            f"a cohort of 1 to {phase.sites} sites", f"{phase.size}", "correct cohort.size"
        )


def _check_delta(delta: float, units: int) -> None:
    if not 0 < delta < 1 / units:
        raise PrivacyError(
            f"δ above 0 and below 1/N = {1 / units:.3g} (N={units} units)",
            f"{delta}",
            "remove privacy.delta to use min(1e-5, N^-1.1), or set a smaller one",
        )


def _check_parts(phase: Phase, plan: PrivacyPlan) -> None:
    names = [part.name for part in phase.parts]
    if len(set(names)) < len(names) or not names:
        raise PrivacyError("at least one part, each with its own name", f"{names}", "fix the plan")
    for part in phase.parts:
        _check_part(part, plan)
        part.mechanism.check(part, plan.unit)
    if any(part.party is not None for part in phase.parts) and plan.held != "columns":
        raise PrivacyError("parts of single parties where these hold columns", "others", "fix it")
    sampled = [p.name for p in phase.parts if p.mechanism.promises and p.mechanism.rate]
    if len(sampled) > 1 and plan.held != "columns":
        raise PrivacyError(
            "one part of a phase with batches of records",
            f"{sampled}",
            "send them as one part: on one batch, several cost more than on a batch each",
        )


def _check_part(part: Part, plan: PrivacyPlan) -> None:
    """A trust and what is done must agree: only trust "none" may promise nothing."""
    if part.where not in _SLOTS_OF[plan.trust] or part.combine not in ("mean", "sum"):
        slots = " or ".join(_SLOTS_OF[plan.trust])
        raise PrivacyError(f"slot {slots} for {plan.trust} trust", part.where, "fix the plan")
    if part.mechanism.promises == (plan.trust == "none"):
        raise PrivacyError(
            f"a mechanism that fits trust {plan.trust!r}", part.mechanism.name, "fix the plan"
        )


def check_receipt(receipt: Receipt, plan: PrivacyPlan) -> Part:
    """The part of a receipt; refused if it shows less protection than its part promises."""
    try:
        within = type(receipt.round) is int and 0 <= receipt.round < plan.length
        part = plan.at(receipt.round).part(receipt.part)
        expected = part.mechanism.receipt(part, plan.unit, receipt.round, receipt.source)
        fits = within and expected is not None and _place(receipt) == _place(expected)
        fits = fits and part.mechanism.admits(receipt) and receipt.source in ("os", "simulation")
    except TypeError:  # a field that is no number
        fits = False
    if not fits:
        raise BudgetError(
            f"a receipt that fits the promise for part {receipt.part!r}",
            "less noise, another slot or unit, or a round beyond the plan",
            "do not release this run; the plan and the mechanism disagree",
        )
    return part


def _place(receipt: Receipt | None) -> tuple[object, ...]:
    assert receipt is not None
    return receipt.where, receipt.unit, receipt.mechanism
