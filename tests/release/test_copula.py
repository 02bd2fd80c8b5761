from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from understudy.errors import ReleaseError
from understudy.release.copula import check, draw
from understudy.release.generator import Generator
from understudy.rng import Streams

CONFIG: dict[str, Any] = {"width": 5, "blocks": [[2, 4]], "flags": [1], "numbers": [0, 4]}


def arrays() -> dict[str, torch.Tensor]:
    """A number that is 0 below its median and 0.5 to 1 above, one that is always 0.25."""
    return {
        "mean": torch.tensor([[0.0, 0.5, 0.0, 0.0, 0.0], [3.0, 9.0, 9.0, 0.0, 0.0]]),
        "factor": torch.eye(5).repeat(2, 1, 1),
        "cuts": torch.tensor([[-4.0, 0.0, 4.0], [-1.0, 0.0, 1.0]]),
        "low": torch.tensor([[0.0, 0.5], [0.25, 0.25]]),
        "high": torch.tensor([[0.0, 1.0], [0.25, 0.25]]),
    }


def test_rows_follow_their_class_and_their_margins() -> None:
    labels = torch.arange(4000) % 2
    x = draw(arrays(), CONFIG, labels, rng=Streams.from_seed(0))
    first, second = x[labels == 0], x[labels == 1]
    assert float((first[:, 0] == 0).double().mean()) == pytest.approx(0.5, abs=0.05)
    assert float(second[:, 0].median()) == pytest.approx(0.875, abs=0.02)  # ¾ from 0.5 to 1
    assert bool((x[:, 4] == 0.25).all()) and bool((x[:, 2:4].sum(1) == 1).all())
    assert set(x[:, 1].unique().tolist()) == {0.0, 1.0} and bool((second[:, 1:3] == 1).all())


def test_one_row_needs_no_other() -> None:
    made = Generator("copula", arrays(), CONFIG, (0.5, 0.5))
    one = np.zeros(1, np.int64)
    rows = torch.cat([made.sample(one, rng=Streams.from_seed(i)) for i in range(300)])
    assert float((rows[:, 0] == 0).double().mean()) == pytest.approx(0.5, abs=0.1)
    assert bool(((rows[:, 0] == 0) | (rows[:, 0] >= 0.5)).all())


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no cuts": ({"cuts": None}, {}),
    "falling cuts": ({"cuts": -arrays()["cuts"]}, {}),
    "cuts of another length": ({"cuts": torch.zeros(2, 4)}, {}),
    "another number of numbers": ({}, {"numbers": [0]}),
    "a feature in two places": ({}, {"flags": [0]}),
    "a feature nowhere": ({}, {"flags": []}),
    "a block beyond the width": ({}, {"blocks": [[2, 9]]}),
    "no numbers at all": ({}, {"numbers": None}),
    "another width": ({}, {"width": 6}),
}


@pytest.mark.parametrize("changed, told", BAD.values(), ids=BAD)
def test_arrays_that_do_not_fit_are_refused(changed: dict, told: dict) -> None:
    made = {k: v for k, v in {**arrays(), **changed}.items() if v is not None}
    with pytest.raises(ReleaseError):
        draw(made, {**CONFIG, **told}, torch.zeros(3).long(), rng=Streams.from_seed(0))


def test_nothing_else_may_be_in_the_release() -> None:
    assert check(arrays(), CONFIG, 2)
    assert not check(arrays(), CONFIG, 3)
    assert not check(arrays(), {**CONFIG, "contrast": 8.0}, 2)
    with pytest.raises(ReleaseError):
        check({**arrays(), "more": torch.zeros(1)}, CONFIG, 2)
