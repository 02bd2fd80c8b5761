from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.encode import blocks, decode, encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import DataError

FIRST = date(1800, 1, 1)


@st.composite
def bounded(draw: st.DrawFn, name: str, missing: bool) -> tuple[Column, st.SearchStrategy]:
    kind = draw(st.sampled_from(["numeric", "integer", "date"]))
    if kind == "date":
        low = FIRST + timedelta(draw(st.integers(0, 100_000)))
        high = low + timedelta(draw(st.integers(1, 100_000)))
        return Column(name, kind, low, high, missing=missing), st.dates(low, high).map(str)
    low, span = draw(st.integers(-(10**6), 10**6)), draw(st.integers(1, 2**23))
    column = Column(name, kind, low, low + span, missing=missing)
    if kind == "integer":
        return column, st.integers(low, low + span)
    decimals, span = draw(st.integers(0, 3)), draw(st.integers(1, 1000))
    scale = 10**decimals
    column = Column(name, kind, low, low + span, missing=missing, decimals=decimals)
    return column, st.integers(low * scale, (low + span) * scale).map(lambda v: v / scale)


@st.composite
def columns(draw: st.DrawFn, name: str) -> tuple[Column, st.SearchStrategy]:
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["bounded", "categorical", "boolean"]))
    if kind == "boolean":
        column, cells = Column(name, "boolean", missing=missing), st.booleans()
    elif kind == "categorical":
        text = st.text("abcXYZ019 ?é", min_size=1, max_size=4).filter(lambda t: t == t.strip())
        names = draw(st.lists(text, min_size=1, max_size=6, unique=True))
        column = Column(name, "categorical", categories=tuple(names), missing=missing)
        cells = st.sampled_from(names)
    else:
        column, cells = draw(bounded(name, missing))
    return column, cells | st.none() if missing else cells


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Records]:
    pairs = [draw(columns(f"c{i}")) for i in range(draw(st.integers(1, 4)))]
    label = Column("y", "categorical", categories=("no", "yes"))
    place = draw(st.integers(0, len(pairs)))
    pairs.insert(place, (label, st.sampled_from(["no", "yes"])))
    n = draw(st.integers(0, 6))
    frame = pd.DataFrame(
        {
            c.name: pd.Series(draw(st.lists(v, min_size=n, max_size=n)), dtype=object)
            for c, v in pairs
        }
    )
    schema = Schema("table", "t", 10, tuple(c for c, _ in pairs), label="y")
    return schema, from_frame(frame, schema)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(tables())
def test_decoding_an_encoded_table_gives_it_back_exactly(table: tuple[Schema, Records]) -> None:
    schema, records = table
    encoded = encode(schema, records)
    assert encoded.x.shape == (len(records), schema.width) and encoded.x.dtype == np.float32
    assert not len(records) or (encoded.x.min() >= 0 and encoded.x.max() <= 1)
    pd.testing.assert_frame_equal(decode(schema, encoded.x, encoded.y).frame, records.frame)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(0, 2**32 - 1))
def test_any_soft_output_decodes_to_a_row_the_schema_allows(
    table: tuple[Schema, Records], seed: int
) -> None:
    schema, _ = table
    rng = np.random.default_rng(seed)
    x = rng.normal(0.5, 2, (8, schema.width)).astype(np.float32)
    records = decode(schema, x, rng.integers(0, 2, 8))
    encoded = encode(schema, records)
    pd.testing.assert_frame_equal(decode(schema, encoded.x, encoded.y).frame, records.frame)


@given(st.floats(-100, 100), st.floats(1e-3, 1e6), st.floats(0, 1))
def test_numbers_without_declared_decimals_return_to_single_precision(
    low: float, span: float, share: float
) -> None:
    schema = Schema("table", "t", 1, (Column("c", "numeric", low, low + span),))
    value = min(low + share * span, low + span)
    encoded = encode(schema, Records(frame=pd.DataFrame({"c": [value]})))
    back = decode(schema, encoded.x, encoded.y).frame["c"][0]
    assert abs(back - value) <= span * 2**-23


