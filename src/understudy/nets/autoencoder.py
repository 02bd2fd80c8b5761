"""Autoencoders for a stack of clients: VAE, conditional VAE and WAE, also of time series.

Images are fitted as probabilities (cross-entropy); numbers of a table or series as
Gaussians whose spread the decoder gives too, so that samples vary as much as the rows did.
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
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.config import Described
from understudy.nets.fixed import Cosines, check_frequencies
from understudy.nets.layers import (
    Conv,
    ConvTranspose,
    Dense,
    GroupNorm,
    Net,
    Params,
    Reshape,
    Swap,
)
from understudy.nets.mmd import mmd
from understudy.nets.recurrent import DensePerStep, Lstm
from understudy.nets.stacked import sigmoid, squash

__all__ = [
    "DECODER",
    "ENCODER",
    "Autoencoder",
    "cross_entropy",
    "decode",
    "encode",
    "init",
    "mmd",
    "record_losses",
    "sample",
    "vae_loss",
    "wae_loss",
]

ENCODER, DECODER = "encoder.", "decoder."
LOGIT_LIMIT, MEAN_LIMIT, LOG_VARIANCE_LIMIT = 1e3, 1e3, 8.0


@dataclass(frozen=True)
class Autoencoder(Described):
    """The public description of both nets."""

    features: int
    latent: int = 8
    labels: int = 0  # width of the one-hot label both nets see; 0: none
    product: bool = False  # decoder input: label ‖ latent⊗label (a class's own first layer)
    widths: tuple[int, ...] = (128,)  # the encoder's hidden layers
    decoder_widths: tuple[int, ...] | None = None  # default: the encoder's, mirrored
    net: Literal["dense", "conv", "recurrent"] = "dense"
    # (H, W) or (H, W, channels) for conv; (steps, channels) for recurrent; any grid for cosines
    shape: tuple[int, ...] = ()
    cosines: tuple[int, ...] = ()  # dense: frequencies kept per axis of ``shape``; (): no basis
    variational: bool = True
    loss: Literal["bce", "mse", "gaussian"] = "bce"
    numeric: tuple[int, ...] = ()  # gaussian: which features are numbers (with cosines: all)
    gain: float = 4.0  # gaussian: numbers are fitted as (x - 1/2)·gain
    activation: str = "relu"
    norm: Literal["none", "group"] = "none"  # conv: normalise the channels of each record
    least_spread: float = -9.0  # gaussian: floor of a number's log standard deviation

    def __post_init__(self) -> None:
        if self.net == "conv" and (len(self.shape) < 2 or any(s % 4 for s in self.shape[:2])):
            found = f"shape {self.shape}" if self.shape else "a table"
            raise StudyError("images whose sides divide by 4", found, "choose net = 'dense'")
        if self.net == "recurrent" and len(self.shape) != 2:
            found = f"shape {self.shape}" if self.shape else "a table"
            raise StudyError("series of steps and channels", found, "choose net = 'dense'")
        if self.net == "recurrent" and len(self.widths) != 1:
            found = f"{len(self.widths)} layers"
            raise StudyError("one width for a recurrent net", found, "give one width")
        if self.net == "recurrent" and math.prod(self.shape) != self.features:
            found = f"{self.features} for the shape {self.shape}"
            raise StudyError("as many features as steps × channels", found, "correct the shape")
        if self.net != "dense" and (self.cosines or self.loss == "gaussian"):
            raise StudyError("dense nets for cosines or numbers", self.net, "choose net = 'dense'")
        if self.cosines:
            check_frequencies(self.features, self.shape, self.cosines)

    @cached_property
    def encoder(self) -> Net:
        """Record to latent mean (and log-variance)."""
        out = self.latent * (2 if self.variational else 1)
        makers = {"conv": self._conv_encoder, "recurrent": self._recurrent_encoder}
        return makers.get(self.net, self._dense_encoder)(out)

    @cached_property
    def decoder(self) -> Net:
        """Latent (and label) to logits of the record."""
        makers = {"conv": self._conv_decoder, "recurrent": self._recurrent_decoder}
        return makers.get(self.net, self._dense_decoder)()

    @property
    def decoder_inputs(self) -> int:
        """Width of ``latent ‖ one-hot(label)``, or of ``one-hot(label) ‖ latent⊗one-hot``."""
        return self.labels + self.latent * (self.labels if self.product else 1)

    @property
    def values(self) -> int:
        """Numbers that describe a record: features, or coefficients of the cosines."""
        return math.prod(self.cosines) if self.cosines else self.features

    @cached_property
    def gaussian(self) -> Tensor:
        """Which of these are fitted by a Gaussian with a spread of its own."""
        chosen = range(self.values) if self.cosines else self.numeric
        return torch.tensor(list(chosen) if self.loss == "gaussian" else [], dtype=torch.long)

    def _dense_encoder(self, out: int) -> Net:
        return layers.mlp((self.values + self.labels, *self.widths, out), self.activation)

    def _dense_decoder(self) -> Net:
        hidden = self.widths[::-1] if self.decoder_widths is None else self.decoder_widths
        last = self.values + len(self.gaussian)
        net = layers.mlp((self.decoder_inputs, *hidden, last), self.activation)
        if self.cosines and not len(self.gaussian):
            return (*net, Cosines(self.shape, self.cosines))
        return net

    def _conv_encoder(self, out: int) -> Net:
        height, width, channels = (*self.shape, 1)[:3]
        flat = 64 * -(-height // 8) * -(-width // 8)
        first = (Reshape((height, width, channels)), Swap())
        shrink = (Conv(channels, 32, 2), Conv(32, 64, 2), Conv(64, 64, 2))
        return (*first, *self._normed(shrink), Reshape((flat,)), Dense(flat, out, "linear"))

    def _conv_decoder(self) -> Net:
        height, width, channels = (*self.shape, 1)[:3]
        small = (32, height // 4, width // 4)
        first = (Dense(self.decoder_inputs, 32 * small[1] * small[2]), Reshape(small))
        same = (ConvTranspose(32, 32), ConvTranspose(32, 64))
        grow = (ConvTranspose(64, 64, 2), ConvTranspose(64, 32, 2))
        last = (ConvTranspose(32, channels, 1, "linear"), Swap(back=True))
        return (*first, *self._normed((*same, *grow)), *last, Reshape((self.features,)))

    def _recurrent_encoder(self, out: int) -> Net:
        """An LSTM whose outputs of all steps, side by side, make the latent (thesis §5.5.1)."""
        (steps, channels), units = self.shape, self.widths[0]
        first = (Reshape((steps, channels)), Lstm(channels, units))
        return (*first, Reshape((steps * units,)), Dense(steps * units, out, "linear"))

    def _recurrent_decoder(self) -> Net:
        """Latent to as many numbers as the LSTM has units, which every step of it sees.

        The thesis calls the decoder symmetric; this structure is the one that gives the
        parameter counts of its Table 5.2 (Sine 29,269, Stock 26,358, Air 27,485). For Energy
        it gives 29,739 where the table has 29,729, by all signs a slip of one digit.
        """
        (steps, channels), units = self.shape, self.widths[0]
        first = (Dense(self.decoder_inputs, units, self.activation), Lstm(units, units, steps))
        return (*first, DensePerStep(units, channels), Reshape((self.features,)))

    def _normed(self, convolutions: tuple[Conv | ConvTranspose, ...]) -> Net:
        """Where asked for, a GroupNorm between each convolution and its activation."""
        if self.norm == "none":
            return convolutions
        pairs = [
            (replace(c, activation="linear"), GroupNorm(c.outputs, activation=c.activation))
            for c in convolutions
        ]
        return tuple(layer for pair in pairs for layer in pair)


def init(spec: Autoencoder, *, rng: torch.Generator) -> Params:
    """Parameters of one client, without the client axis."""
    encoder = layers.init(spec.encoder, ENCODER, rng=rng)
    return {**encoder, **layers.init(spec.decoder, DECODER, rng=rng)}


def encode(
    spec: Autoencoder, params: Mapping[str, Tensor], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Latent means and log-variances, ``[C, B, latent]`` each; a WAE's are all zero variance."""
    x = _centred(spec, x)
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
    draw: Tensor,
) -> Tensor:
    """Reconstruction + β·KL, weighted over the batch: ``[C]``, always finite.

    ``draw [C, B, latent]`` are standard normals.
    """
    return (weight * record_losses(spec, params, x, y, draw, beta=beta)).sum(1)


