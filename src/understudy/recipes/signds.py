"""SignDS-FL: federated learning by sign-based dimension selection (Jiang 2023 ch. 3).

Algorithm 1: a site trains the shared classifier on its rows and sends a sign and h coordinates of
its update, chosen by PS (h = 1) or EM-MDS; the server reads them as votes, θ ← θ + γ·mean vote.
The release predicts classes instead of sampling rows.

Beyond the thesis, to make the most of votes that are fewer than a net's weights: images are
standardised, dense nets see them as strokes (a convolution with fixed kernels), and votes for a
small layer, which would run ahead, count less. None of it costs privacy: the mechanism holds for
any update of any net, and the server only reads what was sent.

Corrections to the thesis: its ε is per update while clients are called tens to hundreds of times.
Here the claim adds up all updates of a site, and a site refuses to be called more often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.nets import classifier, layers
from understudy.nets.classifier import ClassifierNet
from understudy.recipes import selection
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.options import SignDSOptions
from understudy.recipes.selection import VotedModel
from understudy.release.classifier import Classifier
from understudy.rng import Streams
from understudy.study import Study
from understudy.training.loop import Batch

__all__ = ["SignDS", "build"]

_NETS: dict[str, Literal["linear", "mlp", "lenet"]] = {
    "logistic": "linear",
    "nn": "mlp",
    "lenet": "lenet",
}
_BALANCE = 1 / 3  # power of a layer's share of the largest one by which its votes count


@dataclass(frozen=True)
class SignDS(VotedModel[SignDSOptions]):
    """See the module's paragraph; the methods follow Algorithm 1."""

    info = CATALOGUE["signds"]

    @cached_property
    def spec(self) -> ClassifierNet:
        return _net(self.schema, self.options)

    @property
    def about(self) -> str:
        """What is trained, in words for `plan`."""
        plain = "pixels" if self.schema.kind == "image" else "encoded values"
        seen = "strokes" if self.spec.strokes else plain
        return f"{self.options.model} on {seen}, {layers.size(self.spec.net):,} weights"

    @cached_property
    def worth(self) -> Tensor:
        """``[P]``: what a vote for each weight counts."""
        sizes = [math.prod(shape) for shape in layers.shapes(self.spec.net).values()]
        return torch.cat([torch.full((n,), (n / max(sizes)) ** _BALANCE) for n in sizes])

    def init(self, *, rng: Streams) -> State:
        params = layers.stack(classifier.init(self.spec, rng=rng.torch("net")), 1)
        return self.server.start(layers.flatten(self.spec.net, params))

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Train on the site's rows; the engine chooses what is sent of the change."""
        net = self.spec.net
        start = task.array("model", (1, layers.size(net))).expand(len(site), -1)
        params = layers.unflatten(net, start)
        trained, _ = self.how.train(params, self._loss, site.data, rng=site.rng)
        return {"update": layers.flatten(net, trained) - start}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Votes by their worth; without privacy, the mean update as it is."""
        worth = self.worth if self.plan.private else 1.0
        return super().step(state, {"update": worth * total["update"]}, rng=rng)

    def finish(self, state: State, *, rng: Streams) -> Classifier:
        return Classifier.of(self.spec, self.server.released(state)[0])

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return classifier.cross_entropy_loss(self.spec, params, batch.x, batch.y, batch.weight)


def build(study: Study, own: SignDSOptions) -> SignDS:
    """The recipe of a study."""
    _check(study, own)
    size = layers.size(_net(study.schema, own).net)
    plan = selection.selection_plan(study, SignDS.info, size, own)
    return SignDS(study.schema, plan, own, study.training)


def _check(study: Study, own: SignDSOptions) -> None:
    """Refuse a schema without classes, and options that would be ignored."""
    if study.schema.n_classes < 2:
        raise StudyError(
            "a schema with a label of two classes or more for a classifier",
            "a numeric label" if study.schema.task == "regression" else "one class",
            "name the label column of a table, or list the classes, in the schema",
        )
    viewed = own.model != "lenet" and study.schema.kind == "image"
    idle = ["hidden"] if "hidden" in study.options and own.model != "nn" else []
    idle += ["view"] if study.options.get("view") == "strokes" and not viewed else []
    if idle:
        raise StudyError(
            'recipe.hidden with model = "nn", and view = "strokes" with logistic or nn on images',
            f'{" and ".join(idle)} with model = "{own.model}", kind = "{study.schema.kind}"',
            "remove these options",
        )


def _net(schema: Schema, own: SignDSOptions) -> ClassifierNet:
    image, lenet = schema.kind == "image", own.model == "lenet"
    strokes = image and not lenet and own.view == "strokes"
    return ClassifierNet(
        schema.width,
        schema.n_classes,
        _NETS[own.model],
        widths=(own.hidden,),
        shape=schema.shape if strokes or lenet else (),
        standardised=image and lenet,
        strokes=strokes,
    )
