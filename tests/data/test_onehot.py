"""Tables as yes-or-no features: there and back, by the public schema alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.onehot import Group, OneHot
from understudy.data.schema import Column, Schema
from understudy.errors import ReleaseError

KINDS = {
    "flag": Column("smoker", "boolean"),
    "onehot": Column("town", "categorical", categories=("x", "y", "z")),
    "levels": Column("grade", "integer", 1, 4),
    "bins": Column("height", "numeric", 0.0, 2.0),
    "gaps": Column("pulse", "numeric", 30.0, 200.0, missing=True),
}
LABEL = Column("ill", "categorical", categories=("no", "yes", "unknown"))


def schema(*names: str) -> Schema:
    columns = tuple(KINDS[name] for name in names or KINDS)
    return Schema("table", "t", 100, (*columns, LABEL), label="ill")


def source() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_layout_follows_from_the_schema() -> None:
    found = OneHot.of(schema(), bins=8)
    assert [g.kind for g in found.groups] == ["flag", "onehot", "levels", "bins", "bins", "flag"]
    assert [g.width for g in found.groups] == [1, 3, 4, 8, 8, 1]
    assert found.width == 25 + 3 and found.features == schema().width


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_rows_come_back_to_within_a_bin(data) -> None:
    names = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, unique=True))
    bins = data.draw(st.integers(5, 12))
    layout, table = OneHot.of(schema(*names), bins), schema(*names)
    n = 7
    chosen = layout.uniform(n, rng=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    x, y = chosen
    assert x.shape == (n, table.width) and bool(((x >= 0) & (x <= 1)).all())
    seen = layout.encode(x, y)
    assert bool(((seen == 0) | (seen == 1)).all()), "only yes and no"
    back, classes = layout.decode(seen, drawn=False, rng=source())
    assert torch.equal(classes, y)
    for group in layout.groups:
        place = slice(group.source, group.source + group.taken)
        apart = (back[:, place] - x[:, place]).abs().max()
        assert float(apart) <= (1 / group.width if group.kind == "bins" else 1e-6)


def test_without_several_classes_there_is_no_label_to_learn() -> None:
    single = Schema("table", "t", 100, (KINDS["flag"], KINDS["bins"]))
    layout = OneHot.of(single, 4)
    assert layout.label == 0 and layout.width == 5
    x, y = layout.decode(torch.rand(3, 5), drawn=True, rng=source())
    assert x.shape == (3, 2) and y.tolist() == [0, 0, 0]


def test_values_are_drawn_by_their_chance_where_that_is_asked() -> None:
    layout = OneHot.of(schema("flag"), 4)
    chance = torch.tensor([[0.3, 0.6, 0.3, 0.1]]).repeat(20_000, 1)
    x, y = layout.decode(chance, drawn=True, rng=source())
    assert float(x.mean()) == pytest.approx(0.3, abs=0.02)
    assert np.bincount(y.numpy()) / len(y) == pytest.approx([0.6, 0.3, 0.1], abs=0.02)
    likeliest, most = layout.decode(chance, drawn=False, rng=source())
    assert not likeliest.any() and not most.any()


def test_values_are_drawn_by_their_odds_where_the_layout_says_so() -> None:
    """Certainty of one value is enough; the others need not fall to nothing. Flags stay flags."""
    layout = replace(OneHot.of(schema("flag"), 4), odds=True)
    chance = torch.tensor([[0.3, 0.9, 0.5, 0.5]]).repeat(20_000, 1)
    x, y = layout.decode(chance, drawn=True, rng=source())
    assert float(x.mean()) == pytest.approx(0.3, abs=0.02)
    assert np.bincount(y.numpy()) / len(y) == pytest.approx([9 / 11, 1 / 11, 1 / 11], abs=0.02)
    certain = torch.tensor([[0.3, 1.0, 0.5, 0.5]]).repeat(100, 1)
    assert not layout.decode(certain, drawn=True, rng=source())[1].any()
    assert OneHot.from_config(json.loads(json.dumps(layout.to_config()))) == layout


def test_numbers_beyond_the_bounds_fall_into_the_outer_bins() -> None:
    layout = OneHot.of(schema("bins", "levels"), 5)
    wild = torch.tensor([[-3.0, 9.0], [7.0, -2.0], [torch.nan, torch.inf]])
    assert layout.encode(wild, torch.zeros(3, dtype=torch.long))[:, :9].sum(1).tolist() == [2, 2, 2]


def test_a_layout_survives_json_and_nothing_else_is_one() -> None:
    layout = OneHot.of(schema(), 6)
    config = json.loads(json.dumps(layout.to_config()))
    assert OneHot.from_config(config) == layout
    for group in (
        ["dream", 0, 1, 1],
        ["flag", -1, 1, 1],
        ["bins", 0, 1, 1],
        ["onehot", 0, 2, 3],
        ["flag", 99, 1, 1],
        ["flag", 0.0, 1, 1],
        ["flag", 0],
    ):
        with pytest.raises(ReleaseError, match="layout"):
            OneHot.from_config({**config, "groups": [group]})
    with pytest.raises(ReleaseError):
        OneHot.from_config({})
    assert Group("flag", 0, 1, 1) in layout.groups
