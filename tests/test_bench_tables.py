"""The public grid of the tables bench: rivals and distances see the same cells."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from understudy import Records
from understudy.data.schema import Column, Schema

SCHEMA = Schema(
    "table",
    "mixed",
    100,
    columns=(
        Column("few", "integer", low=0, high=5),
        Column("many", "integer", low=-1, high=99),
        Column("real", "numeric", low=0.0, high=10.0, missing=True),
        Column("word", "categorical", categories=("a", "b"), missing=True),
        Column("flag", "boolean"),
        Column("y", "categorical", categories=("no", "yes")),
    ),
    label="y",
)


@pytest.fixture
def tablesets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
    return importlib.import_module("tablesets")


def rows(n: int) -> Records:
    rng = np.random.default_rng(0)
    real = np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 10, n))
    frame = pd.DataFrame(
        {
            "few": rng.integers(0, 6, n),
            "many": rng.integers(-1, 100, n),
            "real": real,
            "word": rng.choice(["a", "b", "?"], n),
            "flag": rng.choice(["true", "false"], n),
            "y": rng.choice(["no", "yes"], n),
        }
    )
    return Records(frame=frame)


def test_rows_drawn_from_cells_lie_in_them(tablesets: ModuleType) -> None:
    grid = tablesets.Grid(SCHEMA)
    codes = grid.codes(rows(3000))
    drawn = grid.draw(codes, np.random.default_rng(1))
    assert (codes < grid.sizes).all()
    assert (grid.codes(drawn) == codes).all()


def test_whole_numbers_with_few_values_have_a_cell_each(tablesets: ModuleType) -> None:
    grid = tablesets.Grid(SCHEMA)
    found = rows(3000)
    assert grid.sizes == [6, tablesets.BINS, tablesets.BINS + 1, 3, 2, 2]
    assert found.frame is not None
    assert (grid.codes(found)[:, 0] == found.frame["few"]).all()
    again = grid.draw(grid.codes(found), np.random.default_rng(1))
    assert again.frame is not None
    assert (again.frame["few"].to_numpy() == found.frame["few"].to_numpy()).all()


def test_cells_of_whole_numbers_are_even(tablesets: ModuleType) -> None:
    grid = tablesets.Grid(SCHEMA)
    many = np.arange(-1, 100)
    frame = pd.concat([rows(1).frame] * len(many)).assign(many=many)  # type: ignore[list-item]
    held = np.bincount(grid.codes(Records(frame=frame))[:, 1])
    assert len(held) == tablesets.BINS
    assert set(held) == {3, 4}


def test_correlated_columns_are_dealt_together_or_apart(tablesets: ModuleType) -> None:
    deal = importlib.import_module("dealt").deal
    rng = np.random.default_rng(0)
    twins = rng.random((3, 50))
    names = [f"{one}{i}" for i in range(3) for one in "ab"]
    columns = tuple(Column(name, "numeric", 0, 1) for name in names)
    whole = Records(frame=pd.DataFrame({name: twins[int(name[1])] for name in names}))
    schema = Schema("table", "t", 50, columns)
    together, apart = (deal(schema, whole, 3, how) for how in ("together", "apart"))
    assert {*together} == {("a0", "b0"), ("a1", "b1"), ("a2", "b2")}
    assert not any({f"a{i}", f"b{i}"} <= set(own) for own in apart for i in range(3))
