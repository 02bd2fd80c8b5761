"""Parts of a table's model that DP-Fed-WAE teaches in turn, and what a site says about them.

The *margins* are how often each value occurs, the *head* a linear classifier that draws the label
of a row. Both compare a site's rows with rows drawn from the model, which survives being read as
signs: a change is a whole number, and where the model is right it is none on average.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.data.shards import Shards
from understudy.nets import layers, stacked
from understudy.nets.autoencoder import Autoencoder, decode
from understudy.nets.stacked import ClassifierNet
from understudy.recipes import selection, vae
from understudy.rng import Draws
from understudy.study import Training
from understudy.training.loop import Batch, train
from understudy.training.optim import Sgd

__all__ = ["head", "margins", "turn"]

_GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, are spread evenly


def turn(shares: Mapping[str, float], round: int, rounds: int) -> str:
    """The part that a round teaches: margins first, then all of them evenly mixed."""
    if round < shares["margins"] * rounds:
        return "margins"
    reached = list(accumulate(shares.values()))
    return list(shares)[bisect(reached, round * _GOLDEN % 1)]


def margins(spec: Autoencoder, layout: OneHot, net: Tensor, rows: Shards, *, rng: Draws) -> Tensor:
    """How often a site's rows have each value, minus as many rows drawn from the model.

    From any model: one that overflows must not make sites fail that have rows, and no others.
    """
    params, counts = vae.unpack(spec, net), rows.counts.numpy()
    latents = torch.from_numpy(rng.normal_each(spec.latent * counts)).float()
    z, labels = latents.view(1, -1, spec.latent), torch.zeros(1, rows.total).long()
    logits = decode(spec, params, z, labels)
    levels = torch.from_numpy(rng.uniform_each(layout.width * counts)).float()
    chance = torch.sigmoid(logits[0]).nan_to_num(nan=0.5)
    drawn = layout.draw(chance, levels.view(-1, layout.width))
    site, _ = rows.members()
    return torch.zeros(len(rows), layout.width).index_add_(0, site, rows.x - drawn)


def head(label: ClassifierNet, model: Tensor, rows: Shards, *, rng: Draws) -> Tensor:
    """One step of the label head ``model`` on a site's rows, against labels drawn from it.

    The step starts at zero beside the head and every row weighs one: changes are whole
    numbers. Otherwise rounding, not the lot, would order the many that are equally large.
    """
    fixed = layers.unflatten(label.net, model)

    def loss(change: Mapping[str, Tensor], batch: Batch) -> Tensor:
        params = {name: fixed[name] + change[name] for name in fixed}
        terms = (batch.x, batch.y, (batch.weight > 0).to(batch.x.dtype))
        return stacked.sampled_loss(label, params, *terms, draw=batch.uniform())

    whole = Training(epochs=1, batch=max(1, int(rows.counts.max())))
    plan = selection.local_batches(rows, whole, rng=rng)
    zero = layers.unflatten(label.net, torch.zeros(len(rows), model.shape[1]))
    change, _ = train(zero, loss, rows.x, rows.y, plan, Sgd(1.0), rng=rng)
    return layers.flatten(label.net, change)
