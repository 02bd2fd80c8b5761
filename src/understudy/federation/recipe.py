"""The contract between a system and the engine.

A recipe is one short file that reads like its paper. It says what is shared, what a site
computes and what the server does with the result; the engine draws cohorts, clips, adds
noise, charges and adds up, so no recipe can forget them. Everything a site computes carries a
leading axis of sites: one site is a batch of size 1.

A complete toy, which learns the mean of the encoded columns from site-level updates::

    @dataclass(frozen=True)
    class MeanRecipe(Stateless):
        info: RecipeInfo
        plan: PrivacyPlan          # one part, "mean", of shape (width,)
        schema: Schema

        def init(self, *, rng):            return {"mean": torch.zeros(self.schema.width)}
        def task(self, state, round):      return Task({"mean": state["mean"]})
        def local(self, task, site):
            means = torch.stack([site.data.rows(c)[0].sum(0) for c in range(len(site))])
            return {"mean": means - task.arrays["mean"]}, site.memory
        def step(self, state, total, *, rng):
            return {"mean": state["mean"] + total["mean"]}
        def finish(self, state, *, rng):   return Generator(...)

``examples/my_recipe.py`` is a real one; docs/recipes.md explains it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import WireError
from understudy.federation.info import RecipeInfo
from understudy.federation.site import Site, Update
from understudy.privacy.plan import PrivacyPlan
from understudy.rng import Streams

__all__ = ["Recipe", "State", "Stateless", "Summed", "Task", "Update"]

State = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """What the server sends: arrays and plain values, never code."""

    arrays: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, int | float | str | bool] = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """An array of 32-bit floats of this shape; any other is refused before rows are seen.

        It comes from a server: one that only sites with rows fail on would tell who has some.
        """
        found = self.arrays.get(name)
        if found is None or tuple(found.shape) != shape or found.dtype != torch.float32:
            told = "none" if found is None else f"{found.dtype} of shape {[*found.shape]}"
            expected = f"a task's {name}: 32-bit numbers of shape {[*shape]}"
            raise WireError(expected, told, "ask whoever runs the server; nothing was sent")
        return found


class Recipe(Protocol):
    """One system. See the module's toy."""

    @property
    def info(self) -> RecipeInfo:
        """What the recipe is."""

    @property
    def schema(self) -> Schema:
        """The public schema of the rows."""

    @property
    def plan(self) -> PrivacyPlan:
        """What it promises, with the noise solved."""

    def init(self, *, rng: Streams) -> State:
        """Server: shared parameters and server optimiser."""

    def memory(self, site: str) -> State:
        """What the site of this name keeps between rounds, before its first (may be empty)."""

    def task(self, state: State, round: int) -> Task:
        """Server: what is sent to the cohort."""

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """At the site, or at a stack of them: named parts ``[C, …]`` and the memory to keep.

        A part is a plain tensor, which the engine clips where sites are protected, or the
        result of ``site.sum`` for a sum over records.
        """

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Server: the new state from the noised mean or sum of each part."""

    def finish(self, state: State, *, rng: Streams) -> Any:
        """Server: the generator or classifier to release. Post-processing: it may train long."""


class Stateless:
    """What recipes inherit whose sites keep nothing, and that share nothing before a first sum."""

    def init(self, *, rng: Streams) -> State:
        """Server: nothing yet."""
        return {}

    def memory(self, site: str) -> State:
        """Sites keep nothing."""
        return {}


@dataclass(frozen=True)
class Summed(Stateless):
    """What recipes inherit that ask for noisy sums: the server keeps each until the end."""

    schema: Schema
    plan: PrivacyPlan

    info: ClassVar[RecipeInfo]

    def task(self, state: State, round: int) -> Task:
        """Nothing: what is asked for is in the study."""
        return Task()

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        return {**state, **total}
