"""The budgets of all sites of a study: charged together, before round one, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from understudy.errors import ReleaseError
from understudy.federation.budget import Budget, Standing
from understudy.federation.checkpoint import write_atomic
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan
from understudy.simulation.journal import Journal
from understudy.simulation.workplace import RESERVED, charged
from understudy.study import Study

__all__ = ["begin", "note_release", "site_budgets", "site_plans", "standings"]

_OWN = "the run's ledger"


def site_budgets(study: Study) -> list[Budget]:
    """The budget of each named site."""
    solved = study.privacy.epsilon is not None
    return [
        Budget(
            site.name,
            site.epsilon,
            study.base / site.ledger if site.ledger else None,
            solved,
            study.name,
        )
        for site in study.owners
    ]


def site_plans(study: Study, plan: PrivacyPlan) -> list[PrivacyPlan]:
    """The plan as each named site follows it: its cap may ask for more noise or fewer rounds."""
    return [budget.plan(plan) for budget in site_budgets(study)]


def standings(study: Study, plan: PrivacyPlan) -> list[Standing]:
    """Where each site with a ledger stands; a study that `run` would refuse is refused.

    Copies are read: no ledger is made, locked or altered.
    """
    budgets = site_budgets(study)
    return [_standing(site, site.ledger, plan) for site in budgets if site.ledger is not None]


def _standing(site: Budget, ledger: Path, plan: PrivacyPlan) -> Standing:
    with TemporaryDirectory() as folder:
        copy = Path(folder, "ledger")
        if ledger.exists():
            copyfile(ledger, copy)
        with Ledger(copy) as book:
            return site.standing(book, "", plan)


def begin(study: Study, plan: PrivacyPlan, journal: Journal, ledger: Ledger) -> None:
    """Open the run's ledger and charge each site's own with the whole promise, before round one.

    Everything is checked before anything is written: all sites are charged or none.
    """
    _check_opening(ledger, _opening(study, plan), journal)
    with _site_ledgers(study) as books:
        named = {f"the ledger of site {site.name}": book for site, book in books.items()}
        for site, (name, book) in zip(books, named.items(), strict=True):
            journal.check(name, book)
            _check_run(name, book, journal.run, ledger)
            site.check(book, journal.run, plan)
        if not ledger.entries:
            ledger.append("open", _opening(study, plan))
        if books:
            write_atomic(ledger.path.parent / RESERVED, b"")  # from here on it can be resumed
        for site, book in books.items():
            site.reserve(book, journal.run, plan)
        journal.record({_OWN: ledger, **named})


def note_release(study: Study, run: str, head: str, model: str) -> None:
    """Write into each site's ledger that the run was released: its ledger's head, the model."""
    with _site_ledgers(study) as books:
        for book in books.values():
            book.release(run, head, model)


@contextmanager
def _site_ledgers(study: Study) -> Iterator[dict[Budget, Ledger]]:
    """The ledgers that sites keep."""
    with ExitStack() as stack:
        yield {
            site: stack.enter_context(Ledger(site.ledger))
            for site in site_budgets(study)
            if site.ledger
        }


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
