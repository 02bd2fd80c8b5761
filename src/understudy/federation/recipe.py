"""The contract between a system and the engine.

A recipe is one short file that reads like its paper. It says what is shared, what a site
computes and what the server does with the result; the engine draws cohorts, clips, adds
noise, charges and aggregates, so no recipe can forget them. Everything a site computes
carries a leading client axis: a networked site is a stack of one.

A complete toy, which learns the mean of the encoded columns from site-level updates::

    @dataclass(frozen=True)
    class MeanRecipe:
        info: RecipeInfo
        plan: PrivacyPlan          # one part, "mean", of shape (width,)
        schema: Schema

        def init(self, *, rng):            return {"mean": torch.zeros(self.schema.width)}
        def memory(self):                  return {}
        def task(self, state, round):      return Task({"mean": state["mean"]})
        def local(self, task, memory, data, private, *, rng):
            means = torch.stack([data.rows(c)[0].sum(0) for c in range(len(data))])
            return {"mean": means - task.arrays["mean"]}, memory
        def step(self, state, total, *, rng):
            return {"mean": state["mean"] + total["mean"]}
        def finish(self, state, *, rng):   return Generator(...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from understudy.data.layout import overlap, overlap_notes
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.errors import PrivacyError, StudyError, WireError
from understudy.federation.info import RecipeInfo
from understudy.federation.slots import Private
from understudy.privacy.account import pure_epsilon
from understudy.privacy.clip import Bounded, Slot, Unit
from understudy.privacy.plan import Part, PrivacyPlan, Trust, default_delta, solve
from understudy.rng import Streams
from understudy.study import Study, refuse_split

__all__ = [
    "Recipe",
    "RecipeInfo",
    "State",
    "Task",
    "Update",
    "check_kind",
    "make_plan",
    "make_pure_plan",
]

State = dict[str, Tensor]
Update = Mapping[str, "Tensor | Bounded"]


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

    def memory(self) -> State:
        """What one site keeps between rounds, as it is before its first (may be empty)."""

    def task(self, state: State, round: int) -> Task:
        """Server: what is sent to the cohort."""

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[Update, State]:
        """Sites, stacked: named parts ``[C, …]`` and the memory to keep.

        A part is a plain tensor, which the engine clips at the site level, or the
        result of ``private.sum`` for a sum over records.
        """

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Server: the new state from the noised mean of each part."""

    def finish(self, state: State, *, rng: Streams) -> Any:
        """Server: the generator or classifier to release. Post-processing: it may train long."""


_SLOTS: dict[Trust, Slot] = {
    "central": "server",
    "local": "client",
    "distributed": "distributed",
    "none": "server",
}


def make_plan(
    study: Study, info: RecipeInfo, shapes: Mapping[str, tuple[int, ...]], **terms: Any
) -> PrivacyPlan:
    """The plan of a recipe whose parts share one bound and one multiplier.

    ``terms``: ``bound`` (of one row, or of a site's update; when the study gives no clip);
    ``slot`` (when the trust does not say), ``blocks``, ``combine``, ``steps`` and ``batch_rate``
    of the parts; ``rounds``, ``sites``, ``before``, ``notes`` of the plan. With a phase
    ``before`` it, this phase gets the noise that keeps both within the study's ε.
    """
    unit, trust = _unit_and_trust(study, info)
    privacy = study.privacy
    bound = terms["bound"] if privacy.clip is None else privacy.clip
    if privacy.epsilon_per_update is not None:
        raise StudyError(
            f"privacy.epsilon or privacy.noise for {info.name}",
            "privacy.epsilon_per_update",
            "only recipes that select coordinates have an ε per update",
        )
    if trust != "none" and privacy.epsilon is None and privacy.noise is None:
        raise StudyError(
            "privacy.epsilon or privacy.noise", "neither", "add epsilon = 1.0 under [privacy], say"
        )
    noise = 0.0 if trust == "none" else (privacy.noise or 1.0)
    rows = study.schema.rows_per_person or 1 if unit == "person" else 1
    parts = tuple(
        Part(
            name,
            shape,
            terms.get("slot") or _SLOTS[trust],
            bound * rows,
            noise,
            blocks=terms.get("blocks", 1),
            rows=rows,
            combine=terms.get("combine", "mean"),
            steps=terms.get("steps", 1),
            rate=terms.get("batch_rate"),
        )
        for name, shape in shapes.items()
    )
    plan = _frame(study, info, unit, trust, parts, **terms)
    wants_epsilon = trust != "none" and privacy.epsilon is not None
    return solve(plan, float(privacy.epsilon or 0)) if wants_epsilon else plan


