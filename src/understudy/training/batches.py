"""Mini-batches for sites of unequal size, as indices and weights.

A plan of batches is ``index [S, C, B]`` into shared rows and ``weight [S, C, B]``; weights
of a client's batch sum to one and padding weighs nothing. ``steps [C]`` says how many
batches each client has: a client beyond its last one takes no part. ``widths [C]`` says how
much of B a client computes, which follows from its own rows alone, so that kernels see the same
shapes whoever is beside it (`padded`). Two rules: whole
epochs without replacement (steps depend on the rows a site holds), or a public number of
steps drawn with replacement, which is the same at every site that has any row.

Every site draws from its own stream, and only for its own rows, so its batches do not depend
on the sites beside it. Where a site has several members, they share its stream in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.rng import Draws

__all__ = ["Batches", "Holdings", "by_class", "epochs", "padded", "steps"]


@dataclass(frozen=True)
class Holdings:
    """Which stored rows each member of the stack trains on."""

    order: np.ndarray | None  # positions into the storage; None: as stored
    starts: np.ndarray  # [C]
    counts: np.ndarray  # [C]

    @classmethod
    def of(cls, data: Shards) -> Holdings:
        """One member per site."""
        return cls(None, data.starts.numpy(), data.counts.numpy())

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class Batches:
    """``index`` and ``weight`` [S, C, B]; ``steps`` and ``widths`` [C]."""

    index: Tensor
    weight: Tensor
    steps: Tensor
    widths: Tensor

    def take(self, members: Tensor) -> Batches:
        """The plan of some members of one width, cut to it and to the steps they need."""
        steps, widths = self.steps[members], self.widths[members]
        most, wide = (int(n.max()) if len(members) else 0 for n in (steps, widths))
        index, weight = (t[:most, members, :wide] for t in (self.index, self.weight))
        return Batches(index, weight, steps, widths)


def padded(rows: np.ndarray) -> np.ndarray:
    """Batches of so many rows are padded to this width: an even one, in steps of an eighth.

    Clients of one width are trained together, so the fewer widths the better.
    """
    step = 2 ** np.maximum(np.ceil(np.log2(np.maximum(rows, 1))).astype(np.int64) - 3, 1)
    return np.maximum(-(-rows // step) * step, 2)


def by_class(data: Shards, classes: int) -> Holdings:
    """One member per site *and* class, site-major: C·K members."""
    sites = [np.arange(int(s), int(s + n)) for s, n in zip(data.starts, data.counts, strict=True)]
    labels = data.y.numpy()
    orders = [site[np.argsort(labels[site], kind="stable")] for site in sites]
    counts = np.concatenate([np.bincount(labels[site], minlength=classes) for site in sites])
    return Holdings(np.concatenate(orders), counts.cumsum() - counts, counts)


def steps(rows: Holdings, number: int, batch: int, *, rng: Draws) -> Batches:
    """``number`` batches of ``batch`` rows for every member that has rows."""
    members = len(rows)
    draw = rng.uniform(members // len(rng) * number * batch if members else 0)
    draw = draw.reshape(members, number, batch).swapaxes(0, 1)
    local = (draw * rows.counts[:, None]).astype(np.int64)
    weight = np.full(draw.shape, 1 / batch, np.float32)
    widths = np.full(members, batch)
    return _batches(rows, local, weight, np.where(rows.counts > 0, number, 0), widths)


def epochs(rows: Holdings, number: int, batch: int, *, rng: Draws) -> Batches:
    """``number`` passes over every member's rows, reshuffled each time."""
    most = int(rows.counts.max(initial=0))
    widths = np.minimum(padded(rows.counts), batch)
    batch = int(widths.max(initial=1))
    per_epoch = -(-most // batch)
    inside = np.arange(per_epoch * batch) < rows.counts[:, None]  # [C, padded]
    order = _shuffled(rows.counts, number, inside, rng)
    grid = (number, len(rows), per_epoch, batch)
    local = order.reshape(grid)
    valid = np.broadcast_to(inside.reshape(1, *grid[1:]), grid)
    weight = valid / np.maximum(1, valid.sum(-1, keepdims=True))
    needed = -(-rows.counts // batch)
    return _packed(rows, local, weight.astype(np.float32), needed, widths)


def _shuffled(counts: np.ndarray, number: int, inside: np.ndarray, rng: Draws) -> np.ndarray:
    """Positions ``[number, C, padded]``: each member's own in random order, then padding."""
    members, padded = inside.shape
    keys = np.full((members, number, padded), 2.0)
    drawn = rng.uniform_each(number * counts.reshape(len(rng), -1).sum(1))
    keys[np.broadcast_to(inside[:, None], keys.shape)] = drawn
    return np.argsort(keys, axis=-1).swapaxes(0, 1)


def _packed(
    rows: Holdings, local: np.ndarray, weight: np.ndarray, needed: np.ndarray, widths: np.ndarray
) -> Batches:
    """Close the gaps between one epoch's last batch and the next epoch's first."""
    number, members, per_epoch, batch = local.shape
    step = np.arange(number * per_epoch)[:, None]
    safe = np.maximum(1, needed)
    epoch, slot = np.minimum(step // safe, number - 1), step % safe
    member = np.arange(members)[None, :]
    local, weight = local[epoch, member, slot], weight[epoch, member, slot]
    return _batches(rows, local.reshape(-1, members, batch), weight, number * needed, widths)


def _batches(
    rows: Holdings, local: np.ndarray, weight: np.ndarray, count: np.ndarray, widths: np.ndarray
) -> Batches:
    held = np.maximum(rows.counts - 1, 0)[:, None]
    index = np.minimum(local, held) + np.where(rows.counts > 0, rows.starts, 0)[:, None]
    if rows.order is not None:
        index = rows.order[index] if len(rows.order) else np.zeros_like(index)
    found = (index, weight, count.astype(np.int64), widths.astype(np.int64))
    return Batches(*map(torch.from_numpy, found))
