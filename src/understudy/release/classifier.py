"""A classifier: named arrays plus a plain description, and nothing executable.

What a recipe's ``finish`` returns when it learns to tell classes apart (SignDS-FL, thesis
ch. 3) instead of making rows. The kinds are a literal table, as those of generators are:
loading a release can only choose among them. The arrays are one client's parameters by
the names of `nets.layers`; a shape that the description does not lead to is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.nets import layers
from understudy.nets.layers import Dense, Net

__all__ = ["KINDS", "Classifier"]

_ROWS, _VALUES = 4096, 1 << 22  # rows, and encoded values, that go through a net at once


def _linear(config: Mapping[str, Any]) -> Net:
    """Logistic (softmax) regression."""
    return (Dense(config["width"], config["classes"], "linear"),)


def _mlp(config: Mapping[str, Any]) -> Net:
    """Dense layers of the given widths with relu between them."""
    sizes = list(pairwise((config["width"], *config["widths"], config["classes"])))
    return (*(Dense(a, b) for a, b in sizes[:-1]), Dense(*sizes[-1], "linear"))


@dataclass(frozen=True)
class Kind:
    """How to build one kind of net, and the sizes that its description must give."""

    build: Callable[[Mapping[str, Any]], Net]
    sizes: frozenset[str] = frozenset()  # besides width and classes


KINDS: dict[str, Kind] = {
    "linear": Kind(_linear),
    "mlp": Kind(_mlp, frozenset({"widths"})),
}


@dataclass(frozen=True)
class Classifier:
    """``kind`` names a net, ``config`` its public sizes, ``arrays`` its parameters.

    ``config`` has ``width`` (encoded features F) and ``classes`` (K); "mlp" also ``widths``,
    the hidden layers; "lenet" also ``shape``, the image's. Arrays are those of one client,
    without the client axis.
    """

    kind: str
    arrays: dict[str, Tensor]
    config: dict[str, Any]

    role: ClassVar[str] = "classifier"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ReleaseError(f"a classifier kind of {sorted(KINDS)}", repr(self.kind), "update")
        found = {name: tuple(value.shape) for name, value in self.arrays.items()}
        if found != layers.shapes(self.net):
            raise ReleaseError(
                f"the parameters of the {self.kind} net described", "others", "fetch it again"
            )
        for name, value in self.arrays.items():
            if value.dtype != torch.float32 or not bool(torch.isfinite(value).all()):
                raise ReleaseError(f"finite 32-bit numbers in {name!r}", "others", "train again")

    @cached_property
    def net(self) -> Net:
        """The net that the description leads to."""
        _check_sizes(self.config, KINDS[self.kind])
        return KINDS[self.kind].build(self.config)

    def to_dict(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"kind": self.kind, "config": self.config}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], arrays: dict[str, Tensor]) -> Classifier:
        """The inverse, with the arrays from their own file."""
        return cls(described["kind"], arrays, described["config"])

    def fits(self, schema: Schema) -> bool:
        """Whether it takes this schema's rows and tells its classes apart."""
        shape = tuple(self.config.get("shape", schema.shape))
        found = (self.config["width"], self.config["classes"], shape)
        return found == (schema.width, schema.n_classes, schema.shape)

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """What the net makes of encoded rows: ``[n, F] → [n, K]``, each row sums to 1."""
        one = {name: value.unsqueeze(0) for name, value in self.arrays.items()}
        if x.ndim != 2 or x.shape[1] != self.config["width"]:
            raise ReleaseError(
                f"rows of {self.config['width']} encoded features",
                f"shape {list(x.shape)}",
                "encode them by the release's schema",
            )
        size = max(1, min(_ROWS, _VALUES // self.config["width"]))
        parts = [layers.apply(self.net, one, part[None])[0].softmax(1) for part in x.split(size)]
        return _checked(torch.cat(parts))


def _check_sizes(config: Mapping[str, Any], kind: Kind) -> None:
    """Refuse a description that only an altered release has."""
    try:
        sizes = [
            config["width"],
            config["classes"],
            *(n for key in kind.sizes for n in config[key]),
        ]
        fits = config.keys() == {"width", "classes"} | kind.sizes
        fits = fits and all(type(n) is int and n > 0 for n in sizes) and config["classes"] > 1
    except (KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise ReleaseError(
            "the sizes of a net, all above 0, and two classes or more", "others", "fetch it again"
        )


def _checked(probability: Tensor) -> Tensor:
    """Parameters may be finite and yet too large to compute with."""
    if not bool(torch.isfinite(probability).all()):
        raise ReleaseError("finite probabilities", "others", "do not trust this classifier")
    return probability
