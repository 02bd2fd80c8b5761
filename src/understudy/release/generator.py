"""A generator: named arrays plus a plain description, and nothing executable.

What a recipe's ``finish`` returns and a release holds. The kinds are a literal table:
loading a release can only choose among them, never import something by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.cells import truths
from understudy.data.names import nearest
from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.release import branches, copula, decoder, gan, gaussian, network, onehot, products
from understudy.rng import Streams

__all__ = ["KINDS", "Generator", "class_of"]

Draw = Callable[..., Tensor]
Check = Callable[[Mapping[str, Tensor], Mapping[str, Any], int], bool]

_SINGLE: dict[str, Draw] = {
    "decoder": decoder.draw,
    "gan": gan.draw,
    "gaussian": gaussian.draw,
    "copula": copula.draw,
}


_SINGLE_CHECKS: dict[str, Check] = {
    "decoder": decoder.check,
    "gan": gan.check,
    "gaussian": gaussian.check,
    "copula": copula.check,
}


def _draw_mixture(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Each row from one of two generators, by their public shares."""
    _check_parts(config)
    shares = np.array([part["share"] for part in config["parts"]], float)
    chosen = torch.from_numpy(rng.numpy("part").choice(len(shares), len(labels), p=shares))
    rows = torch.empty(len(labels), config["width"])
    for i, part in enumerate(config["parts"]):
        draw, mine = _SINGLE[part["kind"]], chosen == i
        own = _own(arrays, i)
        rows[mine] = draw(own, part["config"], labels[mine], rng=rng.child("part", i))
    return rows


def _own(arrays: Mapping[str, Tensor], part: int) -> dict[str, Tensor]:
    """The arrays of one part of a mixture."""
    start = f"{part}."
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


