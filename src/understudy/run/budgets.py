"""Budgets: the plan that each named site follows under its own cap, and what ledgers hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from understudy.errors import BudgetError, ReleaseError
from understudy.federation.checkpoint import write_atomic
from understudy.privacy.account import Event
from understudy.privacy.claim import claims, headline, round_up
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan, allowed_joins, claim_terms, solve
from understudy.run.journal import Journal
from understudy.run.workplace import RESERVED, charged
from understudy.study import SiteEntry, Study

__all__ = ["begin", "note_release", "own_noise", "site_plans"]

_OWN = "the run's ledger"


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
            f"ε={round_up(epsilon)}",
            "lower privacy.epsilon, or leave the site out",
        )
    return plan.with_own(joins=joins)


def own_noise(plan: PrivacyPlan) -> bool:
    """Whether a site may add more noise than the plan's: in one phase, to its whole update."""
    noised = all(isinstance(part.mechanism, Gaussian) for part in plan.own.parts)
    return noised and len(plan.phases) == 1 and plan.slots == {"client"}


def begin(study: Study, plan: PrivacyPlan, journal: Journal, ledger: Ledger) -> None:
    """Open the run's ledger and charge each site's own with the whole promise, before round one.

    Everything is checked before anything is written: all sites are charged or none.
    """
    _check_opening(ledger, _opening(study, plan), journal)
    with _site_ledgers(study) as books:
        promises = _promises(study, plan)
        named = {f"the ledger of site {site.name}": book for site, book in books.items()}
        for site, (name, book) in zip(books, named.items(), strict=True):
            journal.check(name, book)
            _check_run(name, book, journal.run, ledger)
            _check_cap(site, book, journal.run, promises[site], plan)
        if not ledger.entries:
            ledger.append("open", _opening(study, plan))
        if books:
            write_atomic(ledger.path.parent / RESERVED, b"")  # from here on it can be resumed
        for site, book in books.items():
            book.reserve(journal.run, promises[site], plan.delta, _protected(plan))
        journal.record({_OWN: ledger, **named})


def note_release(study: Study, run: str, head: str, model: str) -> None:
    """Write into each site's ledger that the run was released: its ledger's head, the model."""
    with _site_ledgers(study) as books:
        for book in books.values():
            book.release(run, head, model)


@contextmanager
def _site_ledgers(study: Study) -> Iterator[dict[SiteEntry, Ledger]]:
    """The ledgers that sites keep."""
    with ExitStack() as stack:
        yield {
            site: stack.enter_context(Ledger(study.base / site.ledger))
            for site in study.sites
            if site.ledger
        }


def _promises(study: Study, plan: PrivacyPlan) -> dict[SiteEntry, tuple[Event, ...]]:
    """What each site spends at most, in the relation of the headline claim."""
    factor, amplified = claim_terms(plan)
    plans = zip(study.sites, site_plans(study, plan), strict=True)
    return {site: own.promise(factor=factor, amplified=amplified) for site, own in plans}


def _opening(study: Study, plan: PrivacyPlan) -> dict[str, Any]:
    """The first entry binds the ledger to the study and its plan."""
    body = {"study": study.hash, "schema": study.schema.hash, "plan": plan.to_dict()}
    return dict(json.loads(json.dumps(body)))


def _check_opening(ledger: Ledger, opening: dict[str, Any], journal: Journal) -> None:
    """A resumed run goes on with the ledger and the plan that it began with."""
    if not ledger.entries and charged(ledger.path.parent):
        raise ReleaseError(
            "the ledger of the interrupted run",
            "none",
            "restore it; without it that budget cannot be recovered",
        )
    journal.check(_OWN, ledger)
    if ledger.entries and ledger.entries[0]["body"] != opening:
        raise ReleaseError(
            "the plan this run was begun with",
            "another (was Understudy updated in between?)",
            "resume with the version that began it, or start a new run in another folder",
        )


def _check_run(name: str, book: Ledger, run: str, ledger: Ledger) -> None:
    """Refuse to run again what a site has paid for once.

    A release that was noted but could not be saved may be saved: its ledger is complete, so no
    more noise is drawn.
    """
    if book.released(run) not in (None, ledger.head):
        raise ReleaseError(
            "a run that is not finished",
            f"one that was released already, says {name}",
            "start a new run in another folder",
        )
    if book.reserved(run) and not ledger.entries:
        raise ReleaseError(
            f"the ledger of a run that was paid for, says {name}",
            "an empty one",
            "restore the whole private folder, or start a new run in another folder",
        )


def _protected(plan: PrivacyPlan) -> str:
    """Unit and relation: a site's ledger adds up only what is protected alike."""
    relations = [claim.relation for claim in claims(plan, "os") if claim.private]
    return f"{plan.unit}, {relations[0] if relations else 'none'}"


def _check_cap(
    entry: SiteEntry, book: Ledger, run: str, events: tuple[Event, ...], plan: PrivacyPlan
) -> None:
    cap = float("inf") if entry.epsilon is None else entry.epsilon
    try:
        book.check(run, events, plan.delta, cap, _protected(plan))
    except BudgetError as error:
        raise BudgetError(f"{error.expected} (site {entry.name})", error.found, error.do) from error
