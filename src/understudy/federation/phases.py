"""Two recipes, one after the other, under one claim: a warm start, then training.

The first phase ends with a generator made from noised sums; the second starts from it. What
is trained on the first one's samples is post-processing and costs nothing. Both phases share
unit, trust and δ, and every claim adds up the events of both: the second recipe's plan begins
with the first one's phases, and rounds are counted over the whole run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from understudy.data.schema import Schema
from understudy.errors import unfinished
from understudy.federation.info import RecipeInfo
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site
from understudy.privacy.plan import PrivacyPlan
from understudy.rng import Streams

__all__ = ["Refining", "Then", "then"]

_DONE = "then/rounds"  # in the state: rounds of the first phase that took place


class Refining(Recipe, Protocol):
    """A recipe that can start from what another one made."""

    def begin(self, made: Any, *, rng: Streams) -> State:
        """The first state, given the generator of the phase before (post-processing)."""


def then(first: Recipe, second: Refining) -> Then:
    """Run ``first``, whose sites keep nothing, and go on with ``second``."""
    assert second.plan.phases[:-1] == first.plan.phases and not first.memory("")
    return Then(first, second)


@dataclass(frozen=True)
class Then:
    """See the module's paragraph."""

    first: Recipe
    second: Refining

    @property
    def info(self) -> RecipeInfo:
        return self.second.info

    @property
    def schema(self) -> Schema:
        return self.second.schema

    @property
    def plan(self) -> PrivacyPlan:
        return self.second.plan

    @property
    def form(self) -> str | None:
        """What `plan` says of the second recipe, if that says anything."""
        return getattr(self.second, "form", None)

    def init(self, *, rng: Streams) -> State:
        return {**self.first.init(rng=rng), _DONE: torch.zeros(1)}

    def memory(self, site: str) -> State:
        return self.second.memory(site)

    def task(self, state: State, round: int) -> Task:
        """Rounds of the second phase are numbered from 0 for its recipe."""
        if round < self.plan.first:
            return self.first.task(state, round)
        if _DONE in state:
            raise unfinished("a warm start that was completed")
        return self.second.task(state, round - self.plan.first)

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        if site.round >= self.plan.first:
            return self.second.local(task, site)
        return self.first.local(task, site)[0], site.memory

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Hand over when the first phase is complete."""
        if _DONE not in state:
            return self.second.step(state, total, rng=rng)
        done = state[_DONE] + 1
        inner = {name: value for name, value in state.items() if name != _DONE}
        inner = self.first.step(inner, total, rng=rng)
        if int(done) < self.plan.first:
            return {**inner, _DONE: done}
        made = self.first.finish(inner, rng=rng.child("warm start"))
        return self.second.begin(made, rng=rng.child("begin"))

    def finish(self, state: State, *, rng: Streams) -> Any:
        return self.second.finish(state, rng=rng)
