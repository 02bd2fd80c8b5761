"""The Inception-v3 of the Fréchet Inception Distance, with weights that the user supplies.

FID is defined by one network with one set of weights (Heusel et al. 2017): the Inception-v3 of
2015-12-05, which differs from others of that name (Szegedy et al. 2016). Images are stretched to
299x299 (bilinear) and scaled to [-1, 1]; average pools do not count padding; the last block pools
by maximum; the features are the 2048 means of the last maps. Parameters bear the names of the
public PyTorch port (pytorch-fid's ``pt_inception``), so that its file, saved as safetensors, can
be read; nothing is ever unpickled. Batch norms are folded into the convolutions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.schema import Schema
from understudy.errors import UnderstudyError

__all__ = ["FEATURES", "Inception", "expected_shapes", "inception_features", "load_inception"]

FEATURES, CLASSES, SIDE = 2048, 1008, 299
EPSILON = 1e-3  # of the batch norms
LARGEST = 500 * 2**20  # bytes; the real file has about 96 million

Block = tuple[str, ...]
"""Branches that see the same maps and whose maps are stacked.

A branch is steps in a row: a pool, or "name filters kernel" ("+": two side by side). Kernels are
padded to keep the size, unless marked "/2" (stride 2) or "!".
"""


def _small(pooled: int) -> Block:
    """Maps of side 35: one 5x5 or two 3x3 (the paper's figure 5)."""
    return (
        "1x1 64 1x1",
        "5x5_1 48 1x1, 5x5_2 64 5x5",
        "3x3dbl_1 64 1x1, 3x3dbl_2 96 3x3, 3x3dbl_3 96 3x3",
        f"mean, _pool {pooled} 1x1",
    )


def _middle(n: int) -> Block:
    """Maps of side 17: 7x7 cut into rows and columns (figure 6)."""
    return (
        "1x1 192 1x1",
        f"7x7_1 {n} 1x1, 7x7_2 {n} 1x7, 7x7_3 192 7x1",
        f"7x7dbl_1 {n} 1x1, 7x7dbl_2 {n} 7x1, 7x7dbl_3 {n} 1x7, 7x7dbl_4 {n} 7x1, 7x7dbl_5 192 1x7",
        "mean, _pool 192 1x1",
    )


def _large(pool: str) -> Block:
    """Maps of side 8: 3x3 cut into rows and columns side by side (figure 7)."""
    return (
        "1x1 320 1x1",
        "3x3_1 384 1x1, 3x3_2a 384 1x3 + 3x3_2b 384 3x1",
        "3x3dbl_1 448 1x1, 3x3dbl_2 384 3x3, 3x3dbl_3a 384 1x3 + 3x3dbl_3b 384 3x1",
        f"{pool}, _pool 192 1x1",
    )


_STEM = (
    "Conv2d_1a_3x3 32 3x3/2, Conv2d_2a_3x3 32 3x3!, Conv2d_2b_3x3 64 3x3, "
    "halve, Conv2d_3b_1x1 80 1x1, Conv2d_4a_3x3 192 3x3!, halve"
)
_TO_17 = ("3x3 384 3x3/2", "3x3dbl_1 64 1x1, 3x3dbl_2 96 3x3, 3x3dbl_3 96 3x3/2", "halve")
_TO_8 = (
    "3x3_1 192 1x1, 3x3_2 320 3x3/2",
    "7x7x3_1 192 1x1, 7x7x3_2 192 1x7, 7x7x3_3 192 7x1, 7x7x3_4 192 3x3/2",
    "halve",
)
_BLOCKS: dict[str, Block] = {
    "": (_STEM,),
    "Mixed_5b.branch": _small(32),
    "Mixed_5c.branch": _small(64),
    "Mixed_5d.branch": _small(64),
    "Mixed_6a.branch": _TO_17,
    "Mixed_6b.branch": _middle(128),
    "Mixed_6c.branch": _middle(160),
    "Mixed_6d.branch": _middle(160),
    "Mixed_6e.branch": _middle(192),
    "Mixed_7a.branch": _TO_8,
    "Mixed_7b.branch": _large("mean"),
    "Mixed_7c.branch": _large("max"),
}
_POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: functional.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False),
    "max": lambda x: functional.max_pool2d(x, 3, 1, padding=1),
    "halve": lambda x: functional.max_pool2d(x, 3, 2),
}


@dataclass(frozen=True)
class Layer:
    """A convolution with batch norm and relu."""

    name: str
    filters: int
    kernel: tuple[int, int]
    stride: int
    padding: tuple[int, int]


Step = str | tuple[Layer, ...]
"""A pool, or layers side by side."""


