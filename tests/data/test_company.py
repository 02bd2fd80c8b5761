"""How a record is read must not hang on another record: the claim about records rests on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.data.column import Column
from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.data.series import series_from_frame as series_of
from understudy.data.table import read
from understudy.errors import DataError

WORD = Column("w", "categorical", categories=("łąka", "x", "?"), other="?")
WORDS = Schema("table", "words", 100, (WORD, Column("v", "integer", 0, 9)))


def codes(folder: Path, data: bytes, schema: Schema) -> np.ndarray:
    path = folder / "rows.csv"
    path.write_bytes(data)
    return encode(schema, read(path, schema)).x


def test_one_odd_byte_does_not_spoil_the_letters_of_other_rows(tmp_path: Path) -> None:
    rows = b"w,v\n" + 50 * "łąka,1\n".encode()
    assert codes(tmp_path, rows, WORDS)[:, 0].all()
    with pytest.raises(DataError, match="encoding"):
        codes(tmp_path, rows + b"\xe9,2\n", WORDS)


def test_one_row_of_a_column_does_not_decide_how_another_is_written(tmp_path: Path) -> None:
    schema = Schema(
        "table", "n", 100,
        (Column("a", "numeric", 0.0, 9.0, decimal=","), Column("b", "numeric", 0.0, 9999.0)),
    )  # fmt: skip
    rows = b"a;b\n" + 50 * b"1;1.234\n"
    before = codes(tmp_path, rows, schema)
    with pytest.raises(DataError, match="settles"):
        codes(tmp_path, rows + b"1,5;1.234\n", schema)
    assert before[0, 1] < 0.001


def test_blanks_before_quotes_are_found_beyond_the_first_lines(tmp_path: Path) -> None:
    late = b"v,w\n" + 100_000 * b"1,?\n" + 50 * b'1, "x"\n'
    early = b"v,w\n" + b'1, "x"\n' + late.removeprefix(b"v,w\n")
    found = codes(tmp_path, late, WORDS)
    assert found[-1, 1] == 1 and np.array_equal(codes(tmp_path, early, WORDS)[1:], found)


def test_one_long_series_does_not_decide_how_others_are_written() -> None:
    schema = Schema(
        "series", "s", 60, (Column("v", "numeric", 0.0, 9999.0),),
        shape=(24, 1), layout="long", series="id", time="t",
    )  # fmt: skip

    def frame(n: int, value: str, start: int) -> pd.DataFrame:
        ids = np.repeat(np.arange(start, start + n), 24).astype(str)
        return pd.DataFrame({"id": ids, "t": np.tile(np.arange(24), n).astype(str), "v": value})

    others = frame(50, "1.234", 0)
    before = series_of(others, schema).series
    assert before is not None and float(before.max()) < 2
    with pytest.raises(DataError):
        series_of(pd.concat([others, frame(1, "1,5", 50)], ignore_index=True), schema)
