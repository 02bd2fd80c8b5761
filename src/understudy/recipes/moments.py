"""From noisy class moments to Gaussians: the denoising of fedmoments.

Everything here is post-processing: functions of the noisy sum, of the known noise and of
public numbers, so it costs no privacy. Noise on a symmetric matrix moves its eigenvalues by up
to a known edge. What all classes share stands clear of it first, so the pooled covariance is
cleaned by its spectrum, and each class then departs from it only as far as its own, noisier
moments bear out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from understudy.recipes.features import COUNT, MEAN, Weights, unsvec

__all__ = ["Gaussians", "Moments", "denoise", "taken_apart"]


@dataclass(frozen=True)
class Moments:
    """Noisy sums by class: counts ``[C]``, ``sums`` ``[C, d]`` and ``squares`` ``[C, d, d]``.

    The ``_std`` are the noise of an entry (of a diagonal one for squares: off the diagonal it is
    smaller by √2). ``expected`` ``[d]`` is a public guess of a feature's variance in a class.
    """

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray
    count_std: float
    sum_std: float
    square_std: float
    expected: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Rows by class ``[C]``, no fewer than the noise could hide."""
        return np.maximum(self.counts, max(self.count_std, 1e-9))

    @property
    def blur(self) -> np.ndarray:
        """The noise ``[C]`` on a mean of each class."""
        return self.sum_std / self.rows

    def counted(self, label: np.ndarray, std: float) -> Moments:
        """With counts weighed against those of the label's histogram, whose noise is ``std``."""
        share = self.count_std**2 / max(self.count_std**2 + std**2, 1e-12)
        return replace(
            self,
            counts=(1 - share) * self.counts + share * label,
            count_std=math.hypot((1 - share) * self.count_std, share * std),
        )


@dataclass(frozen=True)
class Gaussians:
    """Class proportions ``[C]``, means ``[C, d]`` and covariances ``[C, d, d]``."""

    balance: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def taken_apart(
    sums: np.ndarray, std: float, expected: np.ndarray, weights: Weights = (COUNT, MEAN)
) -> Moments:
    """The noisy sums of φ by class ``[C, …]`` as moments, with the noise each piece carries."""
    d, (count, mean) = len(expected), weights
    return Moments(
        counts=sums[:, 0] / count,
        sums=sums[:, 1 : 1 + d] / mean,
        squares=unsvec(sums[:, 1 + d :], d),
        count_std=std / count,
        sum_std=std / mean,
        square_std=std,
        expected=expected,
    )


def denoise(noisy: Moments) -> Gaussians:
    """Class Gaussians; always finite and positive semi-definite, however strong the noise."""
    counts = noisy.rows
    balance = counts / counts.sum()
    mean = shrink_means(noisy.sums / counts[:, None], balance, noisy.blur)
    outer = mean[:, :, None] * mean[:, None, :]
    spread = noisy.squares / counts[:, None, None] - outer
    noise = noisy.square_std / counts
    pooled = clean_pooled(
        np.einsum("c,cij->ij", balance, spread),
        noisy.square_std * math.sqrt(len(counts)) / counts.sum(),
        noisy.expected,
    )
    return Gaussians(balance, mean, depart(pooled, spread, balance, noise))


def shrink_means(mean: np.ndarray, balance: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Pull class means ``[C, d]`` to the overall mean where their differences are mostly noise.

    One factor per feature for all classes, so that the overall mean stays where it is.
    """
    overall = balance @ mean
    apart = mean - overall
    blur = float((balance * (1 - balance)) @ noise**2)
    between = balance @ apart**2 - blur
    typical = max(float(between.mean()), 0.0)
    between = np.maximum((between + typical) / 2, 0.05 * typical)
    return overall + apart * (between / (between + blur + 1e-12))


def clean_pooled(pooled: np.ndarray, noise: float, expected: np.ndarray) -> np.ndarray:
    """The covariance all classes share: spectrum shrunk, the rest of the variance as expected.

    An eigenvalue λ under noise of edge e is seen at about λ + e²/4λ, along a direction that is
    partly noise: √(λ² − e²) is what should be kept of it, and nothing below the edge. The total
    variance is known better than its parts: the measured trace, tempered by the expected one.
    """
    d = len(pooled)
    edge, guess = noise * math.sqrt(2 * d), float(expected.sum())
    trust = (guess / 2) ** 2 / ((guess / 2) ** 2 + d * noise**2)
    total = max(trust * float(np.trace(pooled)) + (1 - trust) * guess, guess / 10)
    values, vectors = np.linalg.eigh(pooled)
    seen = values > edge
    kept = np.sqrt(np.maximum(values**2 - edge**2, 0)) * seen
    kept *= min(1.0, 0.9 * total / max(float(kept.sum()), 1e-12))
    outside = np.eye(d) - vectors[:, seen] @ vectors[:, seen].T
    rest = outside @ np.diag(expected) @ outside
    share = (total - kept.sum()) / max(float(np.trace(rest)), 1e-12)
    return (vectors * kept) @ vectors.T + share * rest


def depart(
    pooled: np.ndarray, spread: np.ndarray, balance: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Class covariances: the pooled one, scaled, plus what each class shows beyond the noise.

    In the pooled eigenbasis an entry of a class may differ from the pooled one by τ·λᵢλⱼ in
    variance; τ is fitted over all entries, and each difference is weighed against its noise.
    """
    values, vectors = np.linalg.eigh(pooled)
    values = np.maximum(values, 1e-6 * max(float(values[-1]), 1e-12))
    own = vectors.T @ spread @ vectors
    scale = class_scales(np.diagonal(own, axis1=1, axis2=2), values, balance, noise)
    room, shared = np.outer(values, values), scale[:, None, None] * np.diag(values)
    blur = (noise**2 / 2)[:, None, None]
    ratio, scaled = (own - shared) / scale[:, None, None], blur / scale[:, None, None] ** 2
    variety = fit_variety(ratio, scaled, room)
    held = shared + (own - shared) * (variety * room / (variety * room + scaled))
    return vectors @ _positive(held) @ vectors.T


def class_scales(
    own: np.ndarray, values: np.ndarray, balance: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """How much wider ``[C]`` each class is than the pooled covariance, in the pooled eigenbasis.

    Measured in the largest directions that hold half of the variance; tempered towards 1.
    """
    top = np.cumsum(values[::-1])[::-1] <= max(values.sum() / 2, values[-1])
    wide = own[:, top].sum(1) / values[top].sum()
    wide = wide / max(float(balance @ wide), 1e-3)
    blur = noise * math.sqrt(top.sum()) / values[top].sum()
    return np.clip(1 + (wide - 1) * 0.3 / (0.3 + blur**2), 0.2, 5.0)


def fit_variety(apart: np.ndarray, blur: np.ndarray, room: np.ndarray) -> float:
    """τ, one standard error below its estimate: how far classes differ in shape."""
    weight = room / (0.1 * room + blur) ** 2 * ~np.eye(len(room), dtype=bool)
    excess = float((weight * (apart**2 - blur)).sum())
    error = 2 * math.sqrt(float(((weight * blur) ** 2).sum()))
    return min(max((excess - error) / max(float((weight * room).sum()), 1e-12), 1e-3), 0.5)


def _positive(matrices: np.ndarray) -> np.ndarray:
    """The nearest positive semi-definite matrices ``[C, d, d]``."""
    values, vectors = np.linalg.eigh((matrices + matrices.swapaxes(1, 2)) / 2)
    return (vectors * np.maximum(values, 0)[:, None, :]) @ vectors.swapaxes(1, 2)
