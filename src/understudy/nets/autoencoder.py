"""Autoencoders for a stack of clients: VAE, conditional VAE and WAE.

FedVAE shares decoders and keeps encoders at home (fedvae thesis §4.4), so the two halves
are separate nets with parameters under ``encoder.`` and ``decoder.``. A joint model feeds
the decoder ``latent ‖ one-hot(label)``; separate models, one per class, are just more
members of the stack. Losses are one number per client and finite whatever the parameters:
logits, means and log-variances are bounded smoothly or clamped before they are used (the
thesis, §4.4.4, met exploding losses).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import ReleaseError, StudyError
from understudy.nets import layers
from understudy.nets.layers import Conv, ConvTranspose, Cosines, Dense, Net, Params, Reshape

__all__ = ["DECODER", "ENCODER", "Autoencoder", "decode", "encode", "init", "mmd", "vae_loss"]

ENCODER, DECODER = "encoder.", "decoder."
LOGIT_LIMIT, MEAN_LIMIT, LOG_VARIANCE_LIMIT = 1e3, 1e3, 8.0


@dataclass(frozen=True)
class Autoencoder:
    """The public description of both nets; plain values only, so it travels as JSON."""

    features: int
    latent: int = 8
    labels: int = 0  # width of the one-hot label both nets see; 0: none
    product: bool = False  # decoder input: label ‖ latent⊗label (a class's own first layer)
    widths: tuple[int, ...] = (128,)  # the encoder's hidden layers
    decoder_widths: tuple[int, ...] | None = None  # default: the encoder's, mirrored
    net: Literal["dense", "conv"] = "dense"
    shape: tuple[int, ...] = ()  # (H, W) or (H, W, channels), for conv; any grid for cosines
    cosines: tuple[int, ...] = ()  # dense: frequencies kept per axis of ``shape``; (): no basis
    variational: bool = True
    loss: Literal["bce", "mse"] = "bce"
    activation: str = "relu"

    def __post_init__(self) -> None:
        if self.net == "conv" and (len(self.shape) < 2 or any(s % 4 for s in self.shape[:2])):
            found = f"shape {self.shape}"
            raise StudyError("images whose sides divide by 4", found, "choose net = 'dense'")

    @cached_property
    def encoder(self) -> Net:
        """Record to latent mean (and log-variance)."""
        out = self.latent * (2 if self.variational else 1)
        return self._conv_encoder(out) if self.net == "conv" else self._dense_encoder(out)

    @cached_property
    def decoder(self) -> Net:
        """Latent (and label) to logits of the record."""
        return self._conv_decoder() if self.net == "conv" else self._dense_decoder()

    @property
    def decoder_inputs(self) -> int:
        """Width of ``latent ‖ one-hot(label)``, or of ``one-hot(label) ‖ latent⊗one-hot``."""
        return self.labels + self.latent * (self.labels if self.product else 1)

    def _dense_encoder(self, out: int) -> Net:
        inputs = math.prod(self.cosines) if self.cosines else self.features
        return _mlp((inputs + self.labels, *self.widths, out), self.activation)

    def _dense_decoder(self) -> Net:
        hidden = self.widths[::-1] if self.decoder_widths is None else self.decoder_widths
        last = math.prod(self.cosines) if self.cosines else self.features
        net = _mlp((self.decoder_inputs, *hidden, last), self.activation)
        return (*net, Cosines(self.shape, self.cosines)) if self.cosines else net

    def _conv_encoder(self, out: int) -> Net:
        height, width, channels = (*self.shape, 1)[:3]
        flat = 64 * -(-height // 8) * -(-width // 8)
        first = (Reshape((height, width, channels)), _Swap(), Conv(channels, 32, 2))
        last = (Reshape((flat,)), Dense(flat, out, "linear"))
        return (*first, Conv(32, 64, 2), Conv(64, 64, 2), *last)

    def _conv_decoder(self) -> Net:
        height, width, channels = (*self.shape, 1)[:3]
        small = (32, height // 4, width // 4)
        first = (Dense(self.decoder_inputs, 32 * small[1] * small[2]), Reshape(small))
        same = (ConvTranspose(32, 32), ConvTranspose(32, 64))
        grow = (ConvTranspose(64, 64, 2), ConvTranspose(64, 32, 2))
        last = (ConvTranspose(32, channels, 1, "linear"), _Swap(back=True))
        return (*first, *same, *grow, *last, Reshape((self.features,)))

    def to_config(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Autoencoder:
        """The inverse of ``to_config``; what is not such a description is refused."""
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in config.items()
        }
        try:
            return cls(**plain)
        except TypeError as error:
            raise ReleaseError(
                "the description of a net", "another", "update Understudy"
            ) from error


@dataclass(frozen=True)
class _Swap:
    """Images are stored ``[H, W, channels]``; convolutions want channels first."""

    back: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x.movedim(2, -1) if self.back else x.movedim(-1, 2)


def _mlp(widths: tuple[int, ...], activation: str) -> Net:
    pairs = list(pairwise(widths))
    hidden = tuple(Dense(a, b, activation) for a, b in pairs[:-1])
    return (*hidden, Dense(*pairs[-1], "linear"))


def init(spec: Autoencoder, *, rng: torch.Generator) -> Params:
    """Parameters of one client, without the client axis."""
    encoder = layers.init(spec.encoder, ENCODER, rng=rng)
    return {**encoder, **layers.init(spec.decoder, DECODER, rng=rng)}


def encode(
    spec: Autoencoder, params: Mapping[str, Tensor], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Latent means and log-variances, ``[C, B, latent]`` each; a WAE's are all zero variance."""
    if spec.cosines:
        x = Cosines(spec.shape, spec.cosines, analyse=True)({}, x)
    if spec.labels and spec.net == "dense":
        x = torch.cat((x, functional.one_hot(y, spec.labels).to(x.dtype)), dim=-1)
    out = layers.apply(spec.encoder, params, x, ENCODER)
    if not spec.variational:
        return out, torch.zeros_like(out)
    mean, spread = out.chunk(2, dim=-1)
    return _finite(mean, MEAN_LIMIT), _soft_bound(spread)


