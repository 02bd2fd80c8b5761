from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.encode import Encoded, encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.split import SPLITS, most_blocks, split
from understudy.data.split_rules import SplitName, follows
from understudy.data.table import from_frame
from understudy.errors import StudyError
from understudy.rng import Streams

SCHEMA = Schema("image", "i", 100, classes=tuple("0123"), shape=(1, 2))


def rows(n: int, seed: int = 0, persons: int | None = None) -> Encoded:
    rng = np.random.default_rng(seed)
    person = None if persons is None else rng.integers(0, persons, n)
    return Encoded(rng.random((n, 2), np.float32), rng.integers(0, 4, n), person)


def cut(
    encoded: Encoded, how: str, sites: int, seed: int = 0, **options: object
) -> list[np.ndarray]:
    return split(SCHEMA, encoded, how, sites, rng=np.random.default_rng(seed), **options)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["uniform", "kmeans", "geometric", "dirichlet", "classes"]),
    st.integers(0, 60),
    st.integers(1, 12),
    st.sampled_from([None, 5]),
    st.integers(0, 1000),
)
def test_every_row_goes_to_exactly_one_site(
    how: str, n: int, sites: int, persons: int | None, seed: int
) -> None:
    options = {"classes_per_site": 4} if how == "classes" else {}
    encoded = rows(n, seed, persons)
    parts = cut(encoded, how, sites, seed, **options)
    assert len(parts) == sites
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert all((np.diff(part) > 0).all() for part in parts)
    if persons:
        homes = [set(encoded.person[part]) for part in parts]
        assert sum(map(len, homes)) == len(set().union(*homes))


@pytest.mark.parametrize("how", ["uniform", "kmeans", "geometric", "dirichlet", "classes"])
def test_a_split_repeats_with_its_seed_and_only_then(how: str) -> None:
    encoded = rows(400)
    first, again, other = (cut(encoded, how, 4, seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


def test_streams_are_as_good_as_a_generator() -> None:
    encoded, streams = rows(50), Streams.from_seed(3)
    first, again = (split(SCHEMA, encoded, "uniform", 4, rng=streams) for _ in range(2))
    assert all(map(np.array_equal, first, again))


def test_the_names_that_a_study_may_use_are_those_of_the_splits() -> None:
    assert {*SPLITS, "columns"} == set(get_args(SplitName))  # columns are dealt, not rows


BY_ROW = ["uniform", "geometric", "dirichlet", "classes", "pooled"]


def homes(encoded: Encoded, how: str, sites: int, seed: int) -> dict[int, int]:
    """The site of each place in the file."""
    places = np.arange(len(encoded)) if encoded.rows is None else encoded.rows
    parts = cut(encoded, how, sites, seed)
    return {int(places[row]): site for site, part in enumerate(parts) for row in part}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(BY_ROW), st.integers(1, 40), st.integers(2, 9), st.data())
def test_a_row_that_is_gone_moves_no_other_where_the_split_follows_rows(
    how: str, n: int, sites: int, data: st.DataObject
) -> None:
    assert follows(SCHEMA, how, {}) == "row"
    whole, gone = rows(n), data.draw(st.integers(0, n - 1))
    kept = np.delete(np.arange(n), gone)
    fewer = Encoded(whole.x[kept], whole.y[kept], None, kept)
    before, after = homes(whole, how, sites, n), homes(fewer, how, sites, n)
    assert after == {place: site for place, site in before.items() if place != gone}


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["uniform", "geometric"]),
    st.lists(st.sampled_from("abcdef"), min_size=2, max_size=20),
    st.data(),
)
def test_nor_where_all_rows_of_a_person_are_at_one_site(
    how: str, names: list[str], data: st.DataObject
) -> None:
    schema = replace(SCHEMA, person="who", rows_per_person=20)
    assert follows(schema, how, {}) == "row"

    def parts(names: list[str]) -> list[list[str]]:
        held = Records(images=np.zeros((len(names), 1, 2), np.uint8), person=np.array(names))
        held = replace(held, labels=np.full(len(names), "0"))
        cut = split(schema, encode(schema, held), how, 4, rng=Streams.from_seed(1), records=held)
        return [sorted(names[row] for row in part) for part in cut]

    gone = data.draw(st.integers(0, len(names) - 1))
    fewer = parts(names[:gone] + names[gone + 1 :])
    assert [[p for p in site if p != names[gone]] for site in parts(names)] == [
        [p for p in site if p != names[gone]] for site in fewer
    ]
    assert sum(map(len, fewer)) == len(names) - 1


