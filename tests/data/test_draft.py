from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from understudy.data.check import check
from understudy.data.draft import SeriesHints, draft
from understudy.data.draft.bounds import outwards
from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.data.table import read
from understudy.errors import DataError, SchemaError


def table(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 88, n),
            "weight": rng.normal(70, 9, n).round(1),
            "ward": rng.choice(["a", "b", "c"], n),
            "smokes": rng.choice(["yes", "no"], n),
            "seen": pd.date_range("2021-03-04", periods=n).strftime("%Y-%m-%d"),
            "result": rng.choice([0, 1], n),
        }
    )


def drafted(tmp_path, frame: pd.DataFrame, **options: object) -> tuple[str, list[str]]:
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return draft(tmp_path / "rows.csv", **options)


def test_a_draft_without_identifiers_describes_the_file_it_came_from(tmp_path) -> None:
    text, _ = drafted(tmp_path, table(), label="result")
    schema = Schema.parse(text)
    kinds = {c.name: c.kind for c in schema.columns}
    assert kinds == {
        "age": "integer",
        "weight": "numeric",
        "ward": "categorical",
        "smokes": "boolean",
        "seen": "date",
        "result": "categorical",
    }
    assert schema.classes == ("0", "1") and schema.name == "rows"
    assert 'name = "rows"  # guess: the file\'s name' in text
    assert 'name = "clinic"\n' in drafted(tmp_path, table(), name="clinic")[0]
    assert all(f.level == "ok" for f in check(schema, tmp_path / "rows.csv"))


def test_bounds_do_not_show_the_extremes(tmp_path) -> None:
    frame = table()
    schema = Schema.parse(drafted(tmp_path, frame)[0])
    age, weight = schema.columns[:2]
    assert age.low < frame["age"].min() and age.high > frame["age"].max()
    assert weight.low < frame["weight"].min() and weight.high > frame["weight"].max()
    assert weight.decimals == 1


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_rounding_outwards_always_holds_the_values(low: float, span: float) -> None:
    down, up = outwards(low, low + span)
    assert down <= low <= low + span <= up and down < up
    assert down < low or low == 0 or down == 0
    assert not (low >= 0 > down)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("patient_id", [1] * 40),
        ("PassengerId", list("ab" * 20)),
        ("E-Mail", list("ab" * 20)),
        ("last name", list("ab" * 20)),
        ("SSN", list("ab" * 20)),
        ("code", list(range(1000, 1040))),
        ("remark", [f"text {i}" for i in range(40)]),
        ("comment", [f"text {i % 25}" for i in range(40)]),
        ("nothing", [None] * 40),
    ],
)
def test_likely_identifiers_must_be_classified_by_a_human(tmp_path, name: str, cells: list) -> None:
    text, warnings = drafted(tmp_path, table().assign(**{name: cells}))
    with pytest.raises(SchemaError, match=re.escape(name)):
        Schema.parse(text)
    assert any(name in warning and "decision" in warning for warning in warnings)
    decided = text.replace('"unclassified"', '"ignore"')
    assert len(read(tmp_path / "rows.csv", Schema.parse(decided))) == 40


@pytest.mark.parametrize("name", ["humidity", "width", "identity_known", "paid", "emission"])
def test_harmless_names_are_not_mistaken_for_identifiers(tmp_path, name: str) -> None:
    Schema.parse(drafted(tmp_path, table().assign(**{name: list("ab" * 20)}))[0])


def test_values_of_unclassified_columns_are_not_in_the_draft(tmp_path) -> None:
    text, warnings = drafted(tmp_path, table().assign(name=[f"Smith{i}" for i in range(40)]))
    assert "Smith" not in text + " ".join(warnings)


def test_too_many_categories_are_left_to_a_human(tmp_path) -> None:
    cells = [f"k{i % 250}" for i in range(1000)]
    text, _ = drafted(tmp_path, pd.DataFrame({"code": cells, "v": [1, 2] * 500}))
    assert 'kind = "unclassified"' in text and "k17" not in text


def test_missing_cells_are_noticed(tmp_path) -> None:
    frame = table().astype(object)
    frame.loc[3, "age"] = None
    frame.loc[4, "ward"] = "?"
    schema = Schema.parse(drafted(tmp_path, frame)[0])
    assert [c.missing for c in schema.columns[:3]] == [True, False, True]
    assert schema.columns[2].categories == ("a", "b", "c")


