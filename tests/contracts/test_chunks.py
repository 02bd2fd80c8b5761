"""Stacking is an optimisation: what a site draws and sends does not depend on its company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.harness import (
    EACH,
    EVERY,
    cases,
    check_cohorts,
    check_replay,
    kind_of,
    neighbours,
    shorter,
    small_recipe,
    small_shards,
    small_study,
)
from contracts.toys import MAKERS, engine, networked, spread
from understudy.audit.trace import traced
from understudy.data.encode import encode
from understudy.data.shards import Shards
from understudy.federation.sites import Sites
from understudy.nets.stacked import torch_threads
from understudy.recipes import build

RAGGED = (4, 1, 7, 0, 3, 4, 2, 4)  # rows of eight sites


def ragged(kind: str) -> Shards:
    public, make = MAKERS[kind]
    found = encode(public(), make(sum(RAGGED)))
    ends = np.cumsum(RAGGED)
    return Shards.pack(found, [np.arange(e - n, e) for n, e in zip(RAGGED, ends, strict=True)])


def trained(
    recipe: Any, folder: Path, data: Shards, chunk: int | str | None
) -> tuple[dict[str, torch.Tensor], str]:
    """The final state and the ledger of a run in chunks, "apart", or "spread" over workers."""
    folder.mkdir()
    size = chunk if isinstance(chunk, int) else None
    made, ledger = engine(recipe, folder, data=data, seed=3, chunk=size)
    if chunk == "spread":
        spread(made, 3)
    if chunk == "apart":
        made.runtime = networked(made.runtime.sites, folder)
    with ledger:
        state = made.train()
    return state, (folder / "ledger.jsonl").read_text()


@pytest.mark.parametrize("name, unit, trust", cases(public=True))
def test_chunks_of_any_size_and_sites_apart_give_one_release(
    tmp_path: Path, name: str, unit: str, trust: str
) -> None:
    """Sites apart, workers' sums and two threads are as exact as sites trained one by one."""
    simulation = {"simulation": {"data": "-", "sites": len(RAGGED)}}
    recipe = EVERY[name].build(small_study(name, unit, trust, **simulation))
    data = ragged(kind_of(name))
    alone, ledger = trained(recipe, tmp_path / "1", data, 1)
    apart = () if trust == "distributed" else ("apart",)
    for chunk in (*apart, "spread", 2, 7, None):
        with torch_threads(2 if chunk == 2 else 1):
            other, charged = trained(recipe, tmp_path / str(chunk), data, chunk)
        assert charged == ledger and alone.keys() == other.keys()
        for key, value in alone.items():
            assert torch.equal(other[key], value), f"{key} at {chunk}"


@pytest.mark.parametrize("name, unit, trust", cases())
def test_one_unit_moves_no_more_in_a_stack_of_all_sites(
    tmp_path: Path, name: str, unit: str, trust: str
) -> None:
    """The replay of test_replay.py runs site by site; this one with the default chunk."""
    recipe, kind = small_recipe(name, unit, trust), kind_of(name)
    for i, neighbour in enumerate(neighbours(unit, trust, kind)):
        (tmp_path / str(i)).mkdir()
        check_replay(recipe, tmp_path / str(i), neighbour, chunk=None)


def answers(recipe: Any, folder: Path, data: Shards) -> dict[str, torch.Tensor]:
    """What a stack of all sites sends in the first round."""
    folder.mkdir()
    made, ledger = engine(recipe, folder, data=data, seed=3)
    ledger.close()
    sites: Sites = made.runtime.sites
    task = recipe.task(recipe.init(rng=made.streams), 0)
    return sites.answer(task, 0, np.arange(len(data)))[0].parts


@pytest.mark.parametrize("fewer", [1, EACH], ids=["one row less", "emptied"])
@pytest.mark.parametrize("name, unit, trust", cases())
def test_how_many_rows_a_site_has_moves_no_other_site(
    tmp_path: Path, name: str, unit: str, trust: str, fewer: int
) -> None:
    recipe, data = small_recipe(name, unit, trust), small_shards(kind_of(name))
    one = answers(recipe, tmp_path / "one", data)
    two = answers(recipe, tmp_path / "two", shorter(data, 0, fewer))
    for part in one:
        assert torch.equal(one[part][1:], two[part][1:])


@pytest.mark.parametrize("name", ["fedvae", "dpd_fvae"])
def test_an_emptied_site_moves_the_total_by_its_own_bound_alone(tmp_path: Path, name: str) -> None:
    """Sixty sites in one stack and a training seed that the adversary knows.

    When sites shared a generator, emptying one shifted the batches of all behind it: the sum
    moved by 4.5 times the bound.
    """
    sites = 60
    terms = {"simulation": {"data": "-", "sites": sites}}
    recipe = build(small_study(name, "site", "central", **terms))
    public, make = MAKERS["table"]
    found = encode(public(), make(sites * EACH))
    parts = [np.arange(i * EACH, (i + 1) * EACH) for i in range(sites)]
    data = Shards.pack(found, parts)
    one = answers(recipe, tmp_path / "one", data)
    two = answers(recipe, tmp_path / "two", shorter(data, 0, EACH))
    for part in recipe.plan.own.parts:
        moved = float((one[part.name] - two[part.name]).double().sum(0).norm())
        limit = part.mechanism.bound
        assert 0 < moved <= limit * (1 + 1e-6), f"{moved / limit:.3g} times the bound"


def test_cohorts_of_different_rounds_are_independent_coins(tmp_path: Path) -> None:
    check_cohorts(tmp_path)


def test_replays_are_compared_in_one_order_whatever_the_threads(tmp_path: Path) -> None:
    """Chunks that are answered at once would note what they did in any order."""
    recipe, data = small_recipe("fedvae", "site", "local"), ragged(kind_of("fedvae"))
    one = traced(recipe, tmp_path / "1", data, chunk=1)
    with torch_threads(2):
        other = traced(recipe, tmp_path / "2", data, chunk=1)
    assert one.tasks == other.tasks and one.sealed == other.sealed
    assert all(torch.equal(a[1], b[1]) for a, b in zip(one.queries, other.queries, strict=True))
