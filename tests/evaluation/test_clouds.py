import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluation import clouds
from understudy.evaluation.clouds import (
    COVERAGE,
    MMD,
    NEAREST,
    covered,
    measure_clouds,
    squared_mmd,
)
from understudy.evaluation.rows import Rows


def cloud(n: int, seed: int, shift: float = 0.0, width: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, (n, width))


def rows(x: np.ndarray) -> Rows:
    return Rows(x.astype(np.float32), np.zeros(len(x), np.int64))


def mmd(real: np.ndarray, synthetic: np.ndarray) -> float:
    return float(squared_mmd(real, synthetic)[0])


def coverage(real: np.ndarray, synthetic: np.ndarray, nearest: int = NEAREST) -> float:
    return float(covered(real, synthetic, nearest).mean())


def test_mmd_by_hand() -> None:
    real, synthetic = np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]])
    # κ = 2·1·½ = 1; κ/(κ+d²): real pair 1/2, synthetic pair 1/5, between 1, 1/5, 1/2, 1/2
    expected = 1 / 2 + 1 / 5 - 2 * (1 + 1 / 5 + 1 / 2 + 1 / 2) / 4
    assert mmd(real, synthetic) == pytest.approx(expected)


def test_bandwidth_is_the_mean_squared_distance_of_real_records() -> None:
    real, synthetic = cloud(30, 0), cloud(20, 1)
    apart = {
        name: ((a[:, None] - b[None]) ** 2).sum(2)
        for name, a, b in (("r", real, real), ("s", synthetic, synthetic), ("rs", real, synthetic))
    }
    other = {name: ~np.eye(n, dtype=bool) for name, n in (("r", 30), ("s", 20))}
    kappa = apart["r"][other["r"]].mean()
    kernel = {name: kappa / (kappa + squares) for name, squares in apart.items()}
    within = sum(kernel[name][other[name]].mean() for name in other)
    assert mmd(real, synthetic) == pytest.approx(within - 2 * kernel["rs"].mean())


def test_mmd_is_about_zero_for_one_distribution_and_grows_with_the_shift() -> None:
    same = [mmd(cloud(300, 2 * i), cloud(300, 2 * i + 1)) for i in range(20)]
    assert abs(np.mean(same)) < 1e-3 and min(same) < 0
    found = [mmd(cloud(300, 0), cloud(300, 1, shift)) for shift in (0.0, 0.5, 1.0, 2.0)]
    assert found == sorted(found) and found[1] > 0.01


def test_mmd_does_not_depend_on_how_features_are_laid_out() -> None:
    a, b = cloud(20, 0, width=2500), cloud(20, 1, 0.1, width=2500)
    whole = mmd(a, b)
    assert mmd(a[:, ::-1], b[:, ::-1]) == pytest.approx(whole)


def test_mmd_of_constant_records_is_finite() -> None:
    same = np.full((5, 2), 0.5)
    assert mmd(same, same) == pytest.approx(0)
    assert np.isfinite(mmd(same, cloud(5, 0, width=2)))


def test_coverage_by_hand() -> None:
    real = np.array([[0.0], [1.0], [2.0], [10.0]])
    # one neighbour: radii 1, 1, 1, 8; the only synthetic record is at 2.9
    assert coverage(real, np.array([[2.9]]), nearest=1) == pytest.approx(2 / 4)
    assert coverage(real, np.array([[2.9], [-1.0]]), nearest=1) == pytest.approx(3 / 4)


@settings(max_examples=30, deadline=None)
@given(st.integers(7, 40), st.integers(1, 6), st.integers(0, 2**32), st.booleans())
def test_identical_sets_are_covered_and_coverage_is_a_share(n, width, seed, discrete) -> None:
    real = cloud(n, seed, width=width)
    real = np.round(real) if discrete else real
    assert coverage(real, real[::-1]) == 1
    assert coverage(real, real + 1e6) == 0
    assert 0 <= coverage(real, cloud(5, seed + 1, width=width)) <= 1


def test_coverage_of_the_same_distribution_is_what_the_paper_expects() -> None:
    found = [coverage(cloud(400, 2 * i), cloud(400, 2 * i + 1)) for i in range(5)]
    assert np.mean(found) == pytest.approx(1 - 0.5**5, abs=0.02)


def test_a_missed_half_is_not_covered() -> None:
    real = np.concatenate([cloud(200, 0, -10), cloud(200, 1, 10)])
    assert coverage(real, cloud(400, 2, -10)) == pytest.approx(0.5, abs=0.03)


def test_scores_have_intervals_and_a_real_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clouds, "MOST", 150)
    far = cloud(300, 3, 9.0)
    sides = {"synthetic": cloud(500, 0, 1.0), "real": cloud(400, 1), "guess": far}
    sides = {side: rows(x) for side, x in sides.items()}
    found = measure_clouds(sides, rows(cloud(200, 2)), rng=np.random.default_rng(0))
    assert found is not None
    apart, covered = found
    assert (apart.name, covered.name) == (MMD, COVERAGE)
    assert apart.real is not None and covered.real is not None
    assert 0 <= apart.real.value < apart.synthetic.low <= apart.synthetic.high
    assert covered.synthetic.high < covered.real.low
    assert covered.guess is not None and covered.guess.value == 0 and apart.guess is None
    assert covered.contrast is not None and covered.contrast.gain.low > 0
    assert {s.n for s in (apart.synthetic, apart.real, covered.synthetic, covered.real)} == {150}


def test_too_few_rows_for_a_neighbourhood_give_no_scores() -> None:
    few = rows(cloud(5, 0))
    assert (
        measure_clouds({"synthetic": few}, rows(cloud(50, 1)), rng=np.random.default_rng(0)) is None
    )
