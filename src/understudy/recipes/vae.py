"""What the recipes that train VAEs have in common: options, public nets, and the release.

`warm` pre-trains the nets, `public` reads rows that are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder
from understudy.nets.layers import Params
from understudy.release.generator import Generator
from understudy.study import setting
from understudy.training.server import ServerOptimiser

__all__ = [
    "VAEOptions",
    "autoencoder",
    "balance",
    "decoder_release",
    "pack",
    "server_optimiser",
    "shapes",
    "size",
    "unpack",
]


@dataclass(frozen=True)
class VAEOptions:
    """The part of ``[recipe]`` that every VAE recipe has."""

    net: Literal["dense", "conv"] = setting("dense", "dense, or the paper's convolutions")
    norm: Literal["none", "group", "batch"] = setting(
        "none", "none or group, in convolutional nets; batch is refused: it mixes records"
    )
    latent: int = setting(16, "dimensions of the latent space")
    widths: tuple[int, ...] = setting((128,), "hidden layers of the encoder")
    decoder_widths: tuple[int, ...] = setting((128,), "hidden layers of the shared decoder")
    cosines: int | None = setting(
        None, "lowest frequencies that dense nets see: 12 per image side, 64 of a series; 0: all"
    )
    beta: float = setting(1.0, "weight of the KL term")
    server: Literal["adam", "sgd"] = setting("adam", "server optimiser on the noised mean")
    server_rate: float = setting(0.016, "its rate (at the start)")
    momentum: float = setting(0.9, "its momentum")
    decay: Literal["cosine", "none"] = setting("cosine", "how its rate falls over the rounds")
    average: float = setting(0.2, "share of the last rounds whose decoders are averaged")
    sharpness: float = setting(2.0, "contrast of released images: the logits are multiplied by it")
    warm_start: float = setting(
        0.0, "share of ε for a first round of fedmoments whose samples pre-train the nets; 0: none"
    )
    warm_coefficients: int = setting(150, "fedmoments' coefficients in a warm start")
    warm_spread: float = setting(2.0, "variance of the warm start's images (fedmoments' spread)")
    warm_contrast: float = setting(8.0, "contrast of the warm start's images; 0 cuts them off")
    warm_share: float = setting(
        0.5, "share of the released rows that the warm start draws; the decoder draws the rest"
    )
    warm_steps: int = setting(2000, "training steps on warm-start samples or public rows")
    public: str = setting("", "a file of rows that are public: the nets are pre-trained on them")

    def __post_init__(self) -> None:
        if self.norm == "batch":
            raise StudyError(
                'recipe.norm "none" or "group"',
                '"batch": BatchNorm lets the records of a batch see each other, so no record '
                "could be clipped alone, and its running statistics would leave without noise",
                'set norm = "group"',
            )
        if self.norm == "group" and self.net == "dense":
            raise StudyError(
                'recipe.norm = "group" with net = "conv"', "a dense net", "leave one of them out"
            )
        if self.warm_start and self.public:
            raise StudyError(
                "one of recipe.warm_start and recipe.public", "both", "leave one of them out"
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        """What would only fail, or mean nothing, once a round has been charged."""
        counts = (self.latent, *self.widths, *self.decoder_widths)
        counts += (self.warm_coefficients, self.warm_steps)
        if min(counts) < 1 or (self.cosines or 0) < 0:
            raise StudyError(
                "recipe.latent, widths, decoder_widths, warm_coefficients and warm_steps of at "
                "least 1, and cosines of at least 0",
                "a smaller number",
                "correct it",
            )
        checks = {
            "beta": (0 <= self.beta < math.inf, "of 0 or more"),
            "server_rate": (0 < self.server_rate < math.inf, "above 0 and finite"),
            "sharpness": (0 < self.sharpness < math.inf, "above 0 and finite"),
            "momentum": (0 <= self.momentum < 1, "from 0 to below 1"),
            "average": (0 <= self.average <= 1, "from 0 to 1"),
            "warm_start": (0 <= self.warm_start < 1, "from 0 to below 1"),
            "warm_share": (0 <= self.warm_share <= 1, "from 0 to 1"),
        }
        for name, (fits, wanted) in checks.items():
            if not fits:
                found = f"{getattr(self, name)}"
                raise StudyError(f"recipe.{name} {wanted}", found, "correct it")


def autoencoder(
    schema: Schema, own: VAEOptions, *, joint: bool = True, least_spread: float = -9.0
) -> Autoencoder:
    """The public nets for a schema: fewer shared parameters mean less noise in all."""
    return Autoencoder(
        least_spread=least_spread,
        features=schema.width,
        latent=own.latent,
        labels=schema.n_classes if joint else 0,
        product=joint and own.net == "dense",
        widths=own.widths,
        decoder_widths=own.decoder_widths,
        net=own.net,
        norm="group" if own.norm == "group" else "none",
        shape=schema.shape,
        cosines=_frequencies(schema, own) if own.net == "dense" else (),
        loss="bce" if schema.kind == "image" else "gaussian",
        numeric=_numbers(schema),
    )


def _frequencies(schema: Schema, own: VAEOptions) -> tuple[int, ...]:
    """Kept per axis of an image or along a series; colours and channels are kept whole."""
    sides = {"image": 2, "series": 1, "table": 0}[schema.kind]
    kept = {"image": 12, "series": 64, "table": 0}[schema.kind]
    kept = kept if own.cosines is None else own.cosines
    if not (kept and sides):
        return ()
    return (*(min(kept, n) for n in schema.shape[:sides]), *schema.shape[sides:])


def _numbers(schema: Schema) -> tuple[int, ...]:
    """The features that hold a number rather than a probability."""
    if schema.kind == "image":
        return ()
    wanted = ("numeric", "integer", "date", "series")
    return tuple(i for b in blocks(schema) if b.kind in wanted for i in range(b.start, b.stop))


def shapes(spec: Autoencoder, only: str = "") -> dict[str, tuple[int, ...]]:
    """Parameters of both nets, or of those under ``only``, in the order they are sent."""
    both = {
        **layers.shapes(spec.encoder, ENCODER),
        **layers.shapes(spec.decoder, DECODER),
    }
    return {name: shape for name, shape in both.items() if name.startswith(only)}


def pack(spec: Autoencoder, params: Mapping[str, Tensor], only: str = "") -> Tensor:
    """One vector per member, ``[members, P]``."""
    return layers.concatenated(params, shapes(spec, only))


def unpack(spec: Autoencoder, flat: Tensor, only: str = "") -> Params:
    """The inverse of `pack`: named views ``[members, …]``."""
    return layers.separated(flat, shapes(spec, only))


def size(spec: Autoencoder, only: str = "") -> int:
    """How many parameters these are."""
    return sum(math.prod(shape) for shape in shapes(spec, only).values())


def balance(schema: Schema) -> tuple[float, ...]:
    """The class proportions to draw: the declared ones, or equal."""
    return tuple(schema.balance or (1 / schema.n_classes,) * schema.n_classes)


def server_optimiser(name: str, own: VAEOptions, rounds: int) -> ServerOptimiser:
    """The server's optimiser as the options ask."""
    return ServerOptimiser(
        name, rounds, own.server, own.server_rate, own.momentum, own.average, own.decay
    )


def decoder_release(
    schema: Schema, own: VAEOptions, spec: Autoencoder, decoder: Tensor
) -> Generator:
    """A generator of decoders ``[members, P]``."""
    sharpness = own.sharpness if schema.kind == "image" else 1.0
    config: dict[str, Any] = {"net": spec.to_config(), "width": schema.width}
    config["sharpness"] = sharpness
    return Generator("decoder", {"decoder": decoder}, config, balance(schema))
