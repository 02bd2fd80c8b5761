"""Choosing coordinates of an update under pure local privacy: PS, EM-MDS and SubMDS.

A site does not send its update Δ ∈ R^d but a sign and h coordinates (jiang-thesis, ch. 3 and 5).
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
broken at random, and J is shuffled. It holds for the numbers drawn, too, not only for the law
above: ν comes from integer chances (`Chances`), and given ν all J are exactly equally likely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.privacy.chances import UNIT, Chances, gain
from understudy.privacy.clip import Receipt
from understudy.rng import Draws

__all__ = ["Law", "Selection", "choose", "law", "optimal_output", "spread"]

_MOST = 2**31 - 1  # coordinates travel as 32-bit integers
_MOST_EPSILON = 30.0


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
class Selection:
    """Choose ``output`` of ``size`` coordinates, preferably among the ``top`` largest, at ε.

    ``subset`` < ``size`` first draws that many coordinates at random (SubMDS).
    """

    size: int
    top: int
    output: int
    epsilon: float
    subset: int | None = None

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
    def bytes(self) -> int:
        """Of a message: one 32-bit integer for the sign, and one per coordinate."""
        return 4 * (1 + self.output)

    def probability(self, hits: int) -> float:
        """Of one output set that holds ``hits`` coordinates of the top set."""
        ways = math.comb(self.top, hits) * math.comb(self.pool - self.top, self.output - hits)
        return self.law.probability[hits] / ways


def check_epsilon(epsilon: float) -> None:
    """Refuse an ε at which nothing is promised, or nothing can be learnt."""
    if not 0 < epsilon <= _MOST_EPSILON:
        raise PrivacyError(
            f"ε of one update above 0 and up to {_MOST_EPSILON:g}, beyond which it is as good as "
            "sent in the clear",
            f"{epsilon}",
            "choose privacy.epsilon_per_update, or privacy.epsilon of a whole life, in this range",
        )


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


def choose(
    update: Tensor,
    rule: Selection,
    *,
    part: str,
    round: int,
    source: Draws,
) -> tuple[Tensor, Receipt]:
    """The messages ``[C, 1+h]`` of a stack of updates ``[C, d]``: a sign, then coordinates.

    Guarantee: each row is ε-locally private for the site whose update it is.
    """
    if update.dim() != 2 or update.shape[1] != rule.size:
        raise PrivacyError(
            f"updates of {rule.size} numbers", f"shape {tuple(update.shape)}", "fix the recipe"
        )
    if not bool(torch.isfinite(update).all()):
        raise PrivacyError(
            "updates of finite numbers", "NaN or infinity", "lower the learning rate"
        )
    source.check(len(update))
    signs = torch.from_numpy(np.where(source.words(1)[:, 0] >> np.uint64(63), 1, -1))
    pool = _subsets(len(update), rule, source)
    values = update.detach() if pool is None else update.detach().gather(1, pool)
    top = _top_set(values * signs[:, None].to(values.dtype), rule.top, source)
    chosen = _draw(top, rule, source)
    chosen = chosen if pool is None else pool.gather(1, chosen)
    message = torch.cat((signs[:, None], chosen), dim=1).to(torch.int32)
    return message, pure_receipt("select", rule.epsilon, part=part, round=round, source=source)


def pure_receipt(
    mechanism: str, epsilon: float, *, part: str, round: int, source: Draws
) -> Receipt:
    """What a mechanism of pure ε did for a whole site: nothing was bounded, nothing noised."""
    kind = "simulation" if source.is_simulation else "os"
    return Receipt(round, part, "client", mechanism, "site", 0.0, 0.0, kind, epsilon)


def spread(messages: Tensor, size: int) -> Tensor:
    """The sum of what messages ``[C, 1+h]`` stand for: their sign at their coordinates."""
    signs = messages[:, :1].double().expand(-1, messages.shape[1] - 1)
    total = torch.zeros(size, dtype=torch.float64)
    return total.index_add_(0, messages[:, 1:].reshape(-1).long(), signs.reshape(-1))


def fits(messages: Tensor, rule: Selection) -> Tensor:
    """Which rows ``[C]`` are messages of this rule: a sign and h different coordinates."""
    signs, chosen = messages[:, 0], messages[:, 1:].long().sort(dim=1).values
    valid = (signs.abs() == 1) & (chosen >= 0).all(1) & (chosen < rule.size).all(1)
    return valid & (chosen.diff(dim=1) > 0).all(1)


def _subsets(clients: int, rule: Selection, source: Draws) -> Tensor | None:
    """For each client a random subset of coordinates ``[C, d̃]``, drawn without its data.

    It need not be secret: the guarantee holds for every subset.
    """
    if rule.subset is None or rule.subset == rule.size:
        return None
    drawn = [_some(rule.size, rule.subset, source.generator(c)) for c in range(clients)]
    return torch.from_numpy(np.stack(drawn)) if drawn else torch.empty(0, rule.subset).long()


def _some(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` different numbers below n."""
    return rng.choice(n, count, replace=False, shuffle=False)


