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
from understudy.privacy.top import places, some
from understudy.rng import Draws

if TYPE_CHECKING:
    from understudy.privacy.select import Selection

__all__ = ["choose"]


def choose(update: Tensor, rule: Selection, source: Draws) -> Tensor:
    """The messages ``[C, 1+h]`` of a stack of updates ``[C, d]``: a sign, then coordinates.

    An update that is not finite counts as zero: to refuse it would say something about its site.

    Guarantee: each row is ε-locally private for the site whose update it is.
    """
    if update.dim() != 2 or update.shape[1] != rule.size:
        raise PrivacyError(
            f"updates of {rule.size} numbers", f"shape {tuple(update.shape)}", "fix the recipe"
        )
    source.check(len(update))
    signs = torch.from_numpy(np.where(source.words(1) >> np.uint64(63), 1, -1))
    pool, values = _subsets(len(update), rule, source), _finite(update.detach())
    values = values if pool is None else values.gather(1, pool)
    chosen = _draw(values, signs.to(values.dtype), rule, source)
    chosen = chosen if pool is None else pool.gather(1, chosen)
    return torch.cat((signs, chosen), dim=1).to(torch.int32)


def _finite(update: Tensor) -> Tensor:
    """The same, with zeros for every update that holds a number that is not finite.

    Such a number shows in the sum. So may large ones that are finite: these are looked at.
    """
    suspect = (~update.sum(1).isfinite()).nonzero().flatten()
    broken = suspect[~update[suspect].isfinite().all(1)]
    return update.index_fill(0, broken, 0) if len(broken) else update


def _subsets(clients: int, rule: Selection, source: Draws) -> Tensor | None:
    """For each client a random subset of coordinates ``[C, d̃]``, drawn without its data.

    It need not be secret: the guarantee holds for every subset.
    """
    if rule.subset is None or rule.subset == rule.size:
        return None
    drawn = [some(rule.size, rule.subset, source.generator(c)) for c in range(clients)]
    return torch.from_numpy(np.stack(drawn)) if drawn else torch.empty(0, rule.subset).long()


def _draw(values: Tensor, signs: Tensor, rule: Selection, source: Draws) -> Tensor:
    """h positions per client ``[C, h]``: ν of the top set, the rest of the others, shuffled."""
    h, k = rule.output, rule.top
    inside = np.arange(h) < rule.chances.draw(source)[:, None]
    ranks = np.where(inside, _distinct(h, k, source), _distinct(h, rule.pool - k, source))
    chosen = torch.from_numpy(places(values.numpy(), signs.numpy(), k, ranks, inside, source))
    return chosen.gather(1, torch.from_numpy(_orders(h, source)))


def _distinct(h: int, n: int, source: Draws) -> np.ndarray:
    """h different numbers below n per client ``[C, h]``, each ordered draw equally likely.

    Repeats are drawn again; that treats all numbers alike, so the result is uniform.
    """
    if 4 * h > n:
        return _orders(n, source)[:, :h]
    drawn = _below(source.words(h), n)
    while len(again := _repeats(drawn)):
        words = source.words_each(np.bincount(again[:, 0], minlength=len(source)))
        drawn[again[:, 0], again[:, 1]] = _below(words, n)
    return drawn


def _orders(n: int, source: Draws) -> np.ndarray:
    """A permutation per client ``[C, n]``, all exactly equally likely: by random words.

    Where two words of a client are equal, it draws all of its words again.
    """
    words = source.words(n)
    ranked = words.argsort(axis=1)
    sorted_ = np.take_along_axis(words, ranked, axis=1)
    for site in np.flatnonzero((sorted_[:, 1:] == sorted_[:, :-1]).any(1)):
        ranked[site] = _orders(n, source.take([int(site)]))[0]
    return ranked


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
