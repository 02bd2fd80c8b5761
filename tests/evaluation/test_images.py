import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.images import score_images
from understudy.nets.student import StudentTraining
from understudy.rng import Streams

SCHEMA = Schema("image", "halves", 9, classes=("left", "right"), shape=(6, 6))


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Bright on the left or on the right."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, n)
    x = draw.random((n, 6, 6)) * 0.6
    x[y == 0, :, :3] += 0.4
    x[y == 1, :, 3:] += 0.4
    return x.reshape(n, 36), y


def score(x: np.ndarray, y: np.ndarray, seed: int = 0) -> dict[str, float]:
    how = StudentTraining(steps=120, rate=1e-3, penalty=1e-4)
    return score_images(x, y, *halves(100, 1), SCHEMA, rng=Streams.from_seed(seed), training=how)


def test_three_classifiers_learn_what_can_be_learnt_and_repeat_it() -> None:
    found = score(*halves(200, 0))
    assert list(found) == [
        "logistic regression",
        "multi-layer perceptron",
        "convolutional network",
    ]
    assert all(0.95 < accuracy <= 1 for accuracy in found.values())
    assert found == score(*halves(200, 0))


def test_one_class_to_learn_from_gives_its_share_of_the_test_rows() -> None:
    x, _ = halves(20, 0)
    share = (halves(100, 1)[1] == 1).mean()
    assert set(score(x, np.ones(20, np.int64)).values()) == {share}
