"""Model inversion: what is detected, what is recognised, and of whom."""

from __future__ import annotations

import numpy as np
import torch

from understudy.data.schema import Schema
from understudy.evaluation.attacks.inversion import (
    _own,
    _targets,
    detector,
    invert,
    measure_inversion,
)
from understudy.evaluation.rows import Rows
from understudy.nets.student import Student, logits, predict
from understudy.rng import Streams

from ..conftest import IMAGES, image_rows

WIDE = Schema("image", "bars", 600, classes=("lying", "standing"), shape=(9, 8, 3))


def rows(n: int, seed: int) -> Rows:
    found = image_rows(n, np.random.default_rng(seed))
    return Rows(found.x, found.y)


def bars(n: int, seed: int) -> Rows:
    """A bar of some colour, lying or standing somewhere."""
    rng = np.random.default_rng(seed)
    x, y = np.zeros((n, 9, 8, 3), np.float32), rng.integers(0, 2, n)
    for image, standing, place in zip(x, y, rng.integers(1, 7, n), strict=True):
        colour = rng.uniform(0.5, 1, 3)
        if standing:
            image[:, place] = colour
        else:
            image[place] = colour
    return Rows(x.reshape(n, -1), y)


def measured(schema: Schema, synthetic: Rows, real: Rows, other: Rows):
    rng = Streams.from_seed(0)
    return measure_inversion(schema, synthetic, real, other, rng=rng, tick=lambda *done: None)


def test_a_detector_can_say_that_something_is_no_image() -> None:
    spec, eye = detector(WIDE, bars(600, 1), rng=Streams.from_seed(0))
    unseen, rng = bars(200, 2), np.random.default_rng(0)

    def told(x: np.ndarray) -> np.ndarray:
        return predict(spec, eye, torch.from_numpy(x.astype(np.float32))).argmax(1).numpy()

    assert (told(unseen.x) == unseen.y).mean() > 0.9
    assert (told(rng.random(unseen.x.shape)) == 2).mean() > 0.9
    assert (told(rng.permuted(unseen.x, axis=1)) == 2).mean() > 0.9


def test_a_classifier_of_noise_shows_no_image() -> None:
    real, other = rows(300, 1), rows(300, 2)
    noise = Rows(np.random.default_rng(0).random(real.x.shape, np.float32), real.y)
    found = measured(IMAGES, noise, real, other)
    assert found.real.detected.value > 0.8 and found.seen.value > 0.7
    assert found.synthetic.detected.value < 0.5 * found.real.detected.value
    assert found.pictures.shape == (3, 2, 36) and 0 <= found.pictures.min()
    assert found.pictures.max() <= 1 and found.chance == 0.1
    assert set(found.plain) >= {"real: detected", "synthetic: controls recognised"}


def test_answers_that_say_everything_give_the_image_back() -> None:
    spec = Student((36,), 36, hidden=())
    model = {"dense0.weight": 20 * torch.eye(36), "dense0.bias": torch.zeros(36)}
    x = np.random.default_rng(0).random((8, 36)).astype(np.float32)
    answers = torch.log_softmax(logits(spec, model, torch.from_numpy(x)), 1)
    found = invert(spec, model, answers, (6, 6), rng=torch.Generator().manual_seed(0))
    alike = np.corrcoef(found.numpy(), x)[:8, 8:]
    assert (alike.diagonal() > 0.95).all()


def test_an_image_is_recognised_only_among_its_class_and_never_in_a_tie() -> None:
    x = np.eye(4, dtype=np.float32)
    side = Rows(x, np.array([0, 0, 1, 1]))
    assert _own(x, side).all()
    assert not _own(np.ones_like(x), side).any()
    swapped = x[[1, 0, 2, 3]]
    assert _own(swapped, side).tolist() == [False, False, True, True]


def test_targets_are_equally_many_of_each_class_or_none() -> None:
    members, controls = Rows(np.zeros((5, 1)), np.array([0, 0, 0, 1, 1])), np.array([0, 0, 1])
    found = _targets(members, Rows(np.zeros((3, 1)), controls), 2)
    assert found is not None
    assert [side.y.tolist() for side in found] == [[0, 0], [0, 0]]
    assert _targets(members, Rows(np.zeros((2, 1)), np.array([0, 1])), 2) is None
    assert measured(IMAGES, rows(9, 0), rows(40, 1), rows(1, 2)) is None
