"""A public lens between a classifier and its votes: SignDS-FL with few votes per weight.

A vote names one of d coordinates, and a study has fewer votes than a net has weights. What a vote
tells can be raised by linear maps that are fixed before any row is seen, one at each end:

- *Pixels.* Neighbouring pixels of images agree, so the server spreads a vote for a weight of the
  first layer over the weights of the same unit nearby. And all pixels are positive, so the mean
  over a unit's weights (an image's brightness) drowns what tells images apart: both ends
  damp it.
- *Balance.* A large first layer takes nearly all votes although the few weights behind it matter
  more. A site ranks coordinates of small layers higher; their votes come more often and count less.

Guarantee: none of its own, and none is needed. A site applies `Lens.ranked` to its update before
the mechanism of `privacy.select`, which holds for any update, sees it; the server applies
`Lens.read` to votes, which is post-processing. The lens depends on study and schema only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from understudy.nets import layers
from understudy.nets.layers import Net

__all__ = ["Lens", "gaussian"]

# What is left of a unit's mean at each end. Its square is about one part in the pixels of a small
# image: brightness is then learnt as fast as other patterns, and not a hundred times faster.
_BRIGHTNESS = 0.1


@dataclass(frozen=True)
class Lens:
    """The maps of one net; ``image`` is the shape of its input where its first layer is dense on
    pixels, else empty. ``smooth`` = 0 and ``balance`` = 0 leave everything as it is."""

    net: Net
    image: tuple[int, ...] = ()
    smooth: float = 0.0
    balance: float = 0.0

    def ranked(self, update: Tensor) -> Tensor:
        """The site's end: updates ``[C, P]`` as their coordinates are to be ranked."""
        if self._on_pixels:
            update = self._first(update, _dimmed)
        return update * self._weights if self.balance else update

    def read(self, votes: Tensor) -> Tensor:
        """The server's end: the step ``[1, P]`` that mean votes ``[1, P]`` stand for."""
        votes = votes / self._weights if self.balance else votes
        return self._first(votes, self._spread) if self._on_pixels else votes

    @property
    def _on_pixels(self) -> bool:
        return self.smooth > 0 and bool(self.image)

    @cached_property
    def _weights(self) -> Tensor:
        """``[P]``: (size of the largest layer / size of the own one) to the power of balance."""
        sizes = [math.prod(shape) for shape in layers.shapes(self.net).values()]
        return torch.cat([torch.full((n,), (max(sizes) / n) ** self.balance) for n in sizes])

    def _first(self, flat: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """``change`` of the first layer's weights ``[C, pixels, units]``, the rest as it is."""
        params = layers.unflatten(self.net, flat)
        name = next(iter(params))
        return layers.flatten(self.net, {**params, name: change(params[name])})

    def _spread(self, votes: Tensor) -> Tensor:
        height, width, colours = (*self.image, 1)[:3]
        grid = votes.reshape(len(votes), height, width, colours, -1)
        down, across = gaussian(height, self.smooth), gaussian(width, self.smooth)
        smooth = torch.einsum("ha,wb,nabcu->nhwcu", down, across, grid)
        return _dimmed(smooth.reshape(votes.shape))


def _dimmed(weights: Tensor) -> Tensor:
    """``[C, pixels, units]`` with the mean of every unit damped."""
    return weights - (1 - _BRIGHTNESS) * weights.mean(1, keepdim=True)


@cache
def gaussian(n: int, sigma: float) -> Tensor:
    """``[n, n]``: column i is a bell around i, cut off at the border, of Euclidean length 1.

    So a vote moves the model as far as it would alone, at a border too.
    """
    place = torch.arange(n).double()
    bells = torch.exp(-((place[:, None] - place) ** 2) / (2 * sigma**2))
    return (bells / bells.norm(dim=0)).float()
