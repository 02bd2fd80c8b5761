"""Layers for a stack of clients.

Parameters are ``dict[str, Tensor [C, …]]`` and inputs ``[C, B, …]``: one call runs the
same layer of C different clients. Dense layers are one batched matrix
product; convolutions gain nothing from stacking (grouped convolutions lose), so they run
client by client and the training loop gives them chunks of one client, unless they are small
enough to be a product of patches (`patches`). A net is a tuple of layers; a layer is a frozen
dataclass with ``shapes`` (its parameters without the client axis), ``__call__`` and, where
its weights do not start as all others do, ``start``. Recurrent layers are in `recurrent`, those
without parameters that look at images in `fixed`. No
layer lets one record see another: that is what record-level privacy needs, and why GroupNorm
is here and BatchNorm is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from understudy.nets import patches
from understudy.nets.chain import dense_chain
from understudy.nets.stacked import product, sigmoid

__all__ = [
    "Conv",
    "ConvTranspose",
    "Dense",
    "Fixed",
    "GroupNorm",
    "Layer",
    "MaxPool",
    "Net",
    "Params",
    "Reshape",
    "Swap",
    "Tap",
    "Tapped",
    "apply",
    "concatenated",
    "flatten",
    "init",
    "mlp",
    "separated",
    "shapes",
    "size",
    "stack",
    "total",
    "unflatten",
]

Params = dict[str, Tensor]
PATCH_LIMIT = 200  # values under one kernel up to which a product of patches is the faster way

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "leaky": lambda x: functional.leaky_relu(x, 0.2),
    "swish": lambda x: x * sigmoid(x),
    "tanh": torch.tanh,
    "sigmoid": sigmoid,
}


class Layer(Protocol):
    """What a net is made of."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Parameter shapes of one client."""

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Run C clients: ``[C, B, …] → [C, B, …]``."""


Net = tuple[Layer, ...]


class Fixed:
    """A layer with nothing to learn."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """No parameters."""
        return {}


@dataclass(frozen=True)
class Dense:
    """A fully connected layer on ``[C, B, inputs]``."""

    inputs: int
    outputs: int
    activation: str = "relu"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weight and bias of one client."""
        return {"weight": (self.inputs, self.outputs), "bias": (self.outputs,)}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, inputs] → [C, B, outputs]``, before the activation."""
        return product(x, params["weight"], params["bias"].unsqueeze(1))


@dataclass(frozen=True)
class Conv:
    """A convolution on ``[C, B, inputs, H, W]``: 3×3 with padding 1 unless told otherwise."""

    inputs: int
    outputs: int
    stride: int = 1
    activation: str = "relu"
    kernel: int = 3
    padding: int = 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weight and bias of one client."""
        kernels = (self.outputs, self.inputs, self.kernel, self.kernel)
        return {"weight": kernels, "bias": (self.outputs,)}

    @property
    def by_patches(self) -> bool:
        """Whether all clients run as one product: no padding, few values under the kernel."""
        return (self.stride, self.padding) == (1, 0) and self.inputs * self.kernel**2 <= PATCH_LIMIT

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, inputs, H, W] → [C, B, outputs, …]``; sides shrink by stride and kernel."""
        weight, bias = params["weight"], params["bias"]
        if self.by_patches:
            return patches.convolve(x, weight, bias)
        run = partial(functional.conv2d, stride=self.stride, padding=self.padding)
        return _client_by_client(run, x, weight, bias)


@dataclass(frozen=True)
class ConvTranspose:
    """A 3×3 transposed convolution that multiplies height and width by its stride."""

    inputs: int
    outputs: int
    stride: int = 1
    activation: str = "relu"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weight and bias of one client."""
        return {"weight": (self.inputs, self.outputs, 3, 3), "bias": (self.outputs,)}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, inputs, H, W] → [C, B, outputs, H·stride, W·stride]``."""
        step = self.stride
        run = partial(functional.conv_transpose2d, stride=step, padding=1, output_padding=step - 1)
        return _client_by_client(run, x, params["weight"], params["bias"])


@dataclass(frozen=True)
class GroupNorm:
    """Normalises each record's channels in groups; its statistics are the record's own."""

    channels: int
    groups: int = 8
    activation: str = "relu"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Departure of the scale from 1, and shift, per channel: both start at zero."""
        return {"scale": (self.channels,), "shift": (self.channels,)}

    def normalised(self, x: Tensor) -> Tensor:
        """``[C, B, channels, H, W]`` with mean 0 and variance 1 in every group."""
        flat = functional.group_norm(x.flatten(0, 1), min(self.groups, self.channels))
        return flat.reshape(x.shape)

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Normalise, scale and shift."""
        scale, shift = (params[n][:, None, :, None, None] for n in ("scale", "shift"))
        return self.normalised(x) * (1 + scale) + shift


@dataclass(frozen=True)
class MaxPool(Fixed):
    """The largest of every 2×2 square; an activation after it has a quarter of the work."""

    activation: str = "linear"

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, channels, H, W] → [C, B, channels, ⌊H/2⌋, ⌊W/2⌋]``."""
        return patches.halve(x)


