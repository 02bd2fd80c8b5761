from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.column import Column
from understudy.data.scale import from_unit, to_unit


def log(low: float, high: float, **more: object) -> Column:
    return Column("c", "numeric", low, high, scale="log", **more)  # type: ignore[arg-type]


def test_each_order_of_magnitude_gets_the_same_share() -> None:
    x = to_unit(log(1, 10_000, decimals=6), np.array([1, 10, 100, 1000, 10_000]))
    assert x == pytest.approx([0, 0.25, 0.5, 0.75, 1], abs=1e-6)


def test_zero_and_negative_numbers_are_laid_out_alike() -> None:
    column = Column("c", "integer", -1000, 1000, scale="log")
    x = to_unit(column, np.array([-1000, -30, 0, 30, 1000]))
    assert x[[0, 2, 4]] == pytest.approx([0, 0.5, 1])
    assert x[3] - x[2] == pytest.approx(x[2] - x[1])


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.lists(st.floats(0, 1), min_size=2, max_size=9),
    st.sampled_from(["linear", "log"]),
)
def test_values_come_back_in_order(low: float, span: float, parts: list[float], scale: str) -> None:
    column = Column("c", "numeric", low, low + span, scale=scale)
    values = np.sort(low + np.array(parts) * span)
    x = to_unit(column, values)
    assert (np.diff(x) >= -1e-12).all()
    assert x.min() >= 0 and x.max() <= 1
    assert from_unit(column, x) == pytest.approx(values, rel=1e-6, abs=1e-6 * span)


@pytest.mark.parametrize("low", [0, 5, -100])
def test_integers_come_back_exactly_from_single_precision(low: int) -> None:
    column = Column("c", "integer", low, 100_000, scale="log")
    values = np.arange(low, 100_001)
    back = from_unit(column, to_unit(column, values).astype(np.float32))
    assert (back == values).all()


def test_what_lies_outside_is_clamped() -> None:
    column = log(0, 10)
    assert to_unit(column, np.array([-5.0, 50.0, np.inf])).tolist() == [0, 1, 1]
    assert from_unit(column, np.array([-1.0, 2.0])).tolist() == [0, 10]