def _check_mixture(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether both parts are generators of these classes, and there is nothing else."""
    _check_parts(config)
    parts = dict(enumerate(config["parts"]))
    named = {f"{i}.{name}" for i in parts for name in _own(arrays, i)}
    fits = config.keys() == {"width", "parts"} and arrays.keys() == named
    for i, part in parts.items():
        fits = fits and part.keys() == {"kind", "config", "share"}
        fits = fits and part["config"]["width"] == config["width"]
        fits = fits and _SINGLE_CHECKS[part["kind"]](_own(arrays, i), part["config"], classes)
    return fits


def _check_parts(config: Mapping[str, Any]) -> None:
    """Refuse a description that only an altered release has."""
    try:
        shares = [float(part["share"]) for part in config["parts"]]
        fits = min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6
        fits = fits and all(part["kind"] in _SINGLE and part["config"] for part in config["parts"])
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ReleaseError("generators and shares that add up to 1", "others", "fetch it again")


CONDITIONAL: dict[str, Draw] = {
    **_SINGLE,
    "mixture": _draw_mixture,
    "network": network.draw,
    "products": products.draw,
}
JOINT: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "branches": branches.draw,
    "onehot": onehot.draw,
}
_CHECKS = {
    **_SINGLE_CHECKS,
    "branches": branches.check,
    "mixture": _check_mixture,
    "network": network.check,
    "onehot": onehot.check,
    "products": products.check,
}
KINDS = frozenset(CONDITIONAL) | frozenset(JOINT)

_ROWS = 4096  # rows drawn at once: the unit of reproducible streaming


@dataclass(frozen=True)
class Generator:
    """``kind`` names a sampler, ``arrays`` and ``config`` are what it needs.

    Kinds of `CONDITIONAL` draw rows of given classes, by default in the proportions ``balance``;
    those of `JOINT` draw rows and classes together, in the proportions that they learnt.
    """

    kind: str
    arrays: dict[str, Tensor]
    config: dict[str, Any]
    balance: tuple[float, ...]

    role: ClassVar[str] = "generator"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ReleaseError(
                f"a generator kind of {sorted(KINDS)}", repr(self.kind), "update Understudy"
            )
        for name, value in self.arrays.items():
            if not bool(torch.isfinite(value).all()):
                raise ReleaseError(f"finite numbers in {name!r}", "NaN or infinity", "train again")
        total = sum(self.balance)
        if not self.balance or min(self.balance) < 0 or not abs(total - 1) < 1e-6:
            raise ReleaseError("class proportions that add up to 1", f"{total:g}", "train again")

    def to_dict(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"kind": self.kind, "config": self.config, "balance": list(self.balance)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], arrays: dict[str, Tensor]) -> Generator:
        """The inverse, with the arrays from their own file."""
        return cls(described["kind"], arrays, described["config"], tuple(described["balance"]))

    def fits(self, schema: Schema) -> bool:
        """Whether its rows and classes are this schema's, and it holds nothing else."""
        sizes = (self.config["width"], len(self.balance)) == (schema.width, schema.n_classes)
        whole = all(value.dtype == torch.float32 for value in self.arrays.values())
        return sizes and whole and _CHECKS[self.kind](self.arrays, self.config, schema.n_classes)

    def mixed(self, other: Generator, share: float) -> Generator:
        """Draws from ``other`` with probability ``share``; classes in this one's proportions."""
        pair = ((self, 1 - share), (other, share))
        arrays = {f"{i}.{n}": a for i, (g, _) in enumerate(pair) for n, a in g.arrays.items()}
        parts = [{"kind": g.kind, "config": g.config, "share": s} for g, s in pair]
        config = {"width": self.config["width"], "parts": parts}
        return Generator("mixture", arrays, config, self.balance)

    @property
    def conditional(self) -> bool:
        """Whether it draws any class that is asked for."""
        return self.kind in CONDITIONAL

    def rows(self, n: int, label: int | None = None, *, rng: Streams) -> tuple[Tensor, Tensor]:
        """``n`` encoded rows ``[n, F]`` and their classes ``[n]``, all of one if it is given."""
        if self.conditional:
            labels = self._labels(n, label, rng)
            return self.sample(labels, rng=rng), torch.from_numpy(labels)
        draw = JOINT[self.kind]
        chunks = [
            draw(self.arrays, self.config, min(_ROWS, n - i), label, rng=rng.child("rows", i))
            for i in range(0, n, _ROWS)
        ]
        empty = (torch.zeros(0, self.config["width"]), torch.zeros(0, dtype=torch.long))
        x, y = (torch.cat(side) for side in zip(empty, *chunks, strict=True))
        return x.clamp_(0, 1), y

    def sample(self, labels: np.ndarray, *, rng: Streams) -> Tensor:
        """Encoded rows ``[n, F]`` in [0, 1] for the given class indices."""
        y = torch.as_tensor(labels, dtype=torch.long)
        draw = CONDITIONAL[self.kind]
        chunks = [
            draw(self.arrays, self.config, y[i : i + _ROWS], rng=rng.child("rows", i))
            for i in range(0, len(y), _ROWS)
        ]
        return torch.cat(chunks).clamp_(0, 1) if chunks else torch.zeros(0, self.config["width"])

    def _labels(self, n: int, label: int | None, rng: Streams) -> np.ndarray:
        """All of one class, or in the generator's proportions."""
        if label is not None:
            return np.full(n, label, np.int64)
        shares = np.array(self.balance) / sum(self.balance)
        return rng.numpy("labels").choice(len(shares), n, p=shares)


def class_of(label: str | int | None, schema: Schema) -> int | None:
    """The index of a class that was asked for by name; a number stands for its digits.

    A boolean label may be written as in files: true, True, yes or 1.
    """
    if label is None:
        return None
    name = str(label)
    column = schema.label_column
    if column is not None and column.kind == "boolean" and name.casefold() in truths(column):
        return int(truths(column)[name.casefold()])
    if name in schema.classes:
        return schema.classes.index(name)
    if schema.task == "regression":
        raise ReleaseError(
            "no label: the schema's label is a number, not a class",
            repr(label),
            "leave it out, and pick the rows you want from the sample",
        )
    if schema.classes == ("all",):
        raise ReleaseError("no label: the schema has none", repr(label), "leave the label out")
    known = ", ".join(schema.classes[:20]) + (", …" if schema.n_classes > 20 else "")
    near = nearest(name, schema.classes) or nearest(name.lower(), schema.classes)
    raise ReleaseError(f"a label among {known}", repr(label), f"choose one of these{near}")
