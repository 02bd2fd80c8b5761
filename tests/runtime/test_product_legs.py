"""Product sums over a transport: legs in order, one deal a round, a party that leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from contracts.faults import Fault, Faulty
from understudy.data.bundled import bundled
from understudy.data.columns import Columns, records_of
from understudy.data.encode import encode
from understudy.federation.budget import Budget
from understudy.federation.masking import task_hash
from understudy.federation.memory import Memories, SiteMemory
from understudy.federation.product_party import ProductParty, product_place
from understudy.federation.products import ProductSum, _relayed, deal
from understudy.federation.recipe import Task
from understudy.federation.secure.roster import identities
from understudy.federation.sites import Sites
from understudy.privacy.ledger import Ledger
from understudy.privacy.products import Products
from understudy.recipes import build
from understudy.recipes.vertical import Vertical
from understudy.rng import NoiseSource, Streams
from understudy.runtime import participant
from understudy.runtime.networked import Networked
from understudy.runtime.participant import Participant
from understudy.runtime.store import Store
from understudy.runtime.wire import Agreement
from understudy.study import Study

RUN = "run"


@pytest.fixture(scope="module")
def sites() -> Sites:
    schema, records = bundled("breast_cancer")
    tables = {
        "study": {"name": "s", "recipe": "fedmoments"},
        "privacy": {"noise": 0.2},
        "simulation": {"data": "bundled:breast_cancer", "split": "columns", "sites": 2},
    }
    study = Study.parse(tables, schema=schema)
    recipe, held = build(study), study.held
    assert held is not None
    rows = [encode(held.schema_of(i), records_of(records, held.columns[i])) for i in range(2)]
    names = list(held.names)
    source = NoiseSource.seeded(Streams.from_seed(0))
    memory, columns = Memories(recipe.memory, names), Columns.of(rows)
    allowance = np.ones((2, 2), np.int64)
    streams = Streams.from_seed(0)
    return Sites(recipe, names, np.arange(2), columns, memory, streams, source, allowance)


def networked(
    sites: Sites, faults: dict[tuple[str, int], Fault] | None = None
) -> tuple[Networked, ProductSum, Task]:
    recipe = sites.recipe
    assert isinstance(recipe, Vertical)
    agreement = Agreement.of("study", recipe)
    roster, each = identities(sites.names)
    handlers = {
        name: Participant(
            sites.alone(i, SiteMemory(recipe.memory, [name])),
            agreement,
            Store(),
            ProductParty(each[i], roster),
        ).handle
        for i, name in enumerate(sites.names)
    }
    transport = Faulty(handlers, faults or {})
    made = Networked(transport, sites.names, agreement, RUN, deadline=20, attempts=2)
    gather = ProductSum(recipe.plan, sites.source, made, roster, agreement.hash, RUN)
    cells = sum(view.cells for view in recipe.views)
    return made, gather, Task({"shares": torch.full((cells,), 0.1)})


def total(made: Networked, gather: ProductSum, task: Task) -> dict[str, torch.Tensor] | None:
    return gather.total(made.exchange, task, 1, np.arange(2))


def test_a_lost_reply_is_sent_again_and_changes_nothing(sites: Sites) -> None:
    plain = total(*networked(sites))
    again = total(*networked(sites, {("party-1", 1): "lose", ("party-2", 2): "lose"}))
    assert plain is not None and again is not None
    assert torch.equal(plain["moments"], again["moments"])


def test_a_party_that_dies_leaves_the_round_void(sites: Sites) -> None:
    made, gather, task = networked(sites, {("party-2", 1): "die"})
    assert total(made, gather, task) is None and "party-2" in gather.void


def test_a_party_that_keeps_a_ledger_notes_the_round_there(sites: Sites, tmp_path: Path) -> None:
    budgets = [Budget(name, ledger=tmp_path / name) for name in sites.names]
    assert total(*networked(replace(sites, budgets=budgets))) is not None
    for name in sites.names:
        with Ledger(tmp_path / name) as ledger:
            assert ledger.joined(RUN) == 1


def test_a_dealer_that_deals_twice_is_refused(sites: Sites) -> None:
    made, gather, task = networked(sites)
    keys = made.leg("keys", 1, dict.fromkeys(range(2), task_hash(task)))
    for turn in range(2):
        dealt = deals(gather, sites.recipe.plan.own.parts[0].mechanism)
        told = {i: keys[0] + keys[1] + each for i, each in enumerate(dealt)}
        found = made.leg("matrices", 1, told, task)
        assert len(found) == (0 if turn else 2)
    assert set(made.failures.values()) == {"refused"}


def deals(gather: ProductSum, mechanism: object) -> list[bytes]:
    assert isinstance(mechanism, Products)
    return deal(product_place(gather.roster, gather.study, RUN, 1), mechanism)


def masked(made: Networked, gather: ProductSum, task: Task, other: Task) -> dict[int, bytes]:
    """Both parties' masked rows as they are relayed; ``other`` is a task that nobody announced."""
    keys = made.leg("keys", 1, dict.fromkeys(range(2), task_hash(task)))
    dealt = deals(gather, gather.plan.own.parts[0].mechanism)
    told = {i: keys[0] + keys[1] + dealt[i] for i in range(2)}
    assert made.leg("matrices", 1, told, other) == {}
    rows = made.leg("matrices", 1, told, task)
    return {i: _relayed(rows, i) for i in range(2)}


def test_a_task_other_than_the_announced_one_is_refused_in_every_leg(sites: Sites) -> None:
    """Rows by another task than those that were masked would stand in the sum times known masks."""
    made, gather, task = networked(sites)
    other = Task({"shares": task.arrays["shares"] / 2})
    messages = masked(made, gather, task, other)
    assert made.sealed("products", other, 1, messages) == {}
    assert len(made.sealed("products", task, 1, messages)) == 2


def test_noise_is_drawn_once_where_the_last_leg_is_cut_short(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("after the noise")

    made, gather, task = networked(sites)
    messages = masked(made, gather, task, Task())
    with monkeypatch.context() as patched:
        patched.setattr(participant, "sealed_products", broken)
        assert made.sealed("products", task, 1, messages) == {}
    assert made.sealed("products", task, 1, messages) == {}


def test_products_are_not_sent_in_one_exchange_nor_out_of_order(sites: Sites) -> None:
    made, _, task = networked(sites)
    assert list(made.exchange(task, 1, np.arange(2))) == []
    assert made.sealed("products", task, 1, dict.fromkeys(range(2), b"")) == {}
    assert made.leg("keys", 0, dict.fromkeys(range(2), bytes(32))) == {}  # histograms have no legs
