from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from understudy.data.encode import decode, encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.stream import Writer
from understudy.data.table import from_frame, read, write
from understudy.errors import DataError, OutputError

CHANNELS = (Column("co", "numeric", -50.0, 50.0), Column("n", "integer", 0, 9))
LONG = Schema(
    "series", "s", 9, CHANNELS, shape=(3, 2), layout="long", series="id", time="t", every=1
)
RECORDING = replace(LONG, layout="recording", series=None)
WIDE = Schema("series", "s", 9, CHANNELS, shape=(3, 2), layout="wide")


def long(series: np.ndarray, ids: list | None = None) -> pd.DataFrame:
    """A long table of series [n, L, 2]."""
    n, length, _ = series.shape
    return pd.DataFrame(
        {
            "id": np.repeat(np.arange(n) if ids is None else ids, length),
            "t": np.tile(np.arange(length), n),
            "co": series[:, :, 0].ravel(),
            "n": series[:, :, 1].ravel(),
        }
    )


def made(n: int, length: int = 3) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.stack([rng.normal(0, 9, (n, length)), rng.integers(0, 10, (n, length))], axis=2)


def recording(steps: int, schema: Schema = RECORDING, **columns: object) -> Records:
    held = long(made(1, steps)).drop(columns="id").assign(**columns)
    return from_frame(held, schema)


# Reading


def test_a_long_table_gives_one_record_per_series() -> None:
    found = from_frame(long(made(4)), LONG)
    assert np.array_equal(found.series, made(4))
    assert found.recording.tolist() == ["0", "1", "2", "3"] and found.start.tolist() == [0] * 4


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 999))
def test_the_order_of_rows_does_not_matter(n: int, length: int, seed: int) -> None:
    schema, held = replace(LONG, shape=(length, 2)), long(made(n, length))
    mixed = held.sample(frac=1, random_state=seed)
    found = from_frame(mixed, schema)
    order = np.argsort(found.recording.astype(int))
    assert np.array_equal(found.series[order], made(n, length))


@pytest.mark.parametrize(
    "ids", [["b", "a", "c"], [2.0, 1.0, 3.0], [2, 1, 3], ["2", " 1", "3.0"]], ids=str
)
def test_any_cells_can_name_a_series(ids: list) -> None:
    assert np.array_equal(from_frame(long(made(3), ids), LONG).series, made(3))


def test_a_wide_table_gives_one_record_per_row() -> None:
    held = pd.DataFrame({f"co_{i}": made(4)[:, i, 0] for i in range(3)})
    for i in range(3):
        held[f"n_{i}"] = made(4)[:, i, 1].astype(int)
    assert np.array_equal(from_frame(held[held.columns[::-1]], WIDE).series, made(4))


def test_columns_of_wide_tables_are_named_by_a_public_pattern() -> None:
    schema = Schema(
        "series", "s", 9, CHANNELS[:1], shape=(3, 1), layout="wide", pattern="X{step}", first=1
    )
    held = pd.DataFrame(made(2)[:, :, 0], columns=["X1", "X2", "X3"])
    assert np.array_equal(from_frame(held, schema).series[:, :, 0], made(2)[:, :, 0])
    with pytest.raises(DataError, match="'X1'"):
        from_frame(held.rename(columns={"X1": "X0"}), schema)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 20))
def test_windows_begin_every_stride_and_none_is_lost(length: int, stride: int, extra: int) -> None:
    schema = replace(RECORDING, shape=(length, 2), stride=stride)
    found = recording(length + extra, schema)
    whole = made(1, length + extra)[0]
    starts = range(0, extra + 1, stride)
    assert found.start.tolist() == list(starts)
    assert np.array_equal(found.series, np.stack([whole[s : s + length] for s in starts]))


