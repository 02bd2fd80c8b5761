"""A generator: named arrays plus a plain description, and nothing executable.

What a recipe's ``finish`` returns and a release holds. The kinds are a literal table:
loading a release can only choose among them, never import something by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import ReleaseError
from understudy.release import decoder, gaussian
from understudy.rng import Streams

__all__ = ["KINDS", "Generator", "labels_for"]

Draw = Callable[..., Tensor]

KINDS: dict[str, Draw] = {"decoder": decoder.draw, "gaussian": gaussian.draw}

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

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ReleaseError(f"a generator kind of {sorted(KINDS)}", repr(self.kind), "update")
        for name, value in self.arrays.items():
            if not bool(torch.isfinite(value).all()):
                raise ReleaseError(f"finite numbers in {name!r}", "NaN or infinity", "train again")
        total = sum(self.balance)
        if not self.balance or min(self.balance) < 0 or not abs(total - 1) < 1e-6:
            raise ReleaseError("class proportions that add up to 1", f"{total:g}", "train again")

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
