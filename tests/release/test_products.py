from __future__ import annotations

from typing import Any

import pytest
import torch

from understudy.errors import ReleaseError
from understudy.release.generator import Generator
from understudy.release.products import check, draw
from understudy.rng import Streams

COLUMNS = [
    {"start": 0, "kind": "number", "missing": True, "cells": [2, 1, 1]},
    {"start": 2, "kind": "onehot", "missing": False, "cells": [1, 2]},
    {"start": 5, "kind": "flag", "missing": False, "cells": [1, 1]},
]


def terms() -> dict[str, Any]:
    """A number (two cells in one code, one value, missing), three categories and a flag."""
    chance = torch.tensor(
        [
            [1.0, 0, 0, 1, 0, 1, 0],  # class 0: two rows
            [0.0, 1, 0, 0, 1, 1, 0],
            [0.0, 0, 1, 0, 1, 0.25, 0.75],  # class 1: one
        ]
    )
    share = torch.tensor(
        [[0.75, 0.25, 1, 1, 1, 0.5, 0.5, 1, 1], [0.5, 0.5, 1, 1, 1, 0.1, 0.9, 1, 1]]
    )
    low = torch.tensor([0.0, 0.5, 1.0, 0.0, 1, 0, 2, 0, 1])
    high = torch.tensor([0.5, 0.75, 1.0, 0.0, 1, 0, 2, 0, 1])
    arrays = {"chance": chance, "share": share, "low": low, "high": high}
    return {"arrays": arrays, "config": {"width": 6, "rows": [2, 1], "columns": COLUMNS}}


def rows(n: int, label: int) -> torch.Tensor:
    labels = torch.full((n,), label)
    return draw(**terms(), labels=labels, rng=Streams.from_seed(0))


def test_rows_follow_chances_shares_and_cells() -> None:
    x = rows(8000, 0)
    first = x[:, 0] < 1
    assert abs(float(first.float().mean()) - 0.5) < 0.02
    low = x[first, 0] < 0.5
    assert abs(float(low.float().mean()) - 0.75) < 0.03
    assert len(x[first, 0].unique()) > 0.9 * first.sum() and (x[~first, 0] == 1).all()
    assert not x[:, 1].any() and (x[first, 3] == 1).all()  # a code's row has its other codes too
    assert abs(float(x[~first, 2].mean()) - 0.5) < 0.03
    assert (x[:, 2:5].sum(1) == 1).all()


def test_a_class_has_rows_and_shares_of_its_own() -> None:
    x = rows(8000, 1)
    assert (x[:, 0] == 0.5).all() and (x[:, 1] == 1).all()  # missing
    assert abs(float(x[:, 4].mean()) - 0.9) < 0.02 and abs(float(x[:, 5].mean()) - 0.75) < 0.02


def test_one_seed_gives_one_sample_in_both_classes() -> None:
    made = Generator("products", terms()["arrays"], terms()["config"], (0.75, 0.25))
    one, two = (made.rows(500, rng=Streams.from_seed(3)) for _ in range(2))
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
    assert abs(float(one[1].float().mean()) - 0.25) < 0.06


def with_column(**changes: Any) -> list[dict[str, Any]]:
    return [{**COLUMNS[0], **changes}, *COLUMNS[1:]]


@pytest.mark.parametrize(
    "change",
    [
        {"columns": COLUMNS[:2]},
        {"columns": with_column(start=1)},
        {"columns": with_column(kind="pickle")},
        {"columns": with_column(cells=[3, 1])},
        {"columns": with_column(cells=[2, 2, 0])},
        {"columns": with_column(missing=1)},
        {"columns": with_column(more=1)},
        {"columns": None},
        {"rows": [3]},
        {"rows": [3, 0]},
        {"width": 7},
    ],
)
def test_another_description_is_refused(change: dict[str, Any]) -> None:
    made = terms()
    with pytest.raises(ReleaseError):
        check(made["arrays"], {**made["config"], **change}, 2)


def test_another_number_of_classes_or_a_further_key_does_not_fit() -> None:
    made = terms()
    assert check(**made, classes=2) and not check(**made, classes=3)
    assert not check(made["arrays"], {**made["config"], "more": 1}, 2)


@pytest.mark.parametrize(
    "name, change",
    [
        ("chance", lambda a: -a),
        ("chance", lambda a: a * 0),
        ("chance", lambda a: a[:, :-1]),
        ("share", lambda a: a[:1]),
        ("share", lambda a: a * 0),
        ("low", lambda a: a + 1),
        ("high", lambda a: a - 1),
        ("low", lambda a: a.flip(0)),
    ],
)
def test_altered_arrays_are_refused(name: str, change: Any) -> None:
    made = terms()
    made["arrays"][name] = change(made["arrays"][name])
    with pytest.raises(ReleaseError):
        check(**made, classes=2)
