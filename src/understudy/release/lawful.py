"""Rows that keep the schema's rules, from any generator of tables.

A drawn row that breaks a rule is drawn again, in its own class, until it keeps all: each row is a
draw of the generator, given that the rules hold, whatever rows are drawn beside it. Rows that
are still broken after `TRIES` draws become copies of kept ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from understudy.data.keeping import keeps_encoded
from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.release.generator import Generator
from understudy.rng import Streams

__all__ = ["TRIES", "lawful_rows"]

TRIES = 200


def lawful_rows(
    model: Generator, schema: Schema, n: int, label: int | None, *, rng: Streams
) -> tuple[Tensor, Tensor]:
    """``n`` encoded rows ``[n, F]`` and their classes ``[n]``; all keep the rules."""
    x, y = model.rows(n, label, rng=rng)
    broken = _broken(schema, x, y)
    for turn in range(TRIES):
        if not len(broken):
            return x, y
        x[broken], y[broken] = _again(model, y[broken], label, rng.child("again", turn))
        broken = broken[_broken(schema, x[broken], y[broken])]
    return _copied(x, y, broken, rng) if len(broken) else (x, y)


def _broken(schema: Schema, x: Tensor, y: Tensor) -> np.ndarray:
    if not schema.rules:
        return np.zeros(0, np.int64)
    return np.flatnonzero(~keeps_encoded(schema, x.numpy(), y.numpy()))


def _again(model: Generator, y: Tensor, label: int | None, rng: Streams) -> tuple[Tensor, Tensor]:
    """As many rows: of the same classes, if the generator can be asked for one."""
    if model.conditional:
        return model.sample(y.numpy(), rng=rng), y
    return model.rows(len(y), label, rng=rng)


def _copied(x: Tensor, y: Tensor, broken: np.ndarray, rng: Streams) -> tuple[Tensor, Tensor]:
    kept = np.setdiff1d(np.arange(len(y)), broken)
    if not len(kept):
        raise ReleaseError(
            "a generator that keeps the schema's rules now and then",
            f"no row that keeps them in {TRIES} draws of each",
            "leave the label out, or draw more rows at once",
        )
    source = torch.from_numpy(rng.numpy("copies").choice(kept, len(broken)))
    x[broken], y[broken] = x[source], y[source]
    return x, y
