"""A generator: named arrays plus a plain description, and nothing executable.

What a recipe's ``finish`` returns and a release holds. The kinds are a literal table:
loading a release can only choose among them, never import something by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.cells import truths
from understudy.data.names import nearest
from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.release import branches, mixture, network, onehot, products
from understudy.rng import Streams

__all__ = ["KINDS", "Generator", "class_of"]

CONDITIONAL: dict[str, ModuleType] = {
    **mixture.PARTS,
    "mixture": mixture,
    "network": network,
    "products": products,
}
JOINT: dict[str, ModuleType] = {"branches": branches, "onehot": onehot}
KINDS = CONDITIONAL | JOINT  # each module has `draw`, and `check` for what a release says of it

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
        return {"kind": self.kind, "config": self.config, "balance": list(self.balance)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], arrays: dict[str, Tensor]) -> Generator:
        """The inverse, with the arrays from their own file."""
        return cls(described["kind"], arrays, described["config"], tuple(described["balance"]))

    def fits(self, schema: Schema) -> bool:
        """Whether its rows and classes are this schema's, and it holds nothing else."""
        sizes = (self.config["width"], len(self.balance)) == (schema.width, schema.n_classes)
        whole = all(value.dtype == torch.float32 for value in self.arrays.values())
        check = KINDS[self.kind].check
        return sizes and whole and check(self.arrays, self.config, schema.n_classes)

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
        draw = JOINT[self.kind].draw
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
        draw = CONDITIONAL[self.kind].draw
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