def test_warnings_say_what_a_draft_reveals(tmp_path) -> None:
    text, warnings = drafted(tmp_path, table())
    said = " ".join(warnings)
    assert "draft again with --label" in said
    assert "Bounds of 3 columns" in said and "Categories of 1 column " in said
    assert text.count("# guess") >= 7 and "records = 40 " in text


def test_rows_are_rounded_up(tmp_path) -> None:
    assert "records = 130 " in drafted(tmp_path, table(123))[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "rows"), ("a,b\n", "rows"), ("1,2\n3,4\n", "header"), ("a,a\n1,2\n", "repeated")],
)
def test_files_that_cannot_be_drafted_from_are_refused(tmp_path, text: str, message: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        draft(tmp_path / "rows.csv")


def test_an_unknown_label_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="label"):
        drafted(tmp_path, table(), label="nothing")


def test_arrays_are_drafted_too(tmp_path) -> None:
    rng = np.random.default_rng(0)
    path, y = tmp_path / "a.npz", np.array([0, 1, 1])
    np.savez(path, X=rng.integers(0, 256, (3, 4, 5), dtype=np.uint8), y=y, chunk=y)
    images = Schema.parse(draft(path)[0])
    assert images.kind == "image" and images.shape == (4, 5) and images.classes == ("0", "1")
    assert len(encode(images, read(path, images))) == 3
    np.savez(path, X=rng.normal(0, 9, (3, 4, 2)))
    series = Schema.parse(draft(path)[0])
    assert series.kind == "series" and series.shape == (4, 2) and len(series.columns) == 2
    np.savez(path, X=rng.normal(0, 9, (30, 4)).round(2), y=rng.integers(0, 3, 30), who=np.zeros(30))
    flat = Schema.parse(draft(path)[0])
    assert flat.kind == "table" and flat.label == "y" and len(read(path, flat)) == 30


def test_folders_of_images_are_drafted_too(tmp_path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (6, 5)).save(tmp_path / name / "1.png")
    schema = Schema.parse(draft(tmp_path)[0])
    assert schema.shape == (5, 6, 3) and schema.classes == ("cat", "dog")
    assert len(read(tmp_path, schema)) == 2


def recorded(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "datetime": pd.date_range("2024-01-01", periods=n, freq="10min").strftime("%F %T"),
            "T1": rng.normal(20, 3, n).round(2),
            "T2": rng.normal(20, 3, n).round(2),
            "lights": rng.integers(0, 9, n),
        }
    )


def fits(tmp_path, text: str) -> Schema:
    schema = Schema.parse(text)
    assert all(f.level != "error" for f in check(schema, tmp_path / "rows.csv"))
    return schema


def test_a_recording_is_drafted_with_its_clock(tmp_path) -> None:
    text, warnings = drafted(tmp_path, recorded(), series=SeriesHints(length=24))
    schema = fits(tmp_path, text)
    assert (schema.layout, schema.time, schema.every) == ("recording", "datetime", "10min")
    assert schema.shape == (24, 3) and schema.stride == 1 and schema.records == 37
    assert [c.kind for c in schema.columns] == ["numeric", "numeric", "integer"]
    assert "overlap" in text and "Bounds of 3 columns" in " ".join(warnings)
    low = recorded()["T1"].min()
    assert schema.columns[0].low < low


def test_uneven_steps_are_drafted_by_their_order(tmp_path) -> None:
    held = recorded().drop(index=[7, 30])
    text, _ = drafted(tmp_path, held, series=SeriesHints(length=5, stride=5))
    schema = fits(tmp_path, text)
    assert schema.every is None and schema.stride == 5 and "not evenly spaced" in text
    text, _ = drafted(tmp_path, held.drop(columns="datetime"), series=SeriesHints(length=5))
    assert fits(tmp_path, text).time is None


def test_a_long_table_is_drafted(tmp_path) -> None:
    held = recorded().assign(ward=np.repeat(["a", "b", "c"], 20), ill=["no"] * 40 + ["yes"] * 20)
    held = held.sample(frac=1, random_state=1)
    hints = SeriesHints(series="ward", time="datetime")
    schema = fits(tmp_path, drafted(tmp_path, held, label="ill", series=hints)[0])
    assert schema.layout == "long" and schema.shape == (20, 3) and schema.stride is None
    assert schema.classes == ("no", "yes") and schema.records == 3
    assert len(read(tmp_path / "rows.csv", schema)) == 3


