"""Which rows keep the schema's rules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from understudy.data.cells import read_cells
from understudy.data.encode import read_column
from understudy.data.rules import Rule
from understudy.data.schema import Schema

__all__ = ["broken", "keeps", "keeps_encoded"]

Held = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Cells as numbers, and which are missing, by column."""


def keeps(schema: Schema, frame: pd.DataFrame) -> np.ndarray:
    """For rows as users see them: True ``[n]`` where a row keeps all rules."""
    return _keeps(schema, _held(schema, frame), len(frame))


def keeps_encoded(schema: Schema, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same for encoded rows ``[n, F]`` and classes ``[n]``, soft ones as decoding takes them.

    Only the columns that rules name are looked at.
    """
    held = {name: read_column(schema, name, x, y) for name in _named(schema)}
    return _keeps(schema, held, len(y))


def broken(schema: Schema, frame: pd.DataFrame) -> list[tuple[Rule, int]]:
    """Each rule with the number of rows that break it."""
    held = _held(schema, frame)
    return [(rule, int(breaks(schema, rule, held).sum())) for rule in schema.rules]


def breaks(schema: Schema, rule: Rule, held: Held) -> np.ndarray:
    """True where ``if`` holds and ``then`` does not."""
    known = {column.name: column for column in schema.columns}
    applies, kept = (
        np.logical_and.reduce(
            [test.holds(known[test.column], *held[test.column], unknown=unknown) for test in side]
        )
        for side, unknown in ((rule.when, False), (rule.then, True))
    )
    return np.asarray(applies & ~kept)


def _keeps(schema: Schema, held: Held, rows: int) -> np.ndarray:
    kept = np.ones(rows, bool)
    for rule in schema.rules:
        kept &= ~breaks(schema, rule, held)
    return kept


def _named(schema: Schema) -> list[str]:
    return list(dict.fromkeys(name for rule in schema.rules for name in rule.columns))


def _held(schema: Schema, frame: pd.DataFrame) -> Held:
    known = {column.name: column for column in schema.columns}
    read = {n: read_cells(known[n], frame[n], schema.missing_as) for n in _named(schema)}
    return {name: (cells.values, cells.missing) for name, cells in read.items()}
