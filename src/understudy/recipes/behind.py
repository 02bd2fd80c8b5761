"""The Gaussians behind a table whose margins are known: from class moments to a generator.

Class means and covariances of scores, categories and flags say how columns hang together; the
margins say how often each value occurs. Shares of categories by class are raked until they add
up to the margin, numbers get latents whose mixture has it (`scores.fit`), and correlations are
raised by what cutting a latent into few values costs. Post-processing throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from understudy.recipes.copula import factor_of, thresholds
from understudy.recipes.margins import Margin
from understudy.recipes.moments import Gaussians, Moments
from understudy.recipes.scores import Classes, Latent, fit
from understudy.recipes.standing import Standing

__all__ = ["Behind", "behind", "pieces", "raked"]

_DRAWS = 8192  # latent rows with which thresholds are set
_MOST = 0.97  # of a latent correlation
_PIECE = 1 / 64  # share of rows in one straight piece of a released margin


@dataclass(frozen=True)
class Behind:
    """Latent ``mean`` ``[C, F]`` and ``factor`` ``[C, F, F]``; ``numbers`` by first feature."""

    mean: np.ndarray
    factor: np.ndarray
    numbers: dict[int, Latent]


def behind(
    found: Gaussians, noisy: Moments, place: Standing, *, rng: np.random.Generator
) -> Behind:
    """Latents of denoised class moments of `Standing` features; ``noisy`` are the measured ones."""
    mean = place.origin + found.mean / place.scale
    shares = _shares(mean, found.balance, place)
    numbers = {
        start: fit(cumulative, _classes(start, margin, shares, found, noisy, place))
        for start, margin, cumulative in _numbers(place)
    }
    draws = rng.standard_normal((_DRAWS, mean.shape[1]))
    each = [
        _class(k, shares[k], found.covariance[k] / np.outer(place.scale, place.scale), numbers)
        for k in range(len(mean))
    ]
    for (where, factor), share in zip(each, shares, strict=True):
        drawn = draws @ factor.T
        for margin in place.margins:
            if margin.onehot and margin.start is not None:
                at = slice(margin.start, margin.start + margin.size)
                where[at] = thresholds(drawn[:, at], share[at])
    width = np.ones_like(mean)
    for start, latent in numbers.items():
        width[:, start] = latent.std
    factors = np.stack([factor for _, factor in each]) * width[:, :, None]
    return Behind(np.stack([where for where, _ in each]), factors, numbers)


def _numbers(place: Standing) -> Iterator[tuple[int, Margin, np.ndarray]]:
    for margin, cumulative in zip(place.margins, place.cumulative, strict=True):
        if margin.start is not None and cumulative is not None:
            yield margin.start, margin, cumulative


def _shares(mean: np.ndarray, balance: np.ndarray, place: Standing) -> np.ndarray:
    """Chances ``[C, F]`` of categories and flags by class that add up to their margins."""
    found = mean.copy()
    for margin, share in zip(place.margins, place.shares, strict=True):
        if margin.start is None:
            continue
        if margin.onehot:
            at = slice(margin.start, margin.start + margin.size)
            found[:, at] = raked(mean[:, at], balance, share)
            continue
        if margin.cells is None:
            yes = float(share[1] / max(share[:2].sum(), 1e-9))
            found[:, margin.start] = _flag(mean[:, margin.start], balance, yes)
        if margin.missing:
            flag = margin.start + 1
            found[:, flag] = _flag(mean[:, flag], balance, float(share[-1]))
    return found


def _flag(mean: np.ndarray, balance: np.ndarray, share: float) -> np.ndarray:
    both = np.stack([1 - mean, mean], axis=1)
    return raked(both, balance, np.array([1 - share, share]))[:, 1]


def raked(chance: np.ndarray, balance: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Chances ``[C, k]`` near the given ones, whose average over classes is ``share`` ``[k]``."""
    joint = chance.clip(1e-5, 1) * balance[:, None]
    for _ in range(50):
        joint = joint * (share / joint.sum(0).clip(min=1e-12))
        joint = joint * (balance / joint.sum(1).clip(min=1e-12))[:, None]
    return joint / joint.sum(1, keepdims=True).clip(min=1e-12)