def test_unequal_and_broken_series_are_drafted_with_windows_padding_and_fill(tmp_path) -> None:
    held = recorded().assign(ward=["a"] * 40 + ["b"] * 20)
    held.loc[3, "T1"] = np.nan
    hints = SeriesHints(series="ward", time="datetime", length=30)
    schema = fits(tmp_path, drafted(tmp_path, held, series=hints)[0])
    assert schema.stride == 30 and schema.pad and schema.fill == "middle"
    with pytest.raises(DataError, match="--length"):
        drafted(tmp_path, held, series=replace(hints, length=None))


@pytest.mark.parametrize(
    ("names", "pattern", "first", "channels"),
    [
        ("NO_{} CO_{}", "{channel}_{step}", 0, ["NO", "CO"]),
        ("X{}", "{channel}{step}", 1, ["X"]),
        ("{}", "{step}", 0, ["value"]),
    ],
)
def test_a_wide_table_is_drafted(tmp_path, names, pattern, first, channels) -> None:
    rng = np.random.default_rng(0)
    columns = [n.format(i) for n in names.split() for i in range(first, first + 6)]
    held = pd.DataFrame(rng.normal(0, 1, (8, len(columns))).round(3), columns=columns)
    held["kind"] = list("abababab")
    text, _ = drafted(tmp_path, held, label="kind", series=SeriesHints(length=6))
    schema = fits(tmp_path, text)
    assert (schema.layout, schema.pattern, schema.first) == ("wide", pattern, first)
    assert [c.name for c in schema.columns] == channels and schema.shape == (6, len(channels))


def test_other_columns_of_a_wide_table_are_left_to_a_human(tmp_path) -> None:
    rng = np.random.default_rng(0)
    held = pd.DataFrame(rng.normal(0, 1, (8, 6)).round(3), columns=[f"v_{i}" for i in range(6)])
    held = held.assign(bed=range(8), ward1=range(8), ward2=range(8))
    hints = SeriesHints(layout="wide", series="bed")
    text, warnings = drafted(tmp_path, held, series=hints)
    assert "ward1, ward2" in " ".join(warnings)
    schema = fits(tmp_path, text.replace('"unclassified"', '"ignore"'))
    assert schema.shape == (6, 1) and schema.series == "bed"
    assert schema.pattern == "{channel}_{step}"


def test_columns_numbered_in_two_ways_are_no_wide_table(tmp_path) -> None:
    names = [f"a{i}" for i in range(4)] + [f"b_{i}" for i in range(4)]
    held = pd.DataFrame(np.eye(8), columns=names)
    with pytest.raises(DataError, match="number the steps of all channels alike"):
        drafted(tmp_path, held, series=SeriesHints(layout="wide"))


def test_what_is_no_channel_is_left_to_a_human(tmp_path) -> None:
    held = recorded().assign(patient_id=range(60), note=[f"Smith{i}" for i in range(60)])
    text, warnings = drafted(tmp_path, held, series=SeriesHints(length=5))
    assert "Smith" not in text and "patient_id, note" in " ".join(warnings)
    with pytest.raises(SchemaError, match="2 unclassified"):
        Schema.parse(text)
    fits(tmp_path, text.replace('"unclassified"', '"ignore"'))


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        (SeriesHints(series="ward"), "--series among"),
        (SeriesHints(time="when"), "--time among"),
        (SeriesHints(layout="recording"), "--length"),
        (SeriesHints(layout="long", length=5), "--series and --time"),
        (SeriesHints(layout="wide"), "numbered"),
        (SeriesHints(layout="tall", length=5), "long, wide or recording"),
        (SeriesHints(layout="wide", time="datetime"), "long tables and recordings"),
        (SeriesHints(length=61), "--length"),
    ],
)
def test_hints_that_do_not_fit_are_refused(tmp_path, hints: SeriesHints, message: str) -> None:
    with pytest.raises(DataError, match=message):
        drafted(tmp_path, recorded(), series=hints)


