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
