"""The generator kind "network": a Bayesian network over the codes of columns, the label first.

To draw a row of a class, go through the columns in the order of the config's ``network``, each
entry of which is a column and then its parents (the label is one past the last column): take a
code by the chances of the parents' codes, a cell of the code by its share, and a value within the
cell. Arrays: ``chance`` holds the tables of the entries one after the other, each with a case for
every combination of the parents' codes; the others and ``columns`` are those of "products", with
one share for all ``classes``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from understudy.errors import ReleaseError
from understudy.release.products import Column, cell_of, drawn, emit, read_columns, spans
from understudy.rng import Streams

__all__ = ["check", "draw"]


def draw(
    arrays: Mapping[str, Tensor], config: Mapping[str, Any], labels: Tensor, *, rng: Streams
) -> Tensor:
    """Encoded rows ``[n, F]`` in [0, 1] for class indices ``[n]``."""
    columns = _columns(arrays, config)
    sizes = _sizes(columns, config)
    source, x = rng.torch("network"), torch.zeros(len(labels), config["width"])
    held: dict[int, Tensor] = {len(columns): labels}
    for j, parents, chance in _tables(arrays["chance"], config["network"], sizes):
        case = torch.zeros_like(labels)
        for parent in parents:
            case = case * sizes[parent] + held[parent]
        point = torch.rand(len(labels), generator=source, dtype=torch.float64)
        held[j] = drawn(chance[case].double(), point)
    everyone = torch.zeros_like(labels)
    for j, (column, _, cells) in enumerate(spans(columns)):
        cell = cell_of(column, arrays["share"][:, cells].double(), everyone, held[j], source)
        emit(column, arrays["low"][cells], arrays["high"][cells], cell, x, source)
    return x


def check(arrays: Mapping[str, Tensor], config: Mapping[str, Any], classes: int) -> bool:
    """Whether this is a network of these classes, and nothing else."""
    columns = _columns(arrays, config)
    whole = config.keys() == {"width", "columns", "network", "classes"}
    whole = whole and config["classes"] == classes
    return whole and [c.to_config() for c in columns] == config["columns"]


def _sizes(columns: Sequence[Column], config: Mapping[str, Any]) -> list[int]:
    """Codes of every column and of the label."""
    return [*(len(column.cells) for column in columns), config["classes"]]


def _tables(
    chance: Tensor, network: Sequence[Sequence[int]], sizes: Sequence[int]
) -> Iterator[tuple[int, Sequence[int], Tensor]]:
    """Each column, its parents and its chances ``[cases, codes]``."""
    start = 0
    for column, *parents in network:
        cases = math.prod(sizes[parent] for parent in parents)
        stop = start + cases * sizes[column]
        yield column, parents, chance[start:stop].reshape(cases, sizes[column])
        start = stop


def _columns(arrays: Mapping[str, Tensor], config: Mapping[str, Any]) -> list[Column]:
    """The columns, if arrays and config fit together; only an altered release's do not."""
    columns = read_columns(arrays, config, shares=1)
    try:
        network, classes = config["network"], config["classes"]
        fits = type(classes) is int and classes > 0 and _ordered(network, len(columns))
        fits = fits and arrays.keys() == {"chance", "share", "low", "high"}
        sizes, chance = _sizes(columns, config), arrays["chance"]
        wanted = sum(math.prod(sizes[j] for j in entry) for entry in network) if fits else 0
        fits = fits and chance.shape == (wanted,) and bool((chance >= 0).all())
        fits = fits and all(bool((t.sum(1) > 0).all()) for *_, t in _tables(chance, network, sizes))
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ReleaseError(
            "a network of these columns with its chances", "another", "fetch the release again"
        )
    return columns


def _ordered(network: Sequence[Sequence[int]], columns: int) -> bool:
    """Whether each column comes once, after its parents; the label is there from the start."""
    known = {columns}
    for column, *parents in network:
        whole = all(type(j) is int for j in (column, *parents))
        if not whole or column in known or not known.issuperset(parents):
            return False
        known.add(column)
    return known == set(range(columns + 1))
