"""Simulations spread over workers: sums are exact, and a worker that forgot is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from contracts.toys import ToyMean, ToyStep, ToySum, engine, spread, study
from understudy.errors import StudyError, WireError
from understudy.federation import gather
from understudy.federation.engine import Engine
from understudy.federation.gather import GROUPS, completed
from understudy.privacy.ledger import Ledger
from understudy.runtime.greeting import kind_of
from understudy.runtime.wire import Envelope, decode_told, encode_call
from understudy.runtime.workers import check_spread, worker_of

SITES = 40  # several in a group


def made(folder: Path, kind: Any, trust: str, **tables: Any) -> tuple[Engine, Ledger]:
    folder.mkdir()
    terms = {"privacy": {"noise": 1.0, "trust": trust}, **tables}
    recipe = kind.build(study(kind.info.name, SITES, **terms))
    return engine(recipe, folder, seed=3)


def state(found: tuple[Engine, Ledger]) -> tuple[dict[str, torch.Tensor], list[Any]]:
    """What was trained and charged, and the sums of every round before they were rounded."""
    sums: dict[str, torch.Tensor] = {}

    def kept(plan: Any, total: Any, round: int, *rest: Any) -> Any:
        sums.update({f"{name} of {round}": value.clone() for name, value in total.items()})
        return completed(plan, total, round, *rest)

    with found[1] as ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "completed", kept)
        return {**found[0].train(), **sums}, ledger.entries


def same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    states = one[0].keys() == other[0].keys()
    return (
        states and one[1] == other[1] and all(torch.equal(one[0][k], other[0][k]) for k in one[0])
    )


SCHEDULED = {"cohort": {"size": 11}}
DRAWN = {"cohort": {"rate": 0.4}}


@pytest.mark.parametrize("workers", [1, 2, 5, GROUPS])
@pytest.mark.parametrize(
    ("kind", "trust", "tables"),
    [(ToyMean, "local", SCHEDULED), (ToyMean, "central", DRAWN), (ToySum, "local", {}),
     (ToyStep, "local", {})],
)  # fmt: skip
def test_one_seed_gives_one_result_over_any_number_of_workers(
    tmp_path: Path, kind: Any, trust: str, tables: dict[str, Any], workers: int
) -> None:
    here = state(made(tmp_path / "here", kind, trust, **tables))
    there = made(tmp_path / "there", kind, trust, **tables)
    spread(there[0], workers)
    assert same(state(there), here)


def test_sums_of_groups_are_not_those_of_another_order(tmp_path: Path) -> None:
    """That the test above could fail: with other groups the last digits differ."""
    here = state(made(tmp_path / "here", ToyMean, "local"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "GROUPS", 7)
        there = state(made(tmp_path / "there", ToyMean, "local"))
    assert not same(there, here)


@pytest.mark.parametrize("fault", ["lose", "late", "duplicate", "truncate"])
def test_what_gets_lost_on_the_way_is_sent_again(tmp_path: Path, fault: Any) -> None:
    here = state(made(tmp_path / "here", ToyMean, "local"))
    there = made(tmp_path / "there", ToyMean, "local")
    spread(there[0], 2, {("worker-1", 1): fault})
    assert same(state(there), here)


def test_a_worker_that_is_lost_ends_the_run(tmp_path: Path) -> None:
    found = made(tmp_path / "run", ToyMean, "local")
    spread(found[0], 2, {("worker-2", 1): "die"})
    with pytest.raises(WireError, match=r"worker-2: .*start the simulation again"):
        state(found)


def test_a_worker_that_was_started_again_does_not_go_on_as_if_it_remembered(tmp_path: Path) -> None:
    found = made(tmp_path / "run", ToyMean, "local")
    worker = spread(found[0], 2)["worker-2"]
    handle = worker.handle

    def forgetful(data: bytes) -> bytes:
        reply = handle(data)
        worker._round = -1
        return reply

    found[0].runtime.networked.transport.handlers["worker-2"] = forgetful
    with pytest.raises(WireError, match="worker-2: refused"):
        state(found)


def test_others_rows_at_a_worker_are_noticed_before_anything_is_trained(tmp_path: Path) -> None:
    found = made(tmp_path / "run", ToyMean, "local")
    workers = spread(found[0], 2)
    found[0].gather.open()
    workers["worker-2"].rows = b"other"
    with found[1], pytest.raises(WireError, match="the same rows at every worker"):
        found[0].gather.open()


def test_a_worker_answers_questions_for_sums_of_its_run_alone(tmp_path: Path) -> None:
    found = made(tmp_path / "run", ToyMean, "local")
    worker = spread(found[0], 2)["worker-1"]
    found[1].close()
    task = found[0].recipe.task(found[0].recipe.init(rng=found[0].streams), 0)
    envelope = Envelope(worker.agreement, "run", "worker-1", 0, leg="sums")
    for other in (replace(envelope, leg="keys"), replace(envelope, run="b"),
                  replace(envelope, round=1), replace(envelope, site="worker-2")):  # fmt: skip
        assert kind_of(worker.handle(encode_call(other, task))) == "refusal"
    assert kind_of(worker.handle(b"nonsense")) == "refusal"
    decode_told(worker.handle(encode_call(envelope, task)), envelope)


@pytest.mark.parametrize("sites", [1, 5, 16, 40, 1000])
def test_every_worker_holds_a_range_of_sites(sites: int) -> None:
    for workers in range(1, min(sites, GROUPS) + 1):
        held = worker_of(np.arange(sites), sites, workers)
        assert (np.diff(held) >= 0).all() and set(held) == set(range(workers))


def test_what_cannot_be_spread_is_refused() -> None:
    terms = {"privacy": {"noise": 1.0, "trust": "local"}}
    plan, large = (ToyMean.build(study("toy-mean", sites, **terms)).plan for sites in (3, 100))
    for workers, many in ((0, plan), (4, plan), (GROUPS + 1, large)):
        with pytest.raises(StudyError, match="workers, for"):
            check_spread(many, workers)
    check_spread(plan, 3)
    with pytest.raises(StudyError, match="hold columns"):
        check_spread(SimpleNamespace(sites=3, held="columns"), 2)  # type: ignore[arg-type]
