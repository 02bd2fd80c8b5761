from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from understudy.data.check import Finding, check
from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.data.rules import Rule, Test
from understudy.data.schema import Column, Schema
from understudy.data.table import read
from understudy.errors import DataError

SCHEMA = Schema(
    "table",
    "t",
    5,
    (
        Column("age", "integer", 0, 120, missing=True),
        Column("ward", "categorical", categories=("a", "b"), other="b"),
        Column("ill", "boolean"),
    ),
    label="ill",
)


def findings(tmp_path, text: str, schema: Schema = SCHEMA) -> list[Finding]:
    (tmp_path / "rows.csv").write_text(text)
    return check(schema, tmp_path / "rows.csv")


def test_a_file_that_fits_says_so(tmp_path) -> None:
    found = findings(tmp_path, "age,ward,ill\n3,a,1\n4,b,0\n")
    assert [f.level for f in found] == ["ok", "ok"]
    assert found[0].text == "2 rows" and "3 of 3 columns" in found[1].text


def test_what_public_rules_handle_is_counted(tmp_path) -> None:
    found = findings(tmp_path, "age,ward,ill\n-3,a,1\ninf,zzz,0\n,qqq,0\n")
    assert [(f.level, f.column, f.rows) for f in found[2:]] == [
        ("note", "age", 1),
        ("note", "age", 2),
        ("note", "ward", 2),
    ]
    said = " / ".join(f.text for f in found)
    assert "2 values outside 0 to 120 are clamped" in said
    assert "2 unknown categories become 'b'" in said and "1 cell is missing" in said
    assert "zzz" not in said


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("age,ward,ill\nsecret,a,1\n", "age"),
        ("age,ward,ill\n3.5,a,1\n", "age"),
        ("age,ward,ill\n3,,1\n", "ward"),
        ("age,ward,ill\n3,a,\n", "ill"),
        ("age,ward,ill\n3,a,secret\n", "ill"),
        ("age,ward\n3,a\n", None),
        ("age,ward,ill,zip\n3,a,1,9\n", None),
        ("age,ward,ill,ill\n3,a,1,1\n", None),
    ],
)
def test_what_no_rule_handles_is_an_error(tmp_path, text: str, column: str | None) -> None:
    found = findings(tmp_path, text)
    errors = [f for f in found if f.level == "error"]
    assert [f.column for f in errors] == [column] and found[-1] is errors[-1]
    assert "secret" not in errors[0].text


def test_wrong_cells_are_told_in_the_words_of_the_file(tmp_path) -> None:
    columns = (
        Column("born", "date", "1900-01-01", "2000-12-31", format="%d.%m.%Y"),
        Column("smokes", "boolean", words=("nein", "ja")),
    )
    text = "born,smokes\n01.02.1970,ja\n30.02.1970,vielleicht\n"
    schema = Schema("table", "t", 5, columns)
    found = [f.text for f in findings(tmp_path, text, schema) if f.level == "error"]
    first = ", the first in row 2 below the header"
    assert found == [f"1 cell is not days as %d.%m.%Y{first}", f"1 cell is not nein or ja{first}"]
    with pytest.raises(DataError, match=r"days as %d.%m.%Y in column 'born'[^$]*in row 2"):
        read(tmp_path / "rows.csv", schema)


