from __future__ import annotations

import numpy as np
import pytest

from understudy.federation.cohort import draw_cohort, scheduled
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


def test_a_schedule_calls_everyone_once_before_anyone_again() -> None:
    rng = Streams.from_seed(0)
    rounds = [scheduled(20, 6, r, rng=rng) for r in range(9)]
    assert all(len(set(cohort.tolist())) == 6 for cohort in rounds), "one site twice in a round"
    for start in (0, 3, 6):
        seen = np.concatenate(rounds[start : start + 3])
        assert len(set(seen.tolist())) == 18, "somebody was called twice in one pass"
    assert max(np.bincount(np.concatenate(rounds))) <= 3, "more calls than the plan counts"


def test_a_schedule_is_the_same_for_all_who_know_the_streams() -> None:
    one, two = (scheduled(50, 7, 9, rng=Streams.from_seed(3)) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert one.tolist() != scheduled(50, 7, 9, rng=Streams.from_seed(4)).tolist()
