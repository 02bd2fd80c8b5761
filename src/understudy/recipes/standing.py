"""Where a table's columns stand once their margins are known: features for the second sum.

Numbers become normal scores, categories and flags are centred at their shares. Features are
scaled so that a typical row has norm just below 1: rare rows are clipped, common ones cost less
noise. All follows from the cleaned margins, so servers and sites agree on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.recipes.margins import Margin, spans
from understudy.recipes.scores import Scores, levels

__all__ = ["Standing", "standing"]

_FILL = 1.5  # squared norms of rows are spread about their mean: room for most of them
_LEAST = 0.02  # variance of a feature that hardly varies


@dataclass(frozen=True)
class Standing:
    """Features of a row: ``(value − origin) · scale``, with numbers as scores.

    ``expected`` ``[F]`` guesses a feature's variance within a class; ``shares`` has those of each
    margin's codes, and ``cumulative`` the distribution of each number's present values.
    """

    margins: tuple[Margin, ...]
    shares: tuple[np.ndarray, ...]
    cumulative: tuple[np.ndarray | None, ...]
    origin: np.ndarray
    scale: np.ndarray
    expected: np.ndarray

    def features(self, x: Tensor) -> Tensor:
        """Of encoded rows ``[n, F]``, in double."""
        found = x.to(torch.float64, copy=True)
        for start, missing, scores in self._scores:
            score = scores.of(found[:, start])
            if missing:
                score = score.masked_fill(x[:, start + 1] > 0.5, 0)
            found[:, start] = score
        return (found - torch.from_numpy(self.origin)) * torch.from_numpy(self.scale)

    @cached_property
    def _scores(self) -> list[tuple[int, bool, Scores]]:
        """For each number: its first feature, whether it may be missing, and its scores."""
        return [
            (margin.start, margin.missing, Scores(margin.cells, torch.from_numpy(cumulative)))
            for margin, cumulative in zip(self.margins, self.cumulative, strict=True)
            if not (margin.cells is None or cumulative is None or margin.start is None)
        ]


def standing(margins: Sequence[Margin], shares: np.ndarray, width: int) -> Standing:
    """From shares of all codes, end to end; whatever these are, the result is finite."""
    known = np.nan_to_num(shares.astype(np.float64)).clip(0, 1)
    each = tuple(known[span] for span in spans(margins))
    origin, scale, variance = np.zeros(width), np.ones(width), np.zeros(width)
    cumulative = []
    for margin, share in zip(margins, each, strict=True):
        found = None
        if margin.start is not None:
            at = slice(margin.start, margin.start + margin.width)
            found = _distribution(margin, share)
            origin[at], scale[at], variance[at] = _placed(margin, share, found)
        cumulative.append(found)
    scale = scale / math.sqrt(_FILL * float(variance @ scale**2))
    expected = 0.75 * variance * scale**2
    return Standing(tuple(margins), each, tuple(cumulative), origin, scale, expected)


def _distribution(margin: Margin, share: np.ndarray) -> np.ndarray | None:
    """F at the cells' ends, of values that are not missing."""
    if margin.cells is None:
        return None
    present = share[: len(margin.cells.low)]
    total = float(present.sum())
    even = np.full(len(present), 1 / len(present))
    return np.append(0.0, np.cumsum(present / total if total > 1e-9 else even).clip(0, 1))


def _placed(
    margin: Margin, share: np.ndarray, cumulative: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Origin, weight and variance of a margin's features."""
    if margin.onehot:
        return share, np.ones(len(share)), (share * (1 - share)).clip(min=_LEAST / len(share))
    missing = share[-1:] if margin.missing else share[:0]
    if cumulative is None:
        yes = share[1:2] / max(float(share[:2].sum()), 1e-9)
        centre, weight, spread = yes, np.full(1, math.sqrt(2)), yes * (1 - yes)
    else:
        known, held = levels(cumulative), np.diff(cumulative)
        mean = float(held @ known)
        centre, weight = np.zeros(1), np.ones(1)
        spread = np.array([(held @ known**2 - mean**2)])
    flags = (missing, np.full(len(missing), math.sqrt(2)), missing * (1 - missing))
    spread = np.append(spread, flags[2]).clip(min=_LEAST)
    return np.append(centre, flags[0]), np.append(weight, flags[1]), spread
