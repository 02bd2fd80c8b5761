"""The Bayesian network of privbayes: given in words, or grown by noisy pairs; its chances.

Columns are numbers, features first; the label, if there is one, is the last and has no parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np

from understudy.data.names import nearest
from understudy.errors import StudyError
from understudy.recipes.margins import projected

__all__ = ["Network", "conditional", "dependence", "given", "grow"]

Network = dict[int, tuple[int, ...]]
"""The parents of each column but the label, in an order in which they can be drawn."""


def given(lines: Sequence[str], names: Sequence[str], features: int, degree: int) -> Network:
    """A network in words, ``"income < age, education"``; columns not named have no parents."""
    found: Network = {j: () for j in range(features)}
    for line in lines:
        child, *rest = (_place(name, names) for name in line.replace("<", ",").split(","))
        if line.count("<") != 1 or not 1 <= len(rest) <= degree or child >= features:
            raise StudyError(
                f'recipe.network with lines "column < parent", up to {degree} parent(s) each '
                "(recipe.degree) and none for the label",
                repr(line),
                "correct the line",
            )
        found[child] = tuple(rest)
    order = TopologicalSorter(found)
    try:
        return {j: found[j] for j in order.static_order() if j in found}
    except CycleError:
        expected = "a recipe.network in which every column comes after its parents"
        raise StudyError(expected, "a circle", "remove one of its lines") from None


def _place(name: str, names: Sequence[str]) -> int:
    if (name := name.strip()) not in names:
        raise StudyError(
            "columns of the schema in recipe.network",
            repr(name),
            f"correct it{nearest(name, names)}",
        )
    return names.index(name)


def dependence(table: np.ndarray, first: np.ndarray, second: np.ndarray, std: float) -> float:
    """How far a noisy table is from that of independent columns with these shares.

    The squared distance beyond that of the noise, times the cells: near the mean-square contingency
    where codes are about equally frequent. Noise alone gives zero on average.
    """
    rows, cells = max(float(table.sum()), 1.0), (first > 0).sum() * (second > 0).sum()
    real = np.outer(first > 0, second > 0)
    beyond = (table / rows - np.outer(first, second)) ** 2 - (std / rows) ** 2
    return float((beyond * real).sum() * cells)


def grow(apart: np.ndarray, degree: int, root: int | None) -> Network:
    """The greedy network on ``apart`` ``[D, D]``, the dependence of each pair.

    It begins with the label as ``root``, or with the column that depends most on others. The next
    column is the one that depends most on one that is in; a second parent tells much of it and
    little of the first.
    """
    first = int(apart.sum(1).argmax()) if root is None else root
    network: Network = {first: ()} if root is None else {}
    held = [first]
    while len(held) < len(apart):
        gain = apart[:, held].copy()
        gain[held] = -np.inf
        child, place = map(int, np.unravel_index(gain.argmax(), gain.shape))
        parents = [held[place]] if gain[child, place] > 0 else []
        if degree > 1 and parents:
            more = apart[child, held] - apart[parents[0], held]
            more[place] = -np.inf
            parents += [held[int(more.argmax())]] if more.max() > 0 else []
        network[child] = tuple(parents)
        held.append(child)
    return network


def conditional(table: np.ndarray, margin: np.ndarray, std: float) -> np.ndarray:
    """Chances ``[cases, codes]`` by noisy counts; cases with few rows draw by the margin."""
    rows = np.maximum(table.sum(1), 1.0)
    counts = np.array([projected(case, n) for case, n in zip(table, rows, strict=True)])
    counts += max(std, 0.5) * (margin + 1e-6)
    return np.asarray(counts / counts.sum(1, keepdims=True))
