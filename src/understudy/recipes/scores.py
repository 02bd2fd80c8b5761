"""Normal scores: numbers by where they stand in their margin, and the way back.

A number becomes u = Φ⁻¹(F(x)), with F the column's cleaned margin; a value that holds many rows
gets the mean score of its stretch. Class moments are taken of scores. `fit` then finds, for each
column, class Gaussians whose mixture, cut at the right places, has the margin F and in each class
the measured mean and variance. Public from the histograms on: no privacy is spent here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from understudy.recipes.margins import Cells

__all__ = ["MOST", "Classes", "Latent", "Scores", "fit", "levels"]

MOST = 2.65  # scores are cut off here: beyond lie 8 rows in a thousand
_TINY = 1e-6
_TURNS = 25  # of a fixed-point search
_VARIETY = 0.1  # how far classes differ: the variance of the logarithm of a class's variance


def levels(cumulative: np.ndarray) -> np.ndarray:
    """The mean score ``[K]`` of each cell of a margin with distribution ``[K + 1]``."""
    cumulative = cumulative.clip(0, 1)
    share = np.diff(cumulative)
    density = _density(ndtri(cumulative))
    middle = ndtri((cumulative[1:] + cumulative[:-1]).clip(2e-6, 2 - 2e-6) / 2)
    mean = -np.diff(density) / share.clip(min=1e-12)
    return np.where(share > _TINY, mean, middle).clip(-MOST, MOST)


@dataclass(frozen=True)
class Scores:
    """The scores of a column with these cells and this distribution, ready for many rows."""

    cells: Cells
    cumulative: Tensor

    def of(self, value: Tensor) -> Tensor:
        """Scores ``[n]`` of encoded values, in double; NaN only where a value is."""
        borders, low, high, known, single = self._ready
        at = torch.bucketize(value.contiguous(), borders, right=True)
        wide = (high - low).clamp(min=_TINY)[at]
        within = ((value - low[at]) / wide).clamp(0, 1)
        inside = torch.special.ndtri(torch.lerp(known[at], known[at + 1], within))
        return torch.where(high[at] > low[at], inside, single[at]).clamp(-MOST, MOST)

    @cached_property
    def _ready(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Borders, low and high ends of the cells, F at the ends, and the cells' mean scores."""
        cells, known = self.cells, self.cumulative.double().clamp(0, 1)
        ends = (torch.from_numpy(side) for side in (cells.borders, cells.low, cells.high))
        borders, low, high = ends
        return borders, low, high, known, torch.from_numpy(levels(known.numpy()))


@dataclass(frozen=True)
class Latent:
    """Class Gaussians behind one column, classes by ``weight``: ``mean`` and ``std`` ``[C]``.

    ``clarity`` ``[C]`` is the correlation of latent and score: below 1 where values hold many rows.
    """

    weight: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    clarity: np.ndarray

    def at(self, level: np.ndarray) -> np.ndarray:
        """Where the mixture of the classes reaches these shares."""
        return _cuts(level, self.mean, self.std, self.weight)


@dataclass(frozen=True)
class Classes:
    """Class moments ``[C]`` of a column's scores; ``noise`` is the deviation of the variance."""

    weight: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    noise: np.ndarray


def fit(cumulative: np.ndarray, seen: Classes) -> Latent:
    """Latent Gaussians whose mixture has the margin ``[K + 1]``, and classes their own means.

    Classes differ by a shift of the latent alone, as far as the noise lets one see: the variance
    of a class's scores departs from what the shift implies by a part that outweighs its noise.
    """
    known, weight = levels(cumulative), seen.weight
    mean, within = _centred(known, np.diff(cumulative), seen)
    m, s = mean.copy(), np.full(len(mean), within)
    wanted: np.ndarray | None = None
    for turn in range(2 * _TURNS):
        cuts = _cuts(cumulative, m, s, weight)
        chance = _chances(cuts, m, s)
        found = chance @ known
        spread = (chance @ known**2 - found**2).clip(min=1e-4)
        if turn == _TURNS:
            wanted = _wanted(spread, seen)
        steep = (_slope(cuts, m, s) @ known / s).clip(min=0.2)
        m = m + 0.7 * (mean - found) / steep
        s = s if wanted is None else (s * (wanted / spread) ** 0.35).clip(0.05, 5)
    cuts = _cuts(cumulative, m, s, weight)
    chance = _chances(cuts, m, s)
    spread = (chance @ known**2 - (chance @ known) ** 2).clip(min=1e-4)
    clarity = _slope(cuts, m, s) @ known / np.sqrt(spread)
    return Latent(weight, m, s, clarity.clip(0.3, 1))


def _centred(known: np.ndarray, share: np.ndarray, seen: Classes) -> tuple[np.ndarray, float]:
    """Class means that average to the margin's, which is known better, and what is left within."""
    centre = float(share @ known)
    whole = max(float(share @ known**2) - centre**2, 1e-4)
    apart = seen.mean - seen.weight @ seen.mean
    between = float(seen.weight @ apart**2)
    part = min(between / whole, 0.9)
    return centre + apart * math.sqrt(part * whole / max(between, 1e-12)), math.sqrt(1 - part)


def _wanted(implied: np.ndarray, seen: Classes) -> np.ndarray:
    """Class variances that depart from the implied ones as their noise allows, their sum kept."""
    trust = _VARIETY / (_VARIETY + (seen.noise / implied) ** 2)
    found = implied * (seen.variance / implied).clip(0.2, 5) ** trust
    return found * float(seen.weight @ implied) / float(seen.weight @ found)


def _slope(cuts: np.ndarray, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """How a standard deviation's shift of the latent moves the chance of each cell ``[C, K]``."""
    return -np.diff(_density((cuts - m[:, None]) / s[:, None]), axis=1)


def _chances(cuts: np.ndarray, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Of each cell, in each class ``[C, K]``."""
    return np.diff(ndtr((cuts - m[:, None]) / s[:, None]), axis=1)


def _cuts(cumulative: np.ndarray, m: np.ndarray, s: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Where the mixture's distribution reaches each of ``cumulative``."""
    grid = np.linspace(float((m - 5 * s).min()), float((m + 5 * s).max()), 1025)
    reached = weight @ ndtr((grid - m[:, None]) / s[:, None])
    return np.interp(cumulative, reached, grid)


def _density(z: np.ndarray) -> np.ndarray:
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
