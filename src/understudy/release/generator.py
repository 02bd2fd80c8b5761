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

from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.release import decoder, gaussian
from understudy.rng import Streams

__all__ = ["KINDS", "Generator", "labels_for"]

Draw = Callable[..., Tensor]

_SINGLE: dict[str, Draw] = {"decoder": decoder.draw, "gaussian": gaussian.draw}


def _draw_mixture(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Each row from one of two generators, by their public shares."""
    _check_parts(config)
    shares = np.array([part["share"] for part in config["parts"]], float)
    chosen = torch.from_numpy(rng.numpy("part").choice(len(shares), len(labels), p=shares))
    rows = torch.empty(len(labels), config["width"])
    for i, part in enumerate(config["parts"]):
        own = {n.removeprefix(f"{i}."): a for n, a in arrays.items() if n.startswith(f"{i}.")}
        draw, mine = _SINGLE[part["kind"]], chosen == i
        rows[mine] = draw(own, part["config"], labels[mine], rng=rng.child("part", i))
    return rows


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


KINDS: dict[str, Draw] = {**_SINGLE, "mixture": _draw_mixture}

_ROWS = 4096  # rows drawn at once: the unit of reproducible streaming


@dataclass(frozen=True)
class Generator:
    """``kind`` names a sampler, ``arrays`` and ``config`` are what it needs.

    ``balance`` are the class proportions to draw when no label is asked for.
    """

    kind: str
    arrays: dict[str, Tensor]
    config: dict[str, Any]
    balance: tuple[float, ...]

    role: ClassVar[str] = "generator"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ReleaseError(f"a generator kind of {sorted(KINDS)}", repr(self.kind), "update")
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
        """Whether its rows are this schema's, and its classes too."""
        return (int(self.config["width"]), len(self.balance)) == (schema.width, schema.n_classes)

    def mixed(self, other: Generator, share: float) -> Generator:
        """Draws from ``other`` with probability ``share``; classes in this one's proportions."""
        pair = ((self, 1 - share), (other, share))
        arrays = {f"{i}.{n}": a for i, (g, _) in enumerate(pair) for n, a in g.arrays.items()}
        parts = [{"kind": g.kind, "config": g.config, "share": s} for g, s in pair]
        config = {"width": self.config["width"], "parts": parts}
        return Generator("mixture", arrays, config, self.balance)

    def sample(self, labels: np.ndarray, *, rng: Streams) -> Tensor:
        """Encoded rows ``[n, F]`` in [0, 1] for the given class indices."""
        y = torch.as_tensor(labels, dtype=torch.long)
        chunks = [
            KINDS[self.kind](self.arrays, self.config, y[i : i + _ROWS], rng=rng.child("rows", i))
            for i in range(0, len(y), _ROWS)
        ]
        return torch.cat(chunks).clamp_(0, 1) if chunks else torch.zeros(0, self.config["width"])


def labels_for(
    n: int, schema: Schema, balance: tuple[float, ...], label: str | None, *, rng: Streams
) -> np.ndarray:
    """``n`` class indices: all of one class, or in the generator's proportions."""
    if label is not None:
        if label not in schema.classes:
            raise ReleaseError(
                f"a label of {list(schema.classes)[:20]}", repr(label), "choose one of these"
            )
        return np.full(n, schema.classes.index(label), np.int64)
    return rng.numpy("labels").choice(len(balance), n, p=np.array(balance) / sum(balance))
