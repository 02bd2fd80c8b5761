from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from contracts.toys import ToyMean, ToySum, engine, study
from understudy.errors import PrivacyError
from understudy.federation.recipe import Task
from understudy.nets.stacked import torch_threads
from understudy.runtime.in_process import InProcess


def runtime(tmp_path: Path, kind=ToySum, trust: str = "central", **options) -> InProcess:
    toy = kind.build(study(kind.info.name, 7, privacy={"noise": 1.0, "trust": trust}))
    made, ledger = engine(toy, tmp_path, **options)
    ledger.close()
    return made.runtime


def totals(found: InProcess, cohort: list[int]) -> dict[str, torch.Tensor]:
    recipe = found.sites.recipe
    task = recipe.task(recipe.init(rng=found.sites.streams), 0)
    stacks = list(found.exchange(task, 0, np.array(cohort, np.int64)))
    assert [site for sites, _ in stacks for site in sites] == cohort
    replies = [reply for _, reply in stacks]
    assert all(reply.round == 0 and reply.kind == "entrusted" for reply in replies)
    names = [part.name for part in recipe.plan.own.parts]
    return {n: torch.cat([reply.parts[n] for reply in replies]) for n in names}


@pytest.mark.parametrize("chunk", [1, 3, 7])
@pytest.mark.parametrize("kind", [ToySum, ToyMean])
def test_chunks_change_nothing(tmp_path: Path, kind, chunk: int) -> None:
    plain = totals(runtime(tmp_path, kind), [0, 2, 3, 5, 6])
    other = totals(runtime(tmp_path, kind, chunk=chunk), [0, 2, 3, 5, 6])
    assert all(torch.equal(plain[name], other[name]) for name in plain)


@pytest.mark.parametrize("kind", [ToySum, ToyMean])
def test_forks_change_nothing_and_answers_come_in_order(tmp_path: Path, kind) -> None:
    plain = totals(runtime(tmp_path, kind), [0, 2, 3, 5, 6])
    with torch_threads(2):
        found = runtime(tmp_path, kind, chunk=1)
        other = totals(found, [0, 2, 3, 5, 6])
        assert torch.get_num_threads() == 2
    assert found._forks is not None and all(torch.equal(plain[name], other[name]) for name in plain)


def test_what_fails_at_a_site_in_a_fork_is_told(tmp_path: Path, monkeypatch) -> None:
    def broken(self, *_):
        raise PrivacyError("an update", "none", "fix the recipe")

    monkeypatch.setattr(ToySum, "local", broken)
    with torch_threads(2), pytest.raises(PrivacyError, match="fix the recipe"):
        totals(runtime(tmp_path, chunk=2), [0, 1, 2, 3, 4])
    assert torch.get_num_threads() == 1


def test_forks_are_made_once_and_only_where_there_is_work_for_them(tmp_path: Path) -> None:
    with torch_threads(2):
        found = runtime(tmp_path, chunk=4)
    task = found.sites.recipe.task({}, 0)
    for cohort in ([], [1, 2]):
        list(found.exchange(task, 0, np.array(cohort, np.int64)))
        assert found._forks is None
    list(found.exchange(task, 0, np.array([0, 3, 4, 5, 6])))
    made = found._forks
    list(found.exchange(task, 1, np.array([0, 1, 2, 3, 4, 5, 6])))
    assert found._forks is made is not None
    found.close()
    assert found._forks is None


def test_what_all_sites_share_does_not_make_stacks_smaller(tmp_path: Path) -> None:
    found = runtime(tmp_path)
    own = {"row": torch.zeros(10**5), "stacked": torch.zeros(1, 10**5)}
    more = own | {"shared": torch.zeros(10, 10**4)}
    sizes = [found._chunk(Task(arrays), 0, 10**6) for arrays in (own, more)]
    assert sizes[0] == sizes[1] < found._chunk(Task({}), 0, 10**6)


def test_an_empty_cohort_sends_nothing(tmp_path: Path) -> None:
    found = runtime(tmp_path)
    assert list(found.exchange(found.sites.recipe.task({}, 0), 0, np.array([], np.int64))) == []


def test_a_site_is_charged_when_asked_and_silent_once_spent(tmp_path: Path) -> None:
    found = runtime(tmp_path)
    task = found.sites.recipe.task({}, 0)
    found.sites.allowance[:] = [[1, 0, 1, 1, 1, 1, 1]]
    assert sum(len(reply) for _, reply in found.exchange(task, 0, np.array([0, 1, 2]))) == 2
    assert found.sites.allowance.tolist() == [[0, 0, 0, 1, 1, 1, 1]]
    found.count_void(np.array([0, 3]), 0)
    assert found.sites.allowance.tolist() == [[0, 0, 0, 0, 1, 1, 1]]


def test_what_must_outlive_a_restart_is_saved_and_restored(tmp_path: Path) -> None:
    first = runtime(tmp_path, ToyMean)
    totals(first, [1, 4])
    saved = {name: value.clone() for name, value in first.save().items()}
    second = runtime(tmp_path, ToyMean)
    second.restore(saved)
    assert np.array_equal(second.sites.allowance, first.sites.allowance)
    assert np.array_equal(second.sites.memory.touched, first.sites.memory.touched)
    assert first.sites.memory.touched.tolist() == [False, True, False, False, True, False, False]


def test_a_chunk_is_remembered_before_the_next_is_asked(tmp_path: Path) -> None:
    """What a site keeps is committed together with what it sends, not at the end of a round."""
    found = runtime(tmp_path, ToyMean, chunk=2)
    recipe = found.sites.recipe
    replies = found.exchange(recipe.task({"mean": torch.zeros(3)}, 0), 0, np.arange(7))
    next(replies)
    assert found.sites.memory.touched.tolist() == [True, True] + [False] * 5
