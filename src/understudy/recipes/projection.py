"""Rows that agree with noisy tables: relaxed projection onto a mixture of products.

After RAP (Aydore et al. 2021, arXiv 2103.06641): a fixed number of rows, each of which holds a
distribution over the codes of every column instead of one code, is moved by gradient steps until
the tables of the mixture agree with the targets, each as closely as its own error deserves. All
tables of pairs are one product of matrices, P'P. Rows start from draws of a model that the
earlier sums gave, whose own tables are targets too: what was not measured stays as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.recipes.margins import stretches

__all__ = ["Aim", "Start", "Targets", "consistent", "moments", "project"]

_STEPS, _RATE = 250, 0.3
_PEAK = 4.0  # logit of the code a row starts from


@dataclass(frozen=True)
class Start:
    """Rows to start from: codes ``[K, d]``, sorted by class; ``rows`` of each class ``[C]``.

    ``sizes`` ``[d]`` are the columns' numbers of codes, at most ``widest``; ``balance`` ``[C]`` the
    classes' shares.
    """

    codes: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray
    widest: int
    balance: np.ndarray


@dataclass(frozen=True)
class Aim:
    """A target and how much each of its entries counts; entries of weight 0 are not looked at."""

    target: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Targets:
    """Shares that the mixture should have, with D = d·k codes, those of a column side by side.

    Of pairs in each class ``[C, D, D]``, of pairs in all ``[D, D]``, of single codes in each class
    ``[C, D]`` and in all ``[D]``. Entries of a column with itself have weight 0.
    """

    classes: Aim
    pairs: Aim
    singles: Aim
    margins: Aim


def project(start: Start, targets: Targets) -> Tensor:
    """The chances ``[K, d, k]`` of every row's codes, after the descent."""
    logits, weight, stretches = _begin(start)
    aims = [_tensors(a) for a in (targets.classes, targets.pairs, targets.singles, targets.margins)]
    first, second = torch.zeros_like(logits), torch.zeros_like(logits)
    for step in range(_STEPS):
        chance = torch.softmax(logits, -1)
        pull = _pull(chance.flatten(1), weight, stretches, aims).view_as(chance)
        slope = chance * (pull - (chance * pull).sum(-1, keepdim=True))
        first.lerp_(slope, 0.1)
        second.mul_(0.99).addcmul_(slope, slope, value=0.01)
        rate = _RATE * (0.51 + 0.5 * math.cos(math.pi * step / _STEPS))
        scale = (second / (1 - 0.99 ** (step + 1))).sqrt_().add_(1e-12)
        logits.addcdiv_(first / (1 - 0.9 ** (step + 1)), scale, value=-rate)
    return torch.softmax(logits, -1)


def moments(
    codes: np.ndarray, y: np.ndarray, k: int, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tables of all pairs ``[C, D, D]`` and of single codes ``[C, D]`` of rows, as shares."""
    rows, width = codes.shape
    place = codes + k * np.arange(width)
    pairs = np.zeros((classes, width * k, width * k))
    for c in range(classes):
        mine = np.zeros((int((y == c).sum()), width * k), np.float32)
        np.put_along_axis(mine, place[y == c], 1, axis=1)
        pairs[c] = mine.T @ mine
    pairs /= max(rows, 1)
    return pairs, np.einsum("cii->ci", pairs).copy()


def consistent(noisy: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The table ``[C, a, b]`` nearest to a noisy one whose sum over classes has these margins."""
    classes, a, b = noisy.shape
    whole = noisy.sum(0)
    off = (first - whole.sum(1))[:, None] / b + (second - whole.sum(0))[None] / a
    return noisy + (off - (1 - whole.sum()) / (a * b)) / classes


def _begin(start: Start) -> tuple[Tensor, Tensor, list[slice]]:
    logits = torch.zeros(*start.codes.shape, start.widest)
    logits.scatter_(2, torch.from_numpy(start.codes)[:, :, None], _PEAK)
    absent = torch.arange(start.widest) >= torch.from_numpy(start.sizes)[:, None]
    logits.masked_fill_(absent, -1e9)
    each = start.balance / start.rows
    weight = torch.from_numpy(np.repeat(each, start.rows)).float()
    return logits, weight, stretches(start.rows.tolist())


def _tensors(aim: Aim) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(aim.target).float(), torch.from_numpy(aim.weight).float()


def _pull(
    chance: Tensor, weight: Tensor, stretches: list[slice], aims: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """The gradient ``[K, D]`` of the weighted squared distances, but for the rows' own weights.

    Those scale a row's whole gradient, which the descent does not see.
    """
    held = [chance[at] * weight[at, None] for at in stretches]
    pairs = torch.stack([part.T @ chance[at] for part, at in zip(held, stretches, strict=True)])
    singles = torch.stack([part.sum(0) for part in held])
    found = (pairs, pairs.sum(0), singles, singles.sum(0))
    each, whole, alone, margin = (
        (value - target) * trust for value, (target, trust) in zip(found, aims, strict=True)
    )
    return torch.cat(
        [2 * (chance[at] @ (each[c] + whole)) + alone[c] + margin for c, at in enumerate(stretches)]
    )
