"""Batches of ragged sites: every row once per epoch, padding weighs nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.shards import Shards
from understudy.rng import Draws, Streams
from understudy.training import batches
from understudy.training.batches import Holdings


def rows_of(*counts: int) -> Holdings:
    held = np.array(counts)
    return Holdings(None, held.cumsum() - held, held)


def draws(sites: int = 1) -> Draws:
    return Streams.from_seed(0).sites("batches", 0, range(sites))


def shards_of(labels: list[list[int]]) -> Shards:
    counts = torch.tensor([len(site) for site in labels])
    y = torch.tensor([label for site in labels for label in site], dtype=torch.long)
    return Shards(torch.zeros(len(y), 1), y, counts.cumsum(0) - counts, counts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 3))
def test_an_epoch_visits_every_row_of_every_site_once(counts, size, number):
    rows = rows_of(*counts)
    plan = batches.epochs(rows, number, size, rng=draws(len(rows)))
    for member, count in enumerate(counts):
        needed = number * -(-count // size)
        assert plan.steps[member] == needed
        used = plan.weight[:needed, member] > 0
        seen = plan.index[:needed, member][used]
        start = int(rows.starts[member])
        expected = torch.arange(start, start + count).repeat_interleave(number)
        assert torch.equal(seen.sort().values, expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 4))
def test_weights_of_a_batch_add_up_to_one(counts, size):
    plan = batches.epochs(rows_of(*counts), 2, size, rng=draws(len(counts)))
    for member, needed in enumerate(plan.steps.tolist()):
        total = plan.weight[:needed, member].sum(-1)
        torch.testing.assert_close(total, torch.ones(needed))


def test_epochs_are_reshuffled():
    plan = batches.epochs(rows_of(50), 2, 50, rng=draws())
    assert not torch.equal(plan.index[0], plan.index[1])


def test_public_steps_are_the_same_at_every_site_with_rows():
    plan = batches.steps(rows_of(1000, 3, 0, 1), 5, 4, rng=draws(4))
    assert plan.steps.tolist() == [5, 5, 0, 5]
    assert plan.index.shape == (5, 4, 4)


def test_drawn_rows_belong_to_their_site():
    rows = rows_of(7, 0, 2)
    plan = batches.steps(rows, 20, 8, rng=draws(3))
    for member in (0, 2):
        inside = plan.index[:, member] - int(rows.starts[member])
        assert inside.min() == 0
        assert inside.max() == rows.counts[member] - 1


def test_by_class_gives_each_class_its_own_member():
    data = shards_of([[1, 0, 1], [], [2, 2]])
    rows = batches.by_class(data, 3)
    assert rows.counts.tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 2]
    for member, (start, count) in enumerate(zip(rows.starts, rows.counts, strict=True)):
        mine = rows.order[start : start + count]
        assert (data.y[mine] == member % 3).all()


def test_by_class_follows_sites_wherever_their_rows_are_stored():
    data = shards_of([[0, 1], [1, 1], [0, 0]]).take([2, 0])
    rows = batches.by_class(data, 2)
    assert rows.counts.tolist() == [2, 0, 1, 1]
    assert sorted(rows.order.tolist()) == [0, 1, 4, 5]


@pytest.mark.parametrize("rule", [batches.steps, batches.epochs])
def test_sites_without_any_row_take_no_step(rule):
    plan = rule(batches.by_class(shards_of([[], []]), 2), 3, 2, rng=draws(2))
    assert plan.steps.tolist() == [0, 0, 0, 0]


def test_take_cuts_the_plan_to_the_steps_its_members_need():
    plan = batches.epochs(rows_of(8, 2), 1, 2, rng=draws(2))
    short = plan.take(torch.tensor([1]))
    assert short.index.shape == (1, 1, 2)
    assert plan.take(torch.tensor([], dtype=torch.long)).index.shape == (0, 0, 0)


def test_epochs_of_few_rows_are_not_padded_to_the_batch() -> None:
    """Two rows in batches of 32 were once computed as 32: sixteen times the work."""
    rows = rows_of(2, 1)
    made = batches.epochs(rows, 3, 32, rng=draws(2))
    assert made.index.shape == (3, 2, 2)
    assert made.weight[0].tolist() == [[0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize("rule", [batches.steps, batches.epochs])
def test_a_site_has_the_same_batches_in_any_company(rule):
    """The other's rows, many or none, do not shift its draws."""
    plans = []
    for other in (0, 1, 50):
        own = Streams.from_seed(0).sites("batches", 0, [7, 3])
        plan = rule(rows_of(other, 5), 3, 4, rng=own)
        count = int(plan.steps[1])
        index, weight = plan.index[:count, 1] - other, plan.weight[:count, 1]
        plans.append([row[kept > 0].tolist() for row, kept in zip(index, weight, strict=True)])
    alone = rule(rows_of(5), 3, 4, rng=Streams.from_seed(0).sites("batches", 0, [3]))
    kept = [r[w > 0].tolist() for r, w in zip(alone.index[:, 0], alone.weight[:, 0], strict=True)]
    assert plans[0] == plans[1] == plans[2] == kept
