from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.encode import encode
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.recipes.margins import Margin, clean, codes, margins, spans, total

COLUMNS = (
    Column("dose", "numeric", 0.0, 10.0),
    Column("visits", "integer", 0, 20, missing=True),
    Column("steps", "integer", 0, 50_000),
    Column("income", "numeric", -1e3, 1e6, scale="log", decimals=2),
    Column("born", "date", date(1920, 1, 1), date(2020, 1, 1)),
    Column("seen", "timestamp", datetime(2020, 1, 1), datetime(2021, 1, 1)),
    Column("grade", "numeric", 1.0, 5.0, decimals=1),
    Column("smoker", "boolean", missing=True),
    Column("town", "categorical", categories=("here", "there", "far"), missing=True),
    Column("ill", "categorical", categories=("no", "yes")),
)
TABLE = Schema("table", "clinic", 1000, COLUMNS, label="ill")
FRAME = pd.DataFrame(
    {
        "dose": [0.0, 5.0, 10.0, 5.0001, 12.0],
        "visits": pd.array([0, 20, None, 7, 3], "Int64"),
        "steps": [0, 1, 50_000, 25_000, 24_999],
        "income": [-1e3, 0.0, 1e6, 0.01, 10.0],
        "born": ["1920-01-01", "2020-01-01", "1970-06-01", "1920-01-02", "1999-12-31"],
        "seen": ["2020-01-01 00:00:00", "2021-01-01 00:00:00", *["2020-07-01 12:00:00"] * 3],
        "grade": [1.0, 5.0, 3.3, 1.1, 4.9],
        "smoker": [True, False, None, True, False],
        "town": ["here", "far", None, "there", "here"],
        "ill": ["no", "yes", "no", "no", "yes"],
    }
)


def coded(bins: int = 64) -> tuple[dict[str, Margin], dict[str, np.ndarray]]:
    found = encode(TABLE, from_frame(FRAME, TABLE))
    made = margins(TABLE, bins)
    seen = codes(made, torch.from_numpy(found.x), torch.from_numpy(found.y)).numpy()
    return {m.name: m for m in made}, {m.name: seen[:, i] for i, m in enumerate(made)}


def test_categories_flags_and_classes_are_codes_as_they_are() -> None:
    made, seen = coded()
    assert seen["town"].tolist() == [0, 2, 3, 1, 0] and made["town"].size == 4
    assert seen["smoker"].tolist() == [1, 0, 2, 1, 0] and made["smoker"].size == 3
    assert seen["ill"].tolist() == [0, 1, 0, 0, 1] and made["ill"].start is None


def test_values_that_are_few_get_a_cell_each() -> None:
    made, seen = coded()
    assert made["visits"].size == 22 and seen["visits"].tolist() == [0, 20, 21, 7, 3]
    cells = made["grade"].cells
    assert cells is not None and made["grade"].size == 41
    assert seen["grade"].tolist() == [0, 40, 23, 1, 39] and (cells.low == cells.high).all()


@pytest.mark.parametrize("name", ["dose", "steps", "income", "born", "seen"])
def test_a_value_lies_in_its_cell_and_bounds_are_spikes(name: str) -> None:
    made, seen = coded()
    margin, cells = made[name], made[name].cells
    assert cells is not None and margin.start is not None
    x = encode(TABLE, from_frame(FRAME, TABLE)).x[:, margin.start].astype(float)
    hair = 2.0**-24
    assert (x >= cells.low[seen[name]] - hair).all() and (x <= cells.high[seen[name]] + hair).all()
    assert cells.spikes[0] and cells.spikes[-1] and not cells.spikes.all()
    assert (np.diff(cells.borders) > 0).all() and len(cells.low) == len(cells.borders) + 1


def test_round_numbers_are_spikes_and_their_neighbours_are_not() -> None:
    made, seen = coded()
    dose, steps, income = (made[name].cells for name in ("dose", "steps", "income"))
    assert dose is not None and steps is not None and income is not None
    assert dose.spikes[seen["dose"]].tolist() == [True, True, True, False, True]
    assert steps.spikes[seen["steps"]].tolist() == [True, False, True, True, False]
    assert income.spikes[seen["income"]].tolist() == [True, True, True, True, True]