def decode(spec: Autoencoder, params: Mapping[str, Tensor], z: Tensor, y: Tensor) -> Tensor:
    """Logits ``[C, B, features]`` from latents ``[C, B, latent]`` and labels ``[C, B]``."""
    if spec.labels:
        label = functional.one_hot(y, spec.labels).to(z.dtype)
        if spec.product:
            z = (z.unsqueeze(-1) * label.unsqueeze(-2)).flatten(-2)
        z = torch.cat((z, label), dim=-1)
    return layers.apply(spec.decoder, params, z, DECODER)


def vae_loss(
    spec: Autoencoder,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    *,
    beta: float = 1.0,
    noise: torch.Generator,
) -> Tensor:
    """Reconstruction + β·KL, weighted over the batch: ``[C]``, always finite."""
    mean, spread = encode(spec, params, x, y)
    draw = torch.randn(mean.shape, generator=noise)
    logits = decode(spec, params, mean + torch.exp(spread / 2) * draw, y)
    return (weight * (reconstruction(spec, logits, x) + beta * divergence(mean, spread))).sum(1)


def reconstruction(spec: Autoencoder, logits: Tensor, x: Tensor) -> Tensor:
    """Per record ``[C, B]``: cross-entropy, or squared error of the squashed output."""
    if spec.loss == "mse":
        return (torch.sigmoid(_finite(logits, LOGIT_LIMIT)) - x).square().sum(-1)
    return _CrossEntropy.apply(logits, x)


class _CrossEntropy(torch.autograd.Function):
    """Sum over features of the cross-entropy with logits, in few passes over memory."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, x: Tensor) -> Tensor:
        logits = _finite(logits, LOGIT_LIMIT)
        ctx.save_for_backward(logits, x)
        return (functional.softplus(logits) - logits * x).sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, x = ctx.saved_tensors
        return torch.sigmoid(logits).sub_(x).mul_(grad.unsqueeze(-1)), None


def divergence(mean: Tensor, spread: Tensor) -> Tensor:
    """KL from N(mean, e^spread) to the standard normal, per record ``[C, B]``."""
    return 0.5 * (mean.square() + spread.exp() - spread - 1).sum(-1)


def mmd(z: Tensor, prior: Tensor, variance: float = 1.0) -> Tensor:
    """The WAE's penalty ``[C]``: unbiased MMD, kernel κ/(κ+‖a−b‖²), κ = 2·latent·variance."""
    return _Mmd.apply(z, prior, 2.0 * z.shape[2] * variance)


class _Mmd(torch.autograd.Function):
    """Value and gradient written out: as a graph it is thirty tiny kernels per step."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, prior: Tensor, kappa: float) -> Tensor:
        both = torch.cat((z, prior), dim=1)
        apart = both.unsqueeze(2) - both.unsqueeze(1)
        kernel = kappa / (kappa + apart.square().sum(-1))
        ctx.save_for_backward(apart, kernel)
        ctx.kappa = kappa
        return (kernel * _mmd_weights(z.shape[1])).sum((1, 2))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        apart, kernel = ctx.saved_tensors
        size = kernel.shape[1] // 2
        slope = kernel[:, :size].square() * _mmd_weights(size)[:size] * (-4 / ctx.kappa)
        slope *= grad.view(-1, 1, 1)
        return torch.einsum("cij,cijl->cil", slope, apart[:, :size]), None, None


@cache
def _mmd_weights(size: int) -> Tensor:
    same = (1 - torch.eye(size)) / max(1, size * (size - 1))
    cross = torch.full((size, size), -1 / size**2)
    return torch.cat((torch.cat((same, cross), 1), torch.cat((cross, same), 1)))


def _finite(x: Tensor, limit: float) -> Tensor:
    return torch.nan_to_num(x, nan=0.0).clamp(-limit, limit)


def _soft_bound(x: Tensor) -> Tensor:
    bounded = torch.tanh(torch.nan_to_num(x, nan=0.0) / LOG_VARIANCE_LIMIT)
    return LOG_VARIANCE_LIMIT * bounded
