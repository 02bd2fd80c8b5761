import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

from understudy.evaluation.score import (
    auc,
    distance,
    interval,
    plain,
    resample,
    score_accuracy,
    score_auc,
    score_commonest,
    score_f1,
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


def test_accuracy_counts_right_answers() -> None:
    score = score_accuracy(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]))
    assert (score.value, score.n) == (0.75, 4)
    assert score.low < 0.75 < score.high


def test_the_commonest_class_is_right_as_often_as_it_occurs() -> None:
    score = score_commonest(np.array([2, 0, 2, 1, 2]))
    assert (score.name, score.value, score.n) == ("accuracy", 0.6, 5)
    assert score.low < 0.6 < score.high


@pytest.mark.parametrize("classes", [2, 4])
def test_f1_and_auc_agree_with_scikit_learn(classes: int) -> None:
    draw = np.random.default_rng(0)
    truth = draw.integers(0, classes, 300)
    probability = draw.dirichlet(np.ones(classes), 300).round(1) + 0.5 * np.eye(classes)[truth]
    probability /= probability.sum(1, keepdims=True)
    guess = probability.argmax(1)
    f1 = score_f1(truth, guess, classes, rng=rng())
    area = score_auc(truth, probability, classes, rng=rng())
    assert f1 is not None and area is not None
    expected = f1_score(truth, guess, average="binary" if classes == 2 else "macro")
    assert f1.value == pytest.approx(expected)
    ranked = probability[:, 1] if classes == 2 else probability
    assert area.value == pytest.approx(roc_auc_score(truth, ranked, multi_class="ovr"))
    assert f1.low < f1.value < f1.high and area.low < area.value < area.high


def test_auc_of_one_class_is_undefined_rather_than_wrong() -> None:
    truth = np.zeros(5, np.int64)
    assert score_auc(truth, np.full((5, 2), 0.5), 2, rng=rng()) is None
    assert score_f1(truth, truth, 2, rng=rng()) is None


def test_ties_count_half() -> None:
    area = auc(np.zeros(4), np.array([True, False, True, False]), np.ones((1, 4)))
    assert area == pytest.approx(0.5)


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


def test_score_is_plain_data() -> None:
    score = score_accuracy(np.array([1]), np.array([1]))
    assert set(plain(score)) == {"name", "value", "low", "high", "n"}
