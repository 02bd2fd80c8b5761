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

Kernel = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """A convolution with batch norm and relu; padded to keep the size if ``same``."""

    name: str
    filters: int
    kernel: Kernel = (1, 1)
    stride: int = 1
    same: bool = True

    @property
    def padding(self) -> Kernel:
        height, width = self.kernel
        return (height // 2, width // 2) if self.same else (0, 0)


@dataclass(frozen=True)
class Branch:
    """A pool (if named), a chain of layers, and at the end layers side by side (if any)."""

    chain: tuple[Layer, ...] = ()
    fork: tuple[Layer, ...] = ()
    pool: str = ""


Block = tuple[Branch, ...]
"""Branches that see the same maps and whose maps are stacked."""

_POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "mean": lambda x: functional.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False),
    "max": lambda x: functional.max_pool2d(x, 3, 1, padding=1),
    "halve": lambda x: functional.max_pool2d(x, 3, 2),
}


def _named(block: str, *layers: tuple[str, int, Kernel]) -> tuple[Layer, ...]:
    return tuple(Layer(f"{block}.branch{name}", n, kernel) for name, n, kernel in layers)


def _halving(layer: Layer) -> Layer:
    return Layer(layer.name, layer.filters, layer.kernel, stride=2, same=False)


def _small(name: str, pooled: int) -> Block:
    """Maps of side 35: one 5x5 or two 3x3 (the paper's figure 5)."""
    return (
        Branch(_named(name, ("1x1", 64, (1, 1)))),
        Branch(_named(name, ("5x5_1", 48, (1, 1)), ("5x5_2", 64, (5, 5)))),
        Branch(_named(name, *_double(64, 96))),
        Branch(_named(name, ("_pool", pooled, (1, 1))), pool="mean"),
    )


def _double(first: int, then: int) -> tuple[tuple[str, int, Kernel], ...]:
    both = tuple((f"3x3dbl_{i}", then, (3, 3)) for i in (2, 3))
    return (("3x3dbl_1", first, (1, 1)), *both)


def _to_17(name: str) -> Block:
    """From side 35 to side 17."""
    (single,) = _named(name, ("3x3", 384, (3, 3)))
    *chain, last = _named(name, *_double(64, 96))
    return Branch((_halving(single),)), Branch((*chain, _halving(last))), Branch(pool="halve")


def _middle(name: str, n: int) -> Block:
    """Maps of side 17: 7x7 cut into rows and columns (figure 6)."""
    row, column = (1, 7), (7, 1)
    single = (("7x7_1", n, (1, 1)), ("7x7_2", n, row), ("7x7_3", 192, column))
    kernels = ((1, 1), column, row, column, row)
    double = tuple((f"7x7dbl_{i + 1}", 192 if i == 4 else n, k) for i, k in enumerate(kernels))
    return (
        Branch(_named(name, ("1x1", 192, (1, 1)))),
        Branch(_named(name, *single)),
        Branch(_named(name, *double)),
        Branch(_named(name, ("_pool", 192, (1, 1))), pool="mean"),
    )


def _to_8(name: str) -> Block:
    """From side 17 to side 8."""
    first, last = _named(name, ("3x3_1", 192, (1, 1)), ("3x3_2", 320, (3, 3)))
    kernels = ((1, 1), (1, 7), (7, 1), (3, 3))
    *chain, end = _named(name, *((f"7x7x3_{i + 1}", 192, k) for i, k in enumerate(kernels)))
    return Branch((first, _halving(last))), Branch((*chain, _halving(end))), Branch(pool="halve")


def _large(name: str, pool: str) -> Block:
    """Maps of side 8: 3x3 cut into rows and columns side by side (figure 7)."""
    row, column = (1, 3), (3, 1)
    single, double = (
        _named(name, (f"{stem}a", 384, row), (f"{stem}b", 384, column))
        for stem in ("3x3_2", "3x3dbl_3")
    )
    return (
        Branch(_named(name, ("1x1", 320, (1, 1)))),
        Branch(_named(name, ("3x3_1", 384, (1, 1))), single),
        Branch(_named(name, ("3x3dbl_1", 448, (1, 1)), ("3x3dbl_2", 384, (3, 3))), double),
        Branch(_named(name, ("_pool", 192, (1, 1))), pool=pool),
    )


_STEM = (
    Layer("Conv2d_1a_3x3", 32, (3, 3), stride=2, same=False),
    Layer("Conv2d_2a_3x3", 32, (3, 3), same=False),
    Layer("Conv2d_2b_3x3", 64, (3, 3)),
)
_THEN = (Layer("Conv2d_3b_1x1", 80), Layer("Conv2d_4a_3x3", 192, (3, 3), same=False))
NETWORK: tuple[Block, ...] = (
    (Branch(_STEM),),
    (Branch(_THEN, pool="halve"),),
    (Branch(pool="halve"),),
    _small("Mixed_5b", 32),
    _small("Mixed_5c", 64),
    _small("Mixed_5d", 64),
    _to_17("Mixed_6a"),
    *(_middle(f"Mixed_6{x}", n) for x, n in zip("bcde", (128, 160, 160, 192), strict=True)),
    _to_8("Mixed_7a"),
    _large("Mixed_7b", "mean"),
    _large("Mixed_7c", "max"),
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

    def _branch(self, branch: Branch, x: Tensor) -> Tensor:
        x = _POOLS[branch.pool](x)
        for layer in branch.chain:
            x = self._layer(layer, x)
        return torch.cat([self._layer(f, x) for f in branch.fork], 1) if branch.fork else x

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
    layers = {name: _folded(found, name) for name, _, _ in _walk()}
    return Inception(layers, hashlib.sha256(data).hexdigest())


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of the public file, by name."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (CLASSES, FEATURES),
        "fc.bias": (CLASSES,),
    }
    for name, layer, depth in _walk():
        shapes[f"{name}.conv.weight"] = (layer.filters, depth, *layer.kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.bn.{part}"] = (layer.filters,)
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


def _walk() -> Iterator[tuple[str, Layer, int]]:
    """Each layer with the number of maps it sees."""
    depth = 3
    for block in NETWORK:
        out = 0
        for branch in block:
            width = depth
            for layer in branch.chain:
                yield layer.name, layer, width
                width = layer.filters
            yield from ((layer.name, layer, width) for layer in branch.fork)
            out += sum(layer.filters for layer in branch.fork) or width
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
