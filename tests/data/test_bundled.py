from __future__ import annotations

import numpy as np
import pytest

from understudy.data import Schema, bundled, decode, encode, holdout
from understudy.errors import DataError


@pytest.mark.parametrize(("name", "n", "width"), [("breast_cancer", 569, 30), ("digits", 1797, 64)])
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
    with pytest.raises(DataError, match="breast_cancer, digits"):
        bundled("iris")
