"""The generator kind "decoder": latent noise and a label through a released decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, Autoencoder, sample
from understudy.nets.branches import BranchedNet
from understudy.nets.gan import GeneratorNet
from understudy.rng import Streams

__all__ = ["check", "decoder_params", "draw", "members", "net_of"]

Net = TypeVar("Net", Autoencoder, BranchedNet, GeneratorNet)


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is a decoder, or one for each class, and nothing else."""
    several, spec = len(arrays["decoder"]), net_of(Autoencoder, config)
    decoder_params(spec, arrays["decoder"])
    fits = config.keys() == {"net", "width", "sharpness"} and arrays.keys() == {"decoder"}
    return fits and several in (1, classes) and spec.features == config["width"]


def net_of(kind: type[Net], config: Mapping[str, Any]) -> Net:
    """The net that a generator's description leads to; a longer description is refused."""
    spec = kind.from_config(config["net"])
    if spec.to_config() != config["net"]:
        raise ReleaseError("the description of a net", "another", "fetch it again")
    return spec


@torch.no_grad()
def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]``; ``arrays["decoder"]`` is ``[members, P]``: one, or one per class."""
    spec, sharpness = net_of(Autoencoder, config), float(config["sharpness"])
    params = decoder_params(spec, arrays["decoder"])
    rows = torch.empty(len(labels), spec.features)
    for member, mine in members(labels, len(arrays["decoder"])):
        own = {name: value[member : member + 1] for name, value in params.items()}
        source = rng.torch("latent", member)
        rows[mine] = sample(spec, own, labels[mine][None], sharpness=sharpness, rng=source)[0]
    return rows


def members(labels: Tensor, nets: int) -> list[tuple[int, Tensor]]:
    """Which rows each of several nets draws: one draws all, or each those of its class."""
    if nets == 1:
        return [(0, torch.ones(len(labels), dtype=torch.bool))]
    return [(label, labels == label) for label in labels.unique().tolist()]


def decoder_params(spec: Autoencoder, flat: Tensor) -> layers.Params:
    """Named parameters ``[members, …]`` of released decoders; a wrong size is refused."""
    expected = layers.size(spec.decoder)
    if flat.ndim != 2 or flat.shape[1] != expected:
        raise ReleaseError(
            f"decoders of {expected} numbers", f"shape {tuple(flat.shape)}", "fetch it again"
        )
    return layers.unflatten(spec.decoder, flat, DECODER)