def wards(n: int = 30, steps: int = 12) -> pd.DataFrame:
    """A long table: a row per bed and hour."""
    rng, rows = np.random.default_rng(0), n * steps
    return pd.DataFrame(
        {
            "bed": np.repeat(np.arange(n), steps),
            "time": np.tile(np.arange(steps), n),
            "pulse": rng.normal(70, 10, rows).round(1),
            "pressure": rng.integers(90, 160, rows),
        }
    )


@pytest.mark.parametrize("first", ["bed", "patient_id"])
def test_a_long_table_drafted_as_rows_is_told_from_a_table(tmp_path, first: str) -> None:
    held = wards().rename(columns={"bed": first}).sample(frac=1, random_state=1)
    text, warnings = drafted(tmp_path, held)
    assert 'kind = "table"' in text
    assert f"--series {first} --time time" in " ".join(warnings)


@pytest.mark.parametrize(
    "held",
    [
        table(400),
        recorded(),
        wards().drop(columns="bed"),
        wards().drop(columns="time"),
        pd.concat([wards(), wards()]),
        table(400).assign(day=np.arange(400) % 31),
    ],
    ids=["plain", "recording", "no series", "no time", "each twice", "a day"],
)
def test_other_tables_are_not_taken_for_long_ones(tmp_path, held: pd.DataFrame) -> None:
    assert "--series" not in " ".join(drafted(tmp_path, held)[1])


@pytest.mark.parametrize(
    "hints",
    [
        SeriesHints(length=12),
        SeriesHints(time="time"),
        SeriesHints(layout="long"),
        SeriesHints(layout="long", series="bed"),
    ],
)
def test_a_long_table_is_not_cut_up_as_one_recording(tmp_path, hints: SeriesHints) -> None:
    if hints.series:
        schema = fits(tmp_path, drafted(tmp_path, wards(), series=hints)[0])
        assert schema.layout == "long" and schema.time == "time"
        return
    with pytest.raises(DataError, match="--series bed --time time"):
        drafted(tmp_path, wards(), series=hints)


def test_a_recording_that_is_said_to_be_one_may_repeat_its_times(tmp_path) -> None:
    text, _ = drafted(tmp_path, wards(), series=SeriesHints(layout="recording", length=12))
    assert 'layout = "recording"' in text


def test_a_table_with_a_time_is_not_taken_for_a_wide_one(tmp_path) -> None:
    held = wards().rename(columns={"pulse": "x1", "pressure": "x2"})
    held = held.assign(**{f"x{i}": held["x1"] + i for i in range(3, 9)})
    hints = SeriesHints(time="time", length=12)
    with pytest.raises(DataError, match="--series bed"):
        drafted(tmp_path, held, series=hints)


def test_constant_columns_get_no_bounds_but_a_decision(tmp_path) -> None:
    text, warnings = drafted(tmp_path, table().assign(site=7, scale=2.5))
    assert "7" not in re.sub(r".*records.*", "", text.split("[columns.site]")[1])
    said = next(w for w in warnings if "same value" in w)
    assert "site, scale" in said and "ignore" in said and "bounds" in said
    assert text.count('kind = "ignore"') == 2, "both ways out are in the remarks"
    assert not any("identifiers" in w for w in warnings)
    with pytest.raises(SchemaError, match="2 unclassified"):
        Schema.parse(text)
    schema = Schema.parse(text.replace('"unclassified"', '"ignore"'))
    assert all(f.level == "ok" for f in check(schema, tmp_path / "rows.csv"))


def test_an_empty_column_is_not_called_an_identifier(tmp_path) -> None:
    text, warnings = drafted(tmp_path, table().assign(note=""))
    assert "DECIDE: no values" in text
    said = next(w for w in warnings if "note" in w)
    assert "decision" in said and "no values" in said
    assert not any("identifiers" in w for w in warnings)


def test_warnings_count_columns_in_english(tmp_path) -> None:
    _, warnings = drafted(tmp_path, pd.DataFrame({"age": [1, 5, 9] * 20, "ward": list("abc") * 20}))
    assert "1 columns" not in " ".join(warnings)
    assert sum("of 1 column come" in w for w in warnings) == 2


