"""Kernels that nobody has to teach: main directions of what a convolution sees of made-up pictures.

A kernel is one of the directions in which patches vary most, at the strength that gives its
answers spread 1, and is centred on the mean patch. The first convolution has half of them with
both signs, so that dark and light pass its activation alike; the next sees maps of either.
Everything is public and made of random numbers (`pictures`): no row is looked at.
"""

from __future__ import annotations

import torch
from torch import Tensor

from understudy.nets import layers
from understudy.nets.layers import Conv, Net, Params
from understudy.nets.pictures import made_up

__all__ = ["found"]

_PICTURES, _FEWEST = 1024, 64  # that are looked at; the fewer, the larger they are
_PIXELS = 1 << 20  # in all, but for the fewest
_PATCHES = 60_000  # of each convolution
_FAINT = 1e-3  # of the mean variance: a direction that is hardly there is not made loud


@torch.no_grad()
def found(net: Net, shape: tuple[int, ...], *, rng: torch.Generator) -> Params:
    """Weights and biases ``[1, …]`` of the net's convolutions, one after the other."""
    params: Params = {}
    convolutions = [(place, layer) for place, layer in enumerate(net) if isinstance(layer, Conv)]
    if not convolutions:
        return params
    count = max(_FEWEST, min(_PICTURES, _PIXELS // (shape[0] * shape[1])))
    pictures = made_up(count, shape, rng=rng)[None]
    for place, layer in convolutions:
        maps = layers.apply(net[:place], params, pictures)[0]
        patches = _patches(maps, layer.kernel, rng)
        weight, bias = _main(patches, layer, both=not params)
        params |= {f"{place}.weight": weight[None], f"{place}.bias": bias[None]}
    return params


def _patches(maps: Tensor, side: int, rng: torch.Generator) -> Tensor:
    """``[N, channels · side²]`` at random places of random maps ``[B, channels, H, W]``."""
    windows = maps.unfold(2, side, 1).unfold(3, side, 1)
    sizes = (windows.shape[0], *windows.shape[2:4])
    which, row, column = (torch.randint(n, (_PATCHES,), generator=rng) for n in sizes)
    return windows[which, :, row, column].flatten(1)


def _main(patches: Tensor, layer: Conv, *, both: bool) -> tuple[Tensor, Tensor]:
    """Kernels ``[outputs, channels, side, side]`` and biases ``[outputs]``."""
    patches = patches.double()
    mean = patches.mean(0)
    variance, basis = torch.linalg.eigh((patches - mean).T @ (patches - mean) / len(patches))
    loud = (variance.clamp(min=0) + _FAINT * variance.mean()).rsqrt()
    main = (basis * loud).flip(1).T
    if both:
        main = torch.cat((main[: -(-layer.outputs // 2)], -main[: layer.outputs // 2]))
    main = main[: layer.outputs]
    return main.reshape(layer.shapes["weight"]).float(), -(main @ mean).float()