@pytest.mark.parametrize(
    ("how", "options", "person", "expected"),
    [
        ("kmeans", {}, None, "table"),
        ("blocks", {}, None, "table"),
        ("person", {}, "who", "table"),
        ("dirichlet", {}, "who", "person"),
        ("classes", {}, "who", "person"),
        ("column", {"column": "region"}, None, "row"),
        ("column", {"column": "ill"}, None, "row"),
        ("column", {"column": "age"}, None, "table"),
        ("column", {"column": "who"}, "who", "table"),
        ("column", {}, None, "table"),
        ("uniform", {}, "who", "row"),
    ],
)
def test_what_the_site_of_a_row_depends_on(
    how: str, options: dict, person: str | None, expected: str
) -> None:
    schema = replace(TABLE, person=person, rows_per_person=person and 3)
    assert follows(schema, how, options) == expected


def test_the_values_of_a_numeric_label_are_not_public() -> None:
    schema = replace(TABLE, label="age", classes=())
    assert follows(schema, "column", {"column": "age"}) == "table"


def test_columns_with_public_values_number_sites_alike_in_every_table() -> None:
    schema = replace(
        TABLE, columns=(*TABLE.columns, Column("smokes", "boolean", missing=True)), records=4
    )
    frame = RECORDS.frame.assign(smokes=pd.array([True, None, False, True, True], "boolean"))

    def found(rows: list[int], name: str) -> list[list[int]]:
        held = from_frame(frame.iloc[rows], schema)
        rng = np.random.default_rng(0)
        parts = split(schema, encode(schema, held), "column", 3, rng=rng, column=name, records=held)
        return [[rows[i] for i in part] for part in parts]

    assert found([0, 1, 2, 3, 4], "smokes") == [[2], [0, 3, 4], [1]]
    assert found([0, 1, 3, 4], "smokes") == [[], [0, 3, 4], [1]]
    assert found([1, 2, 4], "region") == [[], [1, 4], [2]]


def test_uniform_sites_are_equal_in_size() -> None:
    assert {len(part) for part in cut(rows(103), "uniform", 10)} == {10, 11}


def test_kmeans_sites_hold_neighbours() -> None:
    x = np.repeat(np.eye(2, dtype=np.float32), 50, axis=0)
    parts = cut(Encoded(x, np.zeros(100, int)), "kmeans", 2)
    assert sorted(map(tuple, parts)) == [tuple(range(50)), tuple(range(50, 100))]
    assert [len(p) for p in cut(Encoded(x[:3], np.zeros(3, int)), "kmeans", 5)].count(0) >= 2


def test_geometric_sizes_follow_the_law() -> None:
    n, sites, a = 200_000, 30, 0.99
    p = 1 - (1 - a) ** (1 / sites)
    sizes = np.array([len(part) for part in cut(rows(n), "geometric", sites, a=a)])
    law = n * (p * (1 - p) ** np.arange(sites) + (1 - a) / sites)
    assert round(p, 2) == 0.14
    assert np.abs(sizes - law).max() < 5 * np.sqrt(law.max())


def test_a_small_alpha_skews_the_labels() -> None:
    def purity(alpha: float) -> float:
        encoded = rows(4000)
        parts = cut(encoded, "dirichlet", 10, alpha=alpha)
        tops = [np.bincount(encoded.y[p], minlength=4).max() for p in parts]
        return sum(tops) / 4000

    assert purity(0.01) > 0.7 and purity(1000.0) < 0.35


