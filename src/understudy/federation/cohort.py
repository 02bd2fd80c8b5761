"""Who takes part in a round.

Amplification may be claimed only for independent coin flips that the adversary does not
see, so that is how cohorts are drawn: from the noise source, empty ones included. A
schedule that does not depend on data (pass after pass, in shuffled order) serves local
trust, where nothing is amplified.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from understudy.rng import Draws, Streams

__all__ = ["draw_cohort", "scheduled"]


def draw_cohort(sites: int, rate: float | None, *, source: Draws) -> np.ndarray:
    """Indices of the sites that join: each by its own coin flip, or all when ``rate`` is None."""
    if rate is None:
        return np.arange(sites)
    return np.flatnonzero(source.coins(sites, rate)[0])


def scheduled(sites: int, size: int, round: int, *, rng: Streams) -> np.ndarray:
    """The sites of a round by a public schedule: ``size`` different ones a round.

    Rounds walk through shuffled passes over all sites, and a cohort may end one pass and begin
    the next. So after any number of rounds the calls of two sites differ by one at most, and
    the most called has ⌈rounds · size / sites⌉. Any round can be asked for, at the cost of two
    passes. Where more than half take part, the same is done for those who stay away.
    """
    if 2 * size > sites:
        everyone = np.arange(sites)
        rest = sites - size
        return np.delete(everyone, scheduled(sites, rest, round, rng=rng)) if rest else everyone
    turn, start = divmod(round * size, sites)
    ends = _pass(rng, sites, size, turn)[start : start + size].copy()  # a pass is kept
    begins = size - len(ends)
    return np.append(ends, _pass(rng, sites, size, turn + 1)[:begins]) if begins else ends


@lru_cache(maxsize=2)
def _pass(rng: Streams, sites: int, size: int, turn: int) -> np.ndarray:
    """All sites in the order of one pass.

    If its first places belong to a cohort that the pass before begins, those who are in that
    already change places with others further back. The last places, which the next pass looks
    at, stay as they were shuffled: that is why no pass depends on all before it.
    """
    order = _shuffled(rng, sites, turn)
    first, last = -turn * sites % size, (turn + 1) * sites % size
    if not first:
        return order
    called = np.isin(order, _shuffled(rng, sites, turn - 1)[first - size :])
    twice = np.flatnonzero(called[:first])
    spare = first + np.flatnonzero(~called[first : sites - last])[: len(twice)]
    order[twice], order[spare] = order[spare], order[twice]
    return order


def _shuffled(rng: Streams, sites: int, turn: int) -> np.ndarray:
    return rng.numpy("schedule", turn).permutation(sites)