def test_windows_never_cross_from_one_series_to_the_next() -> None:
    schema = replace(LONG, shape=(2, 2), stride=2)
    held = pd.concat([long(made(1, 5), ["a"]), long(made(1, 2), ["b"]), long(made(1, 4), ["c"])])
    found = from_frame(held, schema)
    assert found.recording.tolist() == ["a", "a", "b", "c", "c"]
    assert found.start.tolist() == [0, 2, 0, 0, 2]
    assert np.array_equal(found.series[2], made(1, 2)[0])


def test_a_recording_is_cut_at_every_step_by_default() -> None:
    assert RECORDING.stride == 1 and len(recording(10)) == 8


def test_without_a_time_column_the_order_of_the_file_counts() -> None:
    schema = replace(RECORDING, time=None, every=None)
    held = long(made(1, 3))[["co", "n"]]
    assert np.array_equal(from_frame(held[::-1], schema).series, made(1)[:, ::-1])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.csv.gz"])
def test_time_stamps_are_sorted_and_may_have_zones(tmp_path, name: str) -> None:
    schema = replace(RECORDING, every="6h")
    stamps = pd.date_range("2024-02-28 18:00", periods=3, freq="6h", tz="Europe/Berlin")
    held = long(made(1, 3)).assign(t=stamps if name.endswith("t") else stamps.strftime("%FT%T%z"))
    held = held.drop(columns="id").iloc[[2, 0, 1]]
    path = tmp_path / name
    held.to_parquet(path, index=False) if name.endswith("t") else held.to_csv(path, index=False)
    assert np.array_equal(read(path, schema).series, made(1))


@pytest.mark.parametrize("odd", ["%d.%m.%Y %H:%M", "%F %H:%M"])
def test_time_stamps_may_have_the_day_first_with_points(odd: str) -> None:
    stamps = pd.date_range("2024-01-31 18:00", periods=3, freq="6h")
    texts = [t.strftime(f) for t, f in zip(stamps, ["%d.%m.%Y %H:%M", "%FT%T", odd], strict=True)]
    found = from_frame(
        long(made(1, 3)).assign(t=texts).drop(columns="id").iloc[[2, 0, 1]],
        replace(RECORDING, every="6h"),
    )
    assert np.array_equal(found.series, made(1))


@pytest.mark.parametrize("odd", ["01/02/2024 18:00", "31.01.20241", "32.01.2024"])
def test_time_stamps_that_could_be_read_in_two_ways_are_refused(odd: str) -> None:
    with pytest.raises(DataError, match=r"time stamps.*1 rows.*24\.12\.2021"):
        recording(3, replace(RECORDING, every="1d"), t=["30.01.2024", "31.01.2024", odd])


def test_nanoseconds_as_numbers_keep_their_order() -> None:
    times = 1_700_000_000_000_000_000 + np.arange(3)
    assert len(recording(3, t=times)) == 1


def test_labels_and_persons_go_with_the_record() -> None:
    schema = replace(LONG, label="ill", classes=("no", "yes"), person="who", rows_per_person=9)
    held = long(made(2)).assign(ill=["yes"] * 3 + ["no"] * 3, who=[7, 7, 7, 8, 8, 8])
    found = encode(schema, from_frame(held, schema))
    assert found.y.tolist() == [1, 0] and found.person.tolist() == [0, 1]


def test_a_series_can_be_a_person_with_a_cap_on_its_windows() -> None:
    schema = replace(LONG, stride=1, person="id", rows_per_person=2)
    found = encode(schema, from_frame(long(made(2, 6)), schema))
    assert found.person.tolist() == [0, 0, 1, 1] and found.rows.tolist() == [0, 1, 4, 5]


# Missing values


@pytest.mark.parametrize(
    ("fill", "first", "middle"), [(0, [0, 0], [0, 0]), ("middle", [0, 4.5], [0, 4.5])]
)
def test_missing_values_become_what_the_schema_says(fill, first: list, middle: list) -> None:
    held = made(1)
    held[0, [0, 2]] = np.nan
    found = from_frame(long(held), replace(LONG, fill=fill)).series[0]
    assert found[0].tolist() == first and found[2].tolist() == middle
    assert np.array_equal(found[1], made(1)[0, 1])


