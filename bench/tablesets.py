"""The tables of `bench/tables.py`: public schemas, rows, splits, and the public grid of all scores.

Bounds are round figures that a reader of each data set's documentation would write down; none is
fitted. Two tables are the American Community Survey's government employees: salary as a number,
and as above 50,000 or not; occupations are cut to the 23 major groups of the SOC, industries to
the sectors of the NAICS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from common import DATA, load
from fedmoments import adult, breast_cancer, mushroom

from understudy import Records, Schema
from understudy.data.bundled import holdout
from understudy.data.encode import decode, encode
from understudy.data.schema import Column
from understudy.data.table import from_frame
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.rows import Rows

BINS = 32
WHOLE = 50_000  # dollars a year: where the census table's two classes meet

SOC = [str(code) for code in range(11, 56, 2)]
NAICS = "11 21 22 23 31 32 33 3M 42 44 45 48 49 4M 51 52 53 54 55 56 61 62 71 72 81 92".split()
CENSUS_WORDS = {
    "sex": ["female", "male"],
    "race": ["AIAN", "NHOPI", "asian", "black", "mix", "other", "white"],
    "hispanic_origin": ["no", "yes"],
    "citizenship": list("12345"),
    "nativity": ["foreign-born", "native"],
    "marital": ["divorced", "married", "never married", "separated", "widowed"],
    "occupation": SOC,
    "industry": NAICS,
    "economic_region": [
        "Abroad", "Far West", "Great Lakes", "Mideast", "New England", "Plains",
        "Rocky Mountain", "Southeast", "Southwest",
    ],
}  # fmt: skip
CENSUS_NUMBERS = {
    "age": (15, 99), "family_size": (1, 20), "children": (-1, 19), "education_level": (1, 24),
    "english_level": (0, 4), "hours_worked": (0, 99), "weeks_worked": (0, 52),
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One table, cut into training and test rows; ``target`` is a number that students predict."""

    schema: Schema
    train: Records
    test: Records
    target: str | None = None


def known(name: str, seed: int) -> Task:
    """The tables that `bench/fedmoments.py` has too."""
    made = {"adult": adult, "breast_cancer": breast_cancer, "mushroom": mushroom}[name](name, seed)
    return Task(made.schema, made.train, made.test)


def declared(name: str, seed: int) -> Task:
    """A table with a schema file beside it and official test rows."""
    schema, data = Schema.load(DATA / name / "schema.toml"), load(name)
    return Task(schema, *(from_frame(data[part], schema) for part in ("train", "test")))


def titanic(name: str, seed: int) -> Task:
    """Passengers without names; a quarter held out by the seed."""
    columns = (
        Column("pclass", "categorical", categories=("1", "2", "3")),
        Column("sex", "categorical", categories=("female", "male")),
        Column("age", "numeric", 0, 100, missing=True),
        Column("sibsp", "integer", 0, 10),
        Column("parch", "integer", 0, 10),
        Column("fare", "numeric", 0, 600, missing=True),
        Column("embarked", "categorical", categories=("C", "Q", "S"), missing=True),
        Column("survived", "categorical", categories=("0", "1")),
    )
    frame = load(name)["train"][[c.name for c in columns]]
    schema = Schema("table", name, 1000, columns, label="survived")
    return _held_out(schema, frame, seed)


def census(name: str, seed: int) -> Task:
    """Government employees; a quarter held out by the seed."""
    frame = load("gov_census")["train"]
    cut = {c: frame[c].str[:2] for c in ("occupation", "industry")}
    words = [Column(n, "categorical", categories=tuple(w)) for n, w in CENSUS_WORDS.items()]
    numbers = [Column(n, "integer", *bounds) for n, bounds in CENSUS_NUMBERS.items()]
    if name == "gov_census_salary":
        salary = Column("salary", "integer", 0, 1_000_000)
        schema = Schema("table", name, 150_000, (*words, *numbers, salary), label="salary")
        return replace(_held_out(schema, frame.assign(**cut), seed), target="salary")
    above = np.where(frame.pop("salary") > WHOLE, "yes", "no")
    label = Column("above", "categorical", categories=("no", "yes"))
    schema = Schema("table", name, 150_000, (*words, *numbers, label), label="above")
    return _held_out(schema, frame.assign(**cut, above=above), seed)


