from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from understudy.errors import PrivacyError
from understudy.privacy.clip import clip, clipped_moments, clipped_sum

BOUNDS = st.floats(1e-6, 1e6)
FLOATS = st.floats(width=32)  # huge, tiny, NaN and infinite ones too
UPDATES = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=8), elements=FLOATS
)


def norms(value: torch.Tensor) -> torch.Tensor:
    return value.double().flatten(1).norm(dim=1)


@given(UPDATES, BOUNDS)
@example(np.full((1, 8), 3e38, np.float32), 1e-6)
def test_no_update_is_longer_than_the_bound(update: np.ndarray, bound: float) -> None:
    bounded = clip(torch.from_numpy(update), bound)
    assert bounded.value.shape == update.shape
    assert torch.isfinite(bounded.value).all()
    assert (norms(bounded.value) <= bound).all()
    assert bounded.sensitivity == bound and bounded.unit == "site"


@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(1, 4), st.just(6), st.integers(1, 4)), elements=FLOATS
    ),
    BOUNDS,
)
def test_blocks_are_bounded_each_and_together(update: np.ndarray, bound: float) -> None:
    value = clip(torch.from_numpy(update), bound, blocks=3).value
    assert (norms(value) <= bound).all()
    blocks = value.double().reshape(len(update), 3, -1).norm(dim=2)
    assert (blocks <= bound / 3**0.5).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 10))
def test_an_update_keeps_its_direction_and_a_short_one_its_length(seed: int, bound: float) -> None:
    update = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))
    value = clip(update, bound).value
    short = norms(update) <= bound * (1 - 1e-6)
    assert torch.equal(value[short], update[short])
    assert torch.allclose(
        torch.nn.functional.cosine_similarity(value, update), torch.ones(4), atol=1e-5
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_counts_as_zero(bad: float) -> None:
    update = torch.ones(3, 4)
    update[1, 2] = bad
    value = clip(update, 10.0).value
    assert torch.equal(value[1], torch.zeros(4))
    assert torch.equal(value[[0, 2]], torch.ones(2, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_the_bound_holds_whatever_the_precision(dtype: torch.dtype) -> None:
    update = (torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    value = clip(update, 0.37).value
    assert (norms(value) <= 0.37).all()
    assert (norms(value) > 0.36).all()


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan")])
def test_a_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(PrivacyError, match="clip"):
        clip(torch.ones(1, 2), bound)


@pytest.mark.parametrize("blocks", [1, 2])
def test_an_empty_stack_stays_empty(blocks: int) -> None:
    assert clip(torch.zeros(0, 2, 3), 1.0, blocks).value.shape == (0, 2, 3)


def test_clipping_does_not_touch_what_it_was_given() -> None:
    update = torch.full((1, 4), 5.0)
    clip(update, 1.0)
    assert torch.equal(update, torch.full((1, 4), 5.0))


ROWS = hnp.arrays(np.float32, st.tuples(st.integers(1, 12), st.just(3)), elements=FLOATS)


@given(ROWS, st.floats(1e-3, 1e3), st.data())
def test_one_row_moves_the_sum_by_no_more_than_the_bound(
    rows: np.ndarray, bound: float, data: st.DataObject
) -> None:
    n = len(rows)
    cells = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)))
    gone = data.draw(st.integers(0, n - 1))
    keep = np.arange(n) != gone
    with_row = _sum(rows, cells, bound)
    without = _sum(rows[keep], cells[keep], bound)
    assert torch.isfinite(with_row).all()
    assert float((with_row - without).norm()) <= bound


def _sum(rows: np.ndarray, cells: np.ndarray, bound: float, chunk: int = 5) -> torch.Tensor:
    starts = range(0, len(rows), chunk)
    chunks = (
        (torch.from_numpy(rows[i : i + chunk]), torch.from_numpy(cells[i : i + chunk]))
        for i in starts
    )
    return clipped_sum(chunks, 3, (2, 3), bound)


def test_a_row_enters_the_cell_of_its_site_and_group_only() -> None:
    total = _sum(np.eye(3, dtype=np.float32), np.array([0, 3, 5]), 1.0)
    assert total.shape == (3, 2, 3) and total.dtype == torch.float64
    filled = total.norm(dim=2) > 0
    assert filled.tolist() == [[True, False], [False, True], [False, True]]


def test_a_sum_over_no_rows_is_zero() -> None:
    assert torch.equal(clipped_sum(iter(()), 2, (1, 3), 1.0), torch.zeros(2, 1, 3).double())


def _moments(rows: np.ndarray, bound: float) -> torch.Tensor:
    """Rows of one cell, in pieces of three."""
    pieces = ((piece, 1) for piece in torch.from_numpy(rows).double().split(3))
    width = 1 + rows.shape[1] * (rows.shape[1] + 3) // 2
    return clipped_moments(pieces, 1, (2, width), bound, (0.3, 0.5))


def _phi(rows: np.ndarray) -> torch.Tensor:
    """The features whose clipped sum `clipped_moments` is, formed row by row."""
    z = torch.from_numpy(rows).double()
    pairs = [(i, j) for i in range(z.shape[1]) for j in range(i, z.shape[1])]
    products = [z[:, i] * z[:, j] * (1.0 if i == j else 2**0.5) for i, j in pairs]
    return torch.stack([torch.full_like(z[:, 0], 0.3), *(0.5 * z.T), *products], dim=1)


@given(ROWS, st.floats(1e-3, 1e3))
def test_moments_are_the_clipped_sum_of_the_products_of_each_row(
    rows: np.ndarray, bound: float
) -> None:
    chunk = iter([(_phi(rows), torch.ones(len(rows), dtype=torch.long))])
    wanted = clipped_sum(chunk, 1, (2, 1 + rows.shape[1] * (rows.shape[1] + 3) // 2), bound)
    found = _moments(rows, bound)
    assert torch.isfinite(found).all()
    assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-9 * bound)


@given(ROWS, st.floats(1e-3, 1e3), st.data())
def test_one_row_moves_moments_by_no_more_than_the_bound(
    rows: np.ndarray, bound: float, data: st.DataObject
) -> None:
    keep = np.arange(len(rows)) != data.draw(st.integers(0, len(rows) - 1))
    assert float((_moments(rows, bound) - _moments(rows[keep], bound)).norm()) <= bound
