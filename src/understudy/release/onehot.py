"""The generator kind "onehot": a decoder that draws rows and their labels together.

Its outputs are the yes-or-no features of `data.onehot`, label included, or without the label where
a ``head`` (a linear classifier of the other features) draws it. Class proportions are those that it
learnt; to draw one class alone, rows of the others are discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.data.onehot import OneHot, pick
from understudy.errors import ReleaseError
from understudy.nets import classifier, layers
from understudy.nets.autoencoder import Autoencoder, sample
from understudy.nets.classifier import ClassifierNet
from understudy.release.decoder import decoder_params, net_of
from understudy.rng import Streams

__all__ = ["check", "draw", "until"]

_TRIES = 400  # draws per row of a class that was asked for, before it counts as too rare


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
    spec, layout = net_of(Autoencoder, config), OneHot.from_config(config["layout"])
    if spec.features != layout.width or layout.features != config["width"]:
        raise ReleaseError("a layout that fits the net", "another", "fetch it again")
    params = decoder_params(spec, arrays["decoder"])
    head = _head(arrays, config, layout)
    source = rng.torch("latent")

    def some(size: int) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(1, size, dtype=torch.long)
        chance = sample(spec, params, zeros, rng=source)[0]
        x, y = layout.decode(chance, drawn=bool(config["drawn"]), rng=source)
        if head is not None:
            y = pick(head(layout.encode(x, y)), bool(config["drawn"]), source)
        return x, y

    return until(some, n, label)


def until(
    some: Callable[[int], tuple[Tensor, Tensor]], n: int, label: int | None
) -> tuple[Tensor, Tensor]:
    """Draw ``some`` rows and classes until there are ``n``, of one class if it is given."""
    found: list[tuple[Tensor, Tensor]] = []
    held = drawn = 0
    while held < n:
        if drawn >= _TRIES * n:
            raise ReleaseError(
                "a class that the generator draws now and then",
                "one that it hardly ever draws",
                "leave the label out",
            )
        size = n - held if label is None else min(max(4 * (n - held), 256), 4096)
        x, y = some(size)
        mine = torch.ones_like(y, dtype=torch.bool) if label is None else y == label
        found.append((x[mine], y[mine]))
        held, drawn = held + int(mine.sum()), drawn + size
    x, y = (torch.cat(side)[:n] for side in zip(*found, strict=True))
    return x, y


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is a decoder that draws these classes, perhaps with a head, and nothing else."""
    layout = OneHot.from_config(config["layout"])
    label = _label(arrays, config, layout)
    head = set() if label is None else {"head"}
    fits = config.keys() == {"net", "width", "layout", "drawn"} | head
    fits = fits and arrays.keys() == {"decoder"} | head and len(arrays["decoder"]) == 1
    fits = fits and layout.to_config() == config["layout"]
    return fits and classes == (layout.classes if label is None else label.classes)


def _label(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], layout: OneHot
) -> ClassifierNet | None:
    """The net of the head that draws the label, if there is one; what does not fit is refused."""
    if "head" not in config:
        return None
    spec = ClassifierNet.from_config(config["head"])
    fits = (spec.kind, spec.features, layout.label) == ("linear", layout.width, 0)
    fits = fits and type(spec.classes) is int and "head" in arrays
    fits = fits and spec.to_config() == config["head"]
    if not fits or arrays["head"].shape != (1, layers.size(spec.net)):
        raise ReleaseError("a label head that fits the layout", "another", "fetch it again")
    return spec


def _head(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], layout: OneHot
) -> Callable[[Tensor], Tensor] | None:
    """Chances of the classes from features ``[n, width]``, if a head draws the label."""
    spec = _label(arrays, config, layout)
    if spec is None:
        return None
    net, params = spec, layers.unflatten(spec.net, arrays["head"])
    return lambda features: classifier.chances(net, params, features[None])[0]