def _classes(
    start: int,
    margin: Margin,
    shares: np.ndarray,
    found: Gaussians,
    noisy: Moments,
    place: Standing,
) -> Classes:
    """Moments of a number's scores by class, over the rows that have one: missing counts as 0."""
    scale, there = place.scale[start], np.ones(len(shares))
    if margin.missing:
        there = (1 - shares[:, start + 1]).clip(0.02, 1)
    rows = np.maximum(noisy.counts, max(noisy.count_std, 1e-9)) * there
    mean = found.mean[:, start] / scale / there
    square = noisy.squares[:, start, start] / rows / scale**2
    weight = found.balance * there / float(found.balance @ there)
    return Classes(
        weight, mean, (square - mean**2).clip(min=1e-3), noisy.square_std / rows / scale**2
    )


def _class(
    k: int, share: np.ndarray, covariance: np.ndarray, numbers: dict[int, Latent]
) -> tuple[np.ndarray, np.ndarray]:
    """Where the latents of one class lie, and a factor of their correlations."""
    coded = np.ones(len(share), bool)
    coded[list(numbers)] = False
    chance = share.clip(1e-4, 1 - 1e-4)
    where, clarity = 0.5 + ndtri(chance), _clarity(chance)
    for start, latent in numbers.items():
        where[start], clarity[start] = latent.mean[k], latent.clarity[k]
    spread = np.diagonal(covariance)
    spread = np.where(coded, np.maximum(spread, chance * (1 - chance)), spread).clip(min=1e-6)
    seen = (covariance / np.sqrt(np.outer(spread, spread))).clip(-1, 1)
    raised = (seen / np.outer(clarity, clarity)).clip(-_MOST, _MOST)
    correlation = np.where(np.outer(coded, coded), np.sin(np.pi / 2 * seen), raised)
    np.fill_diagonal(correlation, 1.0)
    return where, factor_of(correlation)


def _clarity(chance: np.ndarray) -> np.ndarray:
    """The correlation of a normal latent with being among its largest, not below one half."""
    density = np.exp(-(ndtri(chance) ** 2) / 2) / np.sqrt(2 * np.pi)
    return (density / np.sqrt(chance * (1 - chance))).clip(min=0.5)


def pieces(place: Standing, numbers: dict[int, Latent]) -> dict[str, np.ndarray]:
    """The released margins: ``cuts`` ``[M, P + 1]``, ``low`` and ``high`` ``[M, P]``."""
    found = [_pieces(m, c, numbers[start]) for start, m, c in _numbers(place)]
    most = max((len(low) for _, low, _ in found), default=1)
    cuts, low, high = np.zeros((len(found), most + 1)), *np.zeros((2, len(found), most))
    for i, (edge, begin, end) in enumerate(found):
        rest = most - len(begin)
        cuts[i], low[i], high[i] = (
            np.pad(side, (0, rest), mode="edge") for side in (edge, begin, end)
        )
    return {"cuts": cuts, "low": low, "high": high}


def _pieces(
    margin: Margin, cumulative: np.ndarray, latent: Latent
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells that hold rows; wide ones in pieces, so that rows lie evenly within."""
    cells = margin.cells
    assert cells is not None
    share = np.diff(cumulative)
    held = np.flatnonzero(share > 1e-7)
    parts = np.where(cells.high > cells.low, np.ceil(share / _PIECE), 1).astype(int)[held]
    cell = np.repeat(held, parts)
    step = np.concatenate([np.arange(n) / n for n in parts])
    size = np.repeat(1 / parts, parts)
    wide = cells.high[cell] - cells.low[cell]
    low, high = cells.low[cell] + wide * step, cells.low[cell] + wide * (step + size)
    level = np.append(cumulative[cell] + share[cell] * step, cumulative[held[-1] + 1])
    return np.maximum.accumulate(latent.at(level)), low, high
