from __future__ import annotations

import numpy as np
import pytest

from understudy.errors import PrivacyError
from understudy.federation.cohort import draw_cohort, schedule
from understudy.rng import NoiseSource, Streams


def test_without_a_rate_everyone_joins() -> None:
    assert draw_cohort(4, None, source=NoiseSource.system()).tolist() == [0, 1, 2, 3]


def test_cohorts_are_coin_flips_so_their_size_varies_and_may_be_zero() -> None:
    source = NoiseSource.seeded(Streams.from_seed(0))
    sizes = [len(draw_cohort(10, 0.2, source=source)) for _ in range(500)]
    assert min(sizes) == 0 and max(sizes) > 4
    assert np.mean(sizes) == pytest.approx(2.0, abs=0.3)
    assert np.var(sizes) == pytest.approx(1.6, abs=0.4), "a fixed size would have no variance"


def test_cohorts_come_from_the_noise_source_and_are_never_repeated() -> None:
    source = NoiseSource.system()
    draws = {tuple(draw_cohort(64, 0.5, source=source)) for _ in range(5)}
    assert len(draws) == 5


def test_a_schedule_lets_everyone_join_at_most_once() -> None:
    rounds = schedule(20, 6, 3, rng=Streams.from_seed(0))
    seen = np.concatenate(rounds)
    assert [len(r) for r in rounds] == [6, 6, 6]
    assert len(set(seen.tolist())) == 18


def test_a_schedule_that_needs_someone_twice_is_refused() -> None:
    with pytest.raises(PrivacyError, match="at most 3 rounds"):
        schedule(20, 6, 4, rng=Streams.from_seed(0))
