"""The generator kind "mixture": each row from one of two generators, by their public shares.

In the config, ``parts`` lists the kind, config and share of each; the arrays of part i are those
whose names begin with ``i.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.release import copula, decoder, gan, gaussian
from understudy.rng import Streams

__all__ = ["PARTS", "check", "draw"]

PARTS: dict[str, ModuleType] = {
    "copula": copula,
    "decoder": decoder,
    "gan": gan,
    "gaussian": gaussian,
}


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]`` for class indices ``[n]``."""
    _check_parts(config)
    shares = np.array([part["share"] for part in config["parts"]], float)
    chosen = torch.from_numpy(rng.numpy("part").choice(len(shares), len(labels), p=shares))
    rows = torch.empty(len(labels), config["width"])
    for i, part in enumerate(config["parts"]):
        mine, source = chosen == i, rng.child("part", i)
        made = PARTS[part["kind"]]
        rows[mine] = made.draw(_own(arrays, i), part["config"], labels[mine], rng=source)
    return rows


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether both parts are generators of these classes, and there is nothing else."""
    _check_parts(config)
    parts = dict(enumerate(config["parts"]))
    named = {f"{i}.{name}" for i in parts for name in _own(arrays, i)}
    fits = config.keys() == {"width", "parts"} and arrays.keys() == named
    for i, part in parts.items():
        fits = fits and part.keys() == {"kind", "config", "share"}
        fits = fits and part["config"]["width"] == config["width"]
        fits = fits and PARTS[part["kind"]].check(_own(arrays, i), part["config"], classes)
    return fits


def _own(arrays: Mapping[str, Tensor], part: int) -> dict[str, Tensor]:
    """The arrays of one part."""
    start = f"{part}."
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


def _check_parts(config: Mapping[str, Any]) -> None:
    """Refuse a description that only an altered release has."""
    try:
        shares = [float(part["share"]) for part in config["parts"]]
        fits = min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6
        fits = fits and all(part["kind"] in PARTS and part["config"] for part in config["parts"])
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ReleaseError("generators and shares that add up to 1", "others", "fetch it again")
