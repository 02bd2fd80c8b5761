"""Places by their rank inside and outside the *top set* of a vector, at the speed of memory.

The top set holds the k largest numbers, with ties at its border broken at random, so that it has
exactly k members. What is wanted are a few of its members, or of the others, by their rank among
them in ascending order of place. So no list of members is made: the k-th largest number is found
within a bracket that a sample of the vector gives, one comparison marks the members, and counts
of blocks of marks lead to each place. Vectors are worked on a few at a time, as many as a core's
cache holds.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from understudy.rng import Draws

__all__ = ["places", "some"]

_CACHE = 2**20  # bytes of vectors that are worked on at once
_BLOCK = 64  # marks that are counted together
_SMALL = 4096  # vectors up to here are not worth a sample
_SAMPLE = 1024
_LANES = np.uint64(0x0101010101010101)


def places(
    values: np.ndarray,
    signs: np.ndarray,
    k: int,
    ranks: np.ndarray,
    inside: np.ndarray,
    source: Draws,
) -> np.ndarray:
    """The places ``[C, h]`` of these ranks in finite vectors ``[C, d]`` times ``signs [C, 1]``.

    A rank is one among the k members of the top set where ``inside`` is true, elsewhere one
    among the d − k others. ``source`` breaks ties.
    """
    found = np.empty(ranks.shape, np.int64)
    size = max(1, _CACHE // max(1, values[:1].nbytes))
    for start in range(0, len(values), size):
        few = slice(start, start + size)
        members = _members(values[few] * signs[few], k, source, start)
        found[few] = _ranked(members, ranks[few], inside[few])
    return found


def some(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` different numbers below n."""
    return rng.choice(n, count, replace=False, shuffle=False)


def _members(values: np.ndarray, k: int, source: Draws, first: int) -> np.ndarray:
    """Which places are in the top set, as whole blocks; ties at random."""
    size, least = values.shape[1], _least(values, k)[:, None]
    found = np.zeros((len(values), -(-size // _BLOCK) * _BLOCK), bool)
    np.greater_equal(values, least, out=found[:, :size])
    spare = _counts(found).sum(1) - k
    for row in np.flatnonzero(spare):
        tied = np.flatnonzero(values[row] == least[row])
        found[row, tied[some(len(tied), int(spare[row]), source.generator(first + int(row)))]] = (
            False
        )
    return found


def _ranked(members: np.ndarray, ranks: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Where the members, or the others, of these ranks are: first the block, then the place."""
    counts = _counts(members)
    upto, ends = counts.cumsum(1), np.arange(1, counts.shape[1] + 1) * _BLOCK
    wanted = torch.from_numpy(np.ascontiguousarray(ranks))
    sums = (torch.from_numpy(n) for n in (upto, ends - upto))
    block = np.where(inside, *(torch.searchsorted(n, wanted, right=True).numpy() for n in sums))
    row = np.arange(len(members))[:, None]
    before = (upto - counts)[row, block]
    before = np.where(inside, before, _BLOCK * block - before)
    alike = members.reshape(len(members), -1, _BLOCK)[row, block] == inside[..., None]
    passed = alike.cumsum(2, dtype=np.uint8) > (ranks - before)[..., None]
    return block * _BLOCK + passed.argmax(2)


def _counts(marks: np.ndarray) -> np.ndarray:
    """How many of each block are true, ``[C, blocks]``: eight marks a word, added in lanes."""
    words = marks.view(np.uint64)
    while words.shape[1] > marks.shape[1] // _BLOCK:
        words = words[:, 0::2] + words[:, 1::2]
    return ((words * _LANES) >> np.uint64(56)).astype(np.int64)


def _least(values: np.ndarray, k: int) -> np.ndarray:
    """The k-th largest number of each vector, exactly."""
    size = values.shape[1]
    if size <= _SMALL:
        return np.partition(values, size - k, axis=1)[:, size - k]
    low, high = _bracket(values, k)
    above = _counts_above(values, high)
    place = np.flatnonzero((values >= low) & (values <= high))
    ends = np.searchsorted(place, size * np.arange(len(values) + 1))
    near = values.reshape(-1)[place]
    rows = enumerate(zip(above.tolist(), ends.tolist(), ends[1:].tolist(), strict=False))
    return np.array([_nth(near[a:b], k - n, values[row], k) for row, (n, a, b) in rows])


def _nth(near: np.ndarray, n: int, whole: np.ndarray, k: int) -> np.floating:
    """The n-th largest of those near it, which is the k-th of all; unless the bracket missed it."""
    held, n = (near, n) if 1 <= n <= len(near) else (whole, k)
    return np.partition(held, len(held) - n)[len(held) - n]


def _bracket(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers ``[C, 1]`` that the k-th largest is most likely between, by a sample."""
    sample = np.sort(values[:, :: values.shape[1] // _SAMPLE], axis=1)
    m, share = sample.shape[1], 1 - k / values.shape[1]
    middle, room = m * share, 2.5 * math.sqrt(m * share * (1 - share)) + 2
    low, high = math.floor(middle - room), math.ceil(middle + room)
    none = np.full((len(values), 1), np.inf, values.dtype)
    return (
        sample[:, low, None] if low >= 0 else -none,
        sample[:, high, None] if high < m else none,
    )


def _counts_above(values: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """How many of each vector are above its limit ``[C]``."""
    marks = values > limit
    return np.array([np.count_nonzero(row) for row in marks])
