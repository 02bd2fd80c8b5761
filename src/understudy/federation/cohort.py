"""Who takes part in a round.

Amplification may be claimed only for independent coin flips that the adversary does not
see, so that is how cohorts are drawn: from the noise source, empty ones included. A
schedule that does not depend on data (pass after pass, in shuffled order) serves local
trust, where nothing is amplified.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from understudy.rng import NoiseSource, Streams

__all__ = ["draw_cohort", "scheduled"]


def draw_cohort(sites: int, rate: float | None, *, source: NoiseSource) -> np.ndarray:
    """Indices of the sites that join: each by its own coin flip, or all when ``rate`` is None."""
    if rate is None:
        return np.arange(sites)
    return np.flatnonzero(source.coins(sites, rate))


def scheduled(sites: int, size: int, round: int, *, rng: Streams) -> np.ndarray:
    """The sites of a round by a public schedule: ``size`` a round, none twice in a pass.

    Each pass has its own order; what is left of a pass when no full cohort remains is skipped,
    so that no site is called twice in a round.
    """
    each = sites // size
    order = _order(rng, sites, round // each)
    start = round % each * size
    return order[start : start + size]


@lru_cache(maxsize=2)
def _order(rng: Streams, sites: int, turn: int) -> np.ndarray:
    return rng.numpy("schedule", turn).permutation(sites)