MIXED = Schema(
    "table",
    "t",
    10,
    (
        Column("age", "integer", 0, 120, missing=True),
        Column("ward", "categorical", categories=("a", "b", "rest"), other="rest", missing=True),
        Column("ill", "boolean"),
        Column("fit", "boolean", missing=True),
    ),
    label="ill",
)


def frame(**changes: list) -> pd.DataFrame:
    cells = {"age": [3, 60], "ward": ["a", "b"], "ill": [True, False], "fit": [True, None]}
    return pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in (cells | changes).items()})


def test_blocks_tile_the_features_in_declared_order_without_the_label() -> None:
    found = blocks(MIXED)
    assert [(b.column, b.kind, b.stop - b.start) for b in found] == [
        ("age", "integer", 1),
        ("age", "missing", 1),
        ("ward", "categorical", 4),
        ("fit", "boolean", 1),
        ("fit", "missing", 1),
    ]
    assert [b.start for b in found[1:]] == [b.stop for b in found[:-1]]
    assert found[-1].stop == MIXED.width == 8


def test_the_encoding_is_what_the_schema_says() -> None:
    encoded = encode(MIXED, Records(frame=frame(age=[60, None], ward=["rest", None])))
    assert encoded.x.tolist() == [[0.5, 0, 0, 0, 1, 0, 1, 0], [0.5, 1, 0, 0, 0, 1, 0.5, 1]]
    assert encoded.y.tolist() == [1, 0]


def test_out_of_bounds_and_infinite_values_are_clamped() -> None:
    encoded = encode(MIXED, Records(frame=frame(age=[-5, 500])))
    assert encoded.x[:, 0].tolist() == [0, 1]
    encoded = encode(MIXED, Records(frame=frame(age=[-np.inf, np.inf])))
    assert encoded.x[:, 0].tolist() == [0, 1] and encoded.x[:, 1].tolist() == [0, 0]


def test_an_unknown_category_becomes_other_and_never_extends_the_domain() -> None:
    encoded = encode(MIXED, Records(frame=frame(ward=["zzz", "b"])))
    assert encoded.x[0, 2:6].tolist() == [0, 0, 1, 0]


def test_an_unknown_category_without_other_is_refused_without_its_value() -> None:
    schema = Schema("table", "t", 1, (Column("ward", "categorical", categories=("a",)),))
    with pytest.raises(DataError, match=r"'ward'.*1 rows") as caught:
        encode(schema, Records(frame=pd.DataFrame({"ward": ["a", "zzz"]})))
    assert "zzz" not in str(caught.value)


@pytest.mark.parametrize("cell", [None, np.nan, "", "?", "NA"])
def test_a_missing_cell_is_refused_where_none_is_allowed(cell: object) -> None:
    schema = Schema("table", "t", 1, (Column("w", "numeric", 0, 1),))
    with pytest.raises(DataError, match=r"'w'.*1 rows"):
        encode(schema, Records(frame=pd.DataFrame({"w": [0.5, cell]})))


def test_a_listed_category_is_a_category_even_if_it_reads_like_missing() -> None:
    schema = Schema("table", "t", 1, (Column("w", "categorical", categories=("?", "NA")),))
    assert encode(schema, Records(frame=pd.DataFrame({"w": ["NA", "?"]}))).x.argmax(1).tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize(("kind", "cell"), [("integer", "1.5"), ("integer", "x"), ("date", "7")])
def test_a_cell_of_the_wrong_kind_is_refused_without_its_value(kind: str, cell: str) -> None:
    low, high = ("2020-01-01", "2021-01-01") if kind == "date" else (0, 9)
    schema = Schema("table", "t", 1, (Column("w", kind, low, high),))
    with pytest.raises(DataError, match="'w'") as caught:
        encode(schema, Records(frame=pd.DataFrame({"w": [cell]})))
    assert repr(cell) not in str(caught.value)


def test_no_rows_one_row_and_one_class_encode_like_any_other() -> None:
    for n in (0, 1):
        encoded = encode(MIXED, Records(frame=frame().iloc[:n]))
        assert encoded.x.shape == (n, 8) and encoded.y.shape == (n,)
        assert len(decode(MIXED, encoded.x, encoded.y)) == n