def test_constant_channels_are_named_and_left_out_of_the_shape(tmp_path) -> None:
    held = wards().assign(device=1.0, gain=0)
    hints = SeriesHints(series="bed")
    text, warnings = drafted(tmp_path, held, series=hints)
    assert "device, gain" in next(w for w in warnings if "same value" in w)
    schema = fits(tmp_path, text.replace('"unclassified"', '"ignore"'))
    assert schema.shape == (12, 2) and [c.name for c in schema.columns] == ["pulse", "pressure"]
    decided = text.replace("shape = [12, 2]", "shape = [12, 4]")
    decided = decided.replace('"unclassified"', '"numeric"\nlow = 0.0\nhigh = 5.0')
    assert fits(tmp_path, decided).shape == (12, 4), "a human may keep them"


def test_a_constant_channel_of_a_wide_table_is_left_to_a_human(tmp_path) -> None:
    rng = np.random.default_rng(0)
    held = pd.DataFrame(rng.normal(0, 1, (8, 6)).round(3), columns=[f"v_{i}" for i in range(6)])
    held = held.assign(**{f"w_{i}": 0.5 for i in range(6)})
    text, warnings = drafted(tmp_path, held, series=SeriesHints(length=6))
    assert ": w (" in next(w for w in warnings if "same value" in w)
    with pytest.raises(SchemaError, match="1 unclassified"):
        Schema.parse(text)
    decided = text.replace('"unclassified"', '"numeric"\nlow = 0.0\nhigh = 1.0')
    assert fits(tmp_path, decided).shape == (6, 2)


def test_a_constant_channel_of_an_array_is_left_to_a_human(tmp_path) -> None:
    held = np.random.default_rng(0).normal(0, 1, (9, 5, 2))
    held[:, :, 1] = 4.0
    np.savez(tmp_path / "rows.npz", series=held)
    text, warnings = draft(tmp_path / "rows.npz")
    assert "channel2" in next(w for w in warnings if "same value" in w)
    decided = text.replace('"unclassified"', '"numeric"\nlow = 0.0\nhigh = 9.0')
    assert Schema.parse(decided).shape == (5, 2)


def days(*stems: str, steps: int = 24) -> pd.DataFrame:
    """A wide table: a row per day, a column per channel and hour."""
    rng = np.random.default_rng(0)
    names = [f"{stem}{i}" for stem in stems for i in range(steps)]
    held = pd.DataFrame(rng.normal(0, 1, (30, len(names))).round(3), columns=names)
    return held.assign(season=["cold", "warm"] * 15)


@pytest.mark.parametrize("layout", [None, "wide"])
@pytest.mark.parametrize(
    ("held", "length", "found"),
    [
        (days("temp_", "hr_"), 25, "found 24 columns temp_0 … temp_23, 24 columns hr_0 … hr_23."),
        (days("temp_", "hr_"), 12, "found 24 columns temp_0 … temp_23, 24 columns hr_0 … hr_23."),
        (
            days("temp_", "hr_").drop(columns="temp_5"),
            24,
            "found only 23 of the 24 columns temp_0 … temp_23.",
        ),
        (days(*"abcdefgh").drop(columns="f5"), 24, "found only 23 of the 24 columns f0 … f23."),
        (days(*"abcdefgh"), 23, "24 columns c0 … c23 and others."),
        (
            days("temp_", "hr_").drop(columns=["temp_5", "hr_7", "hr_8"]),
            23,
            "only 23 of the 24 columns temp_0 … temp_23, only 22 of the 24 columns hr_0 … hr_23.",
        ),
        (days("t", "hr_"), 24, "24 columns t0 … t23, 24 columns hr_0 … hr_23."),
    ],
)
def test_numbered_columns_that_do_not_make_the_length_are_refused_by_name(
    tmp_path, held: pd.DataFrame, length: int, found: str, layout: str | None
) -> None:
    hints = SeriesHints(layout=layout, length=length)
    with pytest.raises(DataError) as refused:
        drafted(tmp_path, held, label="season", series=hints)
    said = str(refused.value)
    assert f"{found} Do: number the steps of all channels alike" in said
    assert ("--layout recording" in said) == (layout is None)


@pytest.mark.parametrize(
    ("lost", "length", "found"),
    [
        (["temp_0"], 24, "found 23 columns temp_1 … temp_23. "),
        (["temp_0", "hr_23"], 23, "23 columns temp_1 … temp_23, 23 columns hr_0 … hr_22. "),
    ],
)
def test_channels_with_other_numbers_are_to_be_renamed(tmp_path, lost, length, found) -> None:
    held = days("temp_", "hr_").drop(columns=lost)
    with pytest.raises(DataError, match=re.escape(f"{found}Do: number the steps")):
        drafted(tmp_path, held, label="season", series=SeriesHints(length=length))


