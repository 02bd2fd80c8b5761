import numpy as np
import pytest
from sklearn.metrics import f1_score, mean_absolute_error, r2_score, roc_auc_score

from understudy.evaluation.measures import (
    Measure,
    absolute_error,
    accuracy,
    auc,
    commonest,
    compare,
    explained,
    f1,
    scorable,
)


def test_accuracy_counts_right_answers() -> None:
    score = accuracy(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0])).score()
    assert (score.value, score.n) == (0.75, 4)
    assert score.low < 0.75 < score.high


def test_the_commonest_class_is_right_as_often_as_it_occurs() -> None:
    truth = np.array([2, 0, 2, 1, 2])
    score = accuracy(truth, commonest(truth)).score()
    assert (score.name, score.value, score.n) == ("accuracy", 0.6, 5)
    assert score.low < 0.6 < score.high


def answers(classes: int, n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, classes, n)
    probability = draw.dirichlet(np.ones(classes), n).round(1) + 0.5 * np.eye(classes)[truth]
    return truth, probability / probability.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 4])
def test_f1_and_auc_agree_with_scikit_learn(classes: int) -> None:
    truth, probability = answers(classes)
    guess = probability.argmax(1)
    scored = np.array([1]) if classes == 2 else np.arange(classes)
    found, area = f1(truth, guess, scored), auc(truth, probability, scored)
    assert found is not None and area is not None
    expected = f1_score(truth, guess, average="binary" if classes == 2 else "macro")
    assert found.value == pytest.approx(expected)
    ranked = probability[:, 1] if classes == 2 else probability
    assert area.value == pytest.approx(roc_auc_score(truth, ranked, multi_class="ovr"))
    for score in (found.score(), area.score()):
        assert 0 <= score.low < score.value < score.high <= 1


def test_r2_and_mae_agree_with_scikit_learn_and_the_mean_explains_nothing() -> None:
    draw = np.random.default_rng(0)
    truth = draw.normal(size=200)
    guess = truth + draw.normal(size=200)
    found, error = explained(truth, guess), absolute_error("MAE", np.abs(truth - guess))
    assert found.value == pytest.approx(r2_score(truth, guess))
    assert error.value == pytest.approx(mean_absolute_error(truth, guess))
    mean = explained(truth, np.full(200, truth.mean())).score()
    assert (mean.value, mean.low, mean.high) == pytest.approx((0, 0, 0), abs=1e-12)


def bootstrapped(truth: np.ndarray, probability: np.ndarray, measure: str) -> float:
    """The spread of a measure over rows drawn again, by brute force."""
    draw, found = np.random.default_rng(9), []
    for _ in range(300):
        rows = draw.integers(0, len(truth), len(truth))
        found.append(measured(truth[rows], probability[rows], measure).value)
    return float(np.std(found))


def measured(truth: np.ndarray, probability: np.ndarray, measure: str) -> Measure:
    if measure == "R²":
        return explained(truth.astype(float), probability[:, 1] * 3)
    made = {
        "F1": f1(truth, probability.argmax(1), np.arange(3)),
        "AUC": auc(truth, probability, np.array([0, 2])),
    }
    made["accuracy"] = accuracy(truth, probability.argmax(1))
    found = made[measure]
    assert found is not None
    return found


@pytest.mark.parametrize("measure", ["accuracy", "F1", "AUC", "R²"])
def test_what_rows_add_has_the_spread_that_resampling_finds(measure: str) -> None:
    truth, probability = answers(3, 400)
    found = measured(truth, probability, measure)
    spread = found.parts.std(ddof=1) / np.sqrt(len(truth))
    assert spread == pytest.approx(bootstrapped(truth, probability, measure), rel=0.2)


def test_two_models_that_say_the_same_differ_by_nothing() -> None:
    truth, probability = answers(3)
    area, again = (auc(truth, probability, np.arange(3)) for _ in range(2))
    assert area is not None and again is not None
    found = compare(area, again, Measure("AUC", 0.5, np.zeros(300)))
    assert found.contrast is not None and found.contrast.lost is not None
    lost = found.contrast.lost
    assert (lost.value, lost.low, lost.high) == (0, 0, 0)
    assert found.contrast.gain == found.contrast.reach or found.contrast.gain.low > 0


def test_less_of_an_error_is_a_gain() -> None:
    errors, guess = np.full(50, 0.1), np.full(50, 0.3)
    found = absolute_error("MAE", errors).over(absolute_error("MAE", guess), "gain")
    assert found.value == pytest.approx(0.2) and found.low == pytest.approx(0.2)


def test_classes_that_are_too_rare_are_not_scored_and_do_not_spoil_the_others() -> None:
    truth, probability = answers(3)
    rare = truth.copy()
    rare[:3] = 3
    wider = np.column_stack([probability, np.zeros(300)])
    assert scorable(rare, 5).tolist() == [0, 1, 2]
    assert auc(rare, wider, scorable(rare, 5)).value > 0.9  # type: ignore[union-attr]
    assert scorable(np.zeros(20, np.int64), 2).size == 0
    none = np.zeros(0, np.int64)
    assert auc(truth, probability, none) is None and f1(truth, truth, none) is None


def test_a_class_that_is_never_answered_counts_as_missed() -> None:
    truth = np.repeat([0, 1, 2], 20)
    guess = np.where(truth == 2, 0, truth)
    probability = np.eye(3)[guess]
    area, score = auc(truth, probability, np.arange(3)), f1(truth, guess, np.arange(3))
    assert area is not None and score is not None
    assert area.value == pytest.approx(roc_auc_score(truth, probability, multi_class="ovr"))
    assert score.value == pytest.approx(f1_score(truth, guess, average="macro"))
