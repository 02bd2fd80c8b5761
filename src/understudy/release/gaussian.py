"""The generator kind "gaussian": one Gaussian per class in a public feature space.

Arrays: ``mean`` [C, d], ``factor`` [C, d, r], ``basis`` [d, F] and ``origin`` [F]. In the config,
``blocks`` lists one-hot stretches ``[start, stop]``, of which the largest entry becomes one, and
``flags`` lists single zero-one features, cut at one half; ``contrast`` above 0 takes images
smoothly to black and white instead of cutting them off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.rng import Streams

__all__ = ["check", "draw", "hardened", "normals"]

_CONFIG = {"width", "blocks", "flags", "contrast"}


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is one Gaussian for each class, and nothing else."""
    _check(arrays, config)
    return len(arrays["mean"]) == classes and config.keys() <= _CONFIG


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]`` in [0, 1] for class indices ``[n]``."""
    _check(arrays, config)
    rows = normals(arrays, labels, rng.torch("gaussian"))
    x = rows @ arrays["basis"] + arrays["origin"]
    if config.get("contrast"):
        return torch.sigmoid(float(config["contrast"]) * (x - 0.5))
    return hardened(x, config)


def normals(arrays: Mapping[str, Tensor], labels: Tensor, source: torch.Generator) -> Tensor:
    """Draws ``[n, d]`` of each label's Gaussian, by ``mean`` and ``factor``."""
    noise = torch.randn(len(labels), arrays["factor"].shape[2], generator=source)
    rows = arrays["mean"][labels]
    for label in labels.unique().tolist():
        mine = labels == label
        rows[mine] += noise[mine] @ arrays["factor"][label].T
    return rows


def hardened(x: Tensor, config: Mapping[str, Any]) -> Tensor:
    """The rows, in place, with one-hot ``blocks``, zero-one ``flags`` and the rest in [0, 1]."""
    for start, stop in config.get("blocks", ()):
        x[:, start:stop] = torch.eye(stop - start)[x[:, start:stop].argmax(1)]
    flags = list(config.get("flags", ()))
    x[:, flags] = (x[:, flags] > 0.5).to(x.dtype)
    return x.clamp(0, 1)


def _check(arrays: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Refuse arrays that do not fit together, as only an altered release has them."""
    shapes = {name: tuple(value.shape) for name, value in arrays.items()}
    try:
        classes, d, rank = shapes["factor"]
        wanted = {"mean": (classes, d), "basis": (d, config["width"]), "origin": (config["width"],)}
        fits = shapes == {**wanted, "factor": (classes, d, rank)}
        spans = [*config.get("blocks", ()), *((i, i + 1) for i in config.get("flags", ()))]
        fits = fits and all(0 <= a < b <= config["width"] for a, b in spans)
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ReleaseError(
            "mean, factor, basis and origin of matching shapes, and blocks within the width",
            "others",
            "fetch the release again",
        )