def _top_set(values: Tensor, k: int, source: Draws) -> Tensor:
    """The positions of the k largest values ``[C, k]``, ascending; ties at random.

    Found by their least value, which numpy's partition gives in less than half the time of a top-k.
    """
    found, place = values.numpy(), values.shape[1] - k
    least = np.partition(found, place, axis=1)[:, place, None]
    top, equal = found > least, found == least
    wanted = k - np.count_nonzero(top, axis=1)
    for site in np.flatnonzero(np.count_nonzero(equal, axis=1) > wanted):  # a tie at the border
        tied = np.flatnonzero(equal[site])
        equal[site] = False
        equal[site, tied[_some(len(tied), int(wanted[site]), source.generator(int(site)))]] = True
    return torch.from_numpy(np.nonzero(top | equal)[1].reshape(len(found), k))


def _draw(top: Tensor, rule: Selection, source: Draws) -> Tensor:
    """h positions per client ``[C, h]``: ν of the top set, the rest of the others, shuffled."""
    h = rule.output
    hits = torch.from_numpy(rule.chances.draw(source))
    within = top.gather(1, _distinct(h, rule.top, source))
    others = _outside(top, _distinct(h, rule.pool - rule.top, source))
    chosen = torch.where(torch.arange(h) < hits[:, None], within, others)
    return chosen.gather(1, _orders(h, source))


def _outside(top: Tensor, ranks: Tensor) -> Tensor:
    """The positions that are not in the (ascending) top set, by their rank among those."""
    gaps = top - torch.arange(top.shape[1])  # how many outsiders come before each member
    return ranks + torch.searchsorted(gaps, ranks, right=True)


def _distinct(h: int, n: int, source: Draws) -> Tensor:
    """h different numbers below n per client ``[C, h]``, each ordered draw equally likely.

    Repeats are drawn anew; that treats all numbers alike, so the result is uniform.
    """
    if 4 * h > n:
        return _orders(n, source)[:, :h].contiguous()
    drawn = _below(source.words(h), n)
    while len(again := _repeats(drawn)):
        words = source.words_each(np.bincount(again[:, 0], minlength=len(source)))
        drawn[again[:, 0], again[:, 1]] = _below(words, n)
    return torch.from_numpy(drawn)


def _orders(n: int, source: Draws) -> Tensor:
    """A permutation per client ``[C, n]``, all exactly equally likely: by random words.

    Where two words of a client are equal, it draws all of its words again.
    """
    words = source.words(n)
    ranked = words.argsort(axis=1)
    sorted_ = np.take_along_axis(words, ranked, axis=1)
    for site in np.flatnonzero((sorted_[:, 1:] == sorted_[:, :-1]).any(1)):
        ranked[site] = _orders(n, source.take([int(site)]))[0]
    return torch.from_numpy(ranked)


def _below(words: np.ndarray, n: int) -> np.ndarray:
    """⌊word·n / 2^64⌋ for n < 2^32, or −1 for the few words that would make some too likely."""
    low_half = np.uint64(2**32 - 1)
    high, low = (words >> np.uint64(32)) * np.uint64(n), (words & low_half) * np.uint64(n)
    upper = high + (low >> np.uint64(32))
    rest = (upper << np.uint64(32)) | (low & low_half)  # word·n modulo 2^64
    fair = rest >= np.uint64(2**64 % n)
    return np.where(fair, (upper >> np.uint64(32)).astype(np.int64), -1)


def _repeats(drawn: np.ndarray) -> np.ndarray:
    """Where ``[clients, h]`` no number stands, or one that stood further left already: pairs."""
    order = drawn.argsort(axis=1, kind="stable")
    ranked = np.take_along_axis(drawn, order, axis=1)
    same = np.zeros(drawn.shape, bool)
    same[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    row, place = np.nonzero(same | (ranked < 0))
    return np.stack((row, order[row, place]), axis=1)