def test_days_are_expected_as_most_of_the_file_has_them(tmp_path) -> None:
    """A schema that states no format must not be told that all days are wrong."""
    days = [f"{day:02}.01.1970" for day in range(13, 29)]
    text = "born\n" + "\n".join([*days, "31.02.1970", "1970"])
    schema = Schema("table", "t", 50, (Column("born", "date", "1900-01-01", "2000-12-31"),))
    (error,) = (f for f in findings(tmp_path, text, schema) if f.level == "error")
    assert error.text == "2 cells are not days as %d.%m.%Y, the first in row 17 below the header"
    with pytest.raises(DataError, match=r"days as %d.%m.%Y in column 'born'"):
        read(tmp_path / "rows.csv", schema)


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_not_said_to_fit_but_read_as_a_site_without_rows(tmp_path, text) -> None:
    (found,) = findings(tmp_path, text)
    assert found.level == "error" and "empty: no columns, no rows" in found.text
    assert len(read(tmp_path / "rows.csv", SCHEMA)) == 0


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.parquet", "rows.npz"])
def test_empty_files_of_any_kind_are_not_said_to_fit(tmp_path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    images = Schema("image", "i", 9, shape=(4, 4))
    schemas = [SCHEMA, LONG, images] if name == "rows.npz" else [SCHEMA, LONG]
    for schema in schemas:
        (found,) = check(schema, path)
        assert found.level == "error" and "the file is empty" in found.text
        assert len(read(path, schema)) == 0


@pytest.mark.parametrize("kind", ["table", "series"])
def test_a_header_alone_fits_without_rows(tmp_path, kind: str) -> None:
    text, schema = ("age,ward,ill\n", SCHEMA) if kind == "table" else ("id,t,v\n", LONG)
    found = findings(tmp_path, text, schema)
    assert [f.level for f in found] == ["ok", "note"]
    assert found[0].text == "the declared columns are there"
    assert "no rows" in found[1].text and "contributes nothing" in found[1].text


def test_missing_labels_are_filled_or_left_out_never_declared(tmp_path) -> None:
    error = findings(tmp_path, "age,ward,ill\n3,a,\n")[-1]
    said = (
        "1 cell is missing, the first in row 1 below the header; fill them, or leave the rows out"
    )
    assert error.text == said
    error = findings(tmp_path, "age,ward,ill\n3,,1\n")[-1]
    assert "set missing = true" in error.text
    (tmp_path / "rows.csv").write_text("age,ward,ill\n3,a,\n")
    with pytest.raises(DataError, match=r"Do: fill them, or leave the rows out$"):
        read(tmp_path / "rows.csv", SCHEMA)
    frame = pd.DataFrame({"age": [3], "ward": ["a"], "ill": [None]})
    with pytest.raises(DataError, match=r"Do: fill them, or leave the rows out$"):
        encode(SCHEMA, Records(frame=frame))


def test_one_class_and_more_rows_than_declared_are_noted(tmp_path) -> None:
    assert "1 of 2 classes" in findings(tmp_path, "age,ward,ill\n3,a,1\n")[-1].text
    many = findings(tmp_path, "age,ward,ill\n" + "3,a,1\n3,a,0\n" * 5)
    assert many[0].level == "note" and "more than the 5" in many[0].text


def test_rows_beyond_the_cap_are_counted(tmp_path) -> None:
    schema = Schema(
        "table", "t", 9, (Column("age", "integer", 0, 9),), person="who", rows_per_person=1
    )
    found = findings(tmp_path, "who,age\nx,1\nx,2\ny,3\n", schema)
    assert found[-1].rows == 1 and "beyond 1 per person" in found[-1].text


LONG = Schema(
    "series",
    "s",
    9,
    (Column("v", "numeric", -1, 1),),
    shape=(2, 1),
    layout="long",
    series="id",
    time="t",
)


def test_series_in_a_table_are_checked_by_channel_then_as_a_whole(tmp_path) -> None:
    text = "id,t,v\na,1,0.5\na,0,9\nb,0,\nb,1,0\n"
    assert [f.text for f in findings(tmp_path, text, replace(LONG, fill=0))] == [
        "2 series",
        "1 cell is missing and become 0",
        "1 value outside -1.0 to 1.0 is clamped",
    ]
    found = findings(tmp_path, text, LONG)
    assert [f.level for f in found] == ["ok", "note", "error"] and "set fill" in found[-1].text
    found = findings(tmp_path, "id,t,v\na,1,0.5\na,0,secret\n", LONG)
    assert found[-1].level == "error" and "secret" not in found[-1].text
    (found,) = findings(tmp_path, "id,t,v\na,1,0.5\n", LONG)
    assert found.level == "error" and "1 shorter" in found.text
    (found,) = findings(tmp_path, "id,t,v\n", replace(LONG, layout=None, series=None, time=None))
    assert found.level == "error" and "layout" in found.text


def test_overlapping_windows_are_noted(tmp_path) -> None:
    text = "id,t,v\na,0,0\na,1,0\na,2,0\n"
    found = findings(tmp_path, text, replace(LONG, stride=1))
    assert found[0].text == "2 series" and "in up to 2 records" in found[1].text
    assert len(findings(tmp_path, text, replace(LONG, stride=2))) == 1


def test_series_count_what_is_clamped_and_refuse_wrong_shapes(tmp_path) -> None:
    schema = Schema("series", "s", 9, (Column("v", "numeric", -1, 1),), shape=(4, 1))
    path = tmp_path / "a.npz"
    np.savez(path, X=np.array([[0, 0, 5, 9], [0, 0, 0, 0.0]]))
    assert [(f.column, f.rows) for f in check(schema, path)[1:]] == [("v", 2)]
    np.savez(path, X=np.zeros((2, 5)))
    assert check(schema, path)[0].level == "error"
    assert "nothing at" in check(schema, tmp_path / "none.npz")[0].text


def test_rows_that_break_a_rule_are_counted(tmp_path) -> None:
    when, then = Test("ward", one_of=("a",)), Test("age", at_least=18)
    ruled = replace(SCHEMA, rules=(Rule((when,), (then,)),))
    found = findings(tmp_path, "age,ward,ill\n17,a,1\n18,a,0\n3,b,0\n,a,1\n", ruled)
    said = [(f.level, f.rows) for f in found if "rule" in f.text]
    assert said == [("note", 1)]


@pytest.mark.parametrize(
    ("header", "said"),
    [("AGE,ward,ill", "rename 'AGE'; did you mean that?"), ("AGE,WARD,ILL", "rename 'AGE'")],
)
def test_a_name_in_another_case_is_recognised(tmp_path, header: str, said: str) -> None:
    (found,) = findings(tmp_path, f"{header}\n3,a,1\n")
    assert found.level == "error" and "no 'age'" in found.text and said in found.text


def test_no_other_name_is_quoted_where_one_is_missing(tmp_path) -> None:
    (found,) = findings(tmp_path, "secret,ward,ill\n3,a,1\n")
    assert "secret" not in found.text and "rename or add them" in found.text