def wae_loss(
    spec: Autoencoder,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    *,
    penalty: float = 1.0,
    prior: Tensor,
) -> Tensor:
    """Reconstruction per feature + penalty·MMD (thesis eq. 4.3): ``[C]``, always finite.

    ``prior [C, B, latent]`` are standard normals. Rows of weight zero count in neither term.
    The MMD sees all rows of a client together, so this is a loss for whole updates (site
    level, SignDS) and not for DP-SGD.
    """
    z, _ = encode(spec, params, x, y)
    errors = reconstruction(spec, decode(spec, params, z, y), x)
    fit = (weight / spec.features * errors).sum(1)
    return fit + mmd(z, prior, weight=weight, scale=penalty)


def record_losses(
    spec: Autoencoder,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    draw: Tensor,
    *,
    beta: float = 1.0,
) -> Tensor:
    """Reconstruction + β·KL of every record ``[C, B]``; ``draw`` are its standard normals."""
    mean, spread = encode(spec, params, x, y)
    logits = decode(spec, params, mean + torch.exp(spread / 2) * draw, y)
    return reconstruction(spec, logits, x) + beta * divergence(mean, spread)


def reconstruction(spec: Autoencoder, logits: Tensor, x: Tensor) -> Tensor:
    """Per record ``[C, B]``: cross-entropy, squared error, or minus the log-likelihood."""
    if spec.loss == "mse":
        return (sigmoid(_finite(logits, LOGIT_LIMIT)) - x).square().sum(-1)
    if spec.loss == "bce":
        return cross_entropy(logits, x)
    mean, spread = _gaussian_parts(spec, logits)
    aim, chosen = _centred(spec, x), spec.gaussian
    error = (aim[..., chosen] - mean) * torch.exp(-spread)
    loss = (0.5 * error.square().clamp(max=1e6) + spread).sum(-1)
    if len(chosen) == spec.values:
        return loss
    rest = _others(spec)
    return loss + cross_entropy(logits[..., rest], x[..., rest])


