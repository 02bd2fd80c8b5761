"""Files as people export them: read, or refused with the line and the fix; written alike."""

from __future__ import annotations

import gzip

import pandas as pd
import pytest

from understudy.data.check import check
from understudy.data.dialect import FileForm, find_dialect
from understudy.data.draft import draft
from understudy.data.encode import decode, encode
from understudy.data.schema import Column, Schema
from understudy.data.table import read, write
from understudy.errors import DataError, OutputError, SchemaError

SCHEMA = Schema(
    "table",
    "t",
    10,
    (
        Column("age", "integer", 0, 120),
        Column("cost", "numeric", 0, 10_000, decimals=2, missing=True),
        Column("seen", "date", "2020-01-01", "2030-01-01"),  # type: ignore[arg-type]
        Column("ward", "categorical", categories=("Süd; alt", "Nord")),
        Column("ill", "boolean"),
    ),
    label="ill",
)
ROWS = [[30, 1234.5, "2021-12-24", "Süd; alt", True], [41, None, "2022-01-31", "Nord", False]]

GERMAN = (
    'age;cost;seen;ward;ill\r\n30;1.234,50;24.12.2021;"Süd; alt";ja\r\n41;;31.01.2022;Nord;nein\r\n'
)
ENGLISH = 'age,cost,seen,ward,ill\n30,"$1,234.50",12/24/2021,Süd; alt,yes\n41,,1/31/2022,Nord,no\n'
TABS = (
    "age\tcost\tseen\tward\till\n30\t1234.5\t2021-12-24\tSüd; alt\t1\n41\tNA\t2022-01-31\tNord\t0\n"
)
FILES = {
    "decimal commas, semicolons": GERMAN.encode(),
    "a byte order mark": GERMAN.encode("utf-8-sig"),
    "UTF-16": GERMAN.encode("utf-16"),
    "cp1252": GERMAN.encode("cp1252"),
    "Excel's first line": ("sep=;\r\n" + GERMAN).encode("utf-8-sig"),
    "blank first lines": ("\r\n \r\n" + GERMAN).encode(),
    "lines that end in a separator": GERMAN.replace("\r\n", ";\r\n").encode(),
    "month first, currency, thousands": ENGLISH.encode(),
    "tabs": TABS.encode(),
    "vertical bars": TABS.replace("\t", "|").encode(),
    "blanks before quotes": ENGLISH.replace(',"', ', "').encode(),
    "quotes everywhere": "\n".join(
        ";".join(f'"{cell}"' for cell in line.split("\t")) for line in TABS.splitlines()
    ).encode(),
}