def test_a_site_sees_only_so_many_classes_and_no_class_is_lost() -> None:
    encoded = rows(1000)
    parts = cut(encoded, "classes", 7, classes_per_site=2)
    assert max(len(np.unique(encoded.y[part])) for part in parts) == 2
    assert sum(map(len, parts)) == 1000


TABLE = Schema(
    "table",
    "t",
    9,
    (
        Column("region", "categorical", categories=("n", "s", "w")),
        Column("age", "integer", 0, 99),
        Column("ill", "boolean"),
    ),
    label="ill",
)
RECORDS = Records(
    frame=pd.DataFrame(
        {"region": list("nswns"), "age": [5, 6, 5, 6, 7], "ill": [True, False, True, True, False]}
    )
)


@pytest.mark.parametrize(
    ("column", "sites", "expected"),
    [
        ("region", 3, [[0, 3], [1, 4], [2]]),
        ("region", 4, [[0, 3], [1, 4], [2], []]),
        ("region", 2, [[0, 2, 3], [1, 4]]),
        ("ill", 2, [[1, 4], [0, 2, 3]]),
        ("age", 3, [[0, 2], [1, 3], [4]]),
    ],
)
def test_sites_can_follow_a_column(column: str, sites: int, expected: list[list[int]]) -> None:
    encoded, rng = encode(TABLE, RECORDS), np.random.default_rng(0)
    parts = split(TABLE, encoded, "column", sites, rng=rng, column=column, records=RECORDS)
    assert [part.tolist() for part in parts] == expected


PERSONS = Schema("image", "i", 9, shape=(1, 2), person="who", rows_per_person=3)


def cut_by_person(person: list[int], sites: int, **options: object) -> list[list[int]]:
    n = len(person)
    encoded = Encoded(np.zeros((n, 2), np.float32), np.zeros(n, int), np.array(person, int))
    parts = split(PERSONS, encoded, "person", sites, rng=np.random.default_rng(0), **options)
    return [part.tolist() for part in parts]


def test_a_site_can_be_a_person() -> None:
    assert cut_by_person([7, 3, 7, 5], 4) == [[0, 2], [1], [3], []]
    assert cut_by_person([], 2) == [[], []]


def test_persons_with_few_rows_can_be_left_out() -> None:
    assert cut_by_person([7, 3, 7, 5, 5, 5], 2, least=2) == [[0, 2], [3, 4, 5]]
    assert cut_by_person([7, 3, 7, 5, 5, 5], 2, least=3) == [[3, 4, 5], []]


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 3))
def test_a_site_holds_all_rows_of_one_person_or_nothing(person: list[int], least: int) -> None:
    sites = cut_by_person(person, 10, least=least)
    kept = [p for p in dict.fromkeys(person) if person.count(p) >= least]
    assert [[person[row] for row in site] for site in sites if site] == [
        [p] * person.count(p) for p in kept
    ]


@pytest.mark.parametrize(
    ("sites", "options", "message"),
    [
        (1, {}, "sites = 2"),
        (2, {"least": 0}, "1 to the schema's 3"),
        (2, {"least": 4}, "1 to the schema's 3"),
        (2, {"least": True}, "least"),
        (2, {"least": "5"}, "least"),
    ],
)
def test_impossible_splits_by_person_are_refused(sites: int, options: dict, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        cut_by_person([0, 1], sites, **options)


def test_a_split_by_person_needs_persons() -> None:
    with pytest.raises(StudyError, match="rows_per_person"):
        cut(rows(5), "person", 5)


@pytest.mark.parametrize(
    ("how", "sites", "options", "message"),
    [
        ("magic", 2, {}, "uniform"),
        ("uniform", 0, {}, "at least one"),
        ("files", 2, {}, "uniform"),
        ("uniform", 2, {"alpha": 1}, "alpha"),
        ("dirichlet", 2, {"alpha": 0.0}, "alpha above 0"),
        ("dirichlet", 2, {"alpha": float("nan")}, "alpha above 0"),
        ("geometric", 2, {"a": 1.0}, "between 0 and 1"),
        ("classes", 1, {"classes_per_site": 2}, "add sites"),
        ("classes", 9, {"classes_per_site": 5}, "1 to 4"),
        ("column", 2, {"column": "none"}, "column"),
        ("kmeans", 2000, {}, "1000"),
    ],
)
def test_impossible_splits_are_refused(how: str, sites: int, options: dict, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        cut(rows(3000 if how == "kmeans" else 50), how, sites, **options)


CHANNEL = (Column("v", "numeric", 0, 1),)


def windows(steps: list[int], stride: int) -> tuple[Schema, Records]:
    """Windows of several recordings, so many steps each; values tell the steps apart."""
    schema = Schema("series", "s", 99, CHANNEL, shape=(4, 1), layout="long", series="ward",
                    time="t", stride=stride)  # fmt: skip
    total = sum(steps)
    held = pd.DataFrame(
        {
            "ward": np.repeat(np.arange(len(steps)), steps),
            "t": np.arange(total),
            "v": np.arange(total) / max(total, 1),
        }
    )
    return schema, from_frame(held, schema)


def cut_windows(how: str, sites: int, steps: list[int], stride: int, **options: object):
    schema, records = windows(steps, stride)
    encoded, rng = encode(schema, records), np.random.default_rng(0)
    return records, split(schema, encoded, how, sites, rng=rng, records=records, **options)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(30, 60), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 3))
