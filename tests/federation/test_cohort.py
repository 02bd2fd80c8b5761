from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.federation.cohort import draw_cohort, scheduled
from understudy.privacy.plan import Phase
from understudy.rng import NoiseSource, Streams


def test_without_a_rate_everyone_joins() -> None:
    source = NoiseSource.system().server("cohort", 0)
    assert draw_cohort(4, None, source=source).tolist() == [0, 1, 2, 3]


def test_cohorts_are_coin_flips_so_their_size_varies_and_may_be_zero() -> None:
    source = NoiseSource.seeded(Streams.from_seed(0))
    draws = [source.server("cohort", round) for round in range(500)]
    sizes = [len(draw_cohort(10, 0.2, source=drawn)) for drawn in draws]
    assert min(sizes) == 0 and max(sizes) > 4
    assert np.mean(sizes) == pytest.approx(2.0, abs=0.3)
    assert np.var(sizes) == pytest.approx(1.6, abs=0.4), "a fixed size would have no variance"


def test_cohorts_come_from_the_noise_source_and_are_never_repeated() -> None:
    source = NoiseSource.system().server("cohort", 0)
    draws = {tuple(draw_cohort(64, 0.5, source=source)) for _ in range(5)}
    assert len(draws) == 5


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, int, int, Streams]:
    """Sites, cohort size, rounds and streams; every proportion of size to sites occurs."""
    sites = draw(st.integers(1, 40))
    size = draw(st.integers(1, sites) | st.sampled_from([1, sites, sites // 2 + sites % 2]))
    return sites, size, draw(st.integers(1, 60)), Streams.from_seed(draw(st.integers(0, 99)))


def calls(sites: int, size: int, rounds: int, rng: Streams) -> np.ndarray:
    """How often each site is called, over cohorts that are checked on the way."""
    count = np.zeros(sites, np.int64)
    for round in range(rounds):
        cohort = scheduled(sites, size, round, rng=rng)
        assert len(cohort) == size and len(np.unique(cohort)) == size, "a site twice in a round"
        count[cohort] += 1
        assert np.ptp(count) <= 1, f"some are called more than others after round {round}"
    return count


@given(schedules())
def test_a_schedule_calls_all_alike_after_any_round_and_none_twice_in_one(case) -> None:
    sites, size, rounds, rng = case
    count = calls(sites, size, rounds, rng)
    assert count.max() == -(-rounds * size // sites)
    assert count.min() == rounds * size // sites


@given(schedules())
def test_a_plan_counts_the_calls_of_its_schedule(case) -> None:
    sites, size, rounds, rng = case
    phase = Phase((), rounds, sites, size=size)
    assert phase.calls == calls(sites, size, rounds, rng).max()


@given(schedules())
def test_a_schedule_can_be_entered_at_any_round(case) -> None:
    """A resumed run sees what the first one saw, whatever was asked for in between."""
    sites, size, rounds, rng = case
    forwards = [scheduled(sites, size, r, rng=rng).tolist() for r in range(rounds)]
    again = Streams(rng.root)
    backwards = [scheduled(sites, size, r, rng=again).tolist() for r in reversed(range(rounds))]
    assert forwards == backwards[::-1]


@pytest.mark.parametrize("size", [3, 6, 10])
def test_who_reorders_a_cohort_does_not_change_the_schedule(size: int) -> None:
    """Passes are kept between rounds: a cohort must not be a view of one."""
    rng = Streams.from_seed(0)
    wanted = [scheduled(10, size, round, rng=rng).tolist() for round in range(8)]
    for round in range(8):
        scheduled(10, size, round, rng=rng)[:] = 0
        assert scheduled(10, size, round, rng=rng).tolist() == wanted[round]


def test_what_is_left_of_a_pass_is_carried_over() -> None:
    """729 sites, 250 a round, 500 rounds: 172 updates of a site's life, not 250."""
    assert calls(729, 250, 500, Streams.from_seed(0)).max() == 172


def test_each_pass_has_an_order_of_its_own() -> None:
    rng = Streams.from_seed(0)
    passes = [[scheduled(20, 4, 5 * k + r, rng=rng).tolist() for r in range(5)] for k in range(3)]
    assert len({str(cohorts) for cohorts in passes}) == 3
    pairs = {frozenset(cohort) for cohorts in passes for cohort in cohorts}
    assert len(pairs) > 10, "the same sites always meet"


def test_a_schedule_is_the_same_for_all_who_know_the_streams() -> None:
    one, two = (scheduled(50, 7, 9, rng=Streams.from_seed(3)) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert one.tolist() != scheduled(50, 7, 9, rng=Streams.from_seed(4)).tolist()
