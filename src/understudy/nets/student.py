"""Student classifiers: what a user of synthetic rows would train on them.

A student is a frozen spec plus a dict of tensors; `fit` trains it and `predict` applies it.
`mlp_student` and `cnn_student` are the evaluation classifiers of DPD-fVAE (Appendix C.2);
`conv_student` is that of the FedVAE thesis (§4.4.3, "Student Network"). All training is budgeted in
steps, not epochs, so a student of 1,000 rows and one of 20,000 get the same work. Students are
trained on rows that are synthetic, or that never leave the room: no privacy is claimed here.

Students run on one torch thread. They are small: several threads gain little on an idle machine
and lose much on a busy one, where each step waits for the slowest; and one thread gives the same
weights on every machine's number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from understudy.nets.stacked import one_thread
from understudy.rng import Streams

__all__ = [
    "Conv",
    "Dense",
    "Params",
    "Student",
    "StudentTraining",
    "cnn_student",
    "conv_student",
    "dense_student",
    "features",
    "fit",
    "init",
    "logits",
    "mlp_student",
    "one_thread",
    "predict",
    "predict_numbers",
]

Params = dict[str, Tensor]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


@dataclass(frozen=True)
class Conv:
    """One 3x3 convolution of stride 1, then max-pooling (1: none), relu, dropout of whole maps."""

    filters: int
    pool: int = 1
    dropout: float = 0.0
    padding: int = 0

    def side(self, side: int) -> int:
        """The side of a map that comes out, from the one that goes in."""
        return (side + 2 * self.padding - 2) // self.pool


@dataclass(frozen=True)
class Dense:
    """One hidden dense layer."""

    units: int
    activation: str = "relu"
    dropout: float = 0.0


@dataclass(frozen=True)
class Student:
    """A classifier: convolutions (for images), dense layers, softmax."""

    inputs: tuple[int, ...]
    classes: int
    hidden: tuple[Dense, ...] = field(default=(Dense(128), Dense(64)))
    convs: tuple[Conv, ...] = ()

    @property
    def width(self) -> int:
        """Values per flattened row, ``F``."""
        return math.prod(self.inputs)

    @property
    def flat(self) -> int:
        """Values that reach the first dense layer."""
        if not self.convs:
            return self.width
        height, width = self.inputs[:2]
        for conv in self.convs:
            height, width = conv.side(height), conv.side(width)
        return self.convs[-1].filters * height * width

    @property
    def channels(self) -> int:
        """Channels of the image (1 if the shape has none)."""
        return self.inputs[2] if len(self.inputs) == 3 else 1


@dataclass(frozen=True)
class StudentTraining:
    """How long and how fast a student learns; the rate falls linearly to zero.

    ``decay`` shrinks the weights apart from Adam's step (AdamW); ``penalty`` is added to the
    gradient before it, which is what papers with "Adam, weight decay" mean.
    """

    steps: int = 1200
    batch: int = 64
    rate: float = 2e-3
    decay: float = 1e-4
    penalty: float = 0.0


def conv_student(shape: tuple[int, ...], classes: int) -> Student:
    """The image student: conv 32 (3x3, stride 1), max-pool 2, dense 100, softmax.

    Images too small to convolve (a side below 4) get the dense student.
    """
    if min(shape[:2]) < 4:
        return dense_student(math.prod(shape), classes)
    return Student(shape, classes, hidden=(Dense(100),), convs=(Conv(32, pool=2),))


def cnn_student(shape: tuple[int, ...], classes: int) -> Student:
    """The CNN of DPD-fVAE (Appendix C.2): conv 32, 64 (pooled, dropout), 128, dense 128, softmax.

    Dropout in the convolutions takes whole maps, as in the public code of Cao et al. (2021) that
    the appendix follows. Without padding, as there, from a side of 18 on; smaller images are
    padded, and below a side of 4 nothing is left to convolve: they get the MLP.
    """
    side = min(shape[:2])
    if side < 4:
        return mlp_student(math.prod(shape), classes)
    pad = int(side < 18)
    pooled = tuple(Conv(n, pool=2, dropout=0.5, padding=pad) for n in (32, 64))
    convs = (*pooled, Conv(128, padding=pad))
    return Student(shape, classes, hidden=(Dense(128, dropout=0.5),), convs=convs)


def mlp_student(width: int, classes: int) -> Student:
    """The MLP of DPD-fVAE (Appendix C.2): dense 100, softmax."""
    return Student(inputs=(width,), classes=classes, hidden=(Dense(100),))


def dense_student(width: int, classes: int) -> Student:
    """The small dense student for tables and series."""
    return Student(inputs=(width,), classes=classes)


def init(spec: Student, *, rng: torch.Generator) -> Params:
    """Initial weights: uniform with variance 1/fan-in; biases zero."""
    params: Params = {}
    depths = [spec.channels, *(conv.filters for conv in spec.convs)]
    for i, (depth, filters) in enumerate(pairwise(depths)):
        params[f"conv{i}.weight"] = _uniform((filters, depth, 3, 3), 9 * depth, rng)
        params[f"conv{i}.bias"] = torch.zeros(filters)
    sizes = [spec.flat, *(layer.units for layer in spec.hidden), spec.classes]
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        params[f"dense{i}.weight"] = _uniform((fan_out, fan_in), fan_in, rng)
        params[f"dense{i}.bias"] = torch.zeros(fan_out)
    return params


def logits(
    spec: Student, params: Params, x: Tensor, *, rng: torch.Generator | None = None
) -> Tensor:
    """Class scores ``[B, K]`` of rows ``[B, F]``; dropout only if ``rng`` is given."""
    h = features(spec, params, x, rng=rng)
    last = len(spec.hidden)
    return functional.linear(h, params[f"dense{last}.weight"], params[f"dense{last}.bias"])


def features(
    spec: Student, params: Params, x: Tensor, *, rng: torch.Generator | None = None
) -> Tensor:
    """What the last layer sees of rows ``[B, F]``; dropout only if ``rng`` is given."""
    h = _convolve(spec, params, x, rng) if spec.convs else x
    for i, layer in enumerate(spec.hidden):
        h = functional.linear(h, params[f"dense{i}.weight"], params[f"dense{i}.bias"])
        h = _drop(_ACTIVATIONS[layer.activation](h), h.shape, layer.dropout, rng)
    return h


@one_thread()
def fit(
    spec: Student,
    x: Tensor,
    y: Tensor,
    *,
    rng: Streams,
    training: StudentTraining | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Params:
    """Train on rows ``[n, F]`` with classes ``[n]``, or numbers; one ``rng`` gives one result."""
    how = training or StudentTraining()
    start = init(spec, rng=rng.torch("student weights"))
    params = {name: value.requires_grad_() for name, value in start.items()}
    optimiser = _optimiser(params, how)
    order, drop = rng.torch("student batches"), rng.torch("student dropout")
    rows = torch.empty(0, dtype=torch.int64)
    for step in range(how.steps if len(x) else 0):
        if len(rows) < min(how.batch, len(x)):
            rows = torch.randperm(len(x), generator=order)
        batch, rows = rows[: how.batch], rows[how.batch :]
        optimiser.param_groups[0]["lr"] = how.rate * (1 - step / how.steps)
        loss = _loss(logits(spec, params, x[batch], rng=drop), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if progress is not None and (step + 1) % 50 == 0:
            progress(step + 1, how.steps)
    return {k: v.detach() for k, v in params.items()}


def _loss(found: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of classes; the squared error of numbers, for a student with one output."""
    if y.is_floating_point():
        return functional.mse_loss(found[:, 0], y)
    return functional.cross_entropy(found, y)


