from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from understudy.rng import NoiseSource, Streams


def sources() -> list:
    return [
        pytest.param(NoiseSource.system, id="system"),
        pytest.param(lambda: NoiseSource.seeded(Streams.from_seed(7)), id="seeded"),
    ]


@pytest.mark.parametrize("make", sources())
def test_normal_noise_has_the_normal_distribution(make) -> None:
    draw = make().normal((400, 501)).ravel()  # an odd count takes the cut pair too
    n = len(draw)
    assert abs(draw.mean()) < 5 / np.sqrt(n)
    assert abs(draw.std() - 1) < 5 / np.sqrt(2 * n)
    assert stats.kstest(draw, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 5 / np.sqrt(n)
    half = n // 2  # the two halves of Box–Muller share a radius: they must still be independent
    assert abs(np.corrcoef(draw[:half] ** 2, draw[half : 2 * half] ** 2)[0, 1]) < 6 / np.sqrt(half)


@pytest.mark.parametrize("make", sources())
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 0), (2, 3)])
def test_noise_has_the_shape_asked_for(make, shape) -> None:
    draw = make().normal(shape)
    assert draw.shape == shape and draw.dtype == np.float64
    assert np.isfinite(draw).all()


@pytest.mark.parametrize("make", sources())
def test_coins_fall_at_their_rate_and_independently(make) -> None:
    source, rate = make(), 0.3
    flips = np.stack([source.coins(20, rate) for _ in range(6000)])
    sigma = np.sqrt(rate * (1 - rate) / len(flips))
    assert np.all(abs(flips.mean(0) - rate) < 5 * sigma), "a site joins at another rate"
    pairs = np.corrcoef(flips.T) - np.eye(20)
    assert abs(pairs).max() < 5 / np.sqrt(len(flips)), "two sites are drawn together"
    sizes = np.bincount(flips.sum(1), minlength=21)
    expected = stats.binom.pmf(np.arange(21), 20, rate) * len(flips)
    assert sizes[0] > 0 or expected[0] < 5, "empty cohorts never happen"
    assert stats.chisquare(*_pool(sizes, expected)).pvalue > 1e-6


def _pool(found: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keep = expected > 5
    rest = [found[~keep].sum()], [expected[~keep].sum()]
    return np.append(found[keep], rest[0]), np.append(expected[keep], rest[1])


@pytest.mark.parametrize("make", sources())
def test_an_empty_draw_works(make) -> None:
    assert make().coins(0, 0.5).shape == (0,)
    assert make().uniform(0).shape == (0,)


def test_coins_of_rate_one_always_fall_and_of_rate_zero_never() -> None:
    source = NoiseSource.system()
    assert source.coins(1000, 1.0).all()
    assert not source.coins(1000, 0.0).any()


class Fixed:
    """A generator that returns one word."""

    def __init__(self, word: int) -> None:
        self.word = word

    def integers(self, low: int, high: int, n: int, dtype: type) -> np.ndarray:
        return np.full(n, self.word, dtype)


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 2**12, 2**64 - 1])
def test_uniform_is_never_zero_nor_one(word: int) -> None:
    source = NoiseSource(_generator=Fixed(word))  # type: ignore[arg-type]
    u = source.uniform(2)
    assert (u > 0).all() and (u < 1).all()
    assert np.isfinite(source.normal((4,))).all()


def test_a_noise_source_cannot_be_copied_saved_or_sent() -> None:
    for source in (NoiseSource.system(), NoiseSource.seeded(Streams.from_seed(0))):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never copied"):
                act(source)


@pytest.mark.parametrize("make", sources())
def test_two_draws_differ(make) -> None:
    source = make()
    assert not np.array_equal(source.normal((8,)), source.normal((8,)))


def test_a_forked_process_draws_other_noise() -> None:
    source = NoiseSource.system()
    source.normal((4,))
    draws = []
    for _ in range(2):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            os.write(write, source.normal((4,)).tobytes())
            os._exit(0)
        os.waitpid(pid, 0)
        draws.append(os.read(read, 32))
        os.close(read)
        os.close(write)
    draws.append(source.normal((4,)).tobytes())
    assert len(set(draws)) == 3


def test_only_the_seeded_source_is_a_simulation() -> None:
    assert not NoiseSource.system().is_simulation
    assert NoiseSource.seeded(Streams.from_seed(1)).is_simulation


def test_streams_repeat_for_a_seed_and_differ_without_one() -> None:
    assert Streams.from_seed(3) == Streams.from_seed(3) != Streams.from_seed(4)
    assert Streams.from_seed(None) != Streams.from_seed(None)


def test_streams_are_kept_apart_by_name_and_index() -> None:
    streams = Streams.from_seed(0)
    draws = [
        streams.numpy("a").random(),
        streams.numpy("b").random(),
        streams.numpy("a", 1).random(),
        streams.numpy("a", 1, 2).random(),
        streams.numpy("a", 12).random(),
        streams.child("a").numpy("a").random(),
        float(torch.rand((), dtype=torch.float64, generator=streams.torch("a"))),
    ]
    assert len(set(draws)) == len(draws)
    assert streams.numpy("a", np.int64(1)).random() == draws[2], "the kind of integer matters"
