from __future__ import annotations

import numpy as np
import pytest
import torch

from understudy.data.schema import Column, Schema
from understudy.recipes.margins import Margin, margins
from understudy.recipes.projection import moments
from understudy.recipes.tables import Size, cells, cut, pick, size_up


def schema(classes: int = 2, columns: int = 4, records: int = 10_000) -> Schema:
    found = [Column(f"c{i}", "numeric", 0.0, 1.0) for i in range(columns)]
    label = Column("y", "categorical", categories=tuple(f"k{c}" for c in range(classes)))
    return Schema("table", "t", records, (*found, label), label="y")


def number(missing: bool = False) -> Margin:
    column = Column("v", "integer", 0, 49, missing=missing)
    return margins(Schema("table", "t", 10, (column,)), 256)[0]


def test_numbers_are_cut_at_quantiles_in_fewer_codes_than_allowed() -> None:
    share = np.full(50, 0.02)
    code = cut(number(), share, 8, 0.0)
    assert (np.diff(code) >= 0).all() and code[-1] < 8
    assert np.bincount(code, weights=share).max() < 0.2


def test_a_heavy_value_and_missing_ones_have_codes_of_their_own() -> None:
    share = np.append(np.append(0.6, np.full(49, 0.2 / 49)), 0.2)
    code = cut(number(missing=True), share, 8, 0.0)
    assert code.max() < 8 and (code == code[0]).sum() == 1 and (code == code[-1]).sum() == 1
    assert len(np.unique(code[1:-1])) >= 4  # what the heavy value leaves is cut too


def test_few_rows_are_not_cut_further() -> None:
    share = np.append(0.97, np.full(49, 0.03 / 49))
    assert len(np.unique(cut(number(), share, 8, 0.01))) == 2


@pytest.mark.parametrize(
    "share", [np.zeros(50), np.eye(50)[3], np.arange(50) / 1225, np.arange(50) % 2 / 25]
)
def test_whatever_the_margin_there_are_codes_enough(share: np.ndarray) -> None:
    for codes in (4, 8, 32):
        code = cut(number(), share, codes, 0.001)
        assert 0 <= code.min() and code.max() < codes


def test_rare_categories_are_one_code_together() -> None:
    town = Margin("town", 0, 6, onehot=True)
    share = np.array([0.5, 0.002, 0.3, 0.001, 0.15, 0.047])
    code = cut(town, share, 8, 0.01)
    assert code[1] == code[3] and len(np.unique(code)) == 5
    assert len(np.unique(cut(town, share, 4, 0.01))) == 4
    assert (cut(town, np.full(6, 1 / 6), 8, 0.01) == np.arange(6)).all()


def test_less_noise_and_more_rows_mean_finer_codes() -> None:
    sizes = [size_up(schema(), 10_000, noise) for noise in (0.5, 5.0, 50.0)]
    assert sizes[0].codes > sizes[1].codes >= sizes[2].codes and sizes[0].labelled
    assert not sizes[2].labelled and sizes[2].tables == sizes[2].pairs + 4
    assert size_up(schema(), 10**6, 5.0).codes > sizes[1].codes
    assert size_up(schema(classes=40), 10_000, 5.0).singles == 4


def test_there_are_fewer_tables_where_a_count_would_drown() -> None:
    wide = schema(columns=20)
    sizes = [size_up(wide, rows, 5.0) for rows in (500, 6000, 30_000)]
    assert [size.pairs for size in sizes] == [20, 61, 190]


def test_many_columns_or_classes_mean_coarser_codes() -> None:
    assert size_up(schema(columns=40), 10**6, 0.5).codes == 12
    assert size_up(schema(columns=200), 10**6, 0.5).codes == 4
    assert size_up(schema(columns=20, classes=2000), 10**6, 0.5).codes == 6


def test_pairs_that_depend_most_come_first_and_a_numeric_label_before_all() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (4000, 4))
    codes[:, 3] = np.where(rng.random(4000) < 0.8, codes[:, 1], codes[:, 3])
    pairs, _ = moments(codes, np.zeros(4000, int), 3, 1)
    pairs = pairs.reshape(1, 4, 3, 4, 3)
    assert pick(pairs, 1, None).tolist() == [[3, 1]]
    wanted = {tuple(sorted(pair)) for pair in pick(pairs, 3, 0).tolist()}
    assert wanted == {(0, 1), (0, 2), (0, 3)}


def test_a_column_that_tells_the_class_is_chosen() -> None:
    rng = np.random.default_rng(0)
    codes, y = rng.integers(0, 3, (4000, 3)), rng.integers(0, 2, 4000)
    codes[:, 2] = np.where(y == 1, 2, codes[:, 2])
    pairs, _ = moments(codes, y, 3, 2)
    assert pick(pairs.reshape(2, 3, 3, 3, 3), 2, None)[:, 0].tolist() == [2, 2]


@pytest.mark.parametrize("labelled", [True, False])
def test_each_row_has_one_cell_in_each_table(labelled: bool) -> None:
    size = Size(columns=3, classes=2, pairs=2, codes=4, labelled=labelled)
    codes, y = torch.tensor([[1, 2, 3], [0, 0, 0]]), torch.tensor([1, 0])
    found = cells(codes, y, torch.tensor([[1, 0], [2, 1]]), size)
    assert found.shape == (2, size.tables) and int(found.max()) < size.cells
    if labelled:
        assert found.tolist() == [[16 + 2 * 4 + 1, 16 + 3 * 4 + 2], [0, 0]]
    else:
        assert found.tolist() == [[9, 14, 4 + 1, 4 + 2, 4 + 3], [0, 0, 0, 0, 0]]