def sample(
    spec: Autoencoder,
    params: Mapping[str, Tensor],
    y: Tensor,
    *,
    sharpness: float = 1.0,
    rng: torch.Generator,
) -> Tensor:
    """Records ``[C, B, features]`` in [0, 1] for labels ``[C, B]``, from the prior.

    Numbers are drawn from their Gaussian; for the rest the probability is returned, with
    the logits multiplied by ``sharpness``.
    """
    z = torch.randn(*y.shape, spec.latent, generator=rng)
    out = decode(spec, params, z, y)
    if spec.loss != "gaussian":
        return torch.sigmoid(sharpness * out)
    mean, spread = _gaussian_parts(spec, out)
    drawn = mean + torch.exp(spread) * torch.randn(mean.shape, generator=rng)
    values = torch.sigmoid(sharpness * out[..., : spec.values])
    values[..., spec.gaussian] = drawn / spec.gain + (0.0 if spec.cosines else 0.5)
    if spec.cosines:
        values = Cosines(spec.shape, spec.cosines)({}, values) + 0.5
    return values.clamp(0, 1)


def _gaussian_parts(spec: Autoencoder, out: Tensor) -> tuple[Tensor, Tensor]:
    """Means and log standard deviations of the numbers fitted by a Gaussian."""
    mean = _finite(out[..., : spec.values][..., spec.gaussian], LOGIT_LIMIT)
    return mean, (_soft_bound(out[..., spec.values :]) - 1).clamp(min=spec.least_spread)


def _centred(spec: Autoencoder, x: Tensor) -> Tensor:
    """A record as the encoder and a Gaussian see it: coefficients, numbers about zero."""
    if spec.loss == "gaussian":
        x = (x - 0.5) * spec.gain
    return Cosines(spec.shape, spec.cosines, analyse=True)({}, x) if spec.cosines else x


@cache
def _others(spec: Autoencoder) -> Tensor:
    mask = torch.ones(spec.values, dtype=torch.bool)
    mask[spec.gaussian] = False
    return mask.nonzero().flatten()


def cross_entropy(logits: Tensor, x: Tensor) -> Tensor:
    """Σ over the last axis of the cross-entropy with logits: ``[…, F] → […]``."""
    found: Tensor = _CrossEntropy.apply(logits, x)
    return found


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
        return squash(logits).sub_(x).mul_(grad.unsqueeze(-1)), None


def divergence(mean: Tensor, spread: Tensor) -> Tensor:
    """KL from N(mean, e^spread) to the standard normal, per record ``[C, B]``."""
    return 0.5 * (mean.square() + spread.exp() - spread - 1).sum(-1)


def _finite(x: Tensor, limit: float) -> Tensor:
    return torch.nan_to_num(x, nan=0.0).clamp(-limit, limit)


def _soft_bound(x: Tensor) -> Tensor:
    bounded = torch.tanh(torch.nan_to_num(x, nan=0.0) / LOG_VARIANCE_LIMIT)
    return LOG_VARIANCE_LIMIT * bounded