def test_numbered_columns_are_a_recording_if_that_is_said(tmp_path) -> None:
    hints = SeriesHints(layout="recording", length=25)
    text, _ = drafted(tmp_path, days("temp_"), label="season", series=hints)
    assert 'layout = "recording"' in text


def test_a_first_record_in_place_of_the_header_is_not_quoted(tmp_path) -> None:
    held = pd.DataFrame(np.eye(5), columns=["81", "82", "85", "86", "89"])
    with pytest.raises(DataError, match="5 columns that are called by numbers alone") as refused:
        drafted(tmp_path, held, series=SeriesHints(length=7))
    assert not re.search("8[0-9]", str(refused.value))


def test_a_long_table_with_numbered_channels_is_still_told_its_series(tmp_path) -> None:
    held = wards()
    held = held.assign(**{f"x{i}": held["pulse"] + i for i in range(20)})
    with pytest.raises(DataError, match="--series bed --time time"):
        drafted(tmp_path, held, series=SeriesHints(length=12))


def test_few_steps_are_wide_if_that_is_said(tmp_path) -> None:
    hints = SeriesHints(layout="wide", length=3)
    text, _ = drafted(tmp_path, days("temp_", steps=3), label="season", series=hints)
    assert fits(tmp_path, text).shape == (3, 1)


def test_a_column_of_a_few_texts_is_to_be_the_label_or_ignored(tmp_path) -> None:
    held = wards().assign(season=np.repeat(["cold", "warm"], 180), patient_name="Smith")
    text, warnings = drafted(tmp_path, held, series=SeriesHints(series="bed"))
    said = next(w for w in warnings if "season" in w)
    assert "--label season" in said and "ignore" in said and "identifiers" not in said
    remark = text.split("[columns.season]")[1].split("\n")[1]
    assert "--label season" in remark and '"ignore"' in remark and "Give it a kind" not in remark
    assert "patient_name" in next(w for w in warnings if "identifiers" in w)
    assert "Give it a kind" not in text, "a kind of its own is refused for what is no channel"
    fits(tmp_path, text.replace('"unclassified"', '"ignore"'))
    text, _ = drafted(tmp_path, held, label="season", series=SeriesHints(series="bed"))
    assert fits(tmp_path, text.replace('"unclassified"', '"ignore"')).classes == ("cold", "warm")


def test_classes_of_a_wide_table_may_be_numbers_and_need_a_quoted_name(tmp_path) -> None:
    held = days("v").drop(columns="season").assign(**{"is it": [1, 2, 3] * 10})
    _, warnings = drafted(tmp_path, held, series=SeriesHints(length=24))
    assert any("--label 'is it'" in w for w in warnings)


def test_with_a_label_no_other_column_is_offered_as_one(tmp_path) -> None:
    held = wards().assign(season=np.repeat(["cold", "warm"], 180), wing=["a", "b"] * 180, note="")
    text, warnings = drafted(tmp_path, held, label="season", series=SeriesHints(series="bed"))
    assert "--label" not in text + " ".join(warnings) and "no channel" in text
    assert "note (no values" in " ".join(warnings)
    fits(tmp_path, text.replace('"unclassified"', '"ignore"'))


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_an_array_taken_for_series_says_how_images_are_saved(tmp_path, kind: type) -> None:
    held = np.random.default_rng(0).normal(0, 9, (9, 8, 8)).astype(kind)
    np.savez(tmp_path / "rows.npz", X=held)
    text, warnings = draft(tmp_path / "rows.npz")
    said = next(w for w in warnings if "taken for series" in w)
    assert np.dtype(kind).name in said and "0–255" in said and "uint8" in said
    assert re.search('(?m)^kind = "series"  # guess: .*uint8', text)
    assert Schema.parse(text).kind == "series"
    np.savez(tmp_path / "rows.npz", series=held)
    text, warnings = draft(tmp_path / "rows.npz")
    assert "uint8" not in text + " ".join(warnings), "the array's name says what it is"


def test_an_array_of_four_axes_that_is_no_image_is_refused(tmp_path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(0, 9, (9, 8, 8, 3)))
    with pytest.raises(DataError, match="float64 of 4 axes"):
        draft(tmp_path / "rows.npz")


