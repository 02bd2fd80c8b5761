from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.cells import read_cells
from understudy.data.column import Column
from understudy.data.form import Form
from understudy.data.forms import LEAST, Forms, find_forms
from understudy.data.moments import DAYS, MOMENTS
from understudy.data.written import cell_texts
from understudy.errors import DataError, SchemaError

MISSING = ("", "NA")


def column(kind: str, name: str = "c", **more: object) -> Column:
    timed = kind in ("date", "timestamp")
    low, high = ("1900-01-01", "2100-01-01") if timed else (-(10**9), 10**9)
    return Column(name, kind, low, high, **more)  # type: ignore[arg-type]


def found(*columns: tuple[Column, list[str]], least: int = LEAST) -> Forms:
    frame = pd.DataFrame({c.name: pd.Series(cells, dtype="str") for c, cells in columns})
    return find_forms([c for c, _ in columns], frame, MISSING, least)


def values(of: Column, cells: list[str]) -> list[float]:
    form = found((of, cells)).picked["c"]
    held = read_cells(of, pd.Series(cells, dtype="str"), MISSING, form)
    assert not held.wrong.any()
    return held.values.tolist()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.5", "-2", "+3."], [1.5, -2, 3]),
        (["1,5", "-2", "3,"], [1.5, -2, 3]),
        (["1.234,50"], [1234.5]),
        (["1,234.50"], [1234.5]),
        (["1.234.567"], [1234567]),
        (["1 234,5", "12"], [1234.5, 12]),
        (["1\u202f234,5", "1\u202f000"], [1234.5, 1000]),
        (["1\u00a0234.5"], [1234.5]),
        (["1'234.5", "1'000"], [1234.5, 1000]),
        (["1’234,5"], [1234.5]),
        (["12 %", "-3,5 %"], [12, -3.5]),
        (["$1,234.50", "-$2.00"], [1234.5, -2]),
        (["€ 5,50", "€ -6"], [5.5, -6]),
        (["5 EUR", "6 EUR"], [5, 6]),
        (["−5", "3"], [-5, 3]),
        (["1e3", ".5"], [1000, 0.5]),
    ],
)
def test_numbers_are_read_as_they_are_written(cells: list[str], expected: list[float]) -> None:
    assert values(column("numeric"), cells) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cells", "day"),
    [
        ("2021-03-24", date(2021, 3, 24)),
        ("24.03.2021", date(2021, 3, 24)),
        ("24/3/2021", date(2021, 3, 24)),
        ("03/24/2021", date(2021, 3, 24)),
        ("24.03.21", date(2021, 3, 24)),
        ("20210324", date(2021, 3, 24)),
        ("24 Mar 2021", date(2021, 3, 24)),
        ("2021-03-24 00:00:00", date(2021, 3, 24)),
    ],
)
def test_days_are_read_as_they_are_written(cells: str, day: date) -> None:
    assert values(column("date"), [cells]) == [(day - date(1970, 1, 1)).days]


@pytest.mark.parametrize(
    "cell",
    ["2021-03-24 13:05", "2021-03-24T13:05:00Z", "24.03.2021 13:05:00", "3/24/2021 1:05 PM"],
)
def test_times_are_read_as_they_are_written(cell: str) -> None:
    expected = (datetime(2021, 3, 24, 13, 5) - datetime(1970, 1, 1)).total_seconds()
    assert values(column("timestamp"), [cell]) == [expected]


def test_a_day_with_a_time_is_no_day() -> None:
    held = read_cells(column("date"), pd.Series(["2021-03-24 13:05:00"], dtype="str"), MISSING)
    assert held.wrong.all()


@pytest.mark.parametrize(
    ("kind", "cells", "statement", "usual", "stated"),
    [
        ("numeric", ["1.234"], {"decimal": ",", "thousands": "."}, 1.234, 1234),
        ("numeric", ["1,234"], {"decimal": ","}, 1234, 1.234),
        ("integer", ["1.000"], {"decimal": ",", "thousands": "."}, 1, 1000),
        ("date", ["03/04/2021"], {"format": "%m/%d/%Y"}, 18720, 18690),
    ],
)
def test_of_two_readings_the_usual_one_is_said_and_the_other_can_be_stated(
    kind: str, cells: list[str], statement: dict, usual: float, stated: float
) -> None:
    assert values(column(kind), cells) == [usual]
    (said,) = found((column(kind), cells)).chosen.values()
    assert all(f'{key} = "{value}"' in said for key, value in statement.items())
    assert values(column(kind, **statement), cells) == [stated]
    assert not found((column(kind, **statement), cells)).notes


