"""The discrete Gaussian against its exact chances."""

from __future__ import annotations

import math
from decimal import localcontext

import numpy as np
import pytest
from scipy import stats

from understudy.errors import PrivacyError
from understudy.privacy import discrete
from understudy.privacy.discrete import REACH, TAIL, DiscreteGaussian, discrete_gaussian
from understudy.rng import Draws, NoiseSource, Streams


def source(sites: int = 1, seed: int = 0) -> Draws:
    return NoiseSource.seeded(Streams.from_seed(seed)).sites(0, range(sites))


def pmf(variance: float) -> tuple[np.ndarray, np.ndarray]:
    """All integers within 12 σ and their chances."""
    reach = math.ceil(12 * math.sqrt(variance))
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-(k**2) / (2 * variance))
    return k, mass / mass.sum()


def p_value(drawn: np.ndarray, variance: float) -> float:
    """Of the chi-square test, over integers joined to at most 200 cells."""
    k, chance = pmf(variance)
    found = np.bincount(np.clip(drawn, k[0], k[-1]) - k[0], minlength=len(k))
    cell = np.minimum(np.floor(np.cumsum(chance) * 200), 199)
    expected, seen = (np.bincount(np.unique(cell, return_inverse=True)[1], w)
                      for w in (chance * len(drawn), found))  # fmt: skip
    assert len(expected) > 3
    return float(stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("variance", [0.5, 3.7, 81.0, 2000.3])
def test_every_integer_has_its_exact_chance(variance: float) -> None:
    drawn = discrete_gaussian(variance).draw(source(), 60_000)[0]
    assert p_value(drawn, variance) > 1e-4
    assert p_value(drawn, 0.9 * variance) < 1e-4, "the test would not notice a smaller σ"


def test_noise_of_the_operating_system_follows_it_too() -> None:
    drawn = discrete_gaussian(81.0).draw(NoiseSource.system().sites(0, [0]), 60_000)[0]
    assert p_value(drawn, 81.0) > 1e-7


def test_doubles_decide_as_exact_arithmetic_does(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = discrete_gaussian(900.0).draw(source(2), 150)
    monkeypatch.setattr(discrete, "_UNSURE", 2.0)
    assert np.array_equal(DiscreteGaussian(900.0).draw(source(2), 150), quick)


def test_a_level_at_the_chance_itself_is_decided_with_more_bits() -> None:
    made = discrete_gaussian(900.0)
    k, bucket = 31, int(np.searchsorted(made.first, 31, side="right")) - 1
    mass = math.exp(-(31**2 - float(made.nearest[bucket]) ** 2) / 1800)
    answers = {made._keeps(k, bucket, int(mass * 2**64) + off, source()) for off in (-4096, 4096)}
    assert answers == {True, False}


def test_no_bucket_promises_less_than_its_integers_need() -> None:
    made = discrete_gaussian(900.0)
    with localcontext() as context:
        context.prec = 100
        for weight, near in zip(made.chances.weights, made.nearest, strict=True):
            assert made._mass(int(near)) * made._scale <= weight


def test_a_site_draws_the_same_alone_and_in_a_stack() -> None:
    made = discrete_gaussian(50.0)
    stacked = made.draw(source(5), 40)
    alone = [made.draw(source(5).take([i]), 40)[0] for i in range(5)]
    assert np.array_equal(stacked, np.stack(alone))


def test_what_is_left_out_is_beyond_its_reach() -> None:
    made = discrete_gaussian(100.0)
    assert made.first[0] <= -REACH * 10 and made.first[-1] >= REACH * 10
    far = np.arange(160, 400)
    assert 2 * np.exp(-(far**2) / 200).sum() / math.sqrt(200 * math.pi) < TAIL < 1e-50


@pytest.mark.parametrize("variance", [0.0, 0.1, math.nan, math.inf, 2.0**100, -1.0])
def test_noise_that_cannot_be_drawn_exactly_is_refused(variance: float) -> None:
    with pytest.raises(PrivacyError, match="discrete noise"):
        DiscreteGaussian(variance)
