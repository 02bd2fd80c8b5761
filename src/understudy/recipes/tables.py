"""Coarse codes and tables of pairs: what fedmarginals measures in its last sum.

Columns are cut into few codes by their noisy margins, so that a cell of a table holds enough rows
to stand clear of the noise. How many codes and tables there are follows from public numbers;
which pairs of columns are counted, from what the earlier sums say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import WireError
from understudy.federation.recipe import Task
from understudy.recipes.margins import Margin

__all__ = [
    "BINS",
    "Size",
    "cells",
    "cut",
    "pick",
    "size_of_all",
    "size_up",
    "unlabelled",
    "whole_numbers",
]

BINS = 256  # of a number's range, before columns are cut
_CODES = (32, 24, 16, 12, 8, 6, 4)
_CLEAR = 2.0  # deviations of the noise that a cell of average size is to hold
_FAINT = 0.0065  # deviation of a count, as a share of all rows: tables are as many as keep to it
_MOST = 400  # tables
_WIDEST = 480  # codes of all columns: each step of the projection takes their square
_HELD = 2**25  # shares of pairs by class that the server holds


@dataclass(frozen=True)
class Size:
    """How much is measured: ``pairs`` tables of two columns, each in up to ``codes`` codes.

    With ``labelled``, a table is of the label and two columns. Else, if there are ``classes``,
    one more table for each of the ``columns`` is of the label and that column.
    """

    columns: int
    classes: int
    pairs: int
    codes: int
    labelled: bool

    @property
    def singles(self) -> int:
        """Tables of the label and one column."""
        return self.columns if self.classes > 1 and not self.labelled else 0

    @property
    def tables(self) -> int:
        """How many are counted."""
        return self.pairs + self.singles

    @property
    def cells(self) -> int:
        """Of a table."""
        wide = (self.classes if self.labelled else 1) * self.codes**2
        return max(wide, self.classes * self.codes) if self.singles else wide


def size_up(schema: Schema, units: int, noise: float) -> Size:
    """By public numbers: columns, classes, how many units are protected, noise of one count."""
    columns, classes = len(schema.features), schema.n_classes
    wanted = (_FAINT * units / max(noise, 1e-9)) ** 2
    pairs = min(columns * (columns - 1) // 2, _MOST, round(max(wanted, columns)))
    level = _CLEAR * noise * math.sqrt(pairs)
    most = min(_WIDEST, math.sqrt(_HELD / classes)) / columns
    per_class = _codes(units / classes, level, most)
    if classes > 1 and (per_class < 8 or classes * per_class**2 > 4096):
        return Size(columns, classes, pairs, _codes(units, level, most), False)
    return Size(columns, classes, pairs, per_class, classes > 1)


def size_of_all(schema: Schema, std: float) -> Size:
    """Where all pairs are counted, with noise ``std`` in every count, and the label by itself."""
    columns, classes = len(schema.features), schema.n_classes
    most = min(_WIDEST, math.sqrt(_HELD / classes)) / columns
    codes = _codes(schema.records, _CLEAR * std, most)
    return Size(columns, classes, columns * (columns - 1) // 2, codes, False)


def unlabelled(found: Sequence[Margin]) -> tuple[Margin, ...]:
    """The margins of every column but the label."""
    return tuple(margin for margin in found if margin.start is not None)


def _codes(rows: float, level: float, most: float) -> int:
    """As many codes, up to ``most``, as leave an average cell of a pair ``level`` rows."""
    return next((k for k in _CODES if k <= most and rows / k**2 >= level), _CODES[-1])


def cut(margin: Margin, share: np.ndarray, codes: int, least: float) -> np.ndarray:
    """The code ``[size]`` of each of a margin's cells, fewer than ``codes`` in all.

    Numbers are cut at quantiles, with a code for each value that holds a code's worth of rows, and
    none for a stretch of fewer than four times ``least``; categories that are rarer than
    ``least``, or too many, are one code together.
    """
    if margin.cells is None:
        return _merged(share, codes, least) if margin.onehot else np.arange(len(share))
    held, most = len(share) - margin.missing, codes - margin.missing
    for wanted in range(most, 0, -1):
        found = _stretches(share[:held], wanted, 4 * least)
        if found[-1] < most:
            break
    return np.append(found, found[-1] + 1) if margin.missing else found


def _stretches(share: np.ndarray, codes: int, least: float) -> np.ndarray:
    """Quantiles of what the heavy cells leave; ``codes`` of them, or fewer where little is left."""
    share = share / max(float(share.sum()), 1e-12)
    heavy = share > 1 / codes
    light = np.where(heavy, 0, share)
    left = float(light.sum())
    codes = int(np.clip(left / max(least, 1e-9), 1, codes))
    middle = (np.cumsum(light) - light / 2) / max(left, 1e-12)
    place = np.minimum((codes * middle).astype(int), codes - 1)
    parted = (np.diff(place) > 0) | heavy[1:] | heavy[:-1]
    return np.append(0, np.cumsum(parted))


def _merged(share: np.ndarray, codes: int, least: float) -> np.ndarray:
    order = np.argsort(-share, kind="stable")
    kept = np.zeros(len(share), bool)
    kept[order[: codes - 1]] = share[order[: codes - 1]] > least
    kept |= kept.sum() == len(share) - 1
    return np.where(kept, np.cumsum(kept) - 1, kept.sum())


def pick(pairs: np.ndarray, wanted: int, target: int | None) -> np.ndarray:
    """The pairs ``[wanted, 2]`` of columns to count, from tables ``[C, d, k, d, k]`` of all pairs.

    Those first that depend most on each other within a class, and on it. A numeric label is the
    column ``target``: all pairs with it come before.
    """
    within, by_class = _dependence(pairs), _dependence_on_class(pairs)
    value = within + 0.5 * (by_class[:, None] + by_class)
    if target is not None:
        value[target], value[:, target] = value[target] + 2, value[:, target] + 2
    first, second = np.tril_indices(len(value), -1)
    order = np.argsort(-value[first, second], kind="stable")[:wanted]
    return np.stack([first[order], second[order]], 1)


def _dependence(pairs: np.ndarray) -> np.ndarray:
    """How far ``[d, d]`` two columns are from independent within the classes."""
    margin = np.einsum("caiai->cai", pairs)
    share = margin[:, :1].sum(2, keepdims=True).clip(min=1e-12)[..., None, None]
    even = margin[:, :, :, None, None] * margin[:, None, None] / share
    return np.abs(pairs - even).sum((0, 2, 4)) / 2


def _dependence_on_class(pairs: np.ndarray) -> np.ndarray:
    margin = np.einsum("caiai->cai", pairs)
    even = margin.sum(0) * margin.sum(2, keepdims=True)
    return np.abs(margin - even).sum((0, 2)) / 2


def cells(codes: Tensor, y: Tensor, pairs: Tensor, size: Size) -> Tensor:
    """The cell ``[n, tables]`` of rows with coarse codes ``[n, columns]`` in each table."""
    found = codes[:, pairs[:, 0]] * size.codes + codes[:, pairs[:, 1]]
    if size.labelled:
        found = found + (y * size.codes**2)[:, None]
    if not size.singles:
        return found
    return torch.cat([found, y[:, None] * size.codes + codes], dim=1)


def whole_numbers(task: Task, name: str, shape: tuple[int, ...], below: int) -> Tensor:
    """An array of a task as whole numbers; others are refused before rows are seen."""
    value = task.array(name, shape)
    if not bool(((value >= 0) & (value < below) & (value == value.floor())).all()):
        expected = f"a task's {name}: whole numbers from 0 to {below - 1}"
        raise WireError(expected, "others", "ask whoever runs the server; nothing was sent")
    return value.long()