def _held_out(schema: Schema, frame: pd.DataFrame, seed: int) -> Task:
    rng = np.random.default_rng(1000 + seed)
    return Task(schema, *holdout(from_frame(frame, schema), rng=rng))


TABLES = {
    "adult": known, "breast_cancer": known, "mushroom": known, "titanic": titanic,
    "gov_census": census, "gov_census_salary": census,
    "dry_bean": declared, "magic": declared, "shoppers": declared, "obesity": declared,
}  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """The public cells of every column: what rivals are given and what distances are taken on.

    A category is a cell, so is missing; numbers have `BINS` equal parts of their public range,
    or one cell for each value where there are fewer whole numbers than that.
    """

    schema: Schema

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The columns, and the label if there is one."""
        return axes(self.schema)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of cells of each axis."""
        return [
            len(a.categories) or _cells(a) + bool(a.column and a.column.missing) for a in self.axes
        ]

    def codes(self, records: Records) -> np.ndarray:
        """The cell of every value ``[n, A]``."""
        made = encode(self.schema, records)
        rows = Rows(made.x, made.y)
        return np.column_stack([_codes(axis, axis.values(rows)) for axis in self.axes])

    def draw(self, codes: np.ndarray, rng: np.random.Generator) -> Records:
        """Rows with these cells, evenly spread within each."""
        x, y = np.zeros((len(codes), self.schema.width), np.float32), np.zeros(len(codes), int)
        start = 0
        for axis, cells in zip(self.axes, codes.T, strict=True):
            if axis.kind == "label":
                y = cells
                continue
            assert axis.column is not None
            _fill(axis, cells, x[:, start : start + axis.column.width], rng)
            start += axis.column.width
        return decode(self.schema, x, y)


def _span(axis: Axis) -> int | None:
    """Steps between a whole number's bounds; None for other numbers."""
    column = axis.column
    if column is None or column.kind != "integer":
        return None
    return int(column.high) - int(column.low)  # type: ignore[arg-type]


def _may_miss(axis: Axis) -> bool:
    return axis.column is not None and axis.column.missing


def _cells(axis: Axis) -> int:
    span = _span(axis)
    return BINS if span is None else min(BINS, span + 1)


def _codes(axis: Axis, values: np.ndarray) -> np.ndarray:
    if axis.categories:
        return values.astype(np.int64)
    cells, span = _cells(axis), _span(axis)
    known = np.nan_to_num(values).astype(np.float64)
    if span is not None:
        known = np.rint(known * span) / (span + 1)  # whole numbers: equal parts of their list
        known += 0.5 / (span + 1) / cells
    code = np.minimum(np.floor(known * cells), cells - 1)
    return np.where(np.isnan(values), cells, code).astype(np.int64)


def _fill(axis: Axis, cells: np.ndarray, out: np.ndarray, rng: np.random.Generator) -> None:
    """Write one column's features; cells as `_codes` has them."""
    if axis.kind == "categorical":
        out[np.arange(len(cells)), cells] = 1
        return
    if axis.kind == "boolean":
        missing, value = cells == 2, cells == 1
    else:
        missing = cells == _cells(axis)
        value = _within(axis, np.where(missing, 0, cells), rng)
    out[:, 0] = np.where(missing, 0.5, value)
    if out.shape[1] > 1:
        out[:, 1] = missing


def _within(axis: Axis, cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A value in [0, 1] from each cell: any number, or one of the whole numbers it holds."""
    n, span = _cells(axis), _span(axis)
    if span is None:
        return (cells + rng.random(len(cells))) / n
    first = np.ceil(np.arange(n + 1) * (span + 1) / n - 0.5 / n).astype(np.int64)
    first[-1] = span + 1
    low, high = first[cells], first[cells + 1]
    return (low + np.floor(rng.random(len(cells)) * (high - low))) / span
