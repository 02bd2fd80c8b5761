"""Made-up pictures: blobs and outlines that nobody drew, from random numbers alone.

What goes together in them goes together in most pictures of things: neighbouring pixels, the two
sides of an edge, the mirrored half. So they tell, without a row of anybody's, in which directions
a net's inputs vary (`directions`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from understudy.nets.fixed import cosine_matrix

__all__ = ["made_up"]

_WAVES = 10  # frequencies of a side that blobs and shades are made of
_BLOBS, _SHADES = (2.0, 6.0), (1.5, 7.5)  # the highest frequency of one: from, to
_SHARP = 8.0  # of a blob's edge
_OUTLINED, _MIRRORED = 0.3, 0.5  # shares of the pictures


def made_up(count: int, shape: tuple[int, ...], *, rng: torch.Generator) -> Tensor:
    """``[count, ∏shape]``, from 0 to 1, for images of (H, W) or (H, W, colours)."""
    height, width, colours = (*shape, 1)[:3]
    mirror, middle, level, depth, drawn = torch.rand(5, count, 1, 1, generator=rng)
    blobs = _fields(count, (height, width), _BLOBS, rng)
    blobs = torch.where(mirror < _MIRRORED, (blobs + blobs.flip(2)) / math.sqrt(2), blobs)
    blobs = blobs + middle * (1.6 - 3.2 * _from_middle(height, width))
    inside = torch.sigmoid(_SHARP * (blobs - 0.6 * level))
    shade = 0.6 + 0.25 * depth * _fields(count, (height, width), _SHADES, rng)
    outline = 4 * inside * (1 - inside)
    grey = torch.where(drawn < _OUTLINED, outline, inside * shade).clamp(0, 1)
    tint = torch.rand(count, 1, 1, colours, generator=rng) if colours > 1 else 1.0
    return (grey.unsqueeze(-1) * tint).flatten(1)


def _fields(
    count: int, sides: tuple[int, int], highest: tuple[float, float], rng: torch.Generator
) -> Tensor:
    """Smooth random fields ``[count, H, W]`` of spread 1, without frequencies above a drawn one."""
    high, wide = (cosine_matrix(n, min(n, _WAVES)) for n in sides)
    away = (torch.arange(len(high))[:, None].square() + torch.arange(len(wide)).square()).sqrt()
    low, top = highest
    cut = low + (top - low) * torch.rand(count, 1, 1, generator=rng)
    loud = (away <= cut) * (away > 0) / (1 + away)
    waves = loud * torch.randn(count, *away.shape, generator=rng)
    fields = high.T @ waves @ wide
    return fields / fields.std((1, 2), correction=0, keepdim=True).clamp(min=1e-6)


def _from_middle(height: int, width: int) -> Tensor:
    """``[H, W]``: squared distance from the middle, 1 at the middle of a side."""
    rows, columns = (torch.linspace(-1, 1, side).square() for side in (height, width))
    return rows[:, None] + columns
