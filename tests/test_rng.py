from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from understudy import rng
from understudy.errors import PrivacyError
from understudy.rng import Draws, NoiseSource, Streams


def sources() -> list:
    return [
        pytest.param(NoiseSource.system, id="system"),
        pytest.param(lambda: NoiseSource.seeded(Streams.from_seed(7)), id="seeded"),
    ]


@pytest.mark.parametrize("make", sources())
def test_normal_noise_has_the_normal_distribution(make) -> None:
    draw = make().sites(0, range(20)).normal((20, 501)).ravel()  # odd: takes the cut pair too
    n = len(draw)
    assert abs(draw.mean()) < 5 / np.sqrt(n)
    assert abs(draw.std() - 1) < 5 / np.sqrt(2 * n)
    assert stats.kstest(draw, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 5 / np.sqrt(n)
    assert len(np.unique(draw)) == n, "a run of a long draw repeats another"
    for lag in (n // 2, rng._RUN // 2):  # halves that share a radius must still be independent
        pairs = np.corrcoef(draw[:-lag] ** 2, draw[lag:] ** 2)[0, 1]
        assert abs(pairs) < 6 / np.sqrt(n - lag)


@pytest.mark.parametrize("make", sources())
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("sites", [0, 1, 3])
def test_noise_has_the_shape_asked_for(make, shape, sites: int) -> None:
    draw = make().sites(0, range(sites)).normal(shape)
    assert draw.shape == (sites, *shape) and draw.dtype == np.float64
    assert np.isfinite(draw).all()


@pytest.mark.parametrize("make", sources())
def test_coins_fall_at_their_rate_and_independently(make) -> None:
    source, rate = make(), 0.3
    flips = np.concatenate([source.server("cohort", r).coins(20, rate) for r in range(6000)])
    sigma = np.sqrt(rate * (1 - rate) / len(flips))
    assert np.all(abs(flips.mean(0) - rate) < 5 * sigma), "a site joins at another rate"
    pairs = np.corrcoef(flips.T) - np.eye(20)
    assert abs(pairs).max() < 5 / np.sqrt(len(flips)), "two sites are drawn together"
    rounds = [np.corrcoef(flips[1:, c], flips[:-1, c])[0, 1] for c in range(20)]
    assert np.abs(rounds).max() < 5 / np.sqrt(len(flips)), "two rounds are drawn together"
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
    draws = make().sites(0, [4, 2])
    assert draws.coins(0, 0.5).shape == draws.uniform(0).shape == (2, 0)
    assert draws.words_each([0, 0]).shape == draws.normal_each([0, 0]).shape == (0,)
    assert make().sites(0, []).words(3).shape == (0, 3)


@pytest.mark.parametrize("make", sources())
def test_sites_of_different_size_draw_one_after_the_other(make) -> None:
    draws = make().sites(0, range(3))
    for counts in ([2, 0, 5], [1, 1, 1], [0, 0, 4]):
        assert len(draws.words_each(counts)) == sum(counts)
        assert len(draws.normal_each(np.array(counts))) == sum(counts)
        assert draws.coins_each(counts, 0.5).dtype == bool


def test_coins_of_rate_one_always_fall_and_of_rate_zero_never() -> None:
    draws = NoiseSource.system().sites(0, [0])
    assert draws.coins(1000, 1.0).all()
    assert not draws.coins(1000, 0.0).any()


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 2**12, 2**64 - 1])
def test_uniform_is_never_zero_nor_one(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = NoiseSource.system().sites(0, [0])
    fixed = lambda counts: np.full(sum(counts), word, np.uint64)  # noqa: E731
    monkeypatch.setattr(draws, "words_each", fixed)
    u = draws.uniform(2)
    assert (u > 0).all() and (u < 1).all()
    assert np.isfinite(draws.normal((4,))).all()


# Streams belong to sites: neither the others nor the stack they are in moves them.


def made_by(draws: Draws) -> list[np.ndarray]:
    """All kinds of draws of a stack, one row per site, in one order."""
    sites = len(draws)
    each = [draws.words(2), draws.uniform(3), draws.normal((2, 2)), draws.child("a").words(1)]
    ragged = draws.normal_each(np.full(sites, 3)).reshape(sites, 3)
    own = np.array([draws.generator(c).random() for c in range(sites)])[:, None]
    parts = draws.split(2).words(1).reshape(sites, 2)
    return [*each, ragged, own, parts]


@pytest.mark.parametrize("root", ["streams", "noise"])
def test_a_site_draws_the_same_in_any_stack(root: str) -> None:
    def stack(clients: list[int]) -> Draws:
        streams = Streams.from_seed(3)
        if root == "noise":
            return NoiseSource.seeded(streams).sites(5, clients)
        return streams.sites("local", 5, np.array(clients))

    whole = made_by(stack([4, 9, 2]))
    for place, client in enumerate([4, 9, 2]):
        alone = made_by(stack([client]))
        assert all(np.array_equal(a[place], b[0]) for a, b in zip(whole, alone, strict=True))
    other = made_by(stack([2, 4]))
    assert all(np.array_equal(a[[2, 0]], b) for a, b in zip(whole, other, strict=True))


def test_what_a_site_draws_does_not_depend_on_how_much_another_draws() -> None:
    one, two = (Streams.from_seed(0).sites("s", 0, range(2)) for _ in range(2))
    one.words_each([0, 5]), two.words_each([7, 5])
    one.normal_each([0, 3]), two.normal_each([9, 3])
    assert np.array_equal(one.words(4)[1], two.words(4)[1])


def test_numbers_drawn_in_two_goes_are_those_of_one() -> None:
    one, two = (Streams.from_seed(0).sites("s", 0, range(2)) for _ in range(2))
    twice = np.concatenate([one.normal((3,)), one.normal((4,))], axis=1)
    assert np.array_equal(twice, two.normal((7,)))


def test_seeded_noise_differs_by_site_round_purpose_and_root() -> None:
    source, other = (NoiseSource.seeded(Streams.from_seed(i)) for i in range(2))
    draws = [
        source.sites(0, [0]),
        source.sites(0, [1]),
        source.sites(1, [0]),
        other.sites(0, [0]),
        source.server("cohort", 0),
        source.server("noise", 0),
        source.server("cohort", 1),
        Streams.from_seed(0).sites("local", 0, [0]),
        source.sites(0, [0]).child("a"),
        source.sites(0, [0]).child("a", 1),
        source.sites(0, [0]).split(2).take([1]),
    ]
    assert len({draw.words(1).tobytes() for draw in draws}) == len(draws)


def test_a_stack_takes_part_of_its_streams_where_they_stand() -> None:
    draws = Streams.from_seed(0).sites("s", 0, range(3))
    draws.words(2)
    later = draws.take([1]).words(1)[0]
    fresh = Streams.from_seed(0).sites("s", 0, [1]).words(3)[0]
    assert later == fresh[2]
    assert draws.words(1)[1] != later, "the same stream went on"


def test_one_stream_does_not_serve_two_sites() -> None:
    with pytest.raises(PrivacyError, match="each of 2"):
        NoiseSource.system().sites(0, [0]).check(2)


def test_a_noise_source_cannot_be_copied_saved_or_sent() -> None:
    sources = (NoiseSource.system(), NoiseSource.seeded(Streams.from_seed(0)))
    for source in (*sources, *(s.sites(0, [0]) for s in sources)):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never copied"):
                act(source)


@pytest.mark.parametrize("make", sources())
def test_two_draws_differ(make) -> None:
    draws = make().sites(0, range(2))
    first, second = draws.normal((8,)), draws.normal((8,))
    assert len({row.tobytes() for row in (*first, *second)}) == 4


def test_a_forked_process_draws_other_noise() -> None:
    source = NoiseSource.system()
    held = source.sites(0, [0])
    held.normal((4,))
    draws = []
    for _ in range(2):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            os.write(write, held.normal((4,)).tobytes())
            os._exit(0)
        os.waitpid(pid, 0)
        draws.append(os.read(read, 32))
        os.close(read)
        os.close(write)
    draws.append(held.normal((4,)).tobytes())
    assert len(set(draws)) == 3


DRAWN = {
    "words": lambda draws: draws.words(1),
    "uniform": lambda draws: draws.uniform(1),
    "coins": lambda draws: draws.coins(1, 0.5),
    "normal": lambda draws: draws.normal((1,)),
    "child": lambda draws: draws.child("a").words(1),
    "take": lambda draws: draws.take([0]).words(1),
    "split": lambda draws: draws.split(2).words(1),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
@pytest.mark.parametrize("server", [False, True])
def test_every_draw_of_system_noise_takes_32_fresh_bytes(
    draw, server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    urandom = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: (taken.append(n), urandom(n))[1])
    source = NoiseSource.system()
    draws = source.server("noise", 0) if server else source.sites(0, [0])
    for _ in range(3):
        before = sum(taken)
        draw(draws)
        assert sum(taken) - before >= 32


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


def test_what_one_site_takes_from_a_system_generator_moves_no_other() -> None:
    """Ties are broken with it: how many a site had must not show in another's subset."""
    draws = NoiseSource.system().sites(0, [0, 1])
    assert draws.generator(0) is not draws.generator(1)
    assert draws.generator(0).random() != draws.generator(0).random()