def _layer(block: str, text: str) -> Layer:
    name, filters, kernel = text.split()
    size, ending = (int(kernel[0]), int(kernel[2])), kernel[3:]
    padding = (0, 0) if ending else (size[0] // 2, size[1] // 2)
    return Layer(block + name, int(filters), size, 2 if ending == "/2" else 1, padding)


def _step(block: str, text: str) -> Step:
    return text if text in _POOLS else tuple(_layer(block, one) for one in text.split(" + "))


NETWORK: tuple[tuple[tuple[Step, ...], ...], ...] = tuple(
    tuple(tuple(_step(name, text) for text in branch.split(", ")) for branch in block)
    for name, block in _BLOCKS.items()
)


@dataclass(frozen=True)
class Inception:
    """Folded weights by layer, and the hash of the file they came from."""

    layers: Mapping[str, tuple[Tensor, Tensor]]
    sha256: str

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Features ``[n, 2048]`` of images ``[n, 3, H, W]`` in [0, 1]."""
        size = (SIDE, SIDE)
        x = 2 * functional.interpolate(images, size, mode="bilinear", align_corners=False) - 1
        x = x.contiguous(memory_format=torch.channels_last)
        for block in NETWORK:
            x = torch.cat([self._branch(branch, x) for branch in block], 1)
        return x.mean((2, 3))

    def _branch(self, branch: tuple[Step, ...], x: Tensor) -> Tensor:
        for step in branch:
            if isinstance(step, str):
                x = _POOLS[step](x)
            else:
                x = torch.cat([self._layer(layer, x) for layer in step], 1)
        return x

    def _layer(self, layer: Layer, x: Tensor) -> Tensor:
        weight, bias = self.layers[layer.name]
        return functional.conv2d(x, weight, bias, layer.stride, layer.padding).relu_()


def load_inception(path: str | Path) -> Inception:
    """Read a safetensors file and refuse it unless it holds exactly this network."""
    data = _read(Path(path))
    try:
        found = safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError):
        raise _refused("it is not a safetensors file") from None
    _compare({name: tuple(value.shape) for name, value in found.items()})
    if not all(bool(v.isfinite().all()) for v in found.values()):
        raise _refused("some weights are not finite")
    layers = {layer.name: _folded(found, layer.name) for layer, _ in _walk()}
    return Inception(layers, hashlib.sha256(data).hexdigest())


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of the public file, by name."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (CLASSES, FEATURES),
        "fc.bias": (CLASSES,),
    }
    for layer, depth in _walk():
        shapes[f"{layer.name}.conv.weight"] = (layer.filters, depth, *layer.kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{layer.name}.bn.{part}"] = (layer.filters,)
    return shapes


def inception_features(
    network: Inception,
    schema: Schema,
    x: np.ndarray,
    *,
    tick: Callable[[int, int], None],
    chunk: int = 32,
) -> np.ndarray:
    """Features ``[n, 2048]`` of encoded rows ``[n, F]``; grey is repeated to three channels."""
    height, width, *rest = schema.shape
    found = np.empty((len(x), FEATURES))
    for start in range(0, len(x), chunk):
        rows = torch.from_numpy(np.ascontiguousarray(x[start : start + chunk], np.float32))
        images = rows.reshape(len(rows), height, width, *(rest or (1,))).permute(0, 3, 1, 2)
        found[start : start + chunk] = network(images.expand(-1, 3, -1, -1)).numpy()
        tick(start + len(rows), len(x))
    return found


def _walk() -> Iterator[tuple[Layer, int]]:
    """Each layer with the number of maps it sees."""
    depth = 3
    for block in NETWORK:
        out = 0
        for branch in block:
            width = depth
            for step in branch:
                if not isinstance(step, str):
                    yield from ((layer, width) for layer in step)
                    width = sum(layer.filters for layer in step)
            out += width
        depth = out


def _folded(found: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Convolution and batch norm as one convolution with a bias."""
    norm = {p: found[f"{name}.bn.{p}"].double() for p in ("weight", "bias")}
    mean, var = (found[f"{name}.bn.running_{p}"].double() for p in ("mean", "var"))
    scale = norm["weight"] / torch.sqrt(var + EPSILON)
    weight = found[f"{name}.conv.weight"].double() * scale[:, None, None, None]
    whole = weight.float().contiguous(memory_format=torch.channels_last)
    return whole, (norm["bias"] - mean * scale).float()


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise _refused(f"it has more than {LARGEST >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise _refused(f"{path.name}: {error.strerror}") from None


def _compare(found: Mapping[str, tuple[int, ...]]) -> None:
    """Counters of the batch norms may be there: they are not used."""
    expected = expected_shapes()
    shapes = {n: s for n, s in found.items() if not n.endswith(".bn.num_batches_tracked")}
    missing, extra = expected.keys() - shapes.keys(), shapes.keys() - expected.keys()
    wrong = [n for n in expected.keys() & shapes.keys() if expected[n] != shapes[n]]
    for what, names in (("missing", missing), ("unknown", extra), ("of another shape", wrong)):
        if names:
            raise _refused(f"{len(names)} tensors are {what}, such as {min(names)[:80]}")


def _refused(found: str) -> UnderstudyError:
    return UnderstudyError(
        "the FID weights of Inception-v3 as a safetensors file",
        found,
        "convert pytorch-fid's pt_inception file as docs/evaluation.md shows",
    )
