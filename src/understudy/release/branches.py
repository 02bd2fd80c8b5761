"""The generator kind "branches": rows and labels whose columns parties held apart.

A generator with a branch per party gives chances of yes-or-no features; ``places`` says where among
all branches' outputs each feature of the whole table's layout stands. ``shared``: one noise is
behind all branches; else each has its own, and parties are independent. Class proportions are those
that it learnt; to draw one class alone, rows of the others are discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.nets import layers
from understudy.nets.branches import BranchedNet
from understudy.release.decoder import net_of
from understudy.release.onehot import until
from understudy.rng import Streams

__all__ = ["check", "draw"]


@torch.no_grad()
def draw(
    arrays: Mapping[str, Tensor],
    config: Mapping[str, Any],
    n: int,
    label: int | None,
    *,
    rng: Streams,
) -> tuple[Tensor, Tensor]:
    """Encoded rows ``[n, F]`` and their classes ``[n]``; of one class if ``label`` is given."""
    spec, layout = net_of(BranchedNet, config), OneHot.from_config(config["layout"])
    params = layers.separated(arrays["generator"], spec.shapes())
    branches = () if config["shared"] else (len(spec.outputs),)
    places, source = torch.tensor(config["places"], dtype=torch.long), rng.torch("latent")

    def some(size: int) -> tuple[Tensor, Tensor]:
        z = torch.randn(*branches, 1, size, spec.latent, generator=source)
        return layout.decode(spec.joint(params, z)[0][:, places], drawn=True, rng=source)

    return until(some, n, label)


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is such a generator of these classes, and nothing else."""
    spec, places = net_of(BranchedNet, config), config["places"]
    layout = OneHot.from_config(config["layout"])
    fits = config.keys() == {"net", "width", "layout", "places", "shared"}
    fits = fits and type(config["shared"]) is bool
    fits = (
        fits
        and arrays.keys() == {"generator"}
        and arrays["generator"].shape == (1, layers.total(spec.shapes()))
    )
    fits = fits and layout.to_config() == config["layout"] and len(places) == layout.width
    fits = fits and all(type(i) is int and 0 <= i < sum(spec.outputs) for i in places)
    return fits and (layout.features, layout.classes) == (config["width"], classes)