def test_the_previous_value_is_taken_from_the_same_record_only() -> None:
    schema = replace(RECORDING, shape=(2, 2), stride=2, fill="previous")
    held = long(made(1, 4)).drop(columns="id")
    held.loc[[1, 2], "co"] = np.nan
    found = from_frame(held, schema).series[:, :, 0]
    assert found[0, 1] == found[0, 0] == made(1, 4)[0, 0, 0]
    assert found[1, 0] == 0.0  # the middle of the bounds, not the value of the window before
    assert found[1, 1] == made(1, 4)[0, 3, 0]


@settings(max_examples=60, deadline=None)
@given(arrays(bool, (4, 3, 2)), st.sampled_from(["previous", "middle", 1.5]))
def test_a_record_is_filled_alike_whatever_the_others_hold(gaps: np.ndarray, fill) -> None:
    schema, held = replace(LONG, fill=fill), np.where(gaps, np.nan, made(4))
    whole = encode(schema, Records(series=held)).x
    alone = [encode(schema, Records(series=held[i : i + 1])).x[0] for i in range(4)]
    assert np.array_equal(whole, np.stack(alone))
    assert np.array_equal(from_frame(long(held), schema).series[~gaps], made(4)[~gaps])


def test_public_texts_for_missing_are_read_in_every_kind_of_file(tmp_path) -> None:
    schema = replace(LONG, fill=0, missing_as=("", "-200"))
    held = long(made(2)).assign(co=[-200, 1.5, -200, 3, 4, 5])
    for name in ("a.csv", "a.parquet"):
        path = tmp_path / name
        held.to_parquet(path) if name.endswith("t") else held.to_csv(path, index=False)
        assert read(path, schema).series[:, :, 0].tolist() == [[0, 1.5, 0], [3, 4, 5]]


def test_arrays_follow_the_same_rule(tmp_path) -> None:
    held = made(2)
    held[0, 1, 0] = np.nan
    np.savez(tmp_path / "a.npz", X=held)
    assert read(tmp_path / "a.npz", replace(LONG, fill=7)).series[0, 1, 0] == 7
    with pytest.raises(DataError, match=r"1 series with some.*fill"):
        read(tmp_path / "a.npz", LONG)


def test_short_series_are_padded_at_the_end_when_asked() -> None:
    schema = replace(LONG, pad=True, fill="previous")
    held = long(made(2)).iloc[:4]
    found = from_frame(held, schema).series
    assert np.array_equal(found[0], made(2)[0])
    assert np.array_equal(found[1], np.repeat(made(2)[1, :1], 3, axis=0))


def test_constant_channels_and_infinities_are_fine() -> None:
    found = encode(LONG, from_frame(long(made(2)).assign(n=4, co=math.inf), LONG))
    assert (found.x.reshape(2, 3, 2)[:, :, 0] == 1).all()
    assert np.allclose(found.x.reshape(2, 3, 2)[:, :, 1], 4 / 9)


@pytest.mark.parametrize(
    "schema",
    [LONG, RECORDING, WIDE, replace(RECORDING, every="1h"), replace(RECORDING, every=None)],
    ids=lambda s: f"{s.layout} {s.every}",
)
def test_a_table_without_rows_is_a_site_without_series(tmp_path, schema: Schema) -> None:
    (tmp_path / "a.csv").touch()
    assert encode(schema, read(tmp_path / "a.csv", schema)).x.shape == (0, 6)


# Refusals


