from __future__ import annotations

import numpy as np
import pytest
import torch

from understudy.data.encode import Encoded
from understudy.data.shards import Shards
from understudy.errors import DataError


def rows(n: int = 6) -> Encoded:
    return Encoded(np.arange(n, dtype=np.float32).reshape(n, 1), np.arange(n))


PARTS = [np.array([4, 1]), np.array([], int), np.array([0, 2, 5])]


def test_each_site_gets_its_rows() -> None:
    shards = Shards.pack(rows(), PARTS)
    assert len(shards) == 3 and shards.total == 5
    assert [shards.rows(c)[1].tolist() for c in range(3)] == [[4, 1], [], [0, 2, 5]]
    assert shards.rows(0)[0].tolist() == [[4.0], [1.0]]


@pytest.mark.parametrize("width", [1, 3, 20])
def test_rows_moved_in_their_memory_are_those_of_a_copy(width: int) -> None:
    x = np.random.default_rng(0).random((6, width), np.float32)
    copied = Shards.pack(Encoded(x.copy(), np.arange(6)), PARTS)
    moved = Shards.pack(Encoded(x, np.arange(6)), PARTS, in_place=True)
    assert torch.equal(moved.x, copied.x) and torch.equal(moved.y, copied.y)
    assert np.shares_memory(moved.x.numpy(), x) and not np.shares_memory(copied.x.numpy(), x)


@pytest.mark.parametrize("chosen", [[2, 0], np.array([2, 0]), torch.tensor([2, 0])])
def test_taking_a_cohort_copies_no_rows(chosen: object) -> None:
    shards = Shards.pack(rows(), PARTS)
    cohort = shards.take(chosen)
    assert cohort.x is shards.x and len(cohort) == 2 and cohort.total == 5
    assert cohort.rows(0)[1].tolist() == [0, 2, 5]
    assert cohort.take([1]).rows(0)[1].tolist() == [4, 1]


def test_an_empty_cohort_and_no_rows_at_all_work() -> None:
    assert len(Shards.pack(rows(), PARTS).take([])) == 0
    empty = Shards.pack(rows(0), [np.array([], int)] * 2)
    assert empty.total == 0 and empty.rows(1)[0].shape == (0, 1)


@pytest.mark.parametrize("parts", [[[0, 1], [1]], [[0, 6]], [[-1]]])
def test_a_row_at_two_sites_or_at_none_is_refused(parts: list[list[int]]) -> None:
    with pytest.raises(DataError, match="one site"):
        Shards.pack(rows(), [np.array(p) for p in parts])