def test_rows_per_person_are_capped_in_file_order() -> None:
    schema = Schema(
        "table", "t", 9, (Column("v", "integer", 0, 9),), person="who", rows_per_person=2
    )
    rows = pd.DataFrame({"who": ["a", "b", "a", "a", "b"], "v": [1, 2, 3, 4, 5]})
    encoded = encode(schema, from_frame(rows, schema))
    assert np.rint(encoded.x[:, 0] * 9).tolist() == [1, 2, 3, 5]
    assert encoded.person.tolist() == [0, 1, 0, 1] and encoded.rows.tolist() == [0, 1, 2, 4]
    pd.testing.assert_frame_equal(
        rows[["v"]].iloc[:0], decode(schema, encoded.x[:0], encoded.y[:0]).frame
    )


@pytest.mark.parametrize("blank", [None, "", "NA"])
def test_a_row_without_person_is_refused(blank: str | None) -> None:
    schema = Schema(
        "table", "t", 9, (Column("v", "integer", 0, 9),), person="who", rows_per_person=1
    )
    with pytest.raises(DataError, match="a person in every row"):
        encode(schema, from_frame(pd.DataFrame({"who": ["a", blank], "v": [1, 2]}), schema))


def test_more_than_fits_in_memory_is_refused_up_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.data.records.memory_limit", lambda: 10)
    with pytest.raises(DataError, match="GiB"):
        encode(MIXED, Records(frame=frame()))


def test_classes_that_only_look_like_numbers_are_texts() -> None:
    schema = Schema("image", "marks", 9, classes=("--1", "2"), shape=(2, 2))
    images = Records(images=np.zeros((2, 2, 2), np.uint8), labels=np.array(["2", "--1"]))
    encoded = encode(schema, images)
    assert encoded.y.tolist() == [1, 0]
    assert decode(schema, encoded.x, encoded.y).labels.tolist() == ["2", "--1"]


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (4, 4, 3)])
def test_images_come_back_exactly(shape: tuple[int, ...]) -> None:
    schema = Schema("image", "i", 9, classes=("cat", "dog"), shape=shape)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, *shape), dtype=np.uint8)
    labels = np.array(["dog", "cat", "cat", "dog", "dog"])
    encoded = encode(schema, Records(images=images, labels=labels))
    back = decode(schema, encoded.x, encoded.y)
    assert encoded.y.tolist() == [1, 0, 0, 1, 1]
    assert np.array_equal(back.images, images) and back.labels.tolist() == labels.tolist()


def test_number_labels_are_names_if_the_classes_are_numbers_and_else_positions() -> None:
    images = np.zeros((2, 2, 2), np.uint8)
    numbers = Schema("image", "i", 9, classes=("5", "1"), shape=(2, 2))
    words = Schema("image", "i", 9, classes=("cat", "dog"), shape=(2, 2))
    labels = np.array([1, 5])
    encoded = encode(numbers, Records(images=images, labels=labels))
    assert encoded.y.tolist() == [1, 0]
    assert decode(numbers, encoded.x, encoded.y).labels.tolist() == [1, 5]
    assert encode(words, Records(images=images, labels=np.array([1, 0]))).y.tolist() == [1, 0]
    with pytest.raises(DataError, match="1 that are not"):
        encode(words, Records(images=images, labels=np.array([1, 2])))
    with pytest.raises(DataError, match="a label for each record"):
        encode(words, Records(images=images))


def test_series_are_clamped_per_channel_and_come_back() -> None:
    channels = (Column("a", "integer", -100, 100), Column("b", "numeric", 0, 1, decimals=3))
    schema = Schema("series", "s", 9, channels, shape=(4, 2))
    rng = np.random.default_rng(0)
    series = np.stack([rng.integers(-100, 101, (3, 4)), rng.random((3, 4)).round(3)], axis=2)
    encoded = encode(schema, Records(series=series))
    assert encoded.x.shape == (3, 8) and encoded.y.tolist() == [0, 0, 0]
    assert np.array_equal(decode(schema, encoded.x, encoded.y).series, series)
    wild = encode(schema, Records(series=series + np.array([np.inf, 5])))
    assert (wild.x == 1).all()
    with pytest.raises(DataError, match="3 series"):
        encode(schema, Records(series=series * np.nan))


