from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.layout import overlap, overlap_notes
from understudy.data.schema import Column, Schema
from understudy.errors import SchemaError

TEXT = """
kind = "table"
name = "clinic"
records = 569
label = "diagnosis"
balance = [0.6, 0.4]
person = "patient"
rows_per_person = 2

[columns.age]
kind = "integer"
low = 0
high = 120
missing = true

[columns."blood pressure"]
kind = "numeric"
low = 40
high = 250.5
decimals = 1

[columns.ward]
kind = "categorical"
categories = ["a", "b", 3]
other = "b"

[columns.seen]
kind = "date"
low = 2020-01-01
high = "2024-12-31"

[columns.note]
kind = "ignore"

[columns.diagnosis]
kind = "boolean"
"""

BALANCED = 'label = "diagnosis"\nbalance = [0.6, 0.4]'


def schema(**changes: object) -> Schema:
    return replace(Schema.parse(TEXT), **changes)


def column(kind: str = "numeric", **values: object) -> Column:
    return Column("c", kind, **values)


def test_a_file_becomes_a_schema_in_declared_order() -> None:
    found = Schema.parse(TEXT)
    assert [c.name for c in found.columns] == ["age", "blood pressure", "ward", "seen", "diagnosis"]
    assert found.columns[2].categories == ("a", "b", "3")
    assert found.columns[3].low == date(2020, 1, 1) and found.columns[3].high == date(2024, 12, 31)
    assert found.classes == ("false", "true") and found.n_classes == 2
    assert found.ignore == ("note",)
    assert found.width == 2 + 1 + 3 + 1


def test_the_canonical_text_reads_back_to_the_same_schema_and_hash() -> None:
    found = Schema.parse(TEXT)
    again = Schema.parse(found.to_toml())
    assert again == found and again.hash == found.hash and again.to_toml() == found.to_toml()


def test_comments_and_key_order_do_not_change_the_hash_but_bounds_do() -> None:
    found = Schema.parse(TEXT)
    assert (
        Schema.parse("# hello\n" + TEXT.replace("low = 0\nhigh = 120", "high = 120\nlow = 0")).hash
        == found.hash
    )
    assert Schema.parse(TEXT.replace("high = 120", "high = 121")).hash != found.hash


names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


@given(names, st.lists(names, min_size=1, max_size=5, unique=True))
def test_any_printable_name_survives_the_file(name: str, categories: list[str]) -> None:
    found = Schema("table", name, 1, (Column(name, "categorical", categories=tuple(categories)),))
    assert Schema.parse(found.to_toml()) == found


@given(st.floats(-1e300, 1e300), st.floats(1e-9, 1e9))
def test_any_bound_survives_the_file(low: float, span: float) -> None:
    if low + span == low:
        return
    found = Schema("table", "t", 1, (Column("c", "numeric", low, low + span),))
    assert Schema.parse(found.to_toml()) == found


