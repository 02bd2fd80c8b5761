"""Encoded values as a person would write them."""

from __future__ import annotations

import datetime as dt

import pytest

from understudy.data.schema import Column, Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.natural import natural


def axis(column: Column) -> Axis:
    return axes(Schema("table", "t", 10, (column,)))[0]


SEEN = axis(Column("seen", "timestamp", dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)))


@pytest.mark.parametrize(
    ("span", "said"),
    [(1.0, "2020-07-02"), (1e-3, "2020-07-02 00:00"), (1e-6, "2020-07-02 00:00:00")],
)
def test_times_are_in_their_own_years_as_finely_as_the_range_asks_for(
    span: float, said: str
) -> None:
    assert natural(SEEN, 0.5, span) == said


@pytest.mark.parametrize(
    ("x", "said"), [(0.0, "0"), (0.75, "31,622"), (1.0, "1e+06")], ids=["none", "thousands", "most"]
)
def test_numbers_on_a_log_scale_are_written_out_below_a_million(x: float, said: str) -> None:
    money = axis(Column("money", "numeric", 0.0, 1e6, decimals=0, scale="log"))
    assert natural(money, x) == said
