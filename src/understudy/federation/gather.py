"""How updates become a total: the seam between the engine and what the server does with replies.

A `Gather` asks the cohort, in one exchange or several, and gives the total of each part, or None
where there is none: the round is then void, stays charged, and the model does not step.
`PlainSum` adds up replies that the server may see, or a simulation's shares without their masks.
In the server and distributed slots noise is in the **sum**, which is then divided by the planned
cohort qN, so that drop-outs change neither sensitivity nor divisor. Replies that are private as
they stand are averaged over those received. A reply that does not fit the plan is left out and the
round goes on; with fewer shares than the plan's survivors there is no total.

Sites stand in up to `GROUPS` groups, by their numbers. Replies are added up in the order of sites
within each group, and the groups' sums in the order of groups: so whoever holds whole groups can
add them up elsewhere, and the total is the same to the last bit (`runtime.workers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.federation.recipe import State, Task
from understudy.privacy.clip import Sealed
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.terms import Kind
from understudy.rng import NoiseSource

__all__ = [
    "GROUPS",
    "Ask",
    "Gather",
    "PlainSum",
    "Reply",
    "Subtotal",
    "acceptable",
    "completed",
    "group_of",
]

GROUPS = 16
Reply = tuple[np.ndarray, Sealed]  # the numbers of a stack's sites, and what they sent

# One exchange with a cohort: a task and a round out, stacks of sealed replies back.
Ask = Callable[[Task, int, np.ndarray], Iterator[Reply]]


def group_of(clients: np.ndarray, sites: int) -> np.ndarray:
    """The group of each of these sites, out of so many: equal ranges of their numbers."""
    return clients * min(GROUPS, sites) // sites


class Gather(Protocol):
    """One method: ask as often as it takes, and return the total or None."""

    def total(self, ask: Ask, task: Task, round: int, cohort: np.ndarray) -> State | None:
        """The total of each part of the plan for this round."""


@dataclass(frozen=True)
class Subtotal:
    """The sums of one group of sites, of ``received`` replies."""

    group: int
    received: int
    sums: State


@dataclass(frozen=True)
class PlainSum:
    """Replies are added up as they come, and the server slot is filled, if it is in use."""

    plan: PrivacyPlan
    source: NoiseSource

    def total(self, ask: Ask, task: Task, round: int, cohort: np.ndarray) -> State | None:
        """One exchange. Where the server adds noise there is always a total, if only noise."""
        return self.add_up(self.subtotals(ask(task, round, cohort), round), round)

    def subtotals(self, replies: Iterable[Reply], round: int) -> Iterator[Subtotal]:
        """The sums of each group in turn, over the replies that fit."""
        parts = self.plan.at(round).parts
        for group, members in groupby(self._accepted(replies, round), itemgetter(0)):
            sums, received = {part.name: part.mechanism.start(part) for part in parts}, 0
            for _, sealed, rows in members:
                received += int(rows.sum())
                for part in _sent(self.plan, sealed):
                    part.mechanism.accumulate(sums[part.name], sealed.parts[part.name][rows])
            yield Subtotal(group, received, sums)

    def _accepted(
        self, replies: Iterable[Reply], round: int
    ) -> Iterator[tuple[int, Sealed, Tensor]]:
        """Of each stack, group by group, the rows that fit."""
        for clients, sealed in replies:
            good = acceptable(self.plan, sealed, round, self._kind)
            if not bool(good.any()):
                continue
            groups = torch.from_numpy(group_of(clients, self.plan.sites))
            for group in groups[good].unique().tolist():
                yield group, sealed, good & (groups == group)

    def add_up(self, subtotals: Iterable[Subtotal], round: int) -> State | None:
        """The noised mean or sum of each part, from the groups in their order."""
        parts = self.plan.at(round).parts
        sums, received = {part.name: part.mechanism.start(part) for part in parts}, 0
        for each in subtotals:
            received += each.received
            for name, found in each.sums.items():
                sums[name] += found
        if received < self.plan.least(round) and self.plan.kind != "entrusted":
            return None
        return completed(self.plan, sums, round, self.source, received)

    @property
    def _kind(self) -> Kind:
        """Of replies; a simulation holds all sites, so it may add up shares as they are."""
        return "share" if self.plan.kind == "masked" else self.plan.kind


def completed(
    plan: PrivacyPlan, sums: State, round: int, source: NoiseSource, received: int
) -> State:
    """The total of each part from the sums of ``received`` replies: what `Gather.total` returns."""

    def total(part: Part) -> Tensor:
        draws = source.server(f"noise {part.name}", round)
        found, receipts = part.mechanism.complete(
            sums[part.name], Use(part, plan.unit, round, draws)
        )
        plan.admits(receipts)
        if part.combine == "sum":
            return found.float()
        planned = part.where in ("server", "distributed") and part.mechanism.promises
        return (found / (plan.at(round).cohort if planned else received)).float()

    return {part.name: total(part) for part in plan.at(round).parts}


def acceptable(plan: PrivacyPlan, sealed: Sealed, round: int, kind: Kind | None = None) -> Tensor:
    """Which sites of the stack sent something of this kind that fits the plan ``[C]``."""
    none = torch.zeros(0, dtype=torch.bool)
    if sealed.kind != (kind or plan.kind):
        return none
    if sealed.round != round or not (_complete(plan, sealed) and _receipted(plan, sealed)):
        return none
    good = torch.ones(len(sealed), dtype=torch.bool)
    for part in _sent(plan, sealed):
        fits = part.mechanism.fits(sealed.parts[part.name], part, plan.unit)
        if fits is None:
            return none
        good &= fits
    return good


def _sent(plan: PrivacyPlan, sealed: Sealed) -> tuple[Part, ...]:
    """The parts that this is an update of: of parties, those of one; nothing if it is none."""
    phase = plan.at(sealed.round)
    each = [phase.sent_by(i) for i in range(phase.sites)] if plan.held == "columns" else ()
    for parts in each or [phase.parts]:
        if set(sealed.parts) == {part.name for part in parts}:
            return parts
    return ()


def _complete(plan: PrivacyPlan, sealed: Sealed) -> bool:
    """The planned parts, all for the same number of sites."""
    if not _sent(plan, sealed):
        return False
    values = sealed.parts.values()
    return all(value.dim() and len(value) for value in values) and len({*map(len, values)}) == 1


def _receipted(plan: PrivacyPlan, sealed: Sealed) -> bool:
    """Whether noise that the sites should have added is receipted, no more and no less."""
    try:
        plan.admits(sealed.receipts)
        found = Counter((receipt.part, receipt.round) for receipt in sealed.receipts)
    except (PrivacyError, AttributeError, TypeError):
        return False
    parts = _sent(plan, sealed) if plan.kind in ("noised", "masked") else ()
    return found == {(part.name, sealed.round): part.mechanism.steps for part in parts}
