"""The generator kind "gan": latent noise and a label through a released generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.nets import layers
from understudy.nets.gan import GENERATOR, GeneratorNet
from understudy.release.decoder import members, net_of
from understudy.rng import Streams

__all__ = ["check", "draw"]


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is a generator, or one for each class, and nothing else."""
    spec, flat = net_of(GeneratorNet, config), arrays["generator"]
    fits = config.keys() == {"net", "width"} and arrays.keys() == {"generator"}
    fits = fits and flat.ndim == 2 and flat.shape[1] == layers.size(spec.net)
    several = len(flat) == classes and not spec.labels
    fits = fits and (several or (len(flat) == 1 and spec.labels == classes))
    return fits and spec.features == config["width"]


@torch.no_grad()
def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]``; one generator, or one per class, makes them."""
    spec = net_of(GeneratorNet, config)
    params = layers.unflatten(spec.net, arrays["generator"], GENERATOR)
    rows = torch.empty(len(labels), spec.features)
    for member, mine in members(labels, len(arrays["generator"])):
        own = {name: value[member : member + 1] for name, value in params.items()}
        source, y = rng.torch("latent", member), labels[mine]
        z = torch.randn(1, len(y), spec.latent, generator=source)
        rows[mine] = spec.settled(spec.rows(own, z, y[None])[0], source)
    return rows
