from __future__ import annotations

import gzip
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

from understudy.data.arrays import load_npz
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame, read, read_frame, write
from understudy.errors import DataError, OutputError

SCHEMA = Schema(
    "table",
    "t",
    10,
    (
        Column("age", "integer", 0, 120, missing=True),
        Column("ward", "categorical", categories=("a", "NA", "é, x"), missing=True),
        Column("seen", "date", "2020-01-01", "2030-01-01", missing=True),
        Column("weight", "numeric", 0, 500, missing=True),
        Column("ill", "boolean", missing=True),
    ),
    ignore=("note",),
)
HEADER = "age,ward,seen,weight,ill\n"
ROW = "30,a,2020-02-03,70.25,yes\n"


def put(tmp_path, text: str, encoding: str = "utf-8"):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding=encoding)
    return path


def frame(n: int = 3) -> pd.DataFrame:
    cells = {
        "age": [30, None, 999],
        "ward": ["é, x", "NA", None],
        "seen": ["2020-02-03", None, "2029-12-31"],
        "weight": [70.25, np.inf, None],
        "ill": [True, None, False],
    }
    return pd.DataFrame({k: pd.Series(v[:n], dtype=object) for k, v in cells.items()})


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_written_table_reads_back_the_same(tmp_path, name: str, n: int) -> None:
    records = from_frame(frame(n), SCHEMA)
    write(records, tmp_path / name)
    pd.testing.assert_frame_equal(read(tmp_path / name, SCHEMA).frame, records.frame)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_cells_are_read_by_declared_kind(tmp_path) -> None:
    found = read(put(tmp_path, HEADER + " 30.0 , a ,2020-02-03,1e2, No \n,NA,?,,\n"), SCHEMA).frame
    assert found["age"].tolist() == [30, pd.NA]
    assert found["ward"].tolist() == ["a", "NA"]
    assert str(found["seen"][0].date()) == "2020-02-03" and pd.isna(found["seen"][1])
    assert found["weight"][0] == 100.0 and found["ill"][0] == False  # noqa: E712
    assert found.iloc[1].isna().tolist() == [True, False, True, True, True]


def test_typed_and_text_cells_give_the_same_records(tmp_path) -> None:
    typed = frame().assign(seen=pd.to_datetime(frame()["seen"]), age=[30.0, np.nan, 999.0])
    pd.testing.assert_frame_equal(
        from_frame(typed, SCHEMA).frame, from_frame(frame(), SCHEMA).frame
    )


def test_column_order_in_the_file_does_not_matter(tmp_path) -> None:
    path = put(tmp_path, "ill,weight,note,seen,ward,age\nyes,70.25,private,2020-02-03,a,30\n")
    found = read(path, SCHEMA).frame
    assert list(found.columns) == ["age", "ward", "seen", "weight", "ill"]
    pd.testing.assert_frame_equal(found, read(put(tmp_path, HEADER + ROW), SCHEMA).frame)


def test_a_byte_order_mark_is_tolerated(tmp_path) -> None:
    assert len(read(put(tmp_path, HEADER + ROW, "utf-8-sig"), SCHEMA)) == 1


@pytest.mark.parametrize("text", ["", "\n", HEADER])
def test_an_empty_file_is_a_site_without_rows(tmp_path, text: str) -> None:
    found = read(put(tmp_path, text), SCHEMA)
    assert len(found) == 0 and list(found.frame.columns) == [c.name for c in SCHEMA.columns]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz"])
