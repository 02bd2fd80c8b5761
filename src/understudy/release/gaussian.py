"""The generator kind "gaussian": one Gaussian per class in a public feature space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.rng import Streams

__all__ = ["draw"]


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows: class mean + class factor · noise, mapped back by the public basis."""
    noise = torch.randn(len(labels), arrays["factor"].shape[2], generator=rng.torch("gaussian"))
    mean, factor = arrays["mean"][labels], arrays["factor"]
    rows = torch.empty_like(mean)
    for label in labels.unique().tolist():
        mine = labels == label
        rows[mine] = mean[mine] + noise[mine] @ factor[label].T
    return rows @ arrays["basis"] + arrays["origin"]