def test_other_columns_settle_how_a_file_writes_its_numbers() -> None:
    unclear = (column("numeric", "a"), ["1.234"] * LEAST)
    clear = (column("numeric", "b"), ["0,5"] * LEAST)
    assert found(unclear, clear).picked["a"] == Form(",", ".")
    assert "a" in found(unclear, clear).chosen
    assert found(unclear, (column("numeric", "b"), ["7"] * LEAST)).picked["a"] == Form(".")


def test_other_columns_settle_whether_the_month_comes_first() -> None:
    unclear = (column("date", "a"), ["03/04/2021"] * LEAST)
    clear = (column("date", "b"), ["12/31/2021"] * LEAST)
    assert found(unclear, clear).picked["a"].format == "%m/%d/%Y"


@pytest.mark.parametrize(
    ("kind", "sure", "unclear"),
    [("numeric", "0,5", "1.234"), ("date", "12/31/2021", "03/04/2021")],
)
@pytest.mark.parametrize("apart", [True, False])
def test_one_record_never_decides_how_others_are_read(
    kind: str, sure: str, unclear: str, apart: bool
) -> None:
    """However many rows there are: with one less, the others are read alike, or nothing is."""
    readings = []
    for rows in range(LEAST + 3):
        sides = [sure] * rows + [unclear] * (LEAST + 3 - rows), [unclear] * (LEAST + 3)
        columns = [(column(kind, "a"), sides[0])] if not apart else []
        columns += [(column(kind, "b"), sides[0]), (column(kind, "c"), sides[1])] if apart else []
        try:
            readings.append(found(*columns).picked["c" if apart else "a"])
        except DataError as error:
            assert "state it in the schema" in str(error)
            readings.append(None)
    accepted = [r for r in readings if r is not None]
    assert len(set(accepted)) == 2, "few rows leave the usual reading, many change it"
    assert all(a == b or None in (a, b) for a, b in pairwise(readings))


def test_one_record_that_speaks_against_the_others_is_not_overruled() -> None:
    rows = LEAST + 3
    unclear = (column("numeric", "c"), ["1.234"] * rows)
    commas = (column("numeric", "a"), ["0,5"] * rows)
    one_point = (column("numeric", "b"), ["1.5", *["2"] * (rows - 1)])
    with pytest.raises(DataError, match="state it in the schema"):
        found(unclear, commas, one_point)
    stated = (column("numeric", "c", decimal="."), ["1.234"] * rows)
    assert found(stated, commas, one_point).picked["c"] == Form(".")


def test_cells_of_another_form_are_counted_as_wrong() -> None:
    cells = pd.Series(["1,5", "2,5", "three"], dtype="str")
    held = read_cells(column("numeric"), cells, MISSING)
    assert held.wrong.tolist() == [False, False, True]
    mixed = pd.Series(["5 €", "6 €", "7"], dtype="str")
    assert read_cells(column("numeric"), mixed, MISSING).wrong.tolist() == [False, False, True]


@pytest.mark.parametrize("format", ["%d.%m.%Y", "%Y-%m-%d", "%m/%d/%Y"])
@pytest.mark.parametrize("declared", [True, False])
def test_one_day_that_does_not_exist_is_one_wrong_cell(format: str, declared: bool) -> None:
    cells = pd.Series(pd.date_range("2021-01-01", periods=60).strftime(format), dtype="str")
    cells[7] = cells[0].replace("01", "41", 1)
    of = column("date", format=format) if declared else column("date")
    form = found((of, cells.tolist())).picked["c"]
    held = read_cells(of, cells, MISSING, form)
    assert np.flatnonzero(held.wrong).tolist() == [7]


def test_what_is_found_is_said_once_and_not_if_it_was_declared() -> None:
    two = [(column("numeric", name), ["1,5"]) for name in ("a", "b")]
    assert found(*two).notes == ("decimal commas in a, b",)
    said = column("numeric", decimal=",", suffix=" %")
    assert not found((said, ["1,5 %"])).notes


@pytest.mark.parametrize(
    ("words", "cells", "expected"),
    [
        ((), ["yes", "No", "TRUE", "0", "ja", "nein"], [1, 0, 1, 0, 1, 0]),
        (("gesund", "krank"), ["Gesund", "krank", "yes"], [0, 1, 1]),
        (("2", "1"), ["1", "2"], [1, 0]),
    ],
)
def test_booleans_are_read_by_their_words(words, cells, expected) -> None:
    held = read_cells(Column("c", "boolean", words=words), pd.Series(cells, dtype="str"), ())
    assert held.values.tolist() == expected


