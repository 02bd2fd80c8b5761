import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.evaluation.score import (
    compare_distances,
    distance,
    interval,
    plain,
    resample,
    wilson,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_wilson_agrees_with_a_published_value() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_holds_the_share_and_stays_in_the_unit_interval(hits: int, misses: int) -> None:
    n = hits + misses
    low, high = wilson(hits, n)
    assert 0 <= low <= high <= 1
    assert n == 0 or (low <= hits / n <= high and low < high)


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        x = draw.normal(size=60)
        weights = resample(60, rng=draw)
        score = interval("mean", x.mean(), weights @ x / 60, 60)
        covered += score.low <= 0 <= score.high
    assert 0.88 <= covered / 200 <= 0.99


def test_resampled_rows_sum_to_the_number_of_rows() -> None:
    weights = resample(7, rng=rng(), times=5)
    assert weights.shape == (5, 7)
    assert (weights.sum(1) == 7).all()


def test_distance_interval_holds_its_value_though_resampling_adds_to_it() -> None:
    score = distance("apart", np.concatenate([[0.1], np.linspace(0.12, 0.2, 50)]), 9)
    assert score.low < 0.1 < score.high
    assert distance("apart", np.array([0.0, 0.3, 0.1]), 9).low == 0


def test_score_is_plain_data_without_negative_zeros() -> None:
    found = plain(interval("gain", -1e-9, np.zeros(3), 5))
    assert set(found) == {"name", "value", "low", "high", "n"}
    assert str(found["value"]) == "0.0"


def test_distances_are_contrasted_on_the_same_draws() -> None:
    """A spread that all sides share says nothing about their differences."""
    shared = np.concatenate([[0.0], rng().normal(0, 0.1, 80)])
    draws = {"synthetic": 0.4 + shared, "real": 0.3 + shared, "guess": 0.9 + shared}
    found = compare_distances("apart", draws, 100)
    assert found.contrast is not None and found.contrast.lost is not None
    assert found.contrast.lost.value == pytest.approx(0.1)
    assert found.contrast.lost.high == pytest.approx(0.1)
    assert found.contrast.gain.value == pytest.approx(0.5)
    assert found.contrast.reach is not None and found.contrast.reach.value == pytest.approx(0.6)
    alone = compare_distances("apart", {"synthetic": draws["synthetic"]}, 100)
    assert (alone.real, alone.guess, alone.contrast) == (None, None, None)
