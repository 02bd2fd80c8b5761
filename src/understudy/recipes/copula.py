"""A Gaussian behind a table: latent normals whose margins come out as the columns' own.

A Gaussian fitted to one-hot and bounded columns cannot be read off directly: the largest entry
of a one-hot block is hardly ever a rare category, and a bounded column would pile up outside
its bounds. So each feature gets a latent normal. A number is its latent clipped to [0, 1], with
the latent's mean and spread chosen so that the *clipped* value has the column's mean and
variance; a category is the largest of its block's latents, shifted until each category comes up
as often as its mean says. A mean near a bound is first read for what it can be: a noisy mean
below 0 says that the column is small, not that all of a class is at its bound, which would make
one value give the class away. Post-processing of noisy moments: it costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from understudy.data.encode import Block

__all__ = ["factor_of", "latents", "rectified", "thresholds", "within"]

_DRAWS = 8192  # latent rows with which thresholds are set


def latents(
    mean: np.ndarray,
    covariance: np.ndarray,
    blocks: Sequence[Block],
    *,
    blur: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Latent mean ``[F]`` and factor ``[F, F]`` of one class's encoded columns.

    ``blur`` ``[F]`` is the noise on the means. A draw is ``mean + factor @ normal``, to be clipped,
    and hardened where ``blocks`` are categories (largest entry) or flags (above ½).
    """
    coded = _coded(blocks, len(mean))
    mean = _shares(np.where(coded, mean, within(mean, blur)), blocks)
    found = np.diagonal(covariance)
    spread = np.where(coded, np.maximum(found, mean * (1 - mean)), found).clip(min=1e-6)
    factor = factor_of(_correlation(covariance, spread, coded))
    place, width = 0.5 + ndtri(mean.clip(1e-6, 1 - 1e-6)), np.ones(len(mean))
    place[~coded], width[~coded] = rectified(mean[~coded], spread[~coded])
    draws = rng.standard_normal((_DRAWS, len(mean))) @ factor.T
    for block in blocks:
        if block.kind == "categorical":
            at = slice(block.start, block.stop)
            place[at] = thresholds(draws[:, at], mean[at])
    return place, width[:, None] * factor


def within(mean: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Where a mean in [0, 1] is on average, seen as ``mean`` under normal ``noise``."""
    noise = np.maximum(noise, 1e-9)
    seen = np.minimum(mean, 1 - mean)  # as seen from the nearer bound, at 0
    a = np.minimum(-seen / noise, 8.0)
    b = a + 1 / noise
    at_a, at_b = (np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) for t in (a, b))
    found = (noise * ((at_a - at_b) / (ndtr(-a) - ndtr(-b)) - a)).clip(0, 1)
    return np.where(mean < 1 - mean, found, 1 - found)


def rectified(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of normals that have these moments once clipped to [0, 1].

    Both searches halve an interval: at a given deviation the clipped mean grows with the
    latent mean, and at a given clipped mean the clipped variance grows with the deviation.
    """
    mean = mean.clip(1e-4, 1 - 1e-4)
    variance = variance.clip(1e-7, 0.98 * mean * (1 - mean))
    low, high = np.full_like(mean, math.log(1e-4)), np.full_like(mean, math.log(4.0))
    for _ in range(40):
        middle = (low + high) / 2
        width = np.exp(middle)
        narrow = _clipped(_centre(mean, width), width)[1] < variance
        low, high = np.where(narrow, middle, low), np.where(narrow, high, middle)
    width = np.exp((low + high) / 2)
    return _centre(mean, width), width


def thresholds(draws: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Shifts ``[k]`` under which each entry of ``draws`` ``[n, k]`` is the largest by its share."""
    shift = ndtri(share.clip(1e-4, 1 - 1e-4))
    for _ in range(30):
        seen = np.bincount((draws + shift).argmax(1), minlength=len(share)) / len(draws)
        shift = shift + 0.5 * np.log((share + 1e-4) / (seen + 1e-4))
    return shift


def _shares(mean: np.ndarray, blocks: Sequence[Block]) -> np.ndarray:
    """Means within their range; those of a one-hot block add up to one."""
    mean = mean.clip(0, 1)
    for block in blocks:
        if block.kind == "categorical":
            at = slice(block.start, block.stop)
            total = float(mean[at].sum())
            mean[at] = mean[at] / total if total > 1e-6 else 1 / (block.stop - block.start)
    return mean


def _coded(blocks: Sequence[Block], features: int) -> np.ndarray:
    """Which features are zero or one."""
    coded = np.zeros(features, bool)
    for block in blocks:
        coded[block.start : block.stop] = block.kind in ("categorical", "boolean", "missing")
    return coded


def _correlation(covariance: np.ndarray, spread: np.ndarray, coded: np.ndarray) -> np.ndarray:
    """Latent correlations; between zero-one features sin(πr/2) undoes what cutting costs."""
    found = (covariance / np.sqrt(np.outer(spread, spread))).clip(-1, 1)
    latent = np.where(np.outer(coded, coded), np.sin(np.pi / 2 * found), found)
    np.fill_diagonal(latent, 1.0)
    return latent


def factor_of(correlation: np.ndarray) -> np.ndarray:
    """A factor with rows of norm one of the nearest positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(correlation)
    factor = vectors * np.sqrt(np.maximum(values, 0))
    return factor / np.linalg.norm(factor, axis=1, keepdims=True).clip(min=1e-9)


def _centre(mean: np.ndarray, width: np.ndarray) -> np.ndarray:
    low, high = -8 * width, 1 + 8 * width
    for _ in range(40):
        middle = (low + high) / 2
        under = _clipped(middle, width)[0] < mean
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return (low + high) / 2


def _clipped(centre: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of normals clipped to [0, 1]."""
    a, b = -centre / width, (1 - centre) / width
    below, above = ndtr(a), ndtr(-b)
    inside = 1 - below - above
    at_a, at_b = (np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) for t in (a, b))
    first = centre * inside + width * (at_a - at_b) + above
    second = (centre**2 + width**2) * inside + above
    second += width * (centre * at_a - (centre + 1) * at_b)
    return first, second - first**2
