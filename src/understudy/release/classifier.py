"""A classifier: named arrays plus a plain description, and nothing executable.

What a recipe's ``finish`` returns when it learns to tell classes apart (SignDS-FL, thesis
ch. 3) instead of making rows. The kinds are those of `nets.classifier`, a literal list, so
loading a release can only choose among them. The arrays are one client's parameters by the
names of `nets.layers`; shapes that the description does not lead to are refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, get_args, get_type_hints

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.nets import layers
from understudy.nets.classifier import ClassifierNet, logits

__all__ = ["KINDS", "Classifier"]

KINDS: tuple[str, ...] = get_args(get_type_hints(ClassifierNet)["kind"])  # linear, mlp, lenet

_ROWS, _VALUES = 4096, 1 << 16  # rows and values that go through a net at once: fit a cache


@dataclass(frozen=True)
class Classifier:
    """``kind`` names a net, ``config`` holds its public sizes, ``arrays`` its parameters.

    ``config`` is `ClassifierNet.to_config` without the kind: ``features`` (F), ``classes`` (K),
    ``widths``, ``shape``, ``standardised`` and ``strokes``. Arrays are 32-bit, without the client
    axis. `Classifier.of` makes one from a net and its flat parameters.
    """

    kind: str
    arrays: dict[str, Tensor]
    config: dict[str, Any]

    role: ClassVar[str] = "classifier"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ReleaseError(f"a classifier kind of {list(KINDS)}", repr(self.kind), "update")
        _check_sizes(self.config)
        found = {name: tuple(value.shape) for name, value in self.arrays.items()}
        if found != layers.shapes(self.net.net):
            raise ReleaseError(
                f"the parameters of the {self.kind} net described", "others", "fetch it again"
            )
        for name, value in self.arrays.items():
            if value.dtype != torch.float32 or not bool(torch.isfinite(value).all()):
                raise ReleaseError(f"finite 32-bit numbers in {name!r}", "others", "train again")

    @classmethod
    def of(cls, net: ClassifierNet, flat: Tensor) -> Classifier:
        """From parameters ``[P]`` in the order of `layers.flatten`."""
        named = layers.unflatten(net.net, flat.float().unsqueeze(0))
        arrays = {name: value[0].clone() for name, value in named.items()}
        return cls(net.kind, arrays, _sizes(net))

    @cached_property
    def net(self) -> ClassifierNet:
        return ClassifierNet.from_config({**self.config, "kind": self.kind})

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "config": _sizes(self.net)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], arrays: dict[str, Tensor]) -> Classifier:
        """The inverse, with the arrays from their own file."""
        return cls(described["kind"], arrays, described["config"])

    def fits(self, schema: Schema) -> bool:
        """Whether it takes this schema's rows and tells its classes apart."""
        sizes = (self.net.features, self.net.classes) == (schema.width, schema.n_classes)
        plain = not (self.net.standardised or self.net.strokes)  # for images
        return sizes and self.net.shape in ((), schema.shape) and (plain or schema.kind == "image")

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """What the net makes of encoded rows: ``[n, F] → [n, K]``, each row sums to 1."""
        if x.ndim != 2 or x.shape[1] != self.net.features:
            raise ReleaseError(
                f"rows of {self.net.features} encoded features",
                f"shape {list(x.shape)}",
                "encode them by the release's schema",
            )
        one = {name: value.unsqueeze(0) for name, value in self.arrays.items()}
        size = max(1, min(_ROWS, _VALUES // self.net.features))
        parts = [logits(self.net, one, part[None])[0] for part in x.split(size) if len(part)]
        return _checked(torch.cat([torch.zeros(0, self.net.classes), *parts]).softmax(1))


def _sizes(net: ClassifierNet) -> dict[str, Any]:
    """A net's description without its kind: all of it, whatever a release leaves out."""
    return {key: value for key, value in net.to_config().items() if key != "kind"}


def _check_sizes(config: Mapping[str, Any]) -> None:
    """Refuse a description that only an altered release has."""
    try:
        lists = [config["widths"], config["shape"]]
        sizes = [config["features"], config["classes"], *itertools.chain(*lists)]
        fits = all(type(size) is int and size > 0 for size in sizes) and config["classes"] > 1
        fits = fits and all(type(found) is list for found in lists)
        fits = fits and all(type(config[n]) is bool for n in ("standardised", "strokes"))
    except (AttributeError, KeyError, TypeError):
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
