"""A task that only sites with rows fail on would tell the server who has some, or which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.harness import SMALL, cases, kind_of, small_recipe, small_shards
from recipes.at_site import at_site
from understudy.errors import WireError
from understudy.federation.recipe import Task
from understudy.federation.site import seal
from understudy.recipes import RECIPES
from understudy.rng import Streams


def altered(value: Tensor) -> Iterator[Tensor]:
    """What a server should not send in the place of an array."""
    yield from (torch.full_like(value, x) for x in (float("nan"), float("inf"), 3e38))
    yield from (value.to(kind) for kind in (torch.float64, torch.float16, torch.int64))
    yield from (value[..., :-1], value[:1].clone(), torch.cat((value, value), -1), value[None])


def tasks(task: Task) -> Iterator[Task]:
    for name, value in task.arrays.items():
        rest = {other: array for other, array in task.arrays.items() if other != name}
        yield Task(rest, task.values)
        yield from (Task({**rest, name: other}, task.values) for other in altered(value))


def fails(recipe: Any, task: Task, round: int, empty: bool) -> type | None:
    data = small_shards(kind_of(recipe.info.name))
    data = replace(data, counts=torch.zeros_like(data.counts)) if empty else data
    site = at_site(recipe, data.take([0]), round=round)
    try:
        seal(site, recipe.local(task, site)[0])
    except WireError as error:
        return type(error)
    return None


def check(recipe: Any, state: dict, round: int = 0) -> None:
    asked = recipe.task(state, round)
    assert fails(recipe, asked, round, False) is fails(recipe, asked, round, True) is None
    for task in tasks(asked):
        assert fails(recipe, task, round, False) == fails(recipe, task, round, True)


@pytest.mark.parametrize("name, unit, trust", cases())
def test_sites_with_and_without_rows_refuse_the_same_tasks(
    name: str, unit: str, trust: str
) -> None:
    if name not in RECIPES:
        pytest.skip("toys trust their server")
    recipe = small_recipe(name, unit, trust)
    check(recipe, recipe.init(rng=Streams.from_seed(0)))


@pytest.mark.slow
def test_a_class_left_out_of_a_frozen_encoders_latents_tells_no_label() -> None:
    """``centre`` without the last class made sites fail whose batch held one of that class."""
    own = {**SMALL["dpd_fvae"], "encoder": "frozen", "warm_start": 0.3, "warm_steps": 2}
    terms = {"recipe": own, "privacy": {"noise": None, "epsilon": 5.0}}
    recipe = small_recipe("dpd_fvae", "record", "local", **terms)
    rng = Streams.from_seed(0)
    state = recipe.init(rng=rng)
    for phase in recipe.plan.phases[:-1]:
        total = {part.name: torch.ones(part.shape) for part in phase.parts}
        state = recipe.step(state, total, rng=rng)
    check(recipe, state, recipe.plan.first)


@pytest.mark.parametrize("unit, trust", [("record", "central"), ("person", "local")])
def test_margins_that_a_server_made_up_are_refused_alike(unit: str, trust: str) -> None:
    recipe, rng = small_recipe("fedmoments", unit, trust), Streams.from_seed(0)
    total = {part.name: torch.ones(part.shape) for part in recipe.plan.phases[0].parts}
    state = recipe.step(recipe.init(rng=rng), total, rng=rng)
    assert recipe.task(state, 1).arrays
    check(recipe, state, 1)


@pytest.mark.parametrize("unit, trust", [("record", "central"), ("site", "local")])
def test_tables_that_a_server_made_up_are_refused_alike(unit: str, trust: str) -> None:
    recipe, rng = small_recipe("fedmarginals", unit, trust), Streams.from_seed(0)
    state, plan = recipe.init(rng=rng), recipe.plan
    for round in range(plan.first):
        total = {part.name: torch.ones(part.shape) for part in plan.at(round).parts}
        state = recipe.step(state, total, rng=rng)
    assert {"cut", "pairs"} == recipe.task(state, plan.first).arrays.keys()
    check(recipe, state, plan.first)


def test_a_network_that_a_server_made_up_is_refused_alike() -> None:
    recipe, rng = small_recipe("privbayes", "record", "central"), Streams.from_seed(0)
    state = recipe.init(rng=rng)
    for round in range(recipe.plan.length - 1):
        total = {part.name: torch.ones(part.shape) for part in recipe.plan.at(round).parts}
        state = recipe.step(state, total, rng=rng)
    assert {"cut", "parents"} == recipe.task(state, recipe.plan.length - 1).arrays.keys()
    check(recipe, state, recipe.plan.length - 1)
