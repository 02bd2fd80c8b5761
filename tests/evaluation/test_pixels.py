import numpy as np
import pytest

from understudy.data.schema import Schema
from understudy.evaluation.pixels import mean_images, pixel_scores
from understudy.evaluation.rows import Rows

SCHEMA = Schema("image", "i", 9, classes=("a", "b"), shape=(2, 2))


def rows(level: float, classes: list[int]) -> Rows:
    return Rows(np.full((len(classes), 4), level, np.float32), np.array(classes))


def values(side: Rows, test: Rows) -> dict[str, float]:
    found = pixel_scores(SCHEMA, side, test, rng=np.random.default_rng(0))
    return {s.name: s.value for s in found}


def test_distance_of_flat_images_is_their_difference_in_level() -> None:
    found = values(rows(0.75, [0, 1]), rows(0.25, [0, 1, 1]))
    assert found == pytest.approx(
        {"mean-image distance": 0.5, "pixel mean difference": 0.5, "pixel spread difference": 0}
    )


def test_empty_class_has_no_mean_image() -> None:
    means = mean_images(SCHEMA, rows(0.5, [0]))[0]
    assert (means[0] == 0.5).all() and np.isnan(means[1]).all()


def test_without_a_shared_class_the_mean_image_distance_is_left_out() -> None:
    assert "mean-image distance" not in values(rows(0.5, [0]), rows(0.5, [1]))