@pytest.mark.parametrize("kind", ["images", "series", "folder", "table"])
def test_warnings_say_that_classes_come_from_the_rows(tmp_path, kind: str) -> None:
    def classes(path, **options: object) -> list[str]:
        return [w for w in draft(path, **options)[1] if "classes come from the rows" in w]

    path, rng = tmp_path / "rows", np.random.default_rng(0)
    if kind == "folder":
        (path / "cat").mkdir(parents=True)
        Image.new("L", (6, 5)).save(path / "cat" / "1.png")
        assert len(classes(path)) == 1
    elif kind == "table":
        path, held = tmp_path / "rows.csv", wards().assign(ill=np.repeat(["no", "yes"], 180))
        held.to_csv(path, index=False)
        assert len(classes(path, label="ill", series=SeriesHints(series="bed"))) == 1
        assert not classes(path, series=SeriesHints(series="bed"))
    else:
        path, held = tmp_path / "rows.npz", rng.integers(0, 256, (9, 4, 5))
        np.savez(path, **{kind: held.astype(np.uint8)}, y=np.arange(9) % 3)
        assert len(classes(path)) == 1
        np.savez(path, **{kind: held.astype(np.uint8)})
        assert not classes(path)


@pytest.mark.parametrize("layout", ["long", "recording"])
def test_repeated_times_are_said_to_repeat(tmp_path, layout: str) -> None:
    held = pd.concat([wards(), wards().iloc[:3]]) if layout == "long" else wards()
    hints = SeriesHints(layout, "bed" if layout == "long" else None, "time", 12, 12)
    text, _ = drafted(tmp_path, held, series=hints)
    assert "not evenly spaced" not in text and "times repeat" in text
    found = check(Schema.parse(text), tmp_path / "rows.csv")[-1]
    many = 3 if layout == "long" else 30 * 12 - 12
    assert found.level == "error" and f"{many} rows" in found.text and "'time'" in found.text