def test_load_reads_a_file_with_a_byte_order_mark(tmp_path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(TEXT, encoding="utf-8-sig")
    assert Schema.load(path) == Schema.parse(TEXT)


def test_a_missing_file_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(SchemaError, match=r"nowhere\.toml"):
        Schema.load(tmp_path / "nowhere.toml")


def test_an_unclassified_column_is_refused_until_a_human_decides() -> None:
    text = TEXT.replace('kind = "ignore"', 'kind = "unclassified"')
    with pytest.raises(SchemaError, match="note"):
        Schema.parse(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "table"', 'kind = "graph"', "table, image or series"),
        ("records = 569", "records = 0", "at least 1"),
        ("records = 569", "", "records"),
        ("records = 569", "recods = 569", "did you mean records"),
        ("low = 0\n", "lo = 0\n", "did you mean low"),
        ("low = 0\n", "", "low < high"),
        ("high = 120", "high = 0", "low < high"),
        ("high = 120", "high = 1.5", "low < high"),
        ("high = 250.5", "high = nan", "low < high"),
        ("high = 250.5", "high = inf", "low < high"),
        ("low = 2020-01-01", "low = 2020-01-01T00:00:00", "low < high"),
        ("decimals = 1", "decimals = 99", "0 to 15"),
        ("decimals = 1", 'other = "b"', "only in categorical"),
        ('["a", "b", 3]', '["a", "b", "b"]', "repeat"),
        ('["a", "b", 3]', '["a", " b"]', "blanks"),
        ('["a", "b", 3]', '["a", ""]', "blanks"),
        ('["a", "b", 3]', '"a"', "a list"),
        ('["a", "b", 3]', "[]", "categories"),
        ('other = "b"', 'other = "z"', "one of its categories"),
        ('label = "diagnosis"', 'label = "age"', "label without missing"),
        ('label = "diagnosis"', 'label = "nothing"', "one of the columns"),
        ("[0.6, 0.4]", "[0.6, 0.6]", "sum to 1"),
        ("[0.6, 0.4]", "[1.0]", "2 shares"),
        ("[0.6, 0.4]", '["a", "b"]', "numbers"),
        ("rows_per_person = 2", "", "together"),
        ("rows_per_person = 2", "rows_per_person = 0", "at least 1"),
        ('person = "patient"', 'person = "age"', "apart"),
        ("missing = true", "missing = 1", "true or false"),
        ("[columns.age]", "[columns.age", "TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(SchemaError, match=message):
        Schema.parse(TEXT.replace(old, new, 1))


def test_huge_cardinality_is_refused() -> None:
    many = tuple(str(i) for i in range(10_001))
    with pytest.raises(SchemaError, match="10000 categories"):
        column("categorical", categories=many)
    assert column("categorical", categories=many[1:]).width == 10_000


def test_too_many_columns_and_too_wide_rows_are_refused() -> None:
    with pytest.raises(SchemaError, match="columns"):
        Schema("table", "t", 1, tuple(Column(f"c{i}", "boolean") for i in range(10_001)))
    with pytest.raises(SchemaError, match="encoded features"):
        Schema("image", "t", 1, shape=(5000, 5000))


def test_images_need_a_shape_and_take_classes() -> None:
    found = Schema("image", "digits", 10, classes=("0", "1"), shape=(8, 8, 3))
    assert found.width == 192 and Schema.parse(found.to_toml()) == found
    for shape in ((), (8,), (8, 0), (8, 8, 2)):
        with pytest.raises(SchemaError):
            replace(found, shape=shape)


def test_series_need_bounds_for_every_channel() -> None:
    channel = Column("eeg", "integer", -2048, 2047)
    found = Schema("series", "eeg", 10, (channel,), shape=(178, 1))
    assert found.width == 178 and found.classes == ("all",)
    assert Schema.parse(found.to_toml()) == found
    with pytest.raises(SchemaError, match="channels"):
        replace(found, shape=(178, 2))
    with pytest.raises(SchemaError, match="channels"):
        replace(found, columns=(Column("eeg", "boolean"),))


def test_a_table_without_label_has_one_class() -> None:
    found = schema(label=None, classes=(), balance=None)
    assert found.classes == ("all",) and found.width == 8
    assert Schema.parse(found.to_toml()) == found


def test_a_table_takes_its_classes_from_the_label_only() -> None:
    with pytest.raises(SchemaError, match="label"):
        schema(classes=("x", "y"))


SERIES = """
kind = "series"
name = "wards"
records = 100
shape = [24, 2]
layout = "long"
series = "ward"
time = "hour"
every = 1
stride = 12
pad = true
fill = "previous"
label = "season"
classes = ["cold", "warm"]

[columns.CO]
kind = "numeric"
low = 0
high = 20

[columns.beds]
kind = "integer"
low = 0
high = 99
"""


def test_settings_for_series_survive_the_file() -> None:
    found = Schema.parse(SERIES)
    assert (found.every, found.stride, found.fill) == (1.0, 12, "previous")
    assert Schema.parse(found.to_toml()) == found and found.features == found.columns
    other = replace(found, stride=24)
    assert other.hash != found.hash
    wide = Schema.parse(
        'kind = "series"\nname = "s"\nrecords = 9\nshape = [3, 1]\nlayout = "wide"\n'
        'pattern = "X{step}"\nfirst = 1\nfill = 0\n[columns.v]\nkind = "numeric"\nlow = 0\nhigh = 1'
    )
    assert Schema.parse(wide.to_toml()) == wide and wide.fill == 0.0


def test_a_recording_has_a_stride_of_one_whether_written_or_not() -> None:
    channel = Column("v", "numeric", 0, 1)
    found = Schema("series", "s", 9, (channel,), shape=(4, 1), layout="recording")
    assert found.stride == 1 and replace(found, stride=1).hash == found.hash


@pytest.mark.parametrize(
    ("stride", "many"), [(None, 1), (1, 24), (5, 5), (12, 2), (23, 2), (24, 1), (99, 1)]
)
def test_overlap_is_how_many_windows_share_a_step(stride: int | None, many: int) -> None:
    found = replace(Schema.parse(SERIES), stride=stride)
    assert overlap(found) == many
    assert bool(overlap_notes(found)) == (many > 1)
    starts = np.arange(0, 240, stride or 24)
    shared = [((starts <= step) & (step < starts + 24)).sum() for step in range(48, 192)]
    assert max(shared) == many


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('layout = "long"', 'layout = "tall"', "long, wide, recording"),
        ('layout = "long"', "", "a layout where label"),
        ('layout = "long"\nseries = "ward"', "", "a layout where label"),
        ('layout = "long"', 'layout = "wide"', "time with layout = long or recording"),
        ('layout = "long"', 'layout = "recording"', "series with layout = long or wide"),
        ('series = "ward"', "", "series and time"),
        ('series = "ward"', 'series = "CO"', "repeat"),
        ('series = "ward"', 'series = "hour"', "repeat"),
        ('series = "ward"', 'series = "season"', "repeat"),
        ('series = "ward"', 'series = "ward "', "blanks"),
        ('series = "ward"', "series = 3", "printable"),
        ("every = 1", "every = 0", "every"),
        ("every = 1", "every = true", "every"),
        ("every = 1", 'every = "1 fortnight"', "10min"),
        ("every = 1", 'every = "0h"', "10min"),
        ("every = 1", "every = nan", "every"),
        ("stride = 12", "stride = 0", "at least 1"),
        ("stride = 12", "stride = 1.5", "at least 1"),
        ("pad = true", "pad = 1", "true or false"),
        ('fill = "previous"', "", "fill: what stands"),
        ('fill = "previous"', 'fill = "mean"', "'middle' or 'previous'"),
        ('fill = "previous"', "fill = inf", "a number"),
        ('fill = "previous"', "fill = false", "a number"),
        ('label = "season"', "", "label"),
        ('label = "season"', 'label = "CO"', "repeat"),
        ('classes = ["cold", "warm"]', "", "classes"),
        ("stride = 12", 'stride = 12\npattern = "x{step}"', "pattern with layout = wide"),
        ("stride = 12", "stride = 12\nfirst = 1", "first with layout = wide"),
        ("high = 20", "high = 20\nmissing = true", "set fill"),
    ],
)
def test_settings_for_series_that_contradict_are_refused(old: str, new: str, message: str) -> None:
    assert old in SERIES
    with pytest.raises(SchemaError, match=message):
        Schema.parse(SERIES.replace(old, new, 1))


@pytest.mark.parametrize("pattern", ["{channel}", "x_{step}", "", 3])
def test_patterns_name_every_column_of_a_wide_table(pattern: object) -> None:
    channels = tuple(Column(name, "numeric", 0, 1) for name in "ab")
    found = Schema("series", "s", 9, channels, shape=(4, 2), layout="wide")
    with pytest.raises(SchemaError, match="pattern"):
        replace(found, pattern=pattern)


def test_wide_tables_have_a_limit_and_no_repeated_names() -> None:
    channels = (Column("a", "numeric", 0, 1), Column("a_1", "numeric", 0, 1))
    with pytest.raises(SchemaError, match="10000 columns"):
        Schema("series", "s", 9, channels, shape=(5001, 2), layout="wide")
    with pytest.raises(SchemaError, match="repeat"):
        Schema("series", "s", 9, channels, shape=(2, 2), layout="wide", pattern="{channel}{step}",
               ignore=("a0",))  # fmt: skip


@pytest.mark.parametrize("change", [{"stride": 2}, {"layout": "long"}, {"fill": 0.0}])
def test_settings_for_series_are_refused_elsewhere(change: dict) -> None:
    with pytest.raises(SchemaError, match="only for series"):
        schema(**change)
    with pytest.raises(SchemaError, match="only for series"):
        Schema("image", "i", 1, shape=(2, 2), **change)


WHOLE = Schema(
    "table",
    "clinic",
    500,
    (
        Column("age", "integer", 0, 120),
        Column("ward", "categorical", categories=("a", "b"), missing=True),
        Column("ill", "boolean"),
        Column("weight", "numeric", 0, 300, decimals=1),
    ),
    label="ill",
    balance=(0.7, 0.3),
    person="who",
    rows_per_person=4,
    ignore=("note",),
)
NAMES = ("age", "ward", "ill", "weight", "who")


@given(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
def test_a_party_has_the_schema_of_the_columns_it_holds(names: list[str]) -> None:
    if not set(names) - {"ill", "who"}:
        with pytest.raises(SchemaError, match="besides the label"):
            WHOLE.project(names)
        return
    held = WHOLE.project(names)
    assert held.columns == tuple(c for c in WHOLE.columns if c.name in names)
    assert held.label == ("ill" if "ill" in names else None)
    assert held.classes == (("false", "true") if "ill" in names else ("all",))
    assert (held.balance is None) == ("ill" not in names)
    assert (held.person, held.rows_per_person) == (("who", 4) if "who" in names else (None, None))
    assert held.project(names[::-1]) == held, "once more changes nothing, nor does the order"
    assert (held.hash == WHOLE.hash) == (set(names) == set(NAMES))
    assert Schema.parse(held.to_toml()) == held


@given(
    st.lists(st.sampled_from(NAMES[:2]), min_size=1, unique=True),
    st.lists(st.sampled_from(NAMES[3:4]), unique=True),
)
def test_parties_with_other_columns_have_other_hashes(mine: list[str], yours: list[str]) -> None:
    both = {WHOLE.project(mine).hash, WHOLE.project([*mine, *yours]).hash}
    assert len(both) == (2 if yours else 1)


@pytest.mark.parametrize("names", [[], ["age", "age"], ["age", "heigth"], ["age", "note"]])
def test_columns_that_no_party_can_hold_are_refused(names: list[str]) -> None:
    with pytest.raises(SchemaError):
        WHOLE.project(names)


def test_images_have_no_columns_to_hold() -> None:
    with pytest.raises(SchemaError, match="a table"):
        Schema("image", "i", 5, shape=(2, 2)).project(["a"])


def test_a_numeric_label_is_a_feature_and_makes_no_classes() -> None:
    found = Schema.parse(TEXT.replace("missing = true\n", "").replace(BALANCED, 'label = "age"'))
    assert (found.task, found.classes, found.n_classes) == ("regression", ("all",), 1)
    assert found.label_column in found.features
    assert found.class_column is None
    assert found.width == sum(column.width for column in found.columns)
    assert Schema.parse(found.to_toml()) == found == replace(found, name="clinic")


def test_the_task_follows_from_the_label() -> None:
    assert schema().task == "classification"
    assert schema(label=None, classes=(), balance=None).task == "none"


@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_a_date_is_no_label(kind: str) -> None:
    bounds = {"low": "2020-01-01", "high": "2021-01-01"}
    columns = (Column("day", kind, **bounds), Column("smoker", "boolean"))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="categorical, boolean, numeric or integer label"):
        Schema("table", "t", 10, columns, label="day")


def test_a_label_of_one_category_is_refused() -> None:
    columns = (Column("a", "boolean"), Column("b", "categorical", categories=("x",)))
    with pytest.raises(SchemaError, match="nothing to predict"):
        Schema("table", "t", 10, columns, label="b")


def test_a_label_alone_is_no_table() -> None:
    with pytest.raises(SchemaError, match="besides the label"):
        Schema("table", "t", 10, (Column("a", "numeric", 0, 1),), label="a")


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("numeric", {"low": 0, "high": 1, "scale": "sqrt"}, "linear or log"),
        (
            "date",
            {"low": "2020-01-01", "high": "2021-01-01", "scale": "log"},
            "numeric and integer",
        ),
        ("boolean", {"scale": "log"}, "numeric and integer"),
    ],
)
def test_scales_that_do_not_fit_are_refused(kind: str, values: dict, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        column(kind, **values)


def test_bounds_of_a_timestamp_are_moments_without_a_zone() -> None:
    found = column("timestamp", low=date(2020, 1, 1), high="2020-01-02T12:30:00.5")
    assert (found.low, found.high) == (datetime(2020, 1, 1), datetime(2020, 1, 2, 12, 30))
    with pytest.raises(SchemaError, match="low < high"):
        column("timestamp", low=date(2020, 1, 1), high="2020-01-02T12:30:00+01:00")
    text = 'kind = "table"\nname = "t"\nrecords = 1\n[columns.c]\nkind = "timestamp"\n'
    whole = Schema.parse(text + "low = 2020-01-01\nhigh = 2020-01-02T12:30:00\n")
    assert whole.columns == (found,)
    assert Schema.parse(whole.to_toml()) == whole
