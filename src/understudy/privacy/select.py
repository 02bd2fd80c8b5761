"""Choosing coordinates of an update under pure local privacy: PS, EM-MDS and SubMDS.

A site does not send its update Δ ∈ R^d but a sign and h coordinates (Jiang 2023, ch. 3 and 5).
The sign is a fair coin; the *top set* holds the k coordinates in which Δ is largest (sign +1) or
smallest (sign −1); the output J holds h coordinates, ν of them from the top set. J is drawn by
the exponential mechanism with the utility 1[ν ≥ threshold]::

    P(ν = τ) ∝ ω_τ · e^(ε·1[τ ≥ threshold]),   ω_τ = C(k, τ)·C(d−k, h−τ),   τ = 0 … h

and uniformly given ν. With h = 1 this is perturbed sampling (PS). SubMDS does the same within a
random subset of d̃ coordinates that was drawn without looking at Δ.

Guarantee: for any two updates, the probability of any message (sign, J) differs by a factor of
at most e^ε. The normaliser does not depend on data, so the exponent is ε and not ε/2. It breaks
if k, h or the threshold depend on data, if ties change the size of the top set, or if J comes out
in an order that tells the two groups apart: sizes are public fields of `Selection`, ties are
broken at random, and J is shuffled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.account import round_up
from understudy.privacy.chances import UNIT, Chances, gain
from understudy.privacy.choose import choose
from understudy.privacy.clip import Bounded, Receipt
from understudy.privacy.mechanism import Use
from understudy.privacy.pure import Pure, check_epsilon, raw
from understudy.privacy.terms import Unit

if TYPE_CHECKING:
    from understudy.privacy.plan import Part

__all__ = ["Law", "Selection", "law", "optimal_output"]

_MOST = 2**31 - 1  # coordinates travel as 32-bit integers


@dataclass(frozen=True)
class Law:
    """The distribution of ν, the number of chosen coordinates that are from the top set."""

    threshold: int
    probability: tuple[float, ...]  # of ν = 0 … h

    @property
    def share(self) -> float:
        """E[ν]/h: the expected share of the output that is from the top set."""
        h = len(self.probability) - 1
        return sum(tau * p for tau, p in enumerate(self.probability)) / h


@dataclass(frozen=True)
class Selection(Pure):
    """Choose ``output`` of ``size`` coordinates, preferably among the ``top`` largest, at ε.

    ``subset`` < ``size`` first draws that many coordinates at random (SubMDS).
    """

    size: int
    top: int
    output: int
    epsilon: float
    subset: int | None = None

    name: ClassVar[str] = "select"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        pool = self.pool
        if any(type(n) is not int for n in (self.size, self.top, self.output, pool)):
            raise PrivacyError("whole numbers of coordinates", "others", "correct the plan")
        if not 1 <= pool <= self.size <= _MOST:
            raise PrivacyError(
                f"a subset of 1 to {self.size} coordinates", f"{pool}", "set a share in (0, 1]"
            )
        _check_top(self.top, pool)
        if not 1 <= self.output <= min(self.top, pool - self.top):
            raise PrivacyError(
                f"an output of 1 to {min(self.top, pool - self.top)} coordinates "
                f"(top set {self.top} of {pool})",
                f"{self.output}",
                "set recipe.outputs to fewer, or 0 to have it chosen",
            )

    @property
    def pool(self) -> int:
        """How many coordinates are to choose from."""
        return self.size if self.subset is None else self.subset

    @property
    def law(self) -> Law:
        """How many of the output are from the top set."""
        return law(self.pool, self.top, self.output, self.epsilon)

    @property
    def chances(self) -> Chances:
        """The law of ν as it is drawn."""
        return _chances(self.pool, self.top, self.output, self.epsilon)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def telling(self) -> float:
        """The share of a choice that is not chance: 0 tells nothing, 1 the top set alone."""
        chance = self.top / self.pool
        return (self.law.share - chance) / (1 - chance)

    def seal(self, value: Tensor | Bounded, use: Use) -> tuple[Tensor, tuple[Receipt, ...]]:
        """A sign and coordinates instead of the update."""
        receipt = self.receipt(use.part, use.unit, use.round, use.source)
        return choose(raw(value), self, use.draws), (receipt,)

    def fits(self, sent: Tensor, part: Part, unit: Unit) -> Tensor | None:
        """A sign and h different coordinates."""
        if sent.shape[1:] != (1 + self.output,) or sent.dtype != torch.int32:
            return None
        signs, chosen = sent[:, 0], sent[:, 1:].long().sort(dim=1).values
        valid = (signs.abs() == 1) & (chosen >= 0).all(1) & (chosen < self.size).all(1)
        return valid & (chosen.diff(dim=1) > 0).all(1)

    def accumulate(self, total: Tensor, sent: Tensor) -> None:
        """Votes: each message stands for its sign at its coordinates."""
        signs = sent[:, :1].double().expand(-1, self.output)
        total.index_add_(0, sent[:, 1:].reshape(-1).long(), signs.reshape(-1))

    def bytes(self, part: Part) -> int:
        """One 32-bit integer for the sign, and one per coordinate."""
        return 4 * (1 + self.output)

    def describe(self, part: Part) -> str:
        """How many coordinates of how many, and what they are worth."""
        pool = f" of a random {self.pool:,}" if self.subset else ""
        share, chance = _below_one(self.law.share), _below_one(self.top / self.pool)
        return (
            f"{part.name}: a sign and {self.output} of {self.size:,} coordinates{pool}, expected "
            f"share from the {self.top:,} largest {share} (by chance {chance}), ε = "
            f"{round_up(self.epsilon)}"
        )


def _below_one(share: float) -> str:
    """Two digits of a share, more where they would make it look like all."""
    return f"{share:.2g}" if share < 0.995 else f"{math.floor(share * 1e3) / 1e3:g}"


def _check_top(top: int, pool: int) -> None:
    if not 1 <= top < pool:
        raise PrivacyError(
            f"a top set of 1 to {pool - 1} of {pool} coordinates",
            f"{top}",
            "lower the top share (recipe.top), or raise recipe.subset",
        )


def _log_ways(d: int, k: int, h: int) -> np.ndarray:
    """log ω_τ up to a constant, from the ratios of neighbours: exact for any d."""
    tau = np.arange(h, dtype=np.float64)
    ratio = (k - tau) * (h - tau) / ((tau + 1) * (d - k - h + tau + 1))
    return np.concatenate([[0.0], np.cumsum(np.log(ratio))])


@lru_cache(maxsize=4096)
def law(d: int, k: int, h: int, epsilon: float) -> Law:
    """The distribution of ν at the threshold that makes E[ν] largest (thesis eq. 3.11–3.13)."""
    ways = _log_ways(d, k, h)
    tau = np.arange(h + 1)
    with np.errstate(divide="ignore"):
        scored = ways + np.log(tau)
    below, above = np.logaddexp.accumulate(ways), _suffix(ways)
    hits_below, hits_above = np.logaddexp.accumulate(scored), _suffix(scored)
    total = np.logaddexp(below[:-1], above[1:] + epsilon)  # for thresholds 1 … h
    expected = np.logaddexp(hits_below[:-1], hits_above[1:] + epsilon) - total
    best = int(np.argmax(expected))
    logs = ways + epsilon * (tau > best) - total[best]
    return Law(best + 1, tuple(np.exp(logs).tolist()))


@lru_cache(maxsize=256)
def _chances(d: int, k: int, h: int, epsilon: float) -> Chances:
    """ω_τ·e^(ε·1[τ ≥ threshold]) in whole numbers, and the chances that follow."""
    ways, best, factor = math.comb(d - k, h), law(d, k, h, epsilon).threshold, gain(epsilon)
    masses = []
    for tau in range(h + 1):
        masses.append(ways * (factor if tau >= best else UNIT))
        ways = ways * (k - tau) * (h - tau) // ((tau + 1) * (d - k - h + tau + 1))
    return Chances.of(masses)


def _suffix(logs: np.ndarray) -> np.ndarray:
    return np.logaddexp.accumulate(logs[::-1])[::-1]


@lru_cache(maxsize=4096)
def optimal_output(d: int, k: int, epsilon: float, share: float) -> int:
    """The largest h whose expected top share exceeds ``share`` (thesis eq. 5.6); 1 if none does.

    The expected share falls in h but for ripples where the threshold steps, so the search goes
    on to twice the last h that passed.
    """
    check_epsilon(epsilon)
    _check_top(k, d)
    if not k / d < share < 1:
        raise PrivacyError(
            f"a wanted top share between {k / d:.3g} (what chance alone gives) and 1",
            f"{share}",
            "set recipe.share, e.g. 0.8, or a smaller recipe.top",
        )
    most, best, h = min(k, d - k), 1, 1
    while h <= min(most, 2 * best + 8):
        if law(d, k, h, epsilon).share > share:
            best = h
        h += 1
    return best
