"""Places by rank, against a list of the top set made by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.privacy import top
from understudy.privacy.top import places
from understudy.rng import Draws, Streams


def draws(sites: int) -> Draws:
    return Streams.from_seed(0).sites("ties", 0, range(sites))


def vectors(kind: str, size: int) -> np.ndarray:
    found = np.random.default_rng(1).standard_normal((5, size)).astype(np.float32)
    made = {"scattered": found, "rising": np.sort(found, axis=1), "misleading": _misleading(size)}
    return np.broadcast_to(made[kind], found.shape)


def _misleading(size: int) -> np.ndarray:
    """Nearly all numbers alike, where a sample of every n-th looks."""
    found = np.linspace(1, 2, size, dtype=np.float32)
    found[:: max(7, size // top._SAMPLE)] += 2
    return found


@pytest.mark.parametrize("share", [0.001, 0.1, 0.9])
@pytest.mark.parametrize("size", [70, 20_000])
@pytest.mark.parametrize("kind", ["scattered", "rising", "misleading"])
def test_every_rank_is_where_sorting_puts_it(kind: str, size: int, share: float) -> None:
    values, k = vectors(kind, size), max(1, int(share * size))
    signs = np.array([[1], [-1], [1], [-1], [1]], np.float32)
    order = np.argsort(-values * signs, axis=1, kind="stable")
    for inside, held in ((True, order[:, :k]), (False, order[:, k:])):
        wanted = np.sort(held, axis=1)[:, :: max(1, held.shape[1] // 50)]
        ranks = np.arange(held.shape[1])[:: max(1, held.shape[1] // 50)].repeat(5).reshape(-1, 5).T
        among = np.full(ranks.shape, inside)
        assert np.array_equal(places(values, signs, k, ranks, among, draws(5)), wanted)


@pytest.mark.parametrize("size", [100, 10_000])
def test_ties_at_the_border_are_broken_at_random_and_the_set_has_its_size(size: int) -> None:
    values = np.zeros((400, size), np.float32)
    values[:, :3], k = 1.0, 5
    ranks = np.tile(np.arange(k), (400, 1))
    found = places(values, np.ones((400, 1), np.float32), k, ranks, ranks >= 0, draws(400))
    assert np.array_equal(found[:, :3], ranks[:, :3]) and bool((np.diff(found) > 0).all())
    tied = found[:, 3:].reshape(-1)
    assert abs(tied.mean() - size / 2) < 4 * size / np.sqrt(12 * len(tied))


def test_members_and_others_come_together_in_one_call() -> None:
    values = np.array([[5.0, 1.0, 4.0, 2.0, 3.0]])
    ranks, inside = np.array([[0, 1, 0, 2]]), np.array([[True, True, False, False]])
    assert places(values, np.ones((1, 1)), 2, ranks, inside, draws(1)).tolist() == [[0, 2, 1, 4]]