@pytest.mark.parametrize(
    ("cells", "kind", "remark"),
    [
        (lambda n: np.arange(n) % 3, "categorical", "few different numbers"),
        (lambda n: np.arange(n) % 3 / 2, "categorical", "few different numbers"),
        (lambda n: np.arange(n) % 30, "integer", "a number to predict"),
        (lambda n: np.linspace(0, 5, n), "numeric", "a number to predict"),
        (lambda n: [None, *["a", "b"] * (n // 2 - 1), "b"], "categorical", "have no label"),
    ],
)
def test_a_label_is_drafted_as_classes_or_as_a_number(tmp_path, cells, kind, remark) -> None:
    frame = table().assign(result=cells(40))
    text, _ = drafted(tmp_path, frame, label="result")
    assert Schema.parse(text).label_column.kind == kind  # type: ignore[union-attr]
    assert remark in text


def test_missing_labels_are_said_where_the_draft_is_made(tmp_path) -> None:
    frame = table().assign(result=[None, *["a", "b"] * 19, "b"])
    _, warnings = drafted(tmp_path, frame, label="result")
    assert any("Some rows have no label" in warning for warning in warnings)


def test_a_constant_label_is_left_to_a_human(tmp_path) -> None:
    text, _ = drafted(tmp_path, table().assign(result="yes"), label="result")
    assert "nothing to predict" in text
    assert "yes" not in text.split("[columns.result]")[1]
    with pytest.raises(SchemaError, match="unclassified: result"):
        Schema.parse(text)


def test_a_boolean_without_variety_is_called_constant(tmp_path) -> None:
    text, _ = drafted(tmp_path, table().assign(alive="yes", ill=["yes", "no"] * 20))
    alive, ill = (text.split(f"[columns.{name}]")[1].split("[")[0] for name in ("alive", "ill"))
    assert "the same value everywhere" in alive and "the same value everywhere" not in ill


@pytest.mark.parametrize("clock", ["", " 13:45"])
def test_days_in_two_orders_are_called_that(tmp_path, clock: str) -> None:
    both = [
        f"{13 + i % 15}/02/2021{clock}" if i % 2 else f"02/{13 + i % 15}/2021{clock}"
        for i in range(40)
    ]
    text, warnings = drafted(tmp_path, table().assign(seen=both))
    assert any("seen (days in two orders" in warning for warning in warnings)
    assert "/02/2021" not in text


def test_days_are_said_to_be_days(tmp_path) -> None:
    days = pd.date_range("2021-03-04", periods=40)
    frame = table().assign(day=days.strftime("%d.%m.%Y"), time=days.strftime("%d.%m.%Y %H:%M"))
    text, _ = drafted(tmp_path, frame)
    assert "written with days as %d.%m.%Y\n" in text
    assert "written with times as %d.%m.%Y %H:%M\n" in text


def test_time_stamps_are_a_kind_of_their_own(tmp_path) -> None:
    times = pd.date_range("2021-03-04", periods=40, freq="7h").strftime("%Y-%m-%d %H:%M:%S")
    text, _ = drafted(tmp_path, table().assign(seen=times))
    column = next(c for c in Schema.parse(text).columns if c.name == "seen")
    assert column.kind == "timestamp"
    assert str(column.low) < "2021-03-04" and str(column.high) > times[-1]


def test_a_few_rows_far_away_do_not_set_the_bounds(tmp_path) -> None:
    frame = table(1000)
    frame.loc[7, "age"] = 99_999
    text, warnings = drafted(tmp_path, frame)
    age = Schema.parse(text).columns[0]
    assert (age.low, age.high) == (10, 90)
    assert "99999" not in text and "widen them" in text
    assert any("Bounds of" in warning for warning in warnings)


def test_heavy_tails_get_a_log_scale_and_room(tmp_path) -> None:
    amounts = np.exp(np.random.default_rng(0).normal(4, 2, 500)).round(2)
    text, _ = drafted(tmp_path, table(500).assign(weight=amounts))
    weight = next(c for c in Schema.parse(text).columns if c.name == "weight")
    assert weight.scale == "log" and weight.low <= amounts.min() and weight.high > amounts.max()
    assert all(c.scale == "linear" for c in Schema.parse(text).columns if c.name != "weight")


def test_bounds_of_days_are_whole_months_or_years(tmp_path) -> None:
    days = pd.date_range("2021-03-04", periods=40).strftime("%d.%m.%Y")
    years = pd.date_range("2001-03-04", periods=40, freq="200D").strftime("%Y-%m-%d")
    text, _ = drafted(tmp_path, table().assign(seen=days, first=years))
    held = {c.name: (str(c.low), str(c.high)) for c in Schema.parse(text).columns}
    assert held["seen"] == ("2021-03-01", "2021-04-30")
    assert held["first"] == ("2001-01-01", "2022-12-31")


def test_words_of_booleans_are_kept_as_the_file_has_them(tmp_path) -> None:
    text, _ = drafted(tmp_path, table().assign(smokes=["Ja", "Nein"] * 20, paid=[0, 1] * 20))
    words = {c.name: c.words for c in Schema.parse(text).columns if c.kind == "boolean"}
    assert words["smokes"] == ("Nein", "Ja") and words["paid"] == ("0", "1")


def test_a_reading_that_was_chosen_is_marked_and_stated(tmp_path) -> None:
    text, _ = drafted(tmp_path, table().assign(weight=["1.234"] * 20 + ["2.345"] * 20))
    weight = next(c for c in Schema.parse(text).columns if c.name == "weight")
    assert weight.decimal == "." and weight.high < 10  # type: ignore[operator]
    assert '# check: "." was read as the sign before decimals' in text


@pytest.mark.parametrize(
    ("cells", "odd", "said"),
    [
        ([f"{i}.{i:03},50 €" for i in range(1, 60)], "1,5 k", "numbers in all cells but 1"),
        ([str(i) for i in range(60)], "unknown", "numbers in all cells but 1"),
        ([f"{i:02}.01.1970" for i in range(1, 29)], "31.02.1970", "days in all cells but 1"),
    ],
)
def test_a_column_of_numbers_or_days_but_for_a_cell_is_called_that(
    tmp_path, cells: list[str], odd: str, said: str
) -> None:
    frame = pd.DataFrame({"paid": [*cells[:9], odd, *cells[9:]]})
    text, warnings = drafted(tmp_path, frame)
    assert f"{said}, the first in row 10 below the header" in text
    assert odd not in text and 'kind = "unclassified"' in text
    assert any(said in warning and "missing_as" in warning for warning in warnings)