def test_an_empty_file_of_any_format_is_a_site_without_rows(tmp_path, name: str) -> None:
    (tmp_path / name).touch()
    assert len(read(tmp_path / name, SCHEMA)) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,ward,seen,weight\n30,a,2020-02-03,70\n", "no 'ill'"),
        ("age,ward,seen,weight,ill,zip\n30,a,2020-02-03,70,yes,1\n", "also 'zip'"),
        ("age,ward,seen,weight,ill,age\n30,a,2020-02-03,70,yes,1\n", "repeated"),
        (HEADER + ROW + "1,a,2020-02-03,70,yes,1,2\n", "5 cells in each line.*7 in line 3"),
        (HEADER + "secret,a,2020-02-03,70,yes\n", "'age'.*1 rows"),
        (HEADER + "30,secret,2020-02-03,70,yes\n", "'ward'.*1 rows"),
        (HEADER + "30,a,secret,70,yes\n", "'seen'.*1 rows"),
        (HEADER + "30,a,32.02.2020,70,yes\n", "'seen'.*1 rows"),
        (HEADER + '30,a,2020-02-03,"7,0,5",yes\n', "'weight'.*1 rows"),
        (HEADER + "30,a,2020-02-03,70,secret\n", "'ill'.*1 rows"),
    ],
)
def test_what_does_not_fit_is_refused_without_values(tmp_path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(put(tmp_path, text), SCHEMA)
    assert "secret" not in str(caught.value)


def test_every_long_line_is_noticed(tmp_path) -> None:
    with pytest.raises(DataError, match=r"5 cells in each line.*6 in line 2"):
        read(put(tmp_path, HEADER + "1,30,a,2020-02-03,70,yes\n" * 3), SCHEMA)


def test_a_file_without_header_does_not_print_its_first_record(tmp_path) -> None:
    with pytest.raises(DataError, match="header line") as caught:
        read(put(tmp_path, "31415,secret,2020-02-03,70,yes\n"), SCHEMA)
    assert "secret" not in str(caught.value) and "31415" not in str(caught.value)


def test_another_encoding_is_read_and_said(tmp_path) -> None:
    said: list[str] = []
    row = '30,"é, x",2020-02-03,70,yes\n'
    held = read(put(tmp_path, HEADER + row, "cp1252"), SCHEMA, said=said.append).frame
    assert held is not None and held["ward"].tolist() == ["é, x"]
    assert "read as cp1252" in " ".join(said)


def test_two_encodings_in_one_file_are_refused(tmp_path) -> None:
    row = '30,"é, x",2020-02-03,70,yes\n'
    long = HEADER + ROW * 20_000
    path = tmp_path / "rows.csv"
    path.write_bytes(long.encode() + row.encode() + row.encode("cp1252"))
    with pytest.raises(DataError, match="text in one encoding"):
        read(path, SCHEMA)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz", "rows.csv.gz"])
def test_a_damaged_file_is_refused(tmp_path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK not really")
    with pytest.raises(DataError, match="readable"):
        read(tmp_path / name, SCHEMA)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz", "rows.csv.gz"])
def test_a_file_with_a_few_wrong_bytes_is_read_or_refused(tmp_path, name: str) -> None:
    """No byte leads to a traceback, whether it is in the packed part or says how it is packed."""
    path, rng = tmp_path / name, np.random.default_rng(0)
    if name == "rows.npz":
        np.savez_compressed(path, X=np.arange(90.0).reshape(30, 3), y=np.repeat(["a", "b"], 15))
    elif name == "rows.parquet":
        pd.DataFrame({"age": range(30), "ward": list("ab") * 15}).to_parquet(path)
    else:
        path.write_bytes(gzip.compress((HEADER + ROW * 30).encode()))
    whole = path.read_bytes()
    for _ in range(200):
        wrong = np.frombuffer(whole, np.uint8).copy()
        wrong[rng.integers(len(wrong), size=3)] = rng.integers(256, size=3)
        path.write_bytes(wrong.tobytes())
        with suppress(DataError):
            load_npz(path) if name == "rows.npz" else read_frame(path)


def test_unknown_files_are_refused(tmp_path) -> None:
    (tmp_path / "rows.xls").touch()
    with pytest.raises(DataError, match=r"\.csv"):
        read(tmp_path / "rows.xls", SCHEMA)
    with pytest.raises(DataError, match="nothing at"):
        read(tmp_path / "rows.csv", SCHEMA)


def test_a_declared_number_can_mean_missing() -> None:
    schema = Schema(
        "table", "t", 9, (Column("c", "numeric", -500, 500, missing=True),), missing_as=("-200",)
    )
    for cells in (["-200", "3"], [-200.0, 3.0], [-200, 3]):
        assert from_frame(pd.DataFrame({"c": cells}), schema).frame["c"].isna().tolist() == [
            True,
            False,
        ]


def test_the_person_is_kept_apart_from_the_table(tmp_path) -> None:
    schema = Schema(
        "table", "t", 9, (Column("age", "integer", 0, 99),), person="who", rows_per_person=1
    )
    found = read(put(tmp_path, "who,age\nx7,30\n"), schema)
    assert list(found.frame.columns) == ["age"] and found.person.tolist() == ["x7"]


def test_an_array_file_can_hold_a_table(tmp_path) -> None:
    columns = (Column("a", "boolean"), Column("b", "integer", 0, 9), Column("y", "boolean"))
    schema = Schema("table", "t", 9, columns, label="y")
    np.savez(tmp_path / "rows.npz", X=np.array([[0, 7], [1, 8]]), y=np.array([1, 0]))
    found = read(tmp_path / "rows.npz", schema).frame
    assert found.to_dict("list") == {"a": [False, True], "b": [7, 8], "y": [True, False]}
    np.savez(tmp_path / "rows.npz", X=np.zeros((2, 3)), y=np.zeros(2))
    with pytest.raises(DataError, match=r"\[rows, 2\]"):
        read(tmp_path / "rows.npz", schema)
    np.savez(tmp_path / "rows.npz", X=np.zeros((2, 2)))
    with pytest.raises(DataError, match="'y'"):
        read(tmp_path / "rows.npz", schema)


def test_records_can_be_taken_in_any_order() -> None:
    records = Records(images=np.arange(12).reshape(3, 2, 2), labels=np.array([5, 6, 7]))
    taken = records.take(np.array([2, 0]))
    assert len(taken) == 2 and taken.labels.tolist() == [7, 5] and taken.images[0, 0, 0] == 8
    assert from_frame(frame(), SCHEMA).take(np.array([2])).frame.index.tolist() == [0]


def test_output_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    records = from_frame(frame(), SCHEMA)
    with pytest.raises(OutputError, match="rename"):
        write(records, tmp_path / "rows.npz")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("understudy.data.written.lines", full)
    (tmp_path / "rows.csv").write_text("old")
    with pytest.raises(OutputError, match="No space"):
        write(records, tmp_path / "rows.csv")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
