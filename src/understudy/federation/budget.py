"""What one site may spend: its own cap over all studies, and the ledger in which it keeps count.

A server can raise neither. Under its cap a site follows the study's plan, or the same plan with
more noise of its own or fewer rounds, or it refuses; and it charges its ledger with the whole
promise before its first round.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from understudy.errors import BudgetError
from understudy.privacy.account import Event, cost
from understudy.privacy.claim import claims, headline, round_up
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.ledger import Ledger
from understudy.privacy.plan import PrivacyPlan, claim_terms, solve

__all__ = ["Budget", "Standing", "allowed_joins", "own_noise"]


@dataclass(frozen=True)
class Standing:
    """ε of all runs in a site's ledger: before a run, and with it; ``cap`` is the site's own."""

    name: str
    before: float
    after: float
    cap: float | None


@dataclass(frozen=True)
class Budget:
    """``cap`` is the most ε over all studies; ``solved``: the study's noise follows from its ε.

    ``study`` is its name, for people who read the ledger.
    """

    name: str
    cap: float | None = None
    ledger: Path | None = None
    solved: bool = False
    study: str = ""

    def plan(self, whole: PrivacyPlan) -> PrivacyPlan:
        """The study's plan as this site follows it."""
        if self.cap is None or (epsilon := headline(claims(whole, "os"))) <= self.cap:
            return whole
        if own_noise(whole) and self.solved:
            return solve(whole, self.cap)
        joins = allowed_joins(whole, self.cap) if whole.trust == "local" else 0
        if not joins:
            raise BudgetError(
                f"a study within site {self.name}'s cap ε={self.cap:g}",
                f"ε={round_up(epsilon)}",
                "lower privacy.epsilon, or leave the site out",
            )
        return whole.with_own(joins=joins)

    def check(self, book: Ledger, run: str, whole: PrivacyPlan) -> None:
        """Refuse a run that, with all earlier ones in the site's ledger, exceeds its cap."""
        cap = float("inf") if self.cap is None else self.cap
        try:
            book.check(run, self._promise(whole), whole.delta, cap, _protected(whole))
        except BudgetError as error:
            found = f"{error.expected} (site {self.name})"
            raise BudgetError(found, error.found, error.do) from error

    def standing(self, book: Ledger, run: str, whole: PrivacyPlan) -> Standing:
        """What its ledger has before a run, and with it; refuses one that exceeds the cap."""
        self.check(book, run, whole)
        before = after = book.total(delta=whole.delta)
        if not book.reserved(run):
            after = book.total(self._promise(whole), whole.delta)
        return Standing(self.name, before, after, self.cap)

    def reserve(self, book: Ledger, run: str, whole: PrivacyPlan, payer: str = "") -> None:
        """Charge the site's ledger with the run's whole promise, once. `check` it first."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        said: dict[str, str | float] = {"study": self.study, "when": now, "payer": payer}
        said |= {} if self.cap is None else {"cap": self.cap}
        book.reserve(run, self._promise(whole), whole.delta, _protected(whole), said)

    def charge(self, run: str, whole: PrivacyPlan, payer: str) -> tuple[int, str] | None:
        """Check and reserve in one go, for a site that keeps its ledger itself: its position.

        A server chooses the ids of runs: what one ``payer`` has paid for, no other joins for free.
        """
        if self.ledger is None:
            return None
        with Ledger(self.ledger) as book:
            if book.reserved(run) and book.payer(run) != payer:
                raise BudgetError(
                    f"a run that site {self.name} has not paid for",
                    "one that is in its ledger already",
                    "restore the state of that run, or leave it for good",
                )
            self.check(book, run, whole)
            self.reserve(book, run, whole, payer)
            return book.position

    def join(self, run: str, round: int) -> tuple[int, str] | None:
        """Note a round in the site's ledger before noise is drawn in it: the ledger's position."""
        if self.ledger is None:
            return None
        with Ledger(self.ledger) as book:
            book.join(run, round)
            return book.position

    def _promise(self, whole: PrivacyPlan) -> tuple[Event, ...]:
        """What the site spends at most, in the relation of the headline claim."""
        factor, amplified = claim_terms(whole)
        return self.plan(whole).promise(factor=factor, amplified=amplified)


def allowed_joins(plan: PrivacyPlan, epsilon: float) -> int:
    """How many rounds of its last phase a site with its own cap ε may join (0: none)."""
    factor, _ = claim_terms(plan)

    def fits(joins: int) -> bool:
        events = plan.with_own(joins=joins).promise(factor=factor, amplified=False)
        return cost(events, plan.delta).epsilon <= epsilon

    low, high = 0, plan.own.participations
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def own_noise(plan: PrivacyPlan) -> bool:
    """Whether a site may add more noise than the plan's: in one phase, to its whole update."""
    noised = all(isinstance(part.mechanism, Gaussian) for part in plan.own.parts)
    return noised and len(plan.phases) == 1 and plan.slots == {"client"}


def _protected(plan: PrivacyPlan) -> str:
    """Unit and relation: a site's ledger adds up only what is protected alike."""
    relations = [claim.relation for claim in claims(plan, "os") if claim.private]
    return f"{plan.unit}, {relations[0] if relations else 'none'}"