def broken(**changes: object) -> pd.DataFrame:
    return long(made(3)).assign(**changes)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (broken().iloc[:-1], "1 shorter and 0 longer of 3.*pad = true"),
        (long(made(3, 5)), "0 shorter and 3 longer of 3.*stride = "),
        (broken(t=[0, 1, 3] * 3), "3 steps missing, 0 rows off"),
        (broken(t=[0, 1, 1.5] * 3), "0 steps missing, 3 rows off"),
        (broken(t=[0, 1, 1] * 3), "3 rows at a time that their series already has"),
        (broken(t=["0", "1", "secret"] * 3), "numbers.*3 rows"),
        (broken(t=[0, 1, None] * 3), "3 rows"),
        (broken(id=["a", None, ""] * 3), "6 rows without"),
        (broken(co=["1", "2", "secret"] * 3), "numbers in column 'co'.*3 rows"),
        (broken(n=[1, 2, 2.5] * 3), "whole numbers in column 'n'.*3 rows"),
        (broken(co=[1, 2, None] * 3), "3 series with some"),
        (broken().drop(columns="t"), "no 't'"),
        (broken(extra=1), "also 'extra'"),
    ],
)
def test_what_does_not_fit_is_refused_without_values(held: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        from_frame(held, LONG)
    assert "secret" not in str(caught.value)


def test_a_recording_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(DataError, match=r"at least 3 steps.*1 shorter"):
        recording(2)


def test_gaps_in_time_stamps_are_counted() -> None:
    stamps = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 05:30"])
    with pytest.raises(DataError, match=r"every 1h.* 1 rows off"):
        recording(3, replace(RECORDING, every="1h"), t=stamps)
    with pytest.raises(DataError, match="time stamps"):
        recording(3, replace(RECORDING, every="1h"))
    assert len(recording(3, replace(RECORDING, every=None), t=stamps)) == 1


@pytest.mark.parametrize("odd", ["secret", "9024-01-01", "0024-01-01", "", "12"])
def test_times_that_cannot_be_read_are_counted(odd: str) -> None:
    for every in ("1d", None):
        with pytest.raises(DataError, match=r"time stamps.* 1 rows") as caught:
            recording(3, replace(RECORDING, every=every), t=["2024-01-01", "2024-01-02", odd])
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("column", "rule"), [("ill", "one class"), ("who", "one person")])
def test_a_record_has_one_label_and_one_person(column: str, rule: str) -> None:
    schema = replace(LONG, label="ill", classes=("no", "yes"), person="who", rows_per_person=9)
    held = long(made(2)).assign(ill="no", who=1)
    held.loc[4, column] = {"ill": "yes", "who": 2}[column]
    with pytest.raises(DataError, match=f"{rule} per record.*1 records"):
        from_frame(held, schema)


def test_tables_need_a_layout(tmp_path) -> None:
    schema = Schema("series", "s", 9, CHANNELS, shape=(3, 2))
    long(made(2)).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match="layout"):
        read(tmp_path / "a.csv", schema)
    with pytest.raises(DataError, match="layout"):
        from_frame(long(made(2)), schema)


# Writing


@st.composite
def series(draw: st.DrawFn) -> tuple[Schema, Records]:
    """A schema of any layout, and records that it allows."""
    length, count = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    columns, held = [], []
    n = draw(st.integers(0, 4))
    for i in range(count):
        low, span = draw(st.integers(-1000, 1000)), draw(st.integers(1, 2000))
        whole = draw(st.booleans())
        kind, decimals = ("integer", None) if whole else ("numeric", draw(st.integers(0, 3)))
        columns.append(Column(f"c{i}", kind, low, low + span, decimals=decimals))
        scale = 10 ** (decimals or 0)
        cells = arrays(
            np.int64, (n, length), elements=st.integers(low * scale, (low + span) * scale)
        )
        held.append(draw(cells) / scale)
    classes = draw(st.sampled_from([(), ("no", "yes"), ("1", "2")]))
    labels = draw(arrays(np.int64, n, elements=st.integers(0, 1)))
    layout = draw(st.sampled_from(["long", "wide"]))
    roles = (
        {"series": "id", "time": "t"} if layout == "long" else {"first": draw(st.integers(0, 2))}
    )
    if layout == "long":
        roles["every"] = draw(st.sampled_from([None, 1, 0.25, "10min", "500ms"]))
    schema = Schema(
        "series", "s", 9, tuple(columns), classes=classes, shape=(length, count), layout=layout,
        label="y" if classes else None, **roles,
    )  # fmt: skip
    values = np.stack(held, axis=2)
    return schema, Records(series=values, labels=np.array(classes)[labels] if classes else None)