@one_thread()
@torch.no_grad()
def predict_numbers(spec: Student, params: Params, x: Tensor, *, chunk: int = 1024) -> Tensor:
    """Numbers ``[n]`` by a student with one output."""
    parts = [logits(spec, params, part)[:, 0] for part in x.split(chunk) if len(part)]
    return torch.cat(parts) if parts else torch.zeros(0)


@one_thread()
@torch.no_grad()
def predict(spec: Student, params: Params, x: Tensor, *, chunk: int = 1024) -> Tensor:
    """Class probabilities ``[n, K]``."""
    parts = [logits(spec, params, part).softmax(1) for part in x.split(chunk) if len(part)]
    return torch.cat(parts) if parts else torch.zeros(0, spec.classes)


def _uniform(shape: tuple[int, ...], fan_in: int, rng: torch.Generator) -> Tensor:
    limit = math.sqrt(3 / fan_in)
    return (torch.rand(shape, generator=rng) * 2 - 1) * limit


def _optimiser(params: Params, how: StudentTraining) -> torch.optim.Optimizer:
    if how.penalty:
        return torch.optim.Adam(params.values(), how.rate, weight_decay=how.penalty, fused=True)
    return torch.optim.AdamW(params.values(), how.rate, weight_decay=how.decay, fused=True)


def _drop(h: Tensor, shape: tuple[int, ...], dropout: float, rng: torch.Generator | None) -> Tensor:
    """Dropout with a mask of ``shape``, which is stretched over ``h``."""
    if rng is None or dropout == 0:
        return h
    keep = torch.rand(shape, generator=rng) >= dropout
    return h * keep / (1 - dropout)


def _convolve(spec: Student, params: Params, x: Tensor, rng: torch.Generator | None) -> Tensor:
    height, width = spec.inputs[:2]
    image = x.reshape(-1, height, width, spec.channels).permute(0, 3, 1, 2)
    # Channels last is 2.5 times as fast here; relu after pooling is the same and cheaper.
    h = image.contiguous(memory_format=torch.channels_last)
    for i, conv in enumerate(spec.convs):
        weight = params[f"conv{i}.weight"].contiguous(memory_format=torch.channels_last)
        h = functional.conv2d(h, weight, params[f"conv{i}.bias"], padding=conv.padding)
        h = torch.relu(functional.max_pool2d(h, conv.pool) if conv.pool > 1 else h)
        h = _drop(h, (*h.shape[:2], 1, 1), conv.dropout, rng)
    return h.flatten(1)
