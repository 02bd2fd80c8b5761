from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.recipes.moments import (
    Moments,
    clean_pooled,
    denoise,
    fit_variety,
    shrink_means,
)


def symmetric_noise(d: int, rng: np.random.Generator) -> np.ndarray:
    """Noise of standard deviation 1 on the diagonal and 1/√2 off it."""
    upper = np.triu(rng.standard_normal((d, d)), 1) / np.sqrt(2)
    return upper + upper.T + np.diag(rng.standard_normal(d))


def noisy(
    counts: np.ndarray, mean: np.ndarray, covariance: np.ndarray, std: float, seed: int
) -> Moments:
    rng = np.random.default_rng(seed)
    squares = covariance + mean[:, :, None] * mean[:, None, :]
    d = mean.shape[1]
    return Moments(
        counts + std * rng.standard_normal(len(counts)),
        counts[:, None] * mean + std * rng.standard_normal(mean.shape),
        counts[:, None, None] * squares + std * np.stack([symmetric_noise(d, rng) for _ in counts]),
        std, std, std, np.full(d, 0.4 / d),
    )  # fmt: skip


def truth(d: int = 20, classes: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    counts = np.full(classes, 1000.0)
    mean = rng.normal(0, 0.1, (classes, d))
    shape = rng.normal(0, 1, (d, 3))
    shared = 0.1 * shape @ shape.T / d + 0.005 * np.eye(d)
    wide = np.array([0.5, 1.0, 1.0, 2.0])[:classes]
    return counts, mean, wide[:, None, None] * shared


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b))


def test_without_noise_moments_come_back() -> None:
    counts, mean, covariance = truth()
    found = denoise(noisy(counts, mean, covariance, 0.0, 0))
    np.testing.assert_allclose(found.balance, 0.25)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, atol=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_denoising_comes_closer_than_the_noisy_moments(seed: int) -> None:
    counts, mean, covariance = truth()
    given = noisy(counts, mean, covariance, 25.0, seed)
    n = given.counts[:, None]
    raw_mean = given.sums / n
    raw = given.squares / n[:, :, None] - raw_mean[:, :, None] * raw_mean[:, None, :]
    found = denoise(given)
    assert distance(found.mean, mean) < distance(raw_mean, mean)
    assert distance(found.covariance, covariance) < 0.5 * distance(raw, covariance)


@given(
    std=st.floats(0, 1e6),
    counts=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4),
    seed=st.integers(0, 50),
)
def test_any_noise_gives_finite_gaussians(std: float, counts: list[float], seed: int) -> None:
    held, d = np.array(counts), 5
    mean, covariance = np.zeros((len(held), d)), np.zeros((len(held), d, d))
    found = denoise(noisy(held, mean, covariance, std, seed))
    assert found.balance.sum() == pytest.approx(1) and found.balance.min() >= 0
    assert np.isfinite(found.mean).all() and np.isfinite(found.covariance).all()
    scale = max(1.0, float(np.abs(found.covariance).max()))
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-8 * scale


def test_pure_noise_is_replaced_by_the_expected_variance() -> None:
    rng, expected = np.random.default_rng(0), np.full(30, 0.01)
    found = clean_pooled(symmetric_noise(30, rng), 1.0, expected)
    assert 0.03 <= np.trace(found) <= 1.2  # of 0.3, however far off the measured trace is
    assert np.linalg.eigvalsh(found).max() < 0.3


def test_a_direction_above_the_noise_edge_survives() -> None:
    rng, d = np.random.default_rng(1), 40
    direction = np.ones(d) / np.sqrt(d)
    seen = 30.0 * np.outer(direction, direction) + symmetric_noise(d, rng)
    found = clean_pooled(seen, 1.0, np.full(d, 0.5))
    values, vectors = np.linalg.eigh(found)
    assert abs(vectors[:, -1] @ direction) > 0.95
    assert 0.7 * 30 < values[-1] < 30 * 1.1


def test_means_keep_their_weighted_average_when_shrunk() -> None:
    rng, balance = np.random.default_rng(2), np.array([0.7, 0.2, 0.1])
    mean = rng.normal(0, 1, (3, 6))
    held = shrink_means(mean, balance, np.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(balance @ held, balance @ mean, atol=1e-12)
    assert distance(held, balance @ mean) < distance(mean, balance @ mean)


def test_one_class_has_nothing_to_differ_from() -> None:
    held = shrink_means(np.array([[1.0, 2.0]]), np.array([1.0]), np.array([3.0]))
    np.testing.assert_allclose(held, [[1.0, 2.0]])


def test_variety_is_small_for_noise_and_found_when_real() -> None:
    rng, d = np.random.default_rng(3), 25
    room = np.outer(np.linspace(0.1, 2, d), np.linspace(0.1, 2, d))
    blur = np.full((6, 1, 1), 0.005)
    noise = np.stack([np.sqrt(2 * 0.005) * symmetric_noise(d, rng) for _ in range(6)])
    own = np.stack([np.sqrt(2 * 0.1 * room) * symmetric_noise(d, rng) for _ in range(6)])
    assert fit_variety(noise, blur, room) < 0.01
    assert fit_variety(noise + own, blur, room) == pytest.approx(0.1, rel=0.3)
