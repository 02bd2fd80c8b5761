from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from understudy.data.bundled import bundled, holdout, sines
from understudy.data.encode import decode, encode
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame, read, write
from understudy.errors import DataError


@pytest.mark.parametrize(
    ("name", "n", "width"), [("breast_cancer", 569, 30), ("digits", 1797, 64), ("sines", 5000, 150)]
)
def test_bundled_data_fits_its_schema(name: str, n: int, width: int) -> None:
    schema, records = bundled(name)
    encoded = encode(schema, records)
    assert encoded.x.shape == (n, width) and schema.records == n
    assert len(np.unique(encoded.y)) == schema.n_classes
    assert len(decode(schema, encoded.x, encoded.y)) == n
    assert Schema.parse(schema.to_toml()) == schema


def test_no_value_of_the_table_lies_on_or_beyond_its_bounds_but_zero() -> None:
    schema, records = bundled("breast_cancer")
    x = encode(schema, records).x
    lows = np.array([float(c.low) for c in schema.features])
    assert x.max() < 1 and (x.min(0)[lows > 0] > 0).all()


def test_a_holdout_is_disjoint_complete_and_seeded() -> None:
    _, records = bundled("digits")
    first, again = (holdout(records, 0.2, rng=np.random.default_rng(1)) for _ in range(2))
    assert (len(first[0]), len(first[1])) == (1438, 359)
    assert np.array_equal(first[1].images, again[1].images)
    total = sum(part.images.sum(dtype=int) for part in first)
    assert total == records.images.sum(dtype=int)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match="breast_cancer, digits, sines"):
        bundled("iris")


def test_sines_follow_their_law_and_are_the_same_every_time() -> None:
    _, records = bundled("sines")
    assert np.array_equal(records.series, bundled("sines")[1].series)
    angle = np.arcsin(2 * sines(2000, rng=np.random.default_rng(1))[:, :15] - 1)
    steps = np.diff(angle, axis=1)  # up to a right angle a sine can be undone
    assert np.allclose(steps, steps[:, :1], atol=1e-6)
    for law in (steps[:, 0], angle[:, 0]):
        assert 0 <= law.min() < 0.001 and 0.099 < law.max() < 0.1
        assert abs(law.mean() - 0.05) < 0.001


def test_sines_read_back_from_a_table_by_their_schema(tmp_path) -> None:
    schema, records = bundled("sines")
    few = records.take(np.arange(20))
    write(few, tmp_path / "a.csv", schema)
    assert np.array_equal(read(tmp_path / "a.csv", schema).series, few.series)


@pytest.mark.parametrize("steps", [[40], [40, 25]])
def test_overlapping_windows_are_held_out_by_time_and_share_no_step(steps: list[int]) -> None:
    schema = Schema(
        "series", "s", 99, (Column("v", "integer", 0, 99),), shape=(5, 1), layout="long",
        series="id", time="t", stride=2,
    )  # fmt: skip
    total = sum(steps)
    held = pd.DataFrame({"t": np.arange(total), "v": np.arange(total)})
    held["id"] = np.repeat(np.arange(len(steps)), steps)
    records = from_frame(held, schema)
    train, test = holdout(records, 0.25, rng=np.random.default_rng(0))
    assert len(test) > 0 and not set(train.series.ravel()) & set(test.series.ravel())
    assert len(records) - len(train) - len(test) == 2 * len(steps)
    for recording in np.unique(records.recording):
        first, last = (p.start[p.recording == recording] for p in (train, test))
        assert first.max() < last.min()
    apart = replace(schema, stride=5)
    train, test = holdout(from_frame(held, apart), 0.25, rng=np.random.default_rng(0))
    assert len(train) + len(test) == sum(n // 5 for n in steps)
