import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.schema import Schema
from understudy.evaluation import frechet, inception
from understudy.evaluation.compare import evaluate
from understudy.evaluation.frechet import CNN_DISTANCE, FID, frechet_distance, measure_frechet
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import students
from understudy.rng import Streams

IMAGES = Schema("image", "dots", 9, classes=("dark", "light"), shape=(5, 5))


@pytest.fixture(autouse=True)
def short(shorten: Callable[[int], None]) -> None:
    shorten(60)


def cloud(mean: np.ndarray, cover: np.ndarray) -> np.ndarray:
    """Rows with exactly this mean and covariance."""
    x = np.random.default_rng(0).normal(size=(40, len(mean)))
    x -= x.mean(0)
    x = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T)).T) @ np.linalg.cholesky(cover).T
    return x + mean


def images(n: int, seed: int, shift: float = 0.0) -> Rows:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, n)
    x = np.clip(draw.random((n, 25)) * 0.5 + 0.4 * y[:, None] + shift, 0, 1)
    return Rows(x.astype(np.float32), y)


def measure(synthetic: Rows, **given: object) -> frechet.Frechet:
    streams = Streams.from_seed(0)
    return measure_frechet(IMAGES, synthetic, images(150, 1), images(150, 2), rng=streams, **given)


def test_distance_of_known_gaussians_is_the_closed_form() -> None:
    first, second = np.diag([4.0, 1.0, 9.0]), np.diag([1.0, 1.0, 16.0])
    a, b = cloud(np.zeros(3), first), cloud(np.array([3.0, 0.0, 4.0]), second)
    expected = 25 + (2 - 1) ** 2 + 0 + (3 - 4) ** 2
    assert frechet_distance(a, b) == pytest.approx(expected)


def test_distance_of_covariances_that_do_not_commute_agrees_with_a_general_root() -> None:
    from scipy.linalg import sqrtm

    first, second = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, -0.4], [-0.4, 2.0]])
    a, b = cloud(np.zeros(2), first), cloud(np.zeros(2), second)
    expected = np.trace(first + second - 2 * np.real(sqrtm(first @ second)))
    assert frechet_distance(a, b) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(2, 30), st.integers(1, 12), st.integers(0, 10**6))
def test_distance_is_zero_to_itself_symmetric_and_moves_with_the_mean(
    n: int, m: int, width: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(n, width)), 2 * draw.normal(size=(m, width))
    scale = 1 + np.square(a).sum() + np.square(b).sum()
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-7 * scale)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), abs=1e-7 * scale)
    assert frechet_distance(a, a + 3) == pytest.approx(9 * width, rel=1e-6, abs=1e-7 * scale)


def test_constant_features_have_a_distance() -> None:
    assert frechet_distance(np.zeros((5, 3)), np.ones((4, 3))) == pytest.approx(3)


def test_worse_images_are_further_away_and_real_ones_give_the_floor() -> None:
    good, bad = (measure(images(150, 3, shift)).scores[0] for shift in (0.0, 0.1))
    assert good.name == CNN_DISTANCE and good.real == bad.real
    assert good.synthetic.value < bad.synthetic.value
    assert bad.real is not None and bad.synthetic.low > bad.real.value
    assert bad.synthetic.low < bad.synthetic.value < bad.synthetic.high


def test_same_streams_give_the_same_distance() -> None:
    assert measure(images(150, 3)) == measure(images(150, 3))


def test_few_images_are_noted_and_too_few_are_left_out() -> None:
    assert measure(images(150, 3)).notes == ()
    assert "100 images for 128 features" in measure(images(100, 3)).notes[0]
    assert measure(images(1, 3)) == frechet.Frechet()


def test_without_classes_to_learn_there_is_a_note_and_no_distance() -> None:
    one = Rows(images(20, 1).x, np.zeros(20, np.int64))
    found = measure_frechet(IMAGES, one, one, one, rng=Streams.from_seed(0))
    assert found.scores == () and "two or more classes" in found.notes[0]


def test_names_cannot_be_mistaken_for_each_other() -> None:
    assert FID != CNN_DISTANCE and "not FID" in CNN_DISTANCE
    assert len(set(students(IMAGES))) == 3


def fake_inception(monkeypatch: pytest.MonkeyPatch) -> inception.Inception:
    """Eight numbers per image instead of 2048: the network itself is tested on its own."""

    def cheap(network: object, schema: object, x: np.ndarray, **ignored: object) -> np.ndarray:
        return x[:, :8]

    monkeypatch.setattr(inception, "inception_features", cheap)
    return inception.Inception({}, "ab" * 32)


def test_fid_stands_beside_the_other_and_names_its_weights(monkeypatch) -> None:
    network = fake_inception(monkeypatch)
    found = measure(images(150, 3), inception=network)
    assert [score.name for score in found.scores] == [CNN_DISTANCE, FID]
    x = images(150, 3).x[:, :8]
    assert found.scores[1].synthetic.value == frechet_distance(x, images(150, 2).x[:, :8])
    assert "150 synthetic and 150 real" in found.remarks[1] and "abab" in found.remarks[1]


@pytest.mark.slow
def test_report_shows_both_for_images_only(
    image_release, image_records, table_release, table_records, tmp_path: Path, monkeypatch
) -> None:
    network = fake_inception(monkeypatch)
    monkeypatch.setattr(inception, "load_inception", lambda path: network)
    seen: list[int] = []
    scores = evaluate(
        image_release,
        image_records,
        tmp_path / "images",
        inception="weights.safetensors",
        progress=lambda stage, done, total: seen.append(done),
    )
    assert seen == sorted(seen)
    page = scores.report.read_text()
    assert FID in page and CNN_DISTANCE in page and "never with an FID" in page
    fidelity = json.loads(scores.path.read_text())["fidelity"]
    assert fidelity["mark"].startswith("internal") and len(fidelity["remarks"]) == 3
    assert {FID, CNN_DISTANCE} < {score["name"] for score in fidelity["overall"]}
    table = evaluate(table_release, table_records, tmp_path / "table").report.read_text()
    assert "Fréchet" not in table and "FID" not in table