@settings(max_examples=150, deadline=None)
@given(series())
def test_decoding_encoded_series_gives_them_back_exactly(pair: tuple[Schema, Records]) -> None:
    schema, records = pair
    encoded = encode(schema, records)
    found = decode(schema, encoded.x, encoded.y)
    assert np.array_equal(found.series, records.series)
    assert encode(schema, found).y.tolist() == encoded.y.tolist()


@settings(max_examples=60, deadline=None)
@given(series(), st.sampled_from(["a.csv", "a.parquet"]))
def test_a_written_table_reads_back_the_same(tmp_path_factory, pair, name: str) -> None:
    schema, records = pair
    path = tmp_path_factory.mktemp("series") / name
    write(records, path, schema)
    found = encode(schema, read(path, schema))
    wanted = encode(schema, records)
    assert np.array_equal(found.x, wanted.x) and np.array_equal(found.y, wanted.y)
    assert Schema.parse(schema.to_toml()) == schema


@settings(max_examples=60, deadline=None)
@given(series(), st.integers(0, 99))
def test_any_soft_output_decodes_to_series_the_schema_allows(pair, seed: int) -> None:
    schema, _ = pair
    rng = np.random.default_rng(seed)
    x = rng.normal(0.5, 2, (5, schema.width)).astype(np.float32)
    records = decode(schema, x, rng.integers(0, schema.n_classes, 5))
    encoded = encode(schema, records)
    assert np.array_equal(decode(schema, encoded.x, encoded.y).series, records.series)


def test_a_recording_is_written_as_a_long_table_of_windows(tmp_path) -> None:
    write(recording(5), tmp_path / "a.csv", RECORDING)
    found = pd.read_csv(tmp_path / "a.csv")
    assert list(found.columns) == ["series", "t", "co", "n"] and len(found) == 9
    again = read(tmp_path / "a.csv", replace(LONG, series="series"))
    assert np.allclose(again.series, recording(5).series)


def test_undeclared_names_keep_clear_of_channels(tmp_path) -> None:
    channels = (Column("series", "integer", 0, 9), Column("step", "integer", 0, 9))
    schema = Schema("series", "s", 9, channels, shape=(2, 2))
    write(Records(series=np.zeros((1, 2, 2))), tmp_path / "a.csv", schema)
    names = list(pd.read_csv(tmp_path / "a.csv").columns)
    assert names == ["series_", "step_", "series", "step"]


def test_series_are_written_in_batches_with_numbers_that_go_on(tmp_path) -> None:
    for name, layout in (("a.csv", None), ("a.parquet", "long"), ("b.csv", "wide")):
        with Writer(tmp_path / name, LONG, layout) as writer:
            writer.write(Records(series=made(2)))
            writer.write(Records(series=made(3)))
        table = pd.read_csv if name.endswith("csv") else pd.read_parquet
        found = table(tmp_path / name)["id"].drop_duplicates().tolist()
        assert found == [0, 1, 2, 3, 4]


def test_what_cannot_be_written_is_refused(tmp_path) -> None:
    records = Records(series=made(1))
    with pytest.raises(OutputError, match="pass the schema"):
        write(records, tmp_path / "a.csv")
    with pytest.raises(OutputError, match="long or wide"):
        write(records, tmp_path / "a.csv", LONG, "tall")
    with pytest.raises(OutputError, match="layout"):
        Writer(tmp_path / "a.npz", LONG, "wide")
    with pytest.raises(OutputError, match="layout"):
        Writer(tmp_path / "a.csv", Schema("table", "t", 1, CHANNELS), "wide")
    assert not list(tmp_path.iterdir())
