"""Who takes part in a round.

Amplification may be claimed only for independent coin flips that the adversary does not
see, so that is how cohorts are drawn: from the noise source, empty ones included. A
schedule that does not depend on data (everyone once, in shuffled order) serves local
trust, where nothing is amplified.
"""

from __future__ import annotations

import numpy as np

from understudy.errors import PrivacyError
from understudy.rng import NoiseSource, Streams

__all__ = ["draw_cohort", "schedule"]


def draw_cohort(sites: int, rate: float | None, *, source: NoiseSource) -> np.ndarray:
    """Indices of the sites that join: each by its own coin flip, or all when ``rate`` is None."""
    if rate is None:
        return np.arange(sites)
    return np.flatnonzero(source.coins(sites, rate))


def schedule(sites: int, size: int, rounds: int, *, rng: Streams) -> list[np.ndarray]:
    """Everyone once, in shuffled order, ``size`` a round. For local trust only."""
    if size * rounds > sites:
        raise PrivacyError(
            f"at most {sites // size} rounds in which everyone joins once",
            f"{rounds}",
            "lower rounds",
        )
    order = rng.numpy("schedule").permutation(sites)
    return [order[r * size : (r + 1) * size] for r in range(rounds)]
