"""The generator kind "decoder": latent noise and a label through a released decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, Autoencoder, sample
from understudy.rng import Streams

__all__ = ["decoder_params", "draw"]


@torch.no_grad()
def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]``; ``arrays["decoder"]`` is ``[members, P]``: one, or one per class."""
    spec, sharpness = Autoencoder.from_config(config["net"]), float(config["sharpness"])
    params = decoder_params(spec, arrays["decoder"])
    rows = torch.empty(len(labels), spec.features)
    for member, mine in _members(labels, len(arrays["decoder"])):
        own = {name: value[member : member + 1] for name, value in params.items()}
        source = rng.torch("latent", member)
        rows[mine] = sample(spec, own, labels[mine][None], sharpness=sharpness, rng=source)[0]
    return rows


def _members(labels: Tensor, members: int) -> list[tuple[int, Tensor]]:
    """Which rows each decoder draws."""
    if members == 1:
        return [(0, torch.ones(len(labels), dtype=torch.bool))]
    return [(label, labels == label) for label in labels.unique().tolist()]


def decoder_params(spec: Autoencoder, flat: Tensor) -> layers.Params:
    """Named parameters ``[members, …]`` of released decoders; a wrong size is refused."""
    expected = layers.size(spec.decoder)
    if flat.ndim != 2 or flat.shape[1] != expected:
        raise ReleaseError(
            f"decoders of {expected} numbers", f"shape {tuple(flat.shape)}", "obtain it again"
        )
    return layers.unflatten(spec.decoder, flat, DECODER)
