"""Drawing a message of `Selection`: every number that a site sends, from its own secret stream.

Chances are exact (`chances`) and uniform numbers are unbiased, so that the ratio of any two
messages' probabilities is what `Selection` promises, down to the rarest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.rng import Draws

if TYPE_CHECKING:
    from understudy.privacy.select import Selection

__all__ = ["choose"]


def choose(update: Tensor, rule: Selection, source: Draws) -> Tensor:
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
    return torch.cat((signs[:, None], chosen), dim=1).to(torch.int32)


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

    Repeats are drawn again; that treats all numbers alike, so the result is uniform.
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
