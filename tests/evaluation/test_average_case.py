from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student_t

from understudy.evaluation.average_case import (
    GAMMA,
    _neighbours,
    _without,
    average_case,
    upper_mean,
)
from understudy.evaluation.rows import Rows

from .conftest import TABLE, table_rows


def divergence(x: np.ndarray, y: np.ndarray) -> float:
    """The slow way, row by row; no row is its own neighbour (Pérez-Cruz 2008, k = 5)."""
    found = []
    for row in x:
        within, between = (np.sort(np.linalg.norm(side - row, axis=1)) for side in (x, y))
        r, s = within[within > 0], between[between > 0]
        found.append(x.shape[1] * np.log(s[4] / r[4]) + np.log(len(s) / len(r)))
    return float(np.mean(found))


@pytest.mark.parametrize("width, shift, spread", [(1, 1.0, 1.0), (2, 0.5, 1.5), (4, 0.0, 2.0)])
def test_divergence_of_gaussians_is_the_known_one(width: int, shift: float, spread: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (3000, width))
    y = rng.normal(shift, spread, (3000, width))
    known = width * (np.log(spread) + (1 + shift**2) / (2 * spread**2) - 0.5)
    assert divergence(x, y) == pytest.approx(known, abs=0.1)


def test_the_loss_of_one_removal_is_that_of_the_slow_way() -> None:
    """The divergence of all rows from those that are left."""
    rng = np.random.default_rng(1)
    pool, gone = rng.normal(size=(60, 3)), np.array([[4, 17]])
    found = _without(gone, *_neighbours(pool, 7), 3)
    assert found == pytest.approx([divergence(pool, np.delete(pool, gone[0], axis=0))])


def test_mu_is_the_paper_s_bound_on_the_mean() -> None:
    losses = np.random.default_rng(2).normal(0.01, 0.02, 400)
    quantile = student_t.ppf(1 - 1e-3, 399)
    expected = losses.mean() + quantile * losses.std(ddof=1) / np.sqrt(399)
    assert upper_mean(losses, 1e-3) == pytest.approx(expected)
    assert upper_mean(losses, GAMMA) > expected


def test_it_is_an_estimate_and_says_so() -> None:
    rows = [table_rows(n, np.random.default_rng(n)) for n in (600, 300)]
    synthetic, real = (Rows(r.x, r.y) for r in rows)
    found = average_case(TABLE, synthetic, real, rng=np.random.default_rng(0))
    assert found is not None and found.removed == 2 and found.examples == 300
    assert np.isfinite(found.mu) and found.mu > found.mean
    assert "no ε" in found.words
    fewer = average_case(TABLE, synthetic, real, rng=np.random.default_rng(0), most=300)
    assert fewer is not None and (fewer.synthetic, fewer.removed) == (300, 1)  # of those looked at
    assert (
        average_case(TABLE, synthetic.take(np.arange(5)), real, rng=np.random.default_rng(0))
        is None
    )
