"""DP-Fed-WAE by parts: a round teaches one part of a table's model, in a public order.

Tens of thousands of answers about the whole net are few, and nearly none of them is about how
often a value occurs or what the label depends on. Here the *margins* are the output biases, the
*head* is a linear classifier that draws the label of a row, and the rest is the autoencoder.
Margins and head compare a site's rows with rows drawn from the model, which survives being read
as signs: a change is a whole number, and where the model is right it is none on average.

Which part a round is about does not depend on data, and an answer is ε-private whatever it is
about, so the claim is that of `paper`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site
from understudy.nets import classifier, layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder, decode
from understudy.nets.classifier import ClassifierNet
from understudy.recipes import public, selection, vae
from understudy.recipes.dp_fed_wae.model import DpFedWAERecipe, nets
from understudy.recipes.fedavg import Local
from understudy.recipes.options import DpFedWAEOptions
from understudy.release.generator import Generator
from understudy.rng import Draws, Streams
from understudy.study import Study, Training
from understudy.training.batches import padded
from understudy.training.loop import Batch

__all__ = ["PartsDpFedWAE", "by_parts", "head", "margins"]

_ENCODER = 0.2  # the encoder's share of the rounds that teach the net
_MOST_VOTES = 200  # a larger cohort makes the steps surer, not longer
_PACE = {"margins": 4.0, "head": 0.4}  # γ of these parts, in units of global_rate
_GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, are spread evenly


@dataclass(frozen=True)
class PartsDpFedWAE(DpFedWAERecipe):
    """See the module's paragraph. The model is the autoencoder, then the head."""

    @cached_property
    def layout(self) -> OneHot:
        """How rows become yes-or-no features; the label is none of them where a head draws it."""
        return _layout(self.schema, self.options)

    @cached_property
    def spec(self) -> Autoencoder:
        return nets(self.schema, self.layout, self.options, ())

    @cached_property
    def label(self) -> ClassifierNet | None:
        """The head that draws a row's label; None where the label is part of the net."""
        return _label(self.schema, self.options)

    @cached_property
    def parts(self) -> dict[str, slice]:
        """What a round can teach, as places of the model."""
        encoder, net = vae.size(self.spec, ENCODER), vae.size(self.spec)
        margins = slice(net - self.spec.features, net)  # the output biases come last
        found = {"margins": margins, "encoder": slice(0, encoder), "decoder": slice(encoder, net)}
        if self.label is not None:
            found["head"] = slice(net, net + layers.size(self.label.net))
        return found

    @property
    def size(self) -> int:
        """How many numbers the model has."""
        return max(place.stop for place in self.parts.values())

    def turn(self, round: int) -> str:
        """The part that a round teaches: margins first, then all of them evenly mixed."""
        own = self.options
        shares = {"margins": own.margins / 2, "head": own.head if self.label else 0.0}
        if round < shares["margins"] * self.plan.own.rounds:
            return "margins"
        rest = 1 - sum(shares.values())
        shares |= {"encoder": _ENCODER * rest, "decoder": (1 - _ENCODER) * rest}
        reached = list(accumulate(shares.values()))
        return list(shares)[bisect(reached, round * _GOLDEN % 1)]

    def first_model(self, rng: Streams) -> Tensor:
        """The autoencoder, and a head that knows nothing."""
        net = super().first_model(rng)
        return torch.cat((net, torch.zeros(1, self.size - net.shape[1])), dim=1)

    def task(self, state: State, round: int) -> Task:
        """The whole model is sent, and what is asked about it."""
        return Task({"model": state["model"]}, {"part": self.turn(int(state["round"]))})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """What the site's rows change in the part; the engine chooses what is sent of it."""
        model, rows, rng = task.array("model", (1, self.size)), self.rows(site.data), site.rng
        part, net = str(task.values["part"]), model[:, : vae.size(self.spec)]
        if part == "margins":
            change = margins(self.spec, self.layout, net, rows, rng=rng)
        elif part == "head" and self.label is not None:
            change = head(self.label, model[:, self.parts[part]], rows, rng=rng)
        else:
            change = self.change(net, rows, rng=rng)[:, self.parts[part]]
        places = self.part.shape[0]
        return {"update": selection.both_signs(change, places, self.options.top)}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + γ·mean vote, for the part that the round was about."""
        part = self.turn(int(state["round"]))
        place = self.parts[part]
        pace = _PACE.get(part, 1.0) * min(self.plan.own.cohort, _MOST_VOTES) / 10
        votes = torch.zeros_like(state["model"])
        size = place.stop - place.start
        votes[0, place] = pace * selection.folded(total["update"], size, self.options.top)
        return self.server.step(state, votes)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The decoder of the averaged last models, and the head beside it."""
        model = self.server.released(state)
        made = self.release(model[:, : vae.size(self.spec)])
        if self.label is None:
            return made
        arrays = {**made.arrays, "head": model[:, self.parts["head"]]}
        return replace(made, arrays=arrays, config={**made.config, "head": self.label.to_config()})


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
    numbers. Otherwise rounding, not chance, would order the many that are equally large.
    """
    fixed = layers.unflatten(label.net, model)

    def loss(change: Mapping[str, Tensor], batch: Batch) -> Tensor:
        params = {name: fixed[name] + change[name] for name in fixed}
        terms = (batch.x, batch.y, (batch.weight > 0).to(batch.x.dtype))
        return classifier.sampled_loss(label, params, *terms, draw=batch.uniform())

    whole = int(padded(rows.counts.numpy()).max())
    how = Local(Training(epochs=1, batch=whole, optimiser="sgd", rate=1.0))
    zero = layers.unflatten(label.net, torch.zeros(len(rows), model.shape[1]))
    change, _ = how.train(zero, loss, rows, rng=rng)
    return layers.flatten(label.net, change)


def _layout(schema: Schema, own: DpFedWAEOptions) -> OneHot:
    layout = replace(OneHot.of(schema, own.bins), odds=True)
    return replace(layout, classes=1) if _has_head(schema, own) else layout


def _has_head(schema: Schema, own: DpFedWAEOptions) -> bool:
    return own.head > 0 and schema.n_classes > 1


def _label(schema: Schema, own: DpFedWAEOptions) -> ClassifierNet | None:
    if not _has_head(schema, own):
        return None
    return ClassifierNet(_layout(schema, own).width, schema.n_classes, "linear")


def by_parts(study: Study, own: DpFedWAEOptions) -> Recipe:
    """The recipe of a study: a site chooses among as many places as the largest part fills."""
    spec = nets(study.schema, _layout(study.schema, own), own, ())
    label = _label(study.schema, own)
    sizes = [vae.size(spec, ENCODER), vae.size(spec, DECODER)]
    sizes += [layers.size(label.net)] if label else []
    places, notes = selection.room(max(sizes), own.top), public.notes(study, own)
    plan = selection.selection_plan(study, PartsDpFedWAE.info, places, own, notes=notes)
    return PartsDpFedWAE(study.schema, plan, own, study.training, study.base)