@dataclass(frozen=True)
class Reshape(Fixed):
    """Gives every record another shape; has no parameters."""

    shape: tuple[int, ...]

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """``[C, B, …] → [C, B, *shape]``."""
        return x.reshape(*x.shape[:2], *self.shape)


@dataclass(frozen=True)
class Swap(Fixed):
    """Images are stored ``[H, W, channels]``; convolutions want channels first."""

    back: bool = False

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Move the channels to the front of every record, or back."""
        return x.movedim(2, -1) if self.back else x.movedim(-1, 2)


def _nhwc(x: Tensor) -> Tensor:
    """Channels last in memory: forward and backward of the image VAE take a sixth less time."""
    return x.contiguous(memory_format=torch.channels_last)


def _client_by_client(run: Callable[..., Tensor], *stacks: Tensor) -> Tensor:
    """A kernel that knows one client. A lone one is a view both ways: parting a stack is not."""
    if len(stacks[0]) == 1:
        x, *own = (each.squeeze(0) for each in stacks)
        return run(_nhwc(x), *own).unsqueeze(0)
    return torch.stack([run(_nhwc(x), *own) for x, *own in zip(*stacks, strict=True)])


def mlp(widths: tuple[int, ...], activation: str) -> Net:
    """Dense layers of these widths; the last is linear."""
    pairs = list(pairwise(widths))
    hidden = tuple(Dense(a, b, activation) for a, b in pairs[:-1])
    return (*hidden, Dense(*pairs[-1], "linear"))


def shapes(net: Net, prefix: str = "") -> dict[str, tuple[int, ...]]:
    """Every parameter's name and shape, in order, for one client."""
    return {
        f"{prefix}{i}.{name}": shape
        for i, layer in enumerate(net)
        for name, shape in layer.shapes.items()
    }


def size(net: Net) -> int:
    """Number of parameters of one client."""
    return total(shapes(net))


def total(named: Mapping[str, tuple[int, ...]]) -> int:
    """Numbers in all of these shapes."""
    return sum(math.prod(shape) for shape in named.values())


def init(net: Net, prefix: str = "", *, rng: torch.Generator) -> Params:
    """Parameters of one client (no client axis): Glorot-uniform weights and zero biases.

    A layer with a ``start`` of its own, such as an LSTM, says otherwise.
    """
    return {
        f"{prefix}{i}.{name}": value
        for i, layer in enumerate(net)
        for name, value in _start(layer, rng).items()
    }


def _start(layer: Layer, rng: torch.Generator) -> Params:
    own: Callable[[torch.Generator], Params] | None = getattr(layer, "start", None)
    return own(rng) if own else {n: _glorot(s, rng) for n, s in layer.shapes.items()}