@given(value=st.floats(allow_nan=True, allow_infinity=True, width=32), label=st.integers(-5, 9))
def test_codes_stay_within_their_column_whatever_rows_hold(value: float, label: int) -> None:
    made = margins(TABLE, 16)
    x, y = torch.full((1, TABLE.width), value), torch.tensor([label])
    found = codes(made, x, y)[0].tolist()
    assert all(0 <= code < margin.size for code, margin in zip(found, made, strict=True))


def histogram(margin: Margin, x: np.ndarray, missing: int = 0) -> np.ndarray:
    assert margin.cells is not None
    cell = np.searchsorted(margin.cells.borders, x, side="right")
    counts = np.bincount(cell, minlength=margin.size).astype(float)
    counts[-1] += missing
    return counts


def number(bins: int = 64, **terms: object) -> Margin:
    column = Column("v", "numeric", 0.0, 1.0, **terms)  # type: ignore[arg-type]
    return margins(Schema("table", "t", 9, (column,)), bins)[0]


def test_without_noise_the_shares_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    margin = number(missing=True)
    counts = histogram(margin, np.append(rng.beta(2, 5, 9000), np.zeros(3000)), missing=500)
    found = clean(margin, counts, counts.sum(), 0.0)
    assert found == pytest.approx(counts / counts.sum(), abs=1e-9)


@given(seed=st.integers(0, 2**16), std=st.sampled_from([0.0, 1.0, 30.0, 3000.0]))
def test_shares_are_a_distribution_however_strong_the_noise(seed: int, std: float) -> None:
    rng = np.random.default_rng(seed)
    for margin in margins(TABLE, 32):
        noisy = rng.poisson(5, margin.size) + rng.normal(0, std, margin.size)
        found = clean(margin, noisy, total([noisy]), std)
        assert found.min() >= 0 and found.sum() == pytest.approx(1)


def test_a_spike_survives_and_noise_alone_makes_none() -> None:
    rng = np.random.default_rng(1)
    margin = number()
    assert margin.cells is not None
    counts = histogram(margin, np.append(rng.uniform(0, 1, 8000), np.full(2000, 0.5)))
    found = clean(margin, counts + rng.normal(0, 25, margin.size), 10_000, 25.0)
    held = margin.cells.low[margin.cells.spikes & (found[: len(margin.cells.low)] > 0)]
    assert held.tolist() == [0.5]
    assert found[margin.cells.spikes].sum() == pytest.approx(0.2, abs=0.01)


def test_a_narrow_column_is_found_within_wide_bounds() -> None:
    rng = np.random.default_rng(2)
    margin = number(128)
    assert margin.cells is not None
    counts = histogram(margin, rng.normal(0.2, 0.02, 10_000))
    found = clean(margin, counts + rng.normal(0, 25, margin.size), 10_000, 25.0)
    near = np.abs(margin.cells.low - 0.2) < 0.09
    assert found[near].sum() > 0.97
    assert np.abs(np.cumsum(found) - np.cumsum(counts) / 10_000).max() < 0.04


def test_a_slope_goes_on_below_what_the_noise_shows() -> None:
    """Halves that the noise does not tell apart are split as the stretches beside them rise."""
    margin, std = number(), 40.0
    assert margin.cells is not None
    truth = np.where(margin.cells.spikes, 0.0, margin.cells.high**2 - margin.cells.low**2)
    truth /= truth.sum()
    found = clean(margin, 5000 * truth, 5000, std)
    assert np.abs(found - truth).sum() / 2 < 0.04  # evenly split halves: .055
    even = np.where(margin.cells.spikes, 0.0, margin.cells.high - margin.cells.low)
    even /= even.sum()
    assert clean(margin, 5000 * even, 5000, std) == pytest.approx(even, abs=1e-9)


def test_the_number_of_rows_is_read_from_all_histograms() -> None:
    rng = np.random.default_rng(3)
    sizes = (2, 7, 200)
    noisy = [np.full(n, 5000 / n) + rng.normal(0, 20, n) for n in sizes]
    assert total(noisy) == pytest.approx(5000, abs=60)
    assert [s.stop - s.start for s in spans(margins(TABLE, 16))] == [
        m.size for m in margins(TABLE, 16)
    ]