def test_sites_cut_by_blocks_share_no_time_step(steps: list[int], stride: int, sites: int) -> None:
    records, parts = cut_windows("blocks", sites, steps, stride)
    held = [set(records.series[part].ravel().tolist()) for part in parts]
    assert all(held) and sum(map(len, held)) == len(set().union(*held))
    left_out = len(records) - sum(map(len, parts))
    most = -(-4 // stride) - 1
    assert left_out <= most * (sites - 1)
    if len(steps) == 1 and stride >= 4:
        assert left_out == 0


def test_blocks_are_stretches_in_order_of_time() -> None:
    records, parts = cut_windows("blocks", 2, [13], 1)
    assert [records.start[part].tolist() for part in parts] == [[0, 1], [5, 6, 7, 8, 9]]


def test_windows_of_one_series_stay_at_one_site() -> None:
    records, parts = cut_windows("column", 2, [6, 5, 7], 1, column="ward")
    assert [records.recording[part].tolist() for part in parts] == [
        ["0"] * 3 + ["2"] * 4,
        ["1"] * 2,
    ]


def test_blocks_need_stretches_longer_than_a_window_and_series_from_a_table() -> None:
    with pytest.raises(StudyError, match=r"5 sites.* set sites = 2"):
        cut_windows("blocks", 5, [13], 1)
    with pytest.raises(StudyError, match="series read from a table"):
        cut(rows(9), "blocks", 2)
    schema, records = windows([30], 1)
    schema = replace(schema, person="ward", rows_per_person=30)
    encoded = encode(schema, replace(records, person=records.recording))
    with pytest.raises(StudyError, match="without persons"):
        split(schema, encoded, "blocks", 2, rng=np.random.default_rng(0), records=records)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(4, 40), min_size=1, max_size=4), st.integers(1, 5), st.integers(2, 30))
def test_too_many_blocks_are_refused_with_the_largest_number_that_works(
    steps: list[int], stride: int, sites: int
) -> None:
    def refused(sites: int) -> str:
        try:
            cut_windows("blocks", sites, steps, stride)
        except StudyError as error:
            return error.do
        return ""

    said = re.search(r"set sites = (\d+)", refused(sites))
    if said is not None:
        most = int(said[1])
        assert not refused(most) and most < sites
        assert all(refused(more) for more in range(most + 1, sites))


def test_the_largest_number_of_blocks_is_soon_found_among_many_windows() -> None:
    recording = np.repeat(np.arange(3000), 40)
    start = np.tile(np.arange(40), 3000)
    assert 5000 <= most_blocks(120_000, recording, start, 24) < 6000
    assert most_blocks(120_000, recording[:40], start[:40], 24) == 1


def test_a_file_without_rows_is_cut_into_empty_sites() -> None:
    _, parts = cut_windows("blocks", 3, [], 1)
    assert [len(part) for part in parts] == [0, 0, 0]
