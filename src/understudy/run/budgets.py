"""What each named site agrees to: its own plan under its cap, and its own ledger."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from understudy.errors import BudgetError
from understudy.federation.checkpoint import write_atomic
from understudy.privacy.account import Event
from understudy.privacy.claim import claims, headline
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan, allowed_joins, claim_terms, slots, solve
from understudy.run.workplace import RESERVED
from understudy.study import SiteEntry, Study

__all__ = ["own_noise", "reserve", "site_plans"]


def site_plans(study: Study, plan: PrivacyPlan) -> list[PrivacyPlan]:
    """The plan as each named site follows it: its cap may ask for more noise or fewer rounds."""
    return [_site_plan(study, plan, entry) for entry in study.sites]


def _site_plan(study: Study, plan: PrivacyPlan, entry: SiteEntry) -> PrivacyPlan:
    if entry.epsilon is None:
        return plan
    epsilon = headline(claims(plan, "os"))
    if epsilon <= entry.epsilon:
        return plan
    if own_noise(plan) and study.privacy.epsilon is not None:
        return solve(plan, entry.epsilon)
    joins = allowed_joins(plan, entry.epsilon) if plan.trust == "local" else 0
    if not joins:
        raise BudgetError(
            f"a study within site {entry.name}'s cap ε={entry.epsilon:g}",
            f"ε={epsilon:.3g}",
            "lower privacy.epsilon, or leave the site out",
        )
    return replace(plan, joins=joins)


def own_noise(plan: PrivacyPlan) -> bool:
    """Whether a site may add more noise than the plan's: in one phase, to its whole update."""
    noised = not any(part.rule for part in plan.parts)
    return plan.trust == "local" and not plan.before and noised and slots(plan.parts) == {"client"}


def reserve(study: Study, plan: PrivacyPlan, run: str, folder: Path) -> None:
    """Charge each site's own ledger with the whole promise, all or none, before round one."""
    factor, amplified = claim_terms(plan)
    with ExitStack() as stack:
        todo = []
        for entry, own in zip(study.sites, site_plans(study, plan), strict=True):
            if entry.ledger:
                ledger = stack.enter_context(Ledger(study.base / entry.ledger))
                events = own.promise(factor=factor, amplified=amplified)
                _check_cap(ledger, entry, run, events, plan)
                todo.append((ledger, events))
        if todo:
            write_atomic(folder / RESERVED, b"")  # from here on the run can be resumed
        for ledger, events in todo:
            ledger.reserve(run, events, plan.delta, _protected(plan))


def _protected(plan: PrivacyPlan) -> str:
    """Unit and relation: a site's ledger adds up only what is protected alike."""
    relations = [claim.relation for claim in claims(plan, "os") if claim.private]
    return f"{plan.unit}, {relations[0] if relations else 'none'}"


def _check_cap(
    ledger: Ledger, entry: SiteEntry, run: str, events: tuple[Event, ...], plan: PrivacyPlan
) -> None:
    cap = float("inf") if entry.epsilon is None else entry.epsilon
    try:
        ledger.check(run, events, plan.delta, cap, _protected(plan))
    except BudgetError as error:
        raise BudgetError(f"{error.expected} (site {entry.name})", error.found, error.do) from error