@pytest.mark.parametrize(
    ("x", "y"), [(np.zeros((1, 7)), [0]), (np.full((1, 8), np.nan), [0]), (np.zeros((1, 8)), [2])]
)
def test_what_no_generator_should_give_is_refused(x: np.ndarray, y: list[int]) -> None:
    with pytest.raises(DataError):
        decode(MIXED, x, np.array(y))


@pytest.mark.parametrize("extra", [0.5, "other", None])
def test_a_row_is_read_alike_whatever_the_other_rows_hold(extra: object) -> None:
    column = Column("c", "categorical", categories=("0", "1", "other"), other="other", missing=True)
    schema = Schema("table", "t", 10, (column,))
    few = encode(schema, from_frame(pd.DataFrame({"c": [0.0, 1.0, 0.0]}), schema))
    more = encode(schema, from_frame(pd.DataFrame({"c": [0.0, 1.0, 0.0, extra]}), schema))
    assert np.array_equal(more.x[:3], few.x)


def priced() -> Schema:
    columns = (
        Column("rooms", "integer", 0, 20),
        Column("price", "numeric", 0, 1e6, decimals=2, scale="log"),
        Column("sold", "timestamp", "2020-01-01", "2020-03-01", missing=True),  # type: ignore[arg-type]
    )
    return Schema("table", "houses", 100, columns, label="price")


def test_a_numeric_label_is_encoded_as_a_feature() -> None:
    schema = priced()
    frame = pd.DataFrame(
        {
            "rooms": ["3", "4"],
            "price": ["1250.75", "999999"],
            "sold": ["2020-01-31 23:59:58", ""],
        }
    )
    encoded = encode(schema, from_frame(frame, schema))
    assert encoded.x.shape == (2, schema.width) == (2, 4)
    assert encoded.y.tolist() == [0, 0]
    back = decode(schema, encoded.x, encoded.y).frame
    assert back is not None
    assert back["price"].tolist() == pytest.approx([1250.75, 999999], rel=1e-5)
    assert back["sold"].iloc[0] == pd.Timestamp("2020-01-31 23:59:58")
    assert back["sold"].isna().tolist() == [False, True]


def test_a_missing_numeric_label_is_refused() -> None:
    frame = pd.DataFrame({"rooms": [3, 4], "price": [1.0, None], "sold": ["", ""]})
    with pytest.raises(DataError, match="leave the rows out"):
        from_frame(frame, priced())


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-01-31 23:00:00", "2020-02-01"],
        ["2020-01-31T23:00:00", "2020-02-01T00:00"],
        ["2020-02-01T01:00:00+02:00", "2020-02-01T00:00:00Z"],
        pd.DatetimeIndex(["2020-01-31T23", "2020-02-01T00"]),
        pd.DatetimeIndex(["2020-01-31T23", "2020-02-01T00"]).tz_localize("UTC").tz_convert("CET"),
    ],
)
def test_times_are_read_alike_from_text_and_types(cells) -> None:
    frame = pd.DataFrame({"rooms": [3, 4], "price": [1.0, 2.0], "sold": cells})
    held = from_frame(frame, priced()).frame
    assert held is not None
    assert held["sold"].astype(str).tolist() == ["2020-01-31 23:00:00", "2020-02-01 00:00:00"]


def test_what_is_no_time_is_refused() -> None:
    frame = pd.DataFrame({"rooms": [3], "price": [1.0], "sold": ["noon"]})
    with pytest.raises(DataError, match="times as YYYY-MM-DD HH:MM:SS"):
        from_frame(frame, priced())


def test_truth_values_are_categories_where_the_schema_says_so() -> None:
    weekend = Column("weekend", "categorical", categories=("False", "True"))
    schema = Schema("table", "t", 10, (weekend,))
    frame = pd.DataFrame({"weekend": [True, False, True]})
    assert encode(schema, from_frame(frame, schema)).x.argmax(1).tolist() == [1, 0, 1]