def put(tmp_path, data: bytes, name: str = "rows.csv"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def rows(frame: pd.DataFrame | None) -> list[list[object]]:
    assert frame is not None
    held = frame.assign(seen=frame["seen"].dt.strftime("%Y-%m-%d"))
    return held.astype(object).where(held.notna(), None).values.tolist()


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_files_in_any_dialect_hold_the_same_rows(tmp_path, data: bytes) -> None:
    assert rows(read(put(tmp_path, data), SCHEMA).frame) == ROWS
    packed = put(tmp_path, gzip.compress(data), "rows.csv.gz")
    assert rows(read(packed, SCHEMA).frame) == ROWS


def test_the_line_that_excel_puts_first_is_said(tmp_path) -> None:
    excel = find_dialect(put(tmp_path, "sep=;\r\na;ä\r\n1;2\r\n".encode("cp1252")))
    assert [note[:25] for note in excel.describe()] == [
        "semicolons between cells", "a first line sep=; is pas", "no UTF-8, so read as cp12",
    ]  # fmt: skip


def test_what_the_schema_says_of_a_file_is_not_told_again(tmp_path) -> None:
    excel = find_dialect(put(tmp_path, "sep=;\r\na;ä\r\n1;2\r\n".encode("cp1252")))
    assert excel.describe(FileForm(";", "cp1252")) == []
    plain = find_dialect(put(tmp_path, b"a,b\n1,2\n"))
    assert plain.describe(FileForm(";", "cp1252")) == ["commas between cells"]


def test_tabs_come_as_tsv_or_txt_and_go_out_as_tsv(tmp_path) -> None:
    for name in ("rows.tsv", "rows.txt", "rows.TSV.gz"):
        data = gzip.compress(TABS.encode()) if name.endswith("gz") else TABS.encode()
        assert rows(read(put(tmp_path, data, name), SCHEMA).frame) == ROWS
    assert "separator" in draft(tmp_path / "rows.tsv", label="ill")[0]
    write(read(tmp_path / "rows.tsv", SCHEMA), tmp_path / "out.tsv", SCHEMA)
    assert find_dialect(tmp_path / "out.tsv").separator == "\t"
    assert rows(read(tmp_path / "out.tsv", SCHEMA).frame) == ROWS


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_what_was_found_is_said_by_check(tmp_path, data: bytes) -> None:
    found = check(SCHEMA, put(tmp_path, data))
    assert not [f for f in found if f.level == "error"]
    plain = find_dialect(tmp_path / "rows.csv").describe() == []
    assert plain or any("rows.csv: " in f.text for f in found)


def test_the_schema_says_how_files_are_written(tmp_path) -> None:
    more = "35;2,75;01.02.2022;Nord;ja\r\n"
    text, warnings = draft(put(tmp_path, (GERMAN + more).encode("utf-8-sig")), label="ill")
    schema = Schema.parse(text)
    assert schema.file == FileForm(";", "utf-8-sig")
    assert any("semicolons" in warning for warning in warnings)
    assert Schema.parse(schema.to_toml()) == schema
    cost, seen, ill = (c for c in schema.columns if c.name in ("cost", "seen", "ill"))
    assert (cost.decimal, cost.thousands, seen.format) == (",", ".", "%d.%m.%Y")
    assert ill.kind == "categorical" and schema.classes == ("ja", "nein")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_what_comes_out_looks_like_what_went_in(tmp_path, encoding: str, name: str) -> None:
    """The same bytes, in fact, but for quotes: by batches, too."""
    form = {"decimal": ",", "thousands": ".", "decimals": 2}
    columns = (
        Column("age", "integer", 0, 120),
        Column("cost", "numeric", 0, 10_000, missing=True, **form),  # type: ignore[arg-type]
        Column("seen", "date", "2020-01-01", "2030-01-01", format="%d.%m.%Y"),  # type: ignore[arg-type]
        SCHEMA.columns[3],
        Column("ill", "boolean", words=("nein", "ja")),
    )
    file = FileForm(";", encoding)
    schema = Schema("table", "t", 10, columns, label="ill", file=file)
    data = GERMAN.replace("\r\n", "\n").encode(encoding)
    held = read(put(tmp_path, data), schema)
    coded = encode(schema, held)
    write(decode(schema, coded.x, coded.y), tmp_path / name, schema)
    made = (tmp_path / name).read_bytes()
    assert (gzip.decompress(made) if name.endswith("gz") else made) == data


def test_letters_that_the_encoding_lacks_are_refused(tmp_path) -> None:
    columns = (Column("a", "categorical", categories=("Ω", "b")), Column("n", "integer", 0, 9))
    schema = Schema("table", "t", 10, columns, file=FileForm(encoding="cp1252"))
    held = read(put(tmp_path, "a,n\nΩ,1\n".encode()), schema)
    with pytest.raises(OutputError, match="letters of cp1252"):
        write(held, tmp_path / "out.csv", schema)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"age;cost\n1;2\n\n3;4;5\n", "2 cells in each line, as in the header; found 3 in line 4"),
        (b'age;cost\n1;"x\ny"\n3\n', "found 1 in line 4"),
        (b"sep=;\nage;cost\n1\n", "found 1 in line 3"),
        (b'age;cost\n1;"2\n3;4\n', "quotes in pairs"),
        (b"age,cost\n1,\0\n", "zero bytes"),
        ("age,cost\n1,é\n".encode("utf-16-le"), "re-export it as UTF-8"),
        (b"age;cost;\n1;2;3\n", "a name for every column"),
    ],
)
def test_files_that_cannot_be_read_are_refused_with_the_line_and_the_fix(
    tmp_path, data: bytes, message: str
) -> None:
    columns = (Column("age", "integer", 0, 9), Column("cost", "numeric", 0, 9))
    with pytest.raises(DataError, match=message):
        read(put(tmp_path, data), Schema("table", "t", 10, columns))


def test_wrong_cells_are_refused_with_their_row(tmp_path) -> None:
    data = b"age;cost;seen;ward;ill\n30;1;2021-12-24;Nord;1\n30;much;2021-12-24;Nord;1\n"
    with pytest.raises(DataError, match="the first in row 2 below the header") as caught:
        read(put(tmp_path, data), SCHEMA)
    assert "much" not in str(caught.value)


def test_a_separator_that_fits_as_well_is_named(tmp_path) -> None:
    found = find_dialect(put(tmp_path, b"a;b,c\n1;2,3\n4;5,6\n"))
    assert "would fit, too" in " ".join(found.describe())
    named = find_dialect(tmp_path / "rows.csv", ("a", "b,c"))
    assert named.separator == ";" and not named.other


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('file = "a"', "a \\[file\\] table"),
        ('file.separator = "-"', "file.separator one of"),
        ('file.encoding = "ebcdic"', "file.encoding one of"),
        ('file.sep = ";"', "separator, encoding"),
    ],
)
def test_forms_of_files_that_cannot_be_are_refused(entry: str, message: str) -> None:
    text = 'kind = "table"\nname = "t"\nrecords = 1\n'
    column = '[columns.a]\nkind = "boolean"\n'
    with pytest.raises(SchemaError, match=message):
        Schema.parse(f"{text}{entry}\n{column}")


def test_a_column_of_very_many_texts_is_left_to_a_human(tmp_path) -> None:
    lines = "".join(f"{i % 7},remark no. {i}\n" for i in range(100_000))
    path = put(tmp_path, ("n,remark\n" + lines).encode())
    text, warnings = draft(path)
    assert "remark no." not in text
    assert any("Needs your decision: remark" in warning for warning in warnings)
    fixed = Schema.parse(text.replace('kind = "unclassified"', 'kind = "ignore"'))
    assert len(read(path, fixed)) == 100_000