def make_pure_plan(
    study: Study, info: RecipeInfo, parts: Callable[[float], tuple[Part, ...]], **terms: Any
) -> PrivacyPlan:
    """The plan of a recipe whose sites send choices: ``parts`` for an ε per update.

    The study gives that ε, or the ε of a site's whole life, which its updates share equally.
    Where the study gives neither rounds nor cohorts, every site is called once. ``terms`` as for
    `make_plan`.
    """
    unit, trust = _unit_and_trust(study, info)
    study = _each_once(study, info)
    privacy = study.privacy
    unused = [n for n in ("noise", "clip", "delta") if getattr(privacy, n) is not None]
    if unused:
        raise StudyError(
            f"no privacy.{unused[0]} for {info.name}: it selects, and neither clips nor noises",
            "one",
            "leave it out; set privacy.epsilon or privacy.epsilon_per_update",
        )
    frame = _frame(study, info, unit, "none", (), **terms)
    if trust != "none" and privacy.epsilon is None and privacy.epsilon_per_update is None:
        raise StudyError(
            "privacy.epsilon (of a site's whole life) or privacy.epsilon_per_update",
            "neither",
            f"add epsilon = 8.0 under [privacy]; a site makes {frame.participations} update(s)",
        )
    if privacy.epsilon_per_update is not None:
        return replace(frame, trust=trust, parts=parts(privacy.epsilon_per_update))
    assert privacy.epsilon is not None
    epsilon = privacy.epsilon / frame.participations
    plan = replace(frame, trust=trust, parts=parts(epsilon))
    while pure_epsilon(plan.promise(amplified=False)) > privacy.epsilon:  # by rounding alone
        epsilon = math.nextafter(epsilon, 0)
        plan = replace(frame, trust=trust, parts=parts(epsilon))
    return plan


def _each_once(study: Study, info: RecipeInfo) -> Study:
    """Rounds and cohorts in which each site answers once, for what the study leaves out."""
    rounds = max(1, min(info.rounds, study.n_sites // info.cohort))
    size = study.cohort.size or study.n_sites // rounds
    if study.rounds is not None or study.cohort.rate is not None:
        return study
    return replace(
        study, rounds=max(1, study.n_sites // size), cohort=replace(study.cohort, size=size)
    )


def _frame(
    study: Study,
    info: RecipeInfo,
    unit: Unit,
    trust: Trust,
    parts: tuple[Part, ...],
    **terms: Any,
) -> PrivacyPlan:
    """A plan with the study's rounds, sites and cohorts."""
    units = study.n_sites if unit == "site" else study.schema.records
    plan = PrivacyPlan(
        unit=unit,
        trust=trust,
        parts=parts,
        rounds=terms.get("rounds") or study.rounds or info.rounds,
        sites=terms.get("sites") or study.n_sites,
        units=units,
        delta=study.privacy.delta or default_delta(units),
        rate=study.cohort.rate,
        joins=study.cohort.joins,
        before=terms.get("before"),
        notes=(*_overlap_notes(study, unit), *terms.get("notes", ())),
        size=study.cohort.size,
    )
    if plan.size and plan.joins is not None and plan.joins < plan.calls:
        raise StudyError(
            f"at least {plan.calls} update(s) of a site: {plan.rounds} rounds call {plan.size} of "
            f"{plan.sites} sites each",
            f"cohort.joins = {plan.joins}",
            f"raise it, or set study.rounds = {plan.joins * plan.sites // plan.size} or fewer",
        )
    return plan


_WHOLE = ("blocks", "column", "person")  # splits that can keep a recording's windows at one site


def _overlap_notes(study: Study, unit: Unit) -> tuple[str, ...]:
    """What a claim must say of windows that share time steps."""
    if unit == "record":
        return overlap_notes(study.schema)
    many, cut = overlap(study.schema), study.simulation
    if unit == "person" or many == 1 or cut is None or cut.split in _WHOLE:
        return ()
    return (
        f"windows overlap and were dealt out one by one: a time step is at up to {many} sites, and "
        'only one site is protected; split = "blocks" or "column" keeps a recording together',
    )


def check_kind(study: Study, info: RecipeInfo) -> None:
    """Refuse rows that a recipe has no net for."""
    if study.schema.kind not in info.kinds:
        raise StudyError(
            f"data of kind {' or '.join(info.kinds)} for {info.name}",
            study.schema.kind,
            "choose another recipe: understudy recipes",
        )


def _unit_and_trust(study: Study, info: RecipeInfo) -> tuple[Unit, Trust]:
    unit = study.privacy.unit or info.default[0]
    trust = study.privacy.trust or info.default[1]
    check_kind(study, info)
    asked = study.privacy.epsilon or study.privacy.noise or study.privacy.epsilon_per_update
    if trust == "none" and asked:
        raise PrivacyError(
            'a trust other than "none" where an ε or noise is asked for',
            f'{info.name}, whose trust is "none": it adds no noise',
            "choose a private recipe or trust, or leave epsilon and noise out",
        )
    if trust != "none" and (unit, trust) not in info.supports:
        pairs = ", ".join(f"{u}/{t}" for u, t in sorted(info.supports))
        raise PrivacyError(
            f"a unit and trust that {info.name} supports ({pairs})",
            f"{unit}/{trust}",
            "change privacy.unit or privacy.trust; see understudy recipes",
        )
    refuse_split(study, unit, trust)
    if unit == "person" and not (study.schema.person and study.schema.rows_per_person):
        raise PrivacyError(
            "a schema that names the person column and the cap on rows per person",
            "none",
            "add person and rows_per_person to the schema, or protect records",
        )
    return unit, trust
