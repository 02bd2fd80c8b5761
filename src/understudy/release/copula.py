"""The generator kind "copula": Gaussians by class behind a table, each number by its own margin.

Arrays: ``mean`` [C, F] and ``factor`` [C, F, r] draw latent rows; ``cuts`` [M, P + 1] part the
latents of the M ``numbers`` (a list of features in the config) into pieces, and piece p becomes a
value between ``low`` and ``high`` [M, P]. The map is monotone and the same for every class, so
that one row needs no other. As in "gaussian", ``blocks`` are one-hot and ``flags`` zero or one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.release.gaussian import hardened, normals
from understudy.rng import Streams

__all__ = ["check", "draw"]

_CONFIG = {"width", "blocks", "flags", "numbers"}


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is one Gaussian for each class with its margins, and nothing else."""
    _check(arrays, config)
    return len(arrays["mean"]) == classes and config.keys() == _CONFIG


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]`` in [0, 1] for class indices ``[n]``."""
    _check(arrays, config)
    x, numbers = normals(arrays, labels, rng.torch("copula")), list(config["numbers"])
    x[:, numbers] = _values(arrays, x[:, numbers].T.contiguous()).T
    return hardened(x, config)


def _values(arrays: Mapping[str, Tensor], latent: Tensor) -> Tensor:
    """Encoded numbers ``[M, n]`` of latents ``[M, n]``: straight lines between the cuts."""
    cuts, low, high = arrays["cuts"], arrays["low"], arrays["high"]
    piece = torch.searchsorted(cuts[:, 1:-1].contiguous(), latent, right=True)
    begin, end = cuts.gather(1, piece), cuts.gather(1, piece + 1)
    within = ((latent - begin) / (end - begin).clamp(min=1e-12)).clamp(0, 1)
    return torch.lerp(low.gather(1, piece), high.gather(1, piece), within)


def _check(arrays: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Refuse arrays that do not fit together, as only an altered release has them."""
    shapes = {name: tuple(value.shape) for name, value in arrays.items()}
    try:
        (classes, width, rank), (numbers, pieces) = shapes["factor"], shapes["low"]
        wanted = {"mean": (classes, width), "factor": (classes, width, rank)}
        wanted |= {"low": (numbers, pieces), "high": (numbers, pieces)}
        fits = shapes == {**wanted, "cuts": (numbers, pieces + 1)} and width == config["width"]
        single = [*config["numbers"], *config["flags"]]
        spans = sorted([*map(tuple, config["blocks"]), *((i, i + 1) for i in single)])
        fits = fits and len(config["numbers"]) == numbers and pieces > 0
        ends = [0, *(stop for _, stop in spans)]
        fits = fits and [start for start, _ in spans] == ends[:-1] and ends[-1] == width
        fits = fits and bool((arrays["cuts"].diff(dim=1) >= 0).all())
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ReleaseError(
            "class Gaussians with ascending cuts, and each feature a number, a flag or in a block",
            "others",
            "fetch the release again",
        )
