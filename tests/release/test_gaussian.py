from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from understudy.errors import ReleaseError
from understudy.release.gaussian import draw
from understudy.release.generator import Generator
from understudy.rng import Streams

ARRAYS = {
    "mean": torch.tensor([[0.2, 0.5, 0.1, 0.0], [0.8, 0.5, 0.0, 0.3]]),
    "factor": 0.05 * torch.eye(4).expand(2, -1, -1).contiguous(),
    "basis": torch.eye(4),
    "origin": torch.zeros(4),
}


def rows(n: int, label: int, seed: int = 0, **config: Any) -> torch.Tensor:
    labels = torch.full((n,), label)
    return draw(ARRAYS, {"width": 4, **config}, labels, rng=Streams.from_seed(seed))


def test_rows_follow_the_gaussian_of_their_class() -> None:
    for label in (0, 1):
        x = rows(4000, label)[:, :2]
        np.testing.assert_allclose(x.mean(0), ARRAYS["mean"][label, :2], atol=0.005)
        np.testing.assert_allclose(x.std(0), 0.05, atol=0.005)


def test_labels_may_be_mixed_or_absent() -> None:
    labels = torch.tensor([1, 0, 1, 0])
    x = draw(ARRAYS, {"width": 4}, labels, rng=Streams.from_seed(0))
    assert bool((x[labels == 1, 0] > 0.5).all() and (x[labels == 0, 0] < 0.5).all())
    assert draw(ARRAYS, {"width": 4}, labels[:0], rng=Streams.from_seed(0)).shape == (0, 4)


def test_basis_and_origin_lead_to_the_encoded_row() -> None:
    arrays = {
        "mean": torch.tensor([[1.0, 0.0]]),
        "factor": torch.zeros(1, 2, 1),
        "basis": torch.tensor([[0.1, 0.2, 0.3], [9.0, 9.0, 9.0]]),
        "origin": torch.tensor([0.5, 0.5, 0.5]),
    }
    x = draw(arrays, {"width": 3}, torch.zeros(1, dtype=torch.long), rng=Streams.from_seed(0))
    np.testing.assert_allclose(x, [[0.6, 0.7, 0.8]], rtol=1e-6)


def test_everything_lies_between_zero_and_one() -> None:
    wild = {**ARRAYS, "factor": 50 * torch.eye(4).expand(2, -1, -1).contiguous()}
    x = draw(wild, {"width": 4}, torch.zeros(200, dtype=torch.long), rng=Streams.from_seed(0))
    assert float(x.min()) == 0.0 and float(x.max()) == 1.0


def test_categories_and_flags_come_out_hard() -> None:
    x = rows(300, 1, blocks=[[0, 2]], flags=[3])
    assert set(x[:, :2].unique().tolist()) == {0.0, 1.0}
    assert bool((x[:, :2].sum(1) == 1).all())
    assert set(x[:, 3].unique().tolist()) <= {0.0, 1.0}
    assert len(x[:, 2].unique()) > 2  # a number stays soft


def test_a_seed_gives_the_same_rows_and_leaves_the_arrays_alone() -> None:
    before = {name: value.clone() for name, value in ARRAYS.items()}
    assert torch.equal(rows(10, 0, blocks=[[0, 2]]), rows(10, 0, blocks=[[0, 2]]))
    assert not torch.equal(rows(10, 0), rows(10, 0, seed=1))
    assert all(torch.equal(before[name], ARRAYS[name]) for name in before)


@pytest.mark.parametrize(
    "changed",
    [
        {"arrays": {**ARRAYS, "mean": torch.zeros(2, 3)}},
        {"arrays": {**ARRAYS, "basis": torch.eye(5)}},
        {"arrays": {**ARRAYS, "origin": torch.zeros(5)}},
        {"arrays": {**ARRAYS, "more": torch.zeros(1)}},
        {"arrays": {k: v for k, v in ARRAYS.items() if k != "factor"}},
        {"config": {"width": 4, "blocks": [[2, 9]]}},
        {"config": {"width": 4, "blocks": [[2, 2]]}},
        {"config": {"width": 4, "blocks": [3]}},
        {"config": {"width": 4, "flags": [4]}},
        {"config": {}},
    ],
)
def test_an_altered_release_is_refused(changed: dict[str, Any]) -> None:
    terms: dict[str, Any] = {"arrays": ARRAYS, "config": {"width": 4}, **changed}
    generator = Generator("gaussian", terms["arrays"], terms["config"], (0.5, 0.5))
    with pytest.raises(ReleaseError, match="matching shapes"):
        generator.sample(np.zeros(3, np.int64), rng=Streams.from_seed(0))
