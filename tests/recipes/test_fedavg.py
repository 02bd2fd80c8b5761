"""Local training: what a study's ``[training]`` asks of sites."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.data.encode import Encoded
from understudy.data.shards import Shards
from understudy.recipes.fedavg import Local
from understudy.rng import Draws, Streams
from understudy.study import Training
from understudy.training import batches
from understudy.training.loop import Batch
from understudy.training.optim import Adam, Sgd


def shards() -> Shards:
    """Sites of four rows and of none."""
    x = np.arange(4, dtype=np.float32)[:, None]
    return Shards.pack(Encoded(x, np.zeros(4, np.int64)), [np.arange(4), np.arange(0)])


def draws() -> Draws:
    return Streams.from_seed(0).sites("local", 0, range(2))


def distance(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """Half the weighted squared distance to the rows."""
    return (batch.weight * (params["w"] - batch.x[..., 0]).square()).sum(1) / 2


def test_one_pass_of_plain_sgd_moves_towards_the_mean_and_an_empty_site_not_at_all() -> None:
    how = Local(Training(epochs=1, batch=4, optimiser="sgd", rate=0.5))
    start = {"w": torch.full((2, 1), 3.5)}
    trained, _ = how.train(start, distance, shards(), rng=draws())
    torch.testing.assert_close(trained["w"], torch.tensor([[2.5], [3.5]]))
    assert torch.equal(start["w"], torch.full((2, 1), 3.5)), "the shared model is left alone"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (Training(), Adam(1e-3)),
        (Training(optimiser="sgd"), Sgd(1e-3)),
        (Training(rate=0.2), Adam(0.2)),
    ],
)
def test_adam_unless_the_study_says_otherwise(training: Training, expected: object) -> None:
    assert Local(training).optimiser == expected


def test_epochs_of_the_study_come_before_steps_of_the_recipe() -> None:
    rows, rng = batches.Holdings.of(shards()), draws()
    assert Local(Training(batch=2), steps=3).draw(rows, rng=rng).steps.tolist() == [3, 0]
    told = Local(Training(batch=2, epochs=5), steps=3).draw(rows, rng=rng)
    assert told.steps.tolist() == [10, 0]
