"""What the recipes that train autoencoders have in common: public nets, and the release."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from understudy.data.column import BOUNDED
from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder
from understudy.nets.layers import Params
from understudy.recipes.vae_options import NetOptions
from understudy.release.generator import Generator

__all__ = [
    "autoencoder",
    "balance",
    "decoder_release",
    "frequencies",
    "pack",
    "shapes",
    "size",
    "unpack",
]


def autoencoder(
    schema: Schema, own: NetOptions, *, joint: bool = True, least_spread: float = -9.0
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
        cosines=frequencies(schema, own.cosines) if own.net == "dense" else (),
        loss="bce" if schema.kind == "image" else "gaussian",
        numeric=_numbers(schema),
    )


def frequencies(schema: Schema, kept: int | None) -> tuple[int, ...]:
    """Kept per axis of an image or along a series; colours and channels are kept whole."""
    sides = {"image": 2, "series": 1, "table": 0}[schema.kind]
    kept = {"image": 12, "series": 64, "table": 0}[schema.kind] if kept is None else kept
    if not (kept and sides):
        return ()
    return (*(min(kept, n) for n in schema.shape[:sides]), *schema.shape[sides:])


def _numbers(schema: Schema) -> tuple[int, ...]:
    """The features that hold a number rather than a probability."""
    if schema.kind == "image":
        return ()
    wanted = (*BOUNDED, "series")
    return tuple(i for b in blocks(schema) if b.kind in wanted for i in range(b.start, b.stop))


def shapes(spec: Autoencoder, only: str = "") -> dict[str, tuple[int, ...]]:
    """Parameters of both nets, or of those under ``only``, in the order they are sent."""
    both = {**layers.shapes(spec.encoder, ENCODER), **layers.shapes(spec.decoder, DECODER)}
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


def decoder_release(
    schema: Schema,
    spec: Autoencoder,
    decoder: Tensor,
    shares: tuple[float, ...],
    sharpness: float = 1.0,
) -> Generator:
    """A generator of decoders ``[members, P]`` that draws classes by their ``shares``."""
    config = {"net": spec.to_config(), "width": schema.width, "sharpness": sharpness}
    return Generator("decoder", {"decoder": decoder}, config, shares)
