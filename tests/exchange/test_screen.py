"""One balanced dataset from many generators; generators that do harm are found and dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy import Study, run
from understudy.data.bundled import bundled
from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.errors import ExchangeError
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import answer, silent, students
from understudy.exchange.dataset import balanced
from understudy.exchange.screen import screen
from understudy.release.bundle import Release
from understudy.rng import Streams

RNG = Streams.from_seed(0)
SCHEMA, ROWS = bundled("breast_cancer")
ORDER = np.random.default_rng(0).permutation(len(ROWS))
TEST, OWN, SITES = ORDER[:150], ORDER[150:210], np.array_split(ORDER[210:], 3)


def flipped(rows: Records, share: float = 1.0) -> Records:
    """The other diagnosis in this share of the rows."""
    assert rows.frame is not None
    swap = dict(zip(SCHEMA.classes, reversed(SCHEMA.classes), strict=True))
    told = rows.frame[SCHEMA.label].astype(str)
    hit = np.random.default_rng(0).random(len(told)) < share
    labels = pd.Categorical(np.where(hit, told.map(swap), told), SCHEMA.classes)
    frame = rows.frame.assign(**{str(SCHEMA.label): labels})
    return Records(frame=frame)


def trained(rows: Records, folder: Path, name: str) -> Release:
    tables = {
        "study": {"name": name, "recipe": "fedmoments"},
        "privacy": {"trust": "local", "unit": "record", "epsilon": 8.0},
        "simulation": {"data": "-", "sites": 1},
    }
    run(Study.parse(tables, schema=SCHEMA), [rows], out=folder / f"{name}.zip", seed=1, rows=5)
    return Release.load(folder / f"{name}.zip")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    """Three sites' generators, and two of rows whose labels were swapped."""
    folder = tmp_path_factory.mktemp("pool")
    honest = {f"site-{i}": trained(ROWS.take(s), folder, f"site-{i}") for i, s in enumerate(SITES)}
    swapped = {f"bad-{i}": flipped(ROWS.take(SITES[i])) for i in (0, 1)}
    return {**honest, **{name: trained(rows, folder, name) for name, rows in swapped.items()}}


def accuracy(rows: Rows) -> float:
    """Of a student of these rows, on rows that nobody held."""
    test = encode(SCHEMA, ROWS.take(TEST))
    found = answer(students(SCHEMA)["logistic regression"], SCHEMA, rows, test.x, RNG, silent)
    assert found is not None
    return float((found.argmax(1) == test.y).mean())


def of(pool: dict[str, Release], kind: str) -> dict[str, Release]:
    return {name: release for name, release in pool.items() if name.startswith(kind)}


def test_poisoned_generators_are_dropped_and_accuracy_recovers(pool: dict[str, Release]) -> None:
    found = screen(pool, ROWS.take(OWN), rng=RNG)
    bad = {each.name: each for each in found if each.dropped}
    assert bad.keys() == of(pool, "bad").keys()
    assert all(each.alone < 0.3 and "labels may be swapped" in each.why for each in bad.values())
    kept = {each.name: pool[each.name] for each in found if not each.dropped}
    poisoned, screened, clean = (
        accuracy(balanced(each, 1000, rng=RNG.child("rows")).rows)
        for each in (pool, kept, of(pool, "site"))
    )
    assert screened == clean > 0.9
    assert poisoned < clean - 0.15


def test_honest_generators_are_kept(pool: dict[str, Release]) -> None:
    honest = of(pool, "site")
    for seed in range(3):
        found = screen(honest, ROWS.take(OWN), rng=Streams.from_seed(seed))
        assert [each.name for each in found] == list(honest)
        assert not any(each.dropped for each in found)
        assert all(each.alone > 0.7 and each.why == "" for each in found)


def test_a_generator_with_a_third_of_its_labels_swapped_is_dropped(
    pool: dict[str, Release], tmp_path: Path
) -> None:
    """Alone it teaches better than guessing, and among all others at once its harm would drown."""
    half = trained(flipped(ROWS.take(SITES[1]), 0.35), tmp_path, "half")
    found = screen({**of(pool, "site"), "half": half}, ROWS.take(OWN), rng=RNG)
    (bad,) = [each for each in found if each.dropped]
    assert bad.name == "half" and "better without it" in bad.why
    assert bad.alone > 0.5 and bad.without > bad.beside


def test_where_all_are_poisoned_none_is_left(pool: dict[str, Release]) -> None:
    (found,) = screen({"bad": pool["bad-0"]}, ROWS.take(OWN), rng=RNG)
    assert found.dropped


def test_screening_wants_rows(pool: dict[str, Release]) -> None:
    with pytest.raises(ExchangeError, match="at least 10 rows"):
        screen(pool, ROWS.take(OWN[:3]), rng=RNG)


def test_classes_come_in_equal_numbers_from_all_who_know_them(pool: dict[str, Release]) -> None:
    made = balanced(pool, 1001, rng=RNG)
    assert made.records.frame is not None and len(made.records.frame) == 1001
    assert sorted(Counter(made.rows.y.tolist()).values()) == [500, 501]
    each = [many for own in made.counts.values() for many in own.values()]
    assert sum(each) == 1001 and max(each) - min(each) <= 1
    again = balanced(pool, 1001, rng=Streams.from_seed(0))
    assert np.array_equal(again.rows.x, made.rows.x)


def test_a_class_is_drawn_only_where_it_is_known(pool: dict[str, Release]) -> None:
    release = pool["site-0"]
    one_class = replace(release, model=replace(release.generator, balance=(1.0, 0.0)))
    made = balanced({"a": one_class, "b": pool["site-1"]}, 300, rng=RNG)
    assert made.counts["a"] == {SCHEMA.classes[0]: 75} and made.missing == ()
    assert made.counts["b"] == dict(zip(SCHEMA.classes, (75, 150), strict=True))
    alone = balanced({"a": one_class}, 100, rng=RNG)
    assert alone.missing == (SCHEMA.classes[1],) and len(alone.rows) == 100


def test_generators_of_two_schemas_make_no_dataset(
    pool: dict[str, Release], pushed: dict[str, Path]
) -> None:
    with pytest.raises(ExchangeError, match="one schema"):
        balanced({"a": pool["site-0"], "b": Release.load(pushed["one"])}, 10, rng=RNG)
