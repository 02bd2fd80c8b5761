from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from understudy.data.keeping import keeps
from understudy.data.rules import parse_rules
from understudy.data.schema import Column, Schema
from understudy.errors import ReleaseError
from understudy.release.generator import Generator
from understudy.release.lawful import lawful_rows
from understudy.rng import Streams

COLUMNS = (
    Column("age", "integer", 0, 99),
    Column("married", "boolean"),
    Column("sex", "categorical", categories=("f", "m")),
)
RULE = {"if": {"age": {"below": 16}}, "then": {"married": False}}


def schema(*rules: dict) -> Schema:
    return Schema("table", "t", 100, COLUMNS, label="sex", rules=parse_rules([*rules]))


def generator(married: float = 0.5) -> Generator:
    """Ages and marriages that know nothing of each other."""
    chance = torch.tensor([[1.0, 1 - married, married]] * 2)
    share, ends = torch.ones(2, 3), torch.tensor([[0.0, 0, 1], [1, 0, 1]])
    columns = [
        {"start": 0, "kind": "number", "missing": False, "cells": [1]},
        {"start": 1, "kind": "flag", "missing": False, "cells": [1, 1]},
    ]
    arrays = {"chance": chance, "share": share, "low": ends[0], "high": ends[1]}
    return Generator(
        "products", arrays, {"width": 2, "rows": [1, 1], "columns": columns}, (0.5, 0.5)
    )


def drawn(asked: Schema, model: Generator, n: int, label: int | None = None):
    x, y = lawful_rows(model, asked, n, label, rng=Streams.from_seed(1))
    return x.numpy(), y.numpy()


def young(x: np.ndarray) -> np.ndarray:
    return np.rint(x[:, 0] * 99) < 16


def test_no_row_breaks_a_rule_and_others_stay_as_they_were() -> None:
    (x, y), (free, z) = (drawn(schema(*rules), generator(), 2000) for rules in ((RULE,), ()))
    assert not (young(x) & (x[:, 1] == 1)).any() and (young(free) & (free[:, 1] == 1)).any()
    kept = ~(young(free) & (free[:, 1] == 1))
    assert (x[kept] == free[kept]).all() and (y == z).all()  # classes in their proportions


def test_a_release_keeps_its_rules(made) -> None:
    ruled = replace(made, schema=schema(RULE), model=generator())
    frame = ruled.sample(3000, seed=0).frame
    assert keeps(schema(RULE), frame).all() and frame["married"].any()
    assert (ruled.sample(50, label="m", seed=0).frame["sex"] == "m").all()


def test_rows_that_stay_broken_are_copies_of_kept_ones() -> None:
    rule = {"if": {"age": {"at_least": 0}}, "then": {"age": {"at_most": 0}}}
    x, _ = drawn(schema(rule), generator(), 60)
    assert (np.rint(x[:, 0] * 99) == 0).all()


def test_a_generator_that_never_keeps_a_rule_is_refused() -> None:
    rule = {"if": {"age": {"at_least": 0}}, "then": {"married": False}}
    with pytest.raises(ReleaseError, match="keeps the schema's rules"):
        drawn(schema(rule), generator(married=1.0), 20)