def _glorot(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return torch.zeros(shape)
    field = math.prod(shape[2:])
    bound = math.sqrt(6 / (field * (shape[0] + shape[1])))
    return (torch.rand(shape, generator=rng) * 2 - 1) * bound


def apply(net: Net, params: Mapping[str, Tensor], x: Tensor, prefix: str = "") -> Tensor:
    """Run the net: ``[C, B, …] → [C, B, …]``."""
    place = 0
    while place < len(net):
        chain = _chain(net, params, place, prefix)
        if chain:
            activations = tuple(net[place + k].activation for k in range(len(chain)))  # type: ignore[attr-defined]
            x, place = dense_chain(x, activations, chain), place + len(chain)
        else:
            x, place = _one(net[place], params, x, f"{prefix}{place}."), place + 1
    return x


def _one(layer: Layer, params: Mapping[str, Tensor], x: Tensor, prefix: str) -> Tensor:
    """A layer and its activation, noted where the parameters ask for it."""
    own = {name: params[prefix + name] for name in layer.shapes}
    out = layer(own, x)
    if own and isinstance(params, Tapped) and prefix.startswith(params.only):
        out = params.tap(prefix, layer, x, out)
    return ACTIVATIONS[getattr(layer, "activation", "linear")](out)


@dataclass(frozen=True)
class Tap:
    """What one layer was given and gave, before its activation.

    ``backwards``: it was run the other way, from outputs to inputs, without its bias.
    """

    prefix: str
    layer: Layer
    x: Tensor
    out: Tensor
    backwards: bool = False


class Tapped(dict[str, Tensor]):
    """Parameters that note what every layer with parameters under ``only`` sees.

    From a layer's input and the gradient at its output follow the gradients of single
    records (`pergrad`), without a graph through the parameters.
    """

    def __init__(self, params: Mapping[str, Tensor], only: str = "") -> None:
        super().__init__({name: value.detach() for name, value in params.items()})
        self.only, self.taps = only, list[Tap]()

    def tap(
        self, prefix: str, layer: Layer, x: Tensor, out: Tensor, *, backwards: bool = False
    ) -> Tensor:
        """Note one layer; the first of a chain has no graph yet, so its output starts one."""
        out = out if out.requires_grad else out.detach().requires_grad_()
        self.taps.append(Tap(prefix, layer, x.detach(), out, backwards))
        return out


def _chain(
    net: Net, params: Mapping[str, Tensor], place: int, prefix: str
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Weights and biases of the dense layers from ``place`` on that are being trained."""
    found = []
    for i in range(place, len(net)):
        layer = net[i]
        if not (isinstance(layer, Dense) and layer.activation in ("linear", "relu")):
            break
        weight, bias = params[f"{prefix}{i}.weight"], params[f"{prefix}{i}.bias"]
        if not hasattr(weight, "scratch"):
            break
        found.append((weight, bias))
    return tuple(found)


def stack(params: Mapping[str, Tensor], clients: int) -> Params:
    """The same parameters for every client, ``[…] → [C, …]``: views of one copy, read-only."""
    return {name: p.expand(clients, *p.shape) for name, p in params.items()}


def flatten(net: Net, params: Mapping[str, Tensor], prefix: str = "") -> Tensor:
    """One vector per client, in the order of ``shapes``: ``[C, P]``."""
    return concatenated(params, shapes(net, prefix))


def unflatten(net: Net, flat: Tensor, prefix: str = "") -> Params:
    """The inverse of ``flatten``: ``[C, P]`` to named ``[C, …]`` parameters."""
    return separated(flat, shapes(net, prefix))


def concatenated(params: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """These parameters as one vector per client, ``[C, P]``."""
    return torch.cat([params[name].flatten(1) for name in names], dim=1)


def separated(flat: Tensor, named: Mapping[str, tuple[int, ...]]) -> Params:
    """The inverse of ``concatenated``, given names and shapes: views ``[C, …]``."""
    pieces = flat.split([math.prod(shape) for shape in named.values()], dim=1)
    return {n: p.reshape(-1, *s) for (n, s), p in zip(named.items(), pieces, strict=True)}
