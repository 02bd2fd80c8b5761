"""The selection mechanisms against their formulas: every probability, not samples of a few."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understudy.errors import PrivacyError
from understudy.privacy.choose import choose
from understudy.privacy.plan import Part
from understudy.privacy.select import Selection, law, optimal_output
from understudy.rng import Draws, NoiseSource, Streams

SMALL = [(4, 1, 1), (5, 2, 1), (5, 2, 2), (6, 3, 2), (7, 3, 3), (8, 4, 4), (8, 3, 3), (9, 4, 2)]


def source(sites: int, seed: int = 0) -> Draws:
    return NoiseSource.seeded(Streams.from_seed(seed)).sites(0, range(sites))


def formula(d: int, k: int, h: int, epsilon: float, threshold: int) -> list[float]:
    """P(ν = τ) by whole numbers and the exponential, as the thesis writes it (eq. 3.11)."""
    ways = [math.comb(k, t) * math.comb(d - k, h - t) for t in range(h + 1)]
    scores = [w * math.exp(epsilon * (t >= threshold)) for t, w in enumerate(ways)]
    return [score / sum(scores) for score in scores]


def sent(update: torch.Tensor, rule: Selection, seed: int = 0) -> torch.Tensor:
    return choose(update, rule, source(len(update), seed))


def fits(messages: torch.Tensor, rule: Selection) -> torch.Tensor | None:
    return rule.fits(messages, Part("update", rule.shape, "sum", "client", rule), "site")


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0, 30.0])
@pytest.mark.parametrize(("d", "k", "h"), [*SMALL, (40, 10, 7), (300, 30, 12)])
def test_the_law_is_the_thesis_formula_at_its_best_threshold(d, k, h, epsilon) -> None:
    found = law(d, k, h, epsilon)
    expected = [formula(d, k, h, epsilon, t) for t in range(1, h + 1)]
    means = [sum(tau * p for tau, p in enumerate(e)) for e in expected]
    assert found.probability == pytest.approx(expected[found.threshold - 1], rel=1e-10)
    assert found.share * h == pytest.approx(max(means), rel=1e-10)


def test_one_coordinate_is_perturbed_sampling() -> None:
    for d, k, epsilon in [(10, 3, 1.0), (1000, 50, 4.0), (10**6, 10**5, 8.0)]:
        top = math.exp(epsilon) * k / (d - k + math.exp(epsilon) * k)
        assert law(d, k, 1, epsilon).probability == pytest.approx((1 - top, top), rel=1e-12)


@pytest.mark.parametrize("h", [1, 5, 60])
def test_weights_are_exact_for_a_million_coordinates(h: int) -> None:
    """Against binomials of whole numbers, whose logarithms Python takes exactly."""
    d, k, epsilon = 10**6, 50_000, 4.0
    found = law(d, k, h, epsilon)
    ways = [math.comb(k, t) * math.comb(d - k, h - t) for t in range(h + 1)]
    base = ways[found.threshold - 1]
    for t, p in enumerate(found.probability):
        ratio = math.log(ways[t]) - math.log(base) + epsilon * (t >= found.threshold)
        log = math.log(found.probability[found.threshold - 1]) + ratio
        assert p == pytest.approx(math.exp(log), rel=1e-9)
    assert sum(found.probability) == pytest.approx(1, abs=1e-12)


def chance_of(rule: Selection, hits: int) -> float:
    """Of one output set that holds ``hits`` coordinates of the top set."""
    ways = math.comb(rule.top, hits) * math.comb(rule.pool - rule.top, rule.output - hits)
    return rule.law.probability[hits] / ways


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize(("d", "k", "h"), SMALL)
def test_every_output_probability_and_every_ratio(d, k, h, epsilon) -> None:
    """All outputs for all top sets: they add up to one, and no ratio exceeds e^ε."""
    rule = Selection(d, k, h, epsilon)
    outputs = [set(j) for j in itertools.combinations(range(d), h)]
    table = np.array(
        [
            [chance_of(rule, len(j & set(top))) for j in outputs]
            for top in itertools.combinations(range(d), k)
        ]
    )
    assert table.sum(1) == pytest.approx(np.ones(len(table)), abs=1e-12)
    worst = (table.max(0) / table.min(0)).max()
    assert worst <= math.exp(epsilon) * (1 + 1e-9)
    assert worst == pytest.approx(math.exp(epsilon)), "the budget is not used up"


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize(("subset", "k", "h"), [(4, 2, 1), (4, 2, 2), (3, 1, 1), (4, 1, 1)])
def test_every_ratio_within_drawn_subsets(subset, k, h, epsilon) -> None:
    """SubMDS: the mixture over all subsets, for all orders of five values."""
    rule = Selection(5, k, h, epsilon, subset)
    pools = [set(pool) for pool in itertools.combinations(range(5), subset)]
    outputs = [set(j) for j in itertools.combinations(range(5), h)]

    def chance(order: tuple[int, ...], j: set[int]) -> float:
        tops = [[i for i in order if i in pool][:k] for pool in pools if j <= pool]
        return sum(chance_of(rule, len(j & set(top))) for top in tops) / len(pools)

    table = np.array(
        [[chance(order, j) for j in outputs] for order in itertools.permutations(range(5))]
    )
    assert table.sum(1) == pytest.approx(np.ones(len(table)), abs=1e-12)
    assert (table.max(0) / table.min(0)).max() <= math.exp(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("subset", [None, 5])
@pytest.mark.parametrize(("k", "h", "epsilon"), [(2, 1, 1.0), (2, 2, 0.7), (2, 2, 3.0)])
def test_messages_follow_the_formula(k, h, epsilon, subset) -> None:
    """The sampler against every probability of (sign, ordered output), by chi-square."""
    d, n = 6, 60_000
    values = torch.tensor([0.3, -2.0, 5.0, 0.1, -0.4, 1.0])
    rule = Selection(d, k, h, epsilon, subset)
    messages = sent(values.repeat(n, 1), rule)
    counts = Counter(map(tuple, messages.tolist()))
    pools = list(itertools.combinations(range(d), subset or d))
    expected = {}
    for sign in (1, -1):
        for j in itertools.permutations(range(d), h):
            chance = 0.0
            for pool in pools:
                ranked = sorted(pool, key=lambda i: -sign * float(values[i]))
                if set(j) <= set(pool):
                    chance += chance_of(rule, len(set(j) & set(ranked[:k]))) / len(pools)
            expected[(sign, *j)] = 0.5 * chance / math.factorial(h)
    assert sum(expected.values()) == pytest.approx(1)
    observed = [counts.pop(key, 0) for key in expected]
    assert not counts, "an output that cannot be"
    assert stats.chisquare(observed, [n * p for p in expected.values()]).pvalue > 1e-4


@pytest.mark.slow
def test_large_sizes_by_chi_square() -> None:
    d, k, h, epsilon, n = 20_000, 1_000, 12, 6.0, 4_000
    update = torch.linspace(-1, 1, d)[torch.randperm(d, generator=torch.Generator().manual_seed(1))]
    messages = sent(update.repeat(n, 1), Selection(d, k, h, epsilon))
    order = update.argsort(descending=True)
    rank = torch.empty(d, dtype=torch.long)
    rank[order] = torch.arange(d)
    signs, places = messages[:, 0], rank[messages[:, 1:].long()]
    top = torch.where(signs[:, None] > 0, places < k, places >= d - k)
    hits = np.bincount(top.sum(1).numpy(), minlength=h + 1)
    chances = np.array(law(d, k, h, epsilon).probability) * n
    few = chances < 5
    observed, expected = [hits[few].sum(), *hits[~few]], [chances[few].sum(), *chances[~few]]
    assert stats.chisquare(observed, expected).pvalue > 1e-4
    # the order tells the groups apart nowhere, and within a group all coordinates are alike
    by_place = top.double().mean(0)
    assert float(by_place.std()) < 4 * math.sqrt(0.25 / n)
    inside = places[top & (signs[:, None] > 0)].numpy()
    assert stats.kstest(inside / k, "uniform").pvalue > 1e-4
    outside = places[~top & (signs[:, None] > 0)].numpy()
    assert stats.kstest((outside - k) / (d - k), "uniform").pvalue > 1e-4


def test_ties_are_broken_by_lot() -> None:
    """An update of zeros, or of few values, says nothing by where its ties stand."""
    d, n = 8, 40_000
    rule = Selection(d, 3, 2, 4.0)
    flat = np.bincount(sent(torch.zeros(n, d), rule)[:, 1:].flatten().numpy(), minlength=d)
    assert stats.chisquare(flat).pvalue > 1e-4
    tied = torch.tensor([5.0, 1, 1, 1, 1, 0, 0, 0]).repeat(n, 1)
    messages = sent(tied, rule, 3)
    up = messages[messages[:, 0] == 1][:, 1:].flatten().numpy()
    counts = np.bincount(up, minlength=d)
    assert stats.chisquare(counts[1:5]).pvalue > 1e-4, "tied coordinates differ"
    assert stats.chisquare(counts[5:]).pvalue > 1e-4
    assert counts[0] > 1.2 * counts[1:5].max() > 1.2 * counts[5:].max()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_messages_are_well_formed(data) -> None:
    d = data.draw(st.integers(4, 60))
    pool = data.draw(st.integers(3, d))
    k = data.draw(st.integers(1, pool - 1))
    h = data.draw(st.integers(1, min(k, pool - k)))
    rule = Selection(d, k, h, data.draw(st.floats(0.01, 20)), pool)
    kinds = st.sampled_from([0.0, 1.0, -1.0, 1e30, -3.5])
    update = torch.tensor(data.draw(st.lists(kinds, min_size=3 * d, max_size=3 * d))).reshape(3, d)
    messages = sent(update, rule, data.draw(st.integers(0, 99)))
    assert messages.shape == (3, 1 + h) and bool(fits(messages, rule).all())
    total = torch.zeros(d, dtype=torch.float64)
    rule.accumulate(total, messages)
    assert float(total.abs().sum()) <= 3 * h and float(total.sum()) == h * float(
        messages[:, 0].sum()
    )
    part = Part("update", rule.shape, "sum", "client", rule)
    assert part.bytes == 4 * messages.shape[1]


def test_foreign_messages_are_recognised() -> None:
    rule = Selection(10, 3, 2, 1.0)
    good = torch.tensor([[1, 0, 9], [-1, 4, 3]], dtype=torch.int32)
    bad = torch.tensor([[0, 1, 2], [2, 1, 2], [1, 5, 5], [1, -1, 3], [1, 3, 10]], dtype=torch.int32)
    assert fits(good, rule).tolist() == [True, True]
    assert not fits(bad, rule).any()
    for other in (good.long(), good.double(), good[:, :2], good[:, None]):
        assert fits(other, rule) is None


def test_the_largest_output_that_keeps_its_share() -> None:
    d, k, share = 2000, 1000, 0.8
    for epsilon in (2.0, 4.0, 8.0):
        best = optimal_output(d, k, epsilon, share)
        shares = [law(d, k, h, epsilon).share for h in range(1, 4 * best + 20)]
        passing = [h for h, found in enumerate(shares, 1) if found > share]
        assert best == (max(passing) if passing else 1)
    assert optimal_output(d, 100, 0.5, share) == 1, "no h reaches it: one coordinate"
    assert optimal_output(d, k, 8.0, share) > optimal_output(d, 100, 8.0, share)


@pytest.mark.parametrize(
    "sizes",
    [
        dict(size=10, top=10, output=1),
        dict(size=10, top=12, output=1),
        dict(size=10, top=0, output=1),
        dict(size=10, top=3, output=4),
        dict(size=10, top=3, output=0),
        dict(size=10, top=3, output=11),
        dict(size=10, top=3, output=1, subset=3),
        dict(size=10, top=3, output=1, subset=11),
        dict(size=10, top=3, output=1, epsilon=0.0),
        dict(size=10, top=3, output=1, epsilon=math.nan),
        dict(size=10, top=3, output=1, epsilon=math.inf),
        dict(size=10, top=3, output=1, epsilon=-1.0),
        dict(size=10, top=3, output=1, epsilon=31.0),
        dict(size=10, top=3, output=1.5),
    ],
)
def test_impossible_sizes_are_refused(sizes) -> None:
    with pytest.raises(PrivacyError):
        Selection(**{"epsilon": 1.0, **sizes})


def test_a_share_that_chance_alone_reaches_is_refused() -> None:
    with pytest.raises(PrivacyError, match="top share"):
        optimal_output(100, 90, 1.0, 0.8)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_counts_as_zero(value: float) -> None:
    zeros = torch.zeros(2, 10)
    update = zeros.index_put((torch.tensor([1]), torch.tensor([3])), torch.tensor(value))
    for seed in range(5):
        assert torch.equal(*(sent(u, Selection(10, 3, 1, 1.0), seed) for u in (update, zeros)))


def test_finite_numbers_whose_sum_is_not_are_chosen_from() -> None:
    update = torch.full((1, 10), 3e38)
    update[0, 5:] = 1.0
    message = sent(update.repeat(200, 1), Selection(10, 5, 1, 20.0))
    assert bool(((message[:, 1] < 5) == (message[:, 0] == 1)).all())


def test_an_update_of_another_size_is_refused() -> None:
    with pytest.raises(PrivacyError, match="10 numbers"):
        sent(torch.zeros(2, 9), Selection(10, 3, 1, 1.0))


@pytest.mark.parametrize("k", [26, 27, 0])
def test_a_top_set_of_everything_is_refused_as_such(k: int) -> None:
    """Not by a share of it that nobody asked for."""
    with pytest.raises(PrivacyError, match=r"a top set of 1 to 25 of 26.*recipe\.top"):
        optimal_output(26, k, 4.0, 0.8)