def test_words_that_mean_the_reverse_elsewhere_stand_alone() -> None:
    turned = Column("c", "boolean", words=("1", "0"))
    held = read_cells(turned, pd.Series(["1", "0", "yes"], dtype="str"), ())
    assert held.values.tolist()[:2] == [0, 1] and held.wrong.tolist() == [False, False, True]


def written(of: Column, cells: pd.Series) -> list[str | None]:
    return cell_texts(of, cells).to_pylist()


@pytest.mark.parametrize(
    ("more", "values", "expected"),
    [
        ({}, [1.5, 2.0, None], ["1.5", "2", None]),
        ({"decimals": 0}, [1.0, -2.0], ["1", "-2"]),
        ({"decimal": ","}, [1.5, -2.25], ["1,5", "-2,25"]),
        ({"decimal": ",", "thousands": ".", "decimals": 2}, [-1234.5], ["-1.234,50"]),
        ({"thousands": ",", "decimals": 2, "prefix": "$"}, [-1234.5, 1], ["-$1,234.50", "$1.00"]),
        ({"suffix": " %", "decimal": ","}, [12.5], ["12,5 %"]),
        ({"thousands": "'"}, [1234567.25], ["1'234'567.25"]),
    ],
)
def test_numbers_are_written_as_the_schema_says(more, values, expected) -> None:
    assert written(column("numeric", **more), pd.Series(values, dtype=np.float64)) == expected


def test_times_and_words_are_written_as_the_schema_says() -> None:
    times = pd.Series(pd.to_datetime(["2021-03-24 13:05:09", None]))
    assert written(column("timestamp", format="%d.%m.%Y %H:%M"), times) == [
        "24.03.2021 13:05",
        None,
    ]
    assert written(column("date", format="%m/%d/%y"), times) == ["03/24/21", None]
    truths = pd.Series([True, None, False], dtype="boolean")
    assert written(Column("c", "boolean", words=("nein", "ja")), truths) == ["ja", None, "nein"]


@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=5),
    st.integers(0, 3),
    st.sampled_from([".", ","]),
    st.sampled_from(["", ".", ",", " ", "\u202f", "'"]),
    st.sampled_from([("", ""), ("€ ", ""), ("", " %"), ("$", "")]),
)
def test_what_is_written_is_read_again(
    numbers: list[int], decimals: int, decimal: str, thousands: str, around: tuple[str, str]
) -> None:
    thousands = "" if thousands == decimal else thousands
    of = column("numeric", decimals=decimals, decimal=decimal, thousands=thousands)
    of = Column(**{**of.__dict__, "prefix": around[0], "suffix": around[1]})
    given = [number / 10**decimals for number in numbers]
    texts = written(of, pd.Series(given, dtype=np.float64))
    assert values(of, texts) == pytest.approx(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("format", DAYS)
def test_every_format_of_days_is_read_as_it_was_written(format: str) -> None:
    days = pd.Series(pd.to_datetime(["2021-03-24", "1999-12-31"]))
    of = column("date", format=format)
    expected = [(day.date() - date(1970, 1, 1)).days for day in days]
    assert values(of, written(of, days)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("format", MOMENTS[:40])
def test_every_format_of_times_is_read_as_it_was_written(format: str) -> None:
    times = pd.Series(pd.to_datetime(["2021-03-24 13:05:00", "1999-12-31 00:59:00"]))
    of = column("timestamp", format=format)
    expected = [(t - pd.Timestamp(0)).total_seconds() for t in times]
    assert values(of, written(of, times)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("numeric", {"words": ("no", "yes")}, "only in boolean columns"),
        ("boolean", {"words": ("yes",)}, "2 to 2 words"),
        ("boolean", {"decimal": ","}, "only in columns of numbers"),
        ("numeric", {"decimal": ";"}, "a point or comma"),
        ("numeric", {"thousands": "."}, "thousands another sign"),
        ("numeric", {"decimal": ",", "thousands": ","}, "thousands another sign"),
        ("numeric", {"prefix": "5 "}, "without digits"),
        ("numeric", {"format": "%d.%m.%Y"}, "only in date and timestamp"),
        ("date", {"format": "%d.%m"}, "such as"),
        ("date", {"format": "%d.%m.%Y %H:%M"}, "such as"),
        ("date", {"format": "yyyy-mm-dd"}, "such as"),
        ("timestamp", {"format": "%d.%m.%Y %Z"}, "such as"),
    ],
)
def test_forms_that_cannot_be_are_refused(kind: str, more: dict, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Column("c", kind, **more) if kind == "boolean" else column(kind, **more)
