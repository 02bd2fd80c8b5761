"""The generator kind "decoder": latent noise and a label through a released decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, Autoencoder, decode
from understudy.rng import Streams

__all__ = ["draw"]


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]``; ``arrays["decoder"]`` is ``[members, P]``: one, or one per class."""
    spec = Autoencoder.from_config(config["net"])
    sharpness = float(config["sharpness"])
    latent = torch.randn(len(labels), spec.latent, generator=rng.torch("latent"))
    params = layers.unflatten(spec.decoder, arrays["decoder"], DECODER)
    if len(arrays["decoder"]) == 1:
        return torch.sigmoid(sharpness * decode(spec, params, latent[None], labels[None])[0])
    rows = torch.empty(len(labels), spec.features)
    for label in labels.unique().tolist():
        own = {name: value[label : label + 1] for name, value in params.items()}
        mine = labels == label
        logits = decode(spec, own, latent[mine][None], labels[mine][None])[0]
        rows[mine] = torch.sigmoid(sharpness * logits)
    return rows
