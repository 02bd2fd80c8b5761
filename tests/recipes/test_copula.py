from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.encode import Block
from understudy.recipes.copula import latents, rectified, thresholds, within

BLOCKS = (
    Block("n", "numeric", 0, 1),
    Block("b", "boolean", 1, 2),
    Block("c", "categorical", 2, 6),
    Block("c2", "categorical", 6, 8),
)
MEAN = np.array([0.1, 0.3, 0.7, 0.2, 0.09, 0.01, 0.5, 0.5])
EXACT = np.zeros(8)  # no noise on the means


def variance() -> np.ndarray:
    """Independent columns: one-hot blocks as multinomials."""
    matrix = np.diag([0.02, 0.21, *np.zeros(6)])
    for at in (slice(2, 6), slice(6, 8)):
        matrix[at, at] = np.diag(MEAN[at]) - np.outer(MEAN[at], MEAN[at])
    return matrix


def drawn(covariance: np.ndarray, n: int = 40_000) -> np.ndarray:
    rng = np.random.default_rng(0)
    place, factor = latents(MEAN, covariance, BLOCKS, blur=EXACT, rng=rng)
    return place + rng.standard_normal((n, len(MEAN))) @ factor.T


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.95))
def test_clipped_normals_have_the_moments_asked_for(mean: float, share: float) -> None:
    variance = share * mean * (1 - mean)
    centre, width = rectified(np.array([mean]), np.array([variance]))
    z = np.linspace(-8, 8, 200_001)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    clipped = np.clip(centre[0] + width[0] * z, 0, 1)
    first = float(density @ clipped)
    assert first == pytest.approx(mean, abs=2e-3)
    if width[0] < 3.9:  # the widest latent allowed
        assert float(density @ clipped**2) - first**2 == pytest.approx(variance, abs=3e-3)


@given(st.floats(-0.39, 1.39), st.floats(0.05, 3.0))  # no further out than 8 deviations
def test_a_noisy_mean_is_read_as_what_a_mean_within_bounds_can_be(seen: float, std: float) -> None:
    """The average of all means in [0, 1] that could have been seen like this."""
    grid = np.linspace(0, 1, 20_001)
    weight = np.exp(-(((seen - grid) / std) ** 2) / 2)
    found = float(within(np.array([seen]), np.array([std]))[0])
    assert found == pytest.approx(float(weight @ grid / weight.sum()), abs=1e-3)


def test_a_mean_without_noise_stays_and_one_far_outside_is_at_its_bound() -> None:
    means, noise = np.array([0.2, 0.9, -9.0, 9.0]), np.array([0.0, 1e-4, 1e-3, 1e-3])
    np.testing.assert_allclose(within(means, noise), [0.2, 0.9, 0, 1], atol=2e-3)


def test_a_class_whose_mean_is_lost_in_noise_does_not_pile_up_at_the_bound() -> None:
    """All zeros in one class and none in the other would be what a tree splits by."""
    mean, covariance = np.array([-0.03, *MEAN[1:]]), variance()
    covariance[0, 0] = 0.001
    draws = np.random.default_rng(0).standard_normal((10_000, 8))
    zeros = {}
    for noise in (0.0, 0.05):
        rng, blur = np.random.default_rng(0), np.full(8, noise)
        place, factor = latents(mean, covariance, BLOCKS, blur=blur, rng=rng)
        zeros[noise] = float(((place + draws @ factor.T)[:, 0] <= 0).mean())
    assert zeros[0.0] > 0.9 and zeros[0.05] < 0.4


def test_categories_come_up_as_often_as_their_means_say() -> None:
    choice = drawn(variance())[:, 2:6].argmax(1)
    found = np.bincount(choice, minlength=4) / len(choice)
    np.testing.assert_allclose(found, MEAN[2:6], atol=0.02)
    assert 0.003 < found[3] < 0.03  # the rare one is neither lost nor inflated


def test_numbers_and_flags_keep_their_margins() -> None:
    rows = drawn(variance())
    dose = np.clip(rows[:, 0], 0, 1)
    assert dose.mean() == pytest.approx(0.1, abs=0.01)
    assert dose.var() == pytest.approx(0.02, abs=0.003)
    assert (rows[:, 1] > 0.5).mean() == pytest.approx(0.3, abs=0.02)


def test_dependence_between_columns_survives() -> None:
    covariance = variance()
    covariance[1, 6] = covariance[6, 1] = 0.15
    covariance[1, 7] = covariance[7, 1] = -0.15
    rows = drawn(covariance)
    flag, first = rows[:, 1] > 0.5, rows[:, 6:8].argmax(1) == 0
    assert np.cov(flag, first)[0, 1] == pytest.approx(0.15, abs=0.04)


@pytest.mark.parametrize("mean", [np.full(8, -1.0), np.zeros(8), np.full(8, 9.0)])
def test_means_out_of_range_are_put_right(mean: np.ndarray) -> None:
    for covariance in (np.zeros((8, 8)), 5 * np.ones((8, 8))):
        rng = np.random.default_rng(0)
        place, factor = latents(mean, covariance, BLOCKS, blur=EXACT, rng=rng)
        assert np.isfinite(place).all() and np.isfinite(factor).all()


def test_a_category_that_never_occurs_stays_away() -> None:
    draws = np.random.default_rng(0).standard_normal((8192, 3))
    shift = thresholds(draws, np.array([0.6, 0.4, 0.0]))
    share = np.bincount((draws + shift).argmax(1), minlength=3) / len(draws)
    np.testing.assert_allclose(share, [0.6, 0.4, 0.0], atol=0.02)
