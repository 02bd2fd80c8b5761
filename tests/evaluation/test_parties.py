"""Relations within a party and across two are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from understudy.data.pictures import Picture
from understudy.data.schema import Column, Schema
from understudy.evaluation.axes import axes
from understudy.evaluation.parties import measure_parties, pairs_apart
from understudy.evaluation.rows import Rows

SCHEMA = Schema("table", "t", 1000, tuple(Column(n, "numeric", 0, 1) for n in "abcd"))
PARTIES = [["a", "b"], ["c", "d"]]


def rows(rng: np.random.Generator, across: bool) -> Rows:
    """b follows a; c follows a only where relations cross parties."""
    a, d = rng.random((2, 2000))
    c = a if across else rng.random(2000)
    return Rows(np.column_stack([a, a, c, d]).astype(np.float32), np.zeros(2000, np.int64))


def test_pairs_by_place() -> None:
    found = pairs_apart(["a", "b", "c"], [["a", "b"], ["b", "c"]])
    assert found == {"within": [(0, 1), (1, 2)], "across": [(0, 2)]}


def test_what_is_lost_across_parties_does_not_show_within() -> None:
    rng = np.random.default_rng(0)
    sides = {"synthetic": rows(rng, False), "real": rows(rng, True)}
    found = measure_parties(SCHEMA, PARTIES, sides, rows(rng, True), rng=rng)
    values = {c.name: (c.synthetic.value, c.real.value if c.real else 1.0) for c in found}
    assert len(values) == 4
    for name, (ours, floor) in values.items():
        assert (ours > 3 * floor) == ("across" in name), name


def test_an_image_counts_as_its_party_s() -> None:
    schema = replace(SCHEMA, images=(Picture("scan", (2, 2)),))
    rng = np.random.default_rng(0)
    names = [axis.of or axis.name for axis in axes(schema)]
    assert names == [*"abcd", "scan[0][0]", "scan[0][0]"]
    held = [schema.columns_of(own) for own in (["a", "b", "c", "d"], ["scan"])]
    x = rng.random((2000, 8), np.float32)
    bright = x.copy()
    bright[:, 4:] = bright[:, :1]
    real, ours = (Rows(rows, np.zeros(2000, np.int64)) for rows in (bright, x))
    found = measure_parties(schema, held, {"synthetic": ours, "real": real}, real, rng=rng)
    values = {c.name: (c.synthetic.value, c.real.value if c.real else 1.0) for c in found}
    ours_across, floor = values["mean correlation difference across parties"]
    assert ours_across > 0.2 and floor < 0.01
