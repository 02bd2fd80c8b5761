from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from understudy.data.schema import Column, Schema
from understudy.privacy.clip import clipped_moments
from understudy.recipes.features import space, unsvec

TABLE = Schema(
    "table", "t", 10,
    (Column("n", "numeric", 0.0, 1.0, missing=True), Column("b", "boolean"),
     Column("c", "categorical", categories=("x", "y", "z"))),
)  # fmt: skip


@given(arrays(np.float64, (1, 5), elements=st.floats(-3, 3)))
def test_moments_of_a_row_keep_its_norm_and_come_back(z: np.ndarray) -> None:
    piece = iter([(torch.from_numpy(z), 0)])
    flat = clipped_moments(piece, 1, (1, 21), np.inf, (0.0, 0.0))[0, :, 6:]
    np.testing.assert_allclose(flat.norm(), (z**2).sum(), atol=1e-12)
    np.testing.assert_allclose(unsvec(flat.numpy(), 5), z[:, :, None] * z[:, None, :], atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (3, 5, 3)])
def test_all_coefficients_lead_back_to_the_image(shape: tuple[int, ...]) -> None:
    schema = Schema("image", "i", 10, classes=("a", "b"), shape=shape)
    place = space(schema, 10_000)
    x = np.random.default_rng(0).random((4, schema.width))
    np.testing.assert_allclose((x - place.origin) @ place.into @ place.back + place.origin, x)
    assert len(place.expected) == schema.width


def test_few_coefficients_keep_the_slow_changes_of_every_channel() -> None:
    schema = Schema("image", "i", 10, classes=("a", "b"), shape=(8, 8, 3))
    place = space(schema, 9)
    flat = np.broadcast_to([0.2, 0.5, 0.9], (8, 8, 3)).reshape(1, -1)
    np.testing.assert_allclose(flat @ place.into @ place.back, flat, atol=1e-12)
    checker = np.where(np.indices((8, 8, 3)).sum(0) % 2, 1.0, -1.0).reshape(1, -1)
    assert np.abs(checker @ place.into).max() < 0.1


def test_series_are_smoothed_along_time_only() -> None:
    columns = tuple(Column(n, "numeric", 0.0, 1.0) for n in "uv")
    schema = Schema("series", "s", 10, columns, classes=("a", "b"), shape=(12, 2))
    place = space(schema, 2)
    x = np.broadcast_to([0.1, 0.8], (12, 2)).reshape(1, -1)
    again = (x - place.origin) @ place.into @ place.back + place.origin
    np.testing.assert_allclose(again, x, atol=1e-12)


def test_columns_come_back_and_rows_have_a_norm_of_about_one() -> None:
    place = space(TABLE, 1)
    x = np.array([[0.2, 0.0, 1.0, 0, 1, 0], [0.6, 1.0, 0.0, 0, 0, 1]])
    z = (x - place.origin) @ place.into
    np.testing.assert_allclose(z @ place.back + place.origin, x)
    assert np.all((np.linalg.norm(z, axis=1) > 0.3) & (np.linalg.norm(z, axis=1) < 1.5))
