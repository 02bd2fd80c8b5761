"""Classifiers that a federation trains, with a leading client axis.

The three nets of SignDS-FL (Jiang 2023, §3.5.1 and Table 3.2): logistic regression, one
hidden layer of 96, and LeNet, whose sizes agree with the table (44,426 parameters for
28×28 images of 10 classes). They are plain tuples of layers, so `layers.flatten`,
`layers.unflatten` and `training.loop.train` treat them as they do any other net. Images may be
seen through the fixed layers of `fixed`: standardised, or as strokes. The students of `classifier`
are another thing: one net at a time, trained on synthetic rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.config import Described
from understudy.nets.fixed import Standardise, Strokes, check_strokes
from understudy.nets.layers import Conv, Dense, MaxPool, Net, Params, Reshape, Swap

__all__ = ["ClassifierNet", "chances", "cross_entropy_loss", "init", "logits", "sampled_loss"]

LOGIT_LIMIT = 1e3
_QUIET = 0.25  # of the usual start


@dataclass(frozen=True)
class ClassifierNet(Described):
    """The public description of a classifier."""

    thing: ClassVar[str] = "a classifier"

    features: int
    classes: int
    kind: Literal["linear", "mlp", "lenet"] = "linear"
    widths: tuple[int, ...] = (96,)  # mlp: its hidden layers
    shape: tuple[int, ...] = ()  # of images: (H, W) or (H, W, channels)
    standardised: bool = False  # images are seen at one brightness and contrast
    strokes: bool = False  # linear, mlp: they see what strokes are where in an image

    def __post_init__(self) -> None:
        if self.strokes:
            check_strokes(self.features, self.shape)
        if self.strokes and (self.standardised or self.kind == "lenet"):
            raise StudyError("strokes for linear or mlp alone", "another net", "choose nn")
        if self.kind == "lenet" and (len(self.shape) not in (2, 3) or min(self.shape[:2]) < 16):
            found = f"shape {self.shape}" if self.shape else "a table"
            raise StudyError("images of at least 16×16 for LeNet", found, "choose nn")
        if self.kind == "lenet" and math.prod(self.shape) != self.features:
            found = f"{self.features} for the shape {self.shape}"
            raise StudyError("as many features as pixels", found, "correct the shape")

    @cached_property
    def net(self) -> Net:
        """Rows ``[C, B, features]`` to class scores ``[C, B, classes]``."""
        seen = (Standardise(),) if self.standardised else ()
        return (*seen, *(self._lenet() if self.kind == "lenet" else self._mlp()))

    def _mlp(self) -> Net:
        """Dense layers on the features themselves, or on an image's strokes."""
        widths = (*(self.widths if self.kind == "mlp" else ()), self.classes)
        if self.strokes:
            strokes = Strokes(self.shape)
            return (strokes, *_dense((strokes.outputs, *widths)))
        return _dense((self.features, *widths))

    def _lenet(self) -> Net:
        """Two 5×5 convolutions, each pooled, then dense 120, 84 and the classes."""
        height, width, channels = (*self.shape, 1)[:3]
        sides = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
        first = (Reshape((height, width, channels)), Swap())
        convolutions = (*_pooled(channels, 6), *_pooled(6, 16))
        flat = 16 * math.prod(sides)
        return (*first, *convolutions, Reshape((flat,)), *_dense((flat, 120, 84, self.classes)))


def _dense(widths: tuple[int, ...]) -> Net:
    last = len(widths) - 2
    pairs = enumerate(pairwise(widths))
    return tuple(Dense(a, b, "linear" if i == last else "relu") for i, (a, b) in pairs)


def _pooled(inputs: int, outputs: int) -> Net:
    return Conv(inputs, outputs, activation="linear", kernel=5, padding=0), MaxPool("relu")


def init(spec: ClassifierNet, *, rng: torch.Generator) -> Params:
    """Parameters of one client, without the client axis; weights behind strokes start small.

    Where votes or noisy updates move weights but little, a loud random start would stay.
    """
    params = layers.init(spec.net, rng=rng)
    first = next(iter(params))
    return {**params, first: params[first] * _QUIET} if spec.strokes else params


def logits(spec: ClassifierNet, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Class scores ``[C, B, classes]`` of rows ``[C, B, features]``."""
    return layers.apply(spec.net, params, x)


def cross_entropy_loss(
    spec: ClassifierNet, params: Mapping[str, Tensor], x: Tensor, y: Tensor, weight: Tensor
) -> Tensor:
    """Cross-entropy weighted over the batch: ``[C]``, always finite."""
    scores = _finite(logits(spec, params, x))
    losses = functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
    return (weight * losses.view_as(weight)).sum(1)


def chances(spec: ClassifierNet, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The chance of each class ``[C, B, classes]``, always finite."""
    return torch.softmax(_finite(logits(spec, params, x)), dim=-1)


def sampled_loss(
    spec: ClassifierNet,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    *,
    draw: Tensor,
) -> Tensor:
    """A loss ``[C]`` whose gradient has cross-entropy's mean, but in whole numbers.

    Where cross-entropy compares a row's class with the chances p, this compares it with a class
    drawn from p: the residual at the scores is −1, 0 or 1, and its mean over draws is the exact
    one. Made for updates of which only signs are read (SignDS): small residuals then speak
    seldom instead of always, so that votes lead where gradients would. ``draw [C, B]`` are
    uniform numbers in (0, 1), one for each row's class.
    """
    scores = _finite(logits(spec, params, x))
    reached = torch.softmax(scores.detach(), dim=-1).cumsum(-1)
    drawn = (reached[..., :-1] < draw.unsqueeze(-1)).sum(-1)
    wanted, got = (functional.one_hot(side, spec.classes) for side in (y, drawn))
    return (weight * (scores * (got - wanted)).sum(-1)).sum(1)


def _finite(scores: Tensor) -> Tensor:
    return torch.nan_to_num(scores, nan=0.0).clamp(-LOGIT_LIMIT, LOGIT_LIMIT)
