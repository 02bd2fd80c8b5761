"""A table as yes-or-no features, label included, and back.

DP-Fed-WAE learns one-hot rows (Jiang 2023 §4.4.1): a categorical column is one-hot already, a
number becomes a one-hot of public bins between its bounds, and the label is one more column, so
that class proportions are learnt like everything else. Only pixels of images stay numbers. The
layout follows from the public schema alone and is plain JSON, so a release carries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.errors import ReleaseError

__all__ = ["Group", "OneHot", "pick"]

_LEAST = 1e-9  # of a chance, so that a draw is always possible
_ALONE = ("flag", "grey")  # one output each
_COPIED = (*_ALONE, "onehot")  # features that are outputs as they stand

Kind = Literal["flag", "onehot", "levels", "bins", "grey"]


@dataclass(frozen=True)
class Group:
    """``width`` outputs that say what stands in features ``source:source+taken``.

    A "flag" is one yes-or-no; "onehot" copies a categorical block; "levels" are the values of
    an integer of small span; "bins" cut [0, 1] evenly; a "grey" is a pixel as it stands, no chance.
    """

    kind: Kind
    source: int
    taken: int
    width: int


@dataclass(frozen=True)
class OneHot:
    """The layout: groups one after the other, then the classes (if there are several).

    One value of a group is drawn in proportion to the chances of all, or with ``odds`` to
    chance/(1 − chance): a common value then comes up as soon as its own output says so, while with
    chances all others have to fall to nothing.
    """

    groups: tuple[Group, ...]
    features: int
    classes: int
    odds: bool = False

    @classmethod
    def of(cls, schema: Schema, bins: int) -> OneHot:
        """The layout of a table; numbers get ``bins`` bins."""
        spans = {
            c.name: int(c.high) - int(c.low)  # type: ignore[arg-type]
            for c in schema.features
            if c.kind == "integer" and c.scale == "linear"
        }
        pixels = {name for image in schema.images for name in image.pixels}
        groups = []
        for block in blocks(schema):
            taken = block.stop - block.start
            if block.column in pixels:
                groups.append(Group("grey", block.start, 1, 1))
            elif block.kind in ("boolean", "missing"):
                groups.append(Group("flag", block.start, 1, 1))
            elif block.kind == "categorical":
                groups.append(Group("onehot", block.start, taken, taken))
            elif spans.get(block.column, bins) < bins:
                groups.append(Group("levels", block.start, 1, spans[block.column] + 1))
            else:
                groups.append(Group("bins", block.start, 1, bins))
        return cls(tuple(groups), schema.width, schema.n_classes)

    @property
    def label(self) -> int:
        """Outputs of the label: none where there is one class."""
        return self.classes if self.classes > 1 else 0

    @property
    def width(self) -> int:
        """All outputs."""
        return sum(group.width for group in self.groups) + self.label

    @cached_property
    def _places(self) -> tuple[tuple[Group, int], ...]:
        """Each group with its first output."""
        found, start = [], 0
        for group in self.groups:
            found.append((group, start))
            start += group.width
        return tuple(found)

    @cached_property
    def _copied(self) -> tuple[Tensor, Tensor]:
        """Features that are outputs as they stand, and where."""
        whole = [(g, s) for g, s in self._places if g.kind in _COPIED]
        source = [g.source + i for g, _ in whole for i in range(g.width)]
        target = [s + i for g, s in whole for i in range(g.width)]
        return torch.tensor(source, dtype=torch.long), torch.tensor(target, dtype=torch.long)

    @cached_property
    def greys(self) -> Tensor:
        """Which outputs are pixels ``[width]``: values, where others are chances."""
        found = torch.zeros(self.width, dtype=torch.bool)
        found[[start for group, start in self._places if group.kind == "grey"]] = True
        return found

    def encode(self, x: Tensor, y: Tensor) -> Tensor:
        """Encoded rows ``[n, F]`` and classes ``[n]`` as yes-or-no features ``[n, width]``."""
        out = x.new_zeros(len(x), self.width)
        source, target = self._copied
        out[:, target] = x[:, source]
        for group, start in self._places:
            if group.kind in ("levels", "bins"):
                place = _place(x[:, group.source], group)
                out[torch.arange(len(x)), start + place] = 1.0
        if self.label:
            out[:, -self.label :] = functional.one_hot(y, self.label).to(x.dtype)
        return out

    def decode(self, chance: Tensor, *, drawn: bool, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows ``[n, F]`` and classes ``[n]`` from chances ``[n, width]``.

        The likeliest value of each group; with ``drawn``, one drawn by its chance. Numbers fall
        anywhere in their bin.
        """
        n = len(chance)
        level = torch.rand(n, self.width, generator=rng) if drawn else torch.full((1, 1), 0.5)
        settled = torch.where(self.greys, chance, (chance > level).to(chance.dtype))
        x = chance.new_zeros(n, self.features)
        source, target = self._copied
        x[:, source] = settled[:, target]
        if self.odds:
            chance = chance / (1 - chance).clamp(min=_LEAST)
        for group, start in self._places:
            if group.kind in _ALONE:
                continue
            picked = pick(chance[:, start : start + group.width], drawn, rng)
            if group.kind == "onehot":
                taken = slice(group.source, group.source + group.taken)
                x[:, taken] = functional.one_hot(picked, group.width).to(x.dtype)
            elif group.kind == "levels":
                x[:, group.source] = picked / (group.width - 1)
            else:
                x[:, group.source] = (picked + torch.rand(n, generator=rng)) / group.width
        if not self.label:
            return x, torch.zeros(n, dtype=torch.long)
        return x, pick(chance[:, -self.label :], drawn, rng)

    def draw(self, chance: Tensor, level: Tensor) -> Tensor:
        """Features ``[…, width]`` drawn by their chances, with uniform ``level […, width]``.

        Of a group, the value whose exponential waiting time is over first, at rates as its odds.
        """
        out = torch.where(self.greys, chance, (chance > level).to(chance.dtype))
        if self.odds:
            chance = chance / (1 - chance).clamp(min=_LEAST)
        waits = -torch.log(level) / chance.clamp(min=_LEAST)
        groups = [(start, g.width) for g, start in self._places if g.kind not in _ALONE]
        groups += [(self.width - self.label, self.label)] if self.label else []
        for start, width in groups:
            first = waits[..., start : start + width].argmin(dim=-1)
            out[..., start : start + width] = functional.one_hot(first, width).to(out.dtype)
        return out

    def uniform(self, n: int, *, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows that anyone can draw who knows the schema: every value as likely as any other."""
        return self.decode(torch.full((n, self.width), 0.5), drawn=True, rng=rng)

    def to_config(self) -> dict[str, Any]:
        """Plain JSON values."""
        groups = [list(asdict(group).values()) for group in self.groups]
        sizes = {"features": self.features, "classes": self.classes}
        return {"groups": groups, **sizes, "odds": self.odds}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> OneHot:
        """The inverse; what is no layout is refused."""
        try:
            groups = tuple(_group(fields) for fields in config["groups"])
            sizes = int(config["features"]), int(config["classes"])
            made = cls(groups, *sizes, bool(config["odds"]))
            end = max((g.source + g.taken for g in groups), default=0)
            fits = 1 <= made.classes and end <= made.features <= 2**24 and made.width <= 2**24
        except (KeyError, TypeError, ValueError):
            fits = False
        if not fits:
            raise ReleaseError("a layout of one-hot columns", "another", "fetch it again")
        return made


def _group(fields: Sequence[Any]) -> Group:
    kind, *sizes = fields
    group = Group(kind, *sizes)
    whole = kind in _COPIED
    least = {"flag": 1, "grey": 1, "onehot": 1, "levels": 2, "bins": 2}[kind]
    if any(type(n) is not int for n in sizes) or group.source < 0 or group.width < least:
        raise ValueError
    if group.taken != (group.width if whole else 1):
        raise ValueError
    return group


def _place(x: Tensor, group: Group) -> Tensor:
    """The output that stands for each number."""
    x = x.nan_to_num().clamp(0, 1)
    if group.kind == "levels":
        return (x * (group.width - 1)).round().long()
    return (x * group.width).long().clamp(max=group.width - 1)


def pick(chance: Tensor, drawn: bool, rng: torch.Generator) -> Tensor:
    """One of the values of each row, by its chance, or the likeliest."""
    if not drawn:
        return chance.argmax(dim=1)
    return torch.multinomial(chance.clamp(min=_LEAST), 1, generator=rng)[:, 0]
