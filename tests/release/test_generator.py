from __future__ import annotations

import pytest
import torch

from understudy.errors import ReleaseError
from understudy.release.bundle import Release
from understudy.release.generator import Generator
from understudy.rng import Streams


def test_only_known_kinds_can_be_made(made: Release) -> None:
    for kind in ("pickle", "os.system", "", None):
        with pytest.raises(ReleaseError, match="kind"):
            Generator(kind, made.generator.arrays, {"width": 3}, (1.0,))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(made: Release, bad: float) -> None:
    arrays = {**made.generator.arrays, "mean": torch.full((2, 3), bad)}
    with pytest.raises(ReleaseError, match="finite"):
        Generator("gaussian", arrays, {"width": 3}, (0.5, 0.5))


@pytest.mark.parametrize("balance", [(), (0.5, 0.6), (-0.5, 1.5), (float("nan"), 1.0)])
def test_class_proportions_must_add_up(made: Release, balance: tuple[float, ...]) -> None:
    with pytest.raises(ReleaseError, match="proportions"):
        Generator("gaussian", made.generator.arrays, {"width": 3}, balance)


def test_rows_are_encoded_values_in_zero_and_one(made: Release) -> None:
    labels = torch.tensor([0, 1] * 50).numpy()
    found = made.generator.sample(labels, rng=Streams.from_seed(0))
    assert found.shape == (100, 3) and found.min() >= 0 and found.max() <= 1
    assert torch.equal(found, made.generator.sample(labels, rng=Streams.from_seed(0)))
    assert made.generator.sample(labels[:0], rng=Streams.from_seed(0)).shape == (0, 3)


def mixture(made: Release, share: float) -> Generator:
    other = {**made.generator.arrays, "mean": torch.ones(2, 3), "factor": torch.zeros(2, 3, 3)}
    return made.generator.mixed(Generator("gaussian", other, {"width": 3}, (0.5, 0.5)), share)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixture_draws_by_its_shares(made: Release, share: float) -> None:
    labels = torch.zeros(2000, dtype=torch.long).numpy()
    found = mixture(made, share).sample(labels, rng=Streams.from_seed(0))
    other = float((found == 1).all(1).float().mean())
    assert abs(other - share) < 0.05
    assert torch.equal(found, mixture(made, share).sample(labels, rng=Streams.from_seed(0)))


@pytest.mark.parametrize("part", [{"share": 2.0}, {"kind": "mixture"}, {"config": None}])
def test_an_altered_mixture_is_refused(made: Release, part: dict) -> None:
    whole = mixture(made, 0.5)
    parts = [{**whole.config["parts"][0], **part}, whole.config["parts"][1]]
    altered = Generator("mixture", whole.arrays, {**whole.config, "parts": parts}, (0.5, 0.5))
    with pytest.raises(ReleaseError, match="shares"):
        altered.sample(torch.zeros(3, dtype=torch.long).numpy(), rng=Streams.from_seed(0))


def test_contrast_takes_images_smoothly_to_black_and_white(made: Release) -> None:
    labels = torch.zeros(100, dtype=torch.long).numpy()
    plain = made.generator.sample(labels, rng=Streams.from_seed(0))
    config = {**made.generator.config, "contrast": 8.0}
    strong = Generator("gaussian", made.generator.arrays, config, (0.5, 0.5))
    found = strong.sample(labels, rng=Streams.from_seed(0))
    assert torch.equal(found > 0.5, plain > 0.5) and float(found.min()) > 0
