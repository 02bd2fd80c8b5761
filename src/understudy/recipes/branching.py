"""How the columns of parties stand in the branches of one generator."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.data.encode import blocks
from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.nets.branches import BranchedNet
from understudy.parties import Parties
from understudy.recipes.options import VertiGANOptions

__all__ = ["generator", "layouts", "places"]

Key = tuple[str, str]  # a column and the kind of its block; the label has no name


def layouts(parties: Parties, bins: int) -> tuple[OneHot, ...]:
    """Each party's columns, the label among them, as yes-or-no features."""
    return tuple(OneHot.of(parties.schema_of(i), bins) for i in range(len(parties)))


def generator(parties: Parties, own: VertiGANOptions) -> BranchedNet:
    """The public net: a branch for each party."""
    held = layouts(parties, own.bins)
    groups = tuple(width for layout in held for width in _groups(layout))
    outputs = tuple(layout.width for layout in held)
    return BranchedNet(own.latent, own.widths, own.hidden, outputs, groups)


def _groups(layout: OneHot) -> tuple[int, ...]:
    label = (layout.label,) if layout.label else ()
    return (*(group.width for group in layout.groups), *label)


def places(parties: Parties, held: Sequence[OneHot], whole: OneHot) -> list[int]:
    """For every output of the whole table's layout, which output of the branches it is.

    A column that several parties hold is taken from the first.
    """
    known: dict[Key, range] = {}
    start = 0
    for party, layout in enumerate(held):
        for key, place in _columns(parties.schema_of(party), layout).items():
            known.setdefault(key, range(start + place.start, start + place.stop))
        start += layout.width
    return [at for key in _columns(parties.schema, whole) for at in known[key]]


def _columns(schema: Schema, layout: OneHot) -> dict[Key, range]:
    """Where each column, missing flag and label stands among a layout's outputs."""
    found, start = {}, 0
    for block, group in zip(blocks(schema), layout.groups, strict=True):
        found[block.column, block.kind] = range(start, start + group.width)
        start += group.width
    if layout.label:
        found["", "label"] = range(start, start + layout.label)
    return found
