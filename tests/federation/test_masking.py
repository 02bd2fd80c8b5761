"""The gather's own part: places, layouts and hashes; rounds are tested in `secure`, `runtime`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from contracts.toys import ToyMean, engine, study
from understudy.errors import PrivacyError
from understudy.federation.masking import checked_sum, layout_of, place_of, task_hash
from understudy.federation.recipe import Task
from understudy.federation.secure.roster import identities

TASK = Task({"a": torch.arange(4.0), "b": torch.zeros(2, dtype=torch.bfloat16)}, {"round": 1})


def recipe(trust: str = "distributed") -> ToyMean:
    shares = {"survivors": 4, "colluders": 1} if trust == "distributed" else {}
    terms = {"trust": trust, "noise": 1.0, **shares}
    return ToyMean.build(study("toy-mean", 5, study={"rounds": 1}, privacy=terms))


def test_tasks_that_differ_at_all_have_different_hashes() -> None:
    others = [
        Task(TASK.arrays, {"round": 2}),
        Task(TASK.arrays, {}),
        Task({"a": TASK.arrays["a"]}, TASK.values),
        Task({**TASK.arrays, "a": torch.arange(4.0).reshape(2, 2)}, TASK.values),
        Task({**TASK.arrays, "a": torch.tensor([0.0, 1.0, 2.0, 3.0000002])}, TASK.values),
        Task({**TASK.arrays, "a": torch.arange(4.0).double()}, TASK.values),
        Task({"c": TASK.arrays["a"], "b": TASK.arrays["b"]}, TASK.values),
    ]
    assert len({task_hash(task) for task in (TASK, *others)}) == len(others) + 1
    again = Task(dict(reversed(TASK.arrays.items())), dict(TASK.values))
    assert task_hash(again) == task_hash(TASK)
    strided = Task({**TASK.arrays, "a": torch.arange(8.0)[::2] / 2}, TASK.values)
    assert task_hash(strided) == task_hash(TASK)


def test_a_place_has_the_minimum_of_its_own_plan() -> None:
    roster, _ = identities(["a", "b"])
    place = place_of(recipe().plan, 0, roster, b"study", "run")
    assert (place.survivors, place.colluders, place.roster) == (4, 1, roster.hash)


def test_only_whole_numbers_are_laid_out() -> None:
    assert layout_of(recipe().plan, 0).parts[0][:2] == ("mean", (3,))
    with pytest.raises(PrivacyError, match="in whole numbers"):
        layout_of(recipe("central").plan, 0)


def test_what_is_remembered_in_a_simulation_is_forgotten_with_the_round(tmp_path) -> None:
    toy = recipe()
    made, ledger = engine(toy, tmp_path)
    ledger.close()
    gather = checked_sum(toy.plan, made.source, made.runtime.sites)
    task = toy.task(toy.init(rng=made.streams), 0)
    sizes = []
    for _ in range(2):
        made.runtime.sites.allowance[:] = 1
        assert gather.total(made.runtime.exchange, task, 0, np.arange(5)) is not None
        sizes.append(len(gather.primitives._agreed))
    assert sizes[0] == sizes[1] == 20  # ten pairs, for channels and for masks


def test_too_few_sites_that_join_make_a_round_void(tmp_path) -> None:
    toy = recipe()
    made, ledger = engine(toy, tmp_path)
    ledger.close()
    made.runtime.sites.allowance[:, :2] = 0
    gather = checked_sum(toy.plan, made.source, made.runtime.sites)
    task = toy.task(toy.init(rng=made.streams), 0)
    assert gather.total(made.runtime.exchange, task, 0, np.arange(5)) is None
    assert gather.void == "3 of at least 4 sites are left" and gather.survivors == 0
