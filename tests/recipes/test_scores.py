from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from understudy.data.schema import Column, Schema
from understudy.recipes.margins import Cells, margins
from understudy.recipes.scores import MOST, Classes, Scores, fit, levels


def cells(bins: int = 64) -> Cells:
    found = margins(Schema("table", "t", 9, (Column("v", "numeric", 0.0, 1.0),)), bins)[0].cells
    assert found is not None
    return found


def distribution(x: np.ndarray, where: Cells) -> np.ndarray:
    counts = np.bincount(np.searchsorted(where.borders, x, side="right"), minlength=len(where.low))
    return np.append(0.0, np.cumsum(counts) / len(x))


def test_scores_of_a_smooth_column_are_standard_normal() -> None:
    x, where = np.random.default_rng(0).beta(2, 6, 20_000), cells(256)
    found = Scores(where, torch.from_numpy(distribution(x, where))).of(torch.from_numpy(x)).numpy()
    assert found.mean() == pytest.approx(0, abs=0.02) and found.std() == pytest.approx(1, abs=0.02)
    assert np.abs(found).max() <= MOST


def test_all_rows_with_one_value_share_its_mean_score() -> None:
    rng = np.random.default_rng(0)
    x, where = np.where(rng.random(20_000) < 0.7, 0.0, rng.random(20_000)), cells()
    known = distribution(x, where)
    found = Scores(where, torch.from_numpy(known)).of(torch.from_numpy(x)).numpy()
    assert len(np.unique(found[x == 0])) == 1
    assert found[x == 0][0] == pytest.approx(levels(known)[0])
    assert found.mean() == pytest.approx(0, abs=0.03)  # the mean of a stretch keeps the whole's


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, -1.0])
def test_odd_margins_and_values_give_scores_within_bounds_or_none(value: float) -> None:
    where = cells()
    known = torch.full((len(where.low) + 1,), value).double()
    found = Scores(where, known).of(torch.tensor([0.0, 0.3, 1.0, 7.0], dtype=torch.float64))
    assert bool(((found.abs() <= MOST) | found.isnan()).all())


@pytest.mark.parametrize("spike", [0.0, 0.6])
def test_latents_have_the_margin_and_their_classes_the_measured_means(spike: float) -> None:
    rng = np.random.default_rng(1)
    y = rng.random(40_000) < 0.25
    x = np.where(y, rng.beta(5, 2, len(y)), rng.beta(2, 5, len(y)))
    x = np.where(rng.random(len(y)) < spike * (1 - 0.7 * y), 0.0, x)
    where = cells()
    known = distribution(x, where)
    u = Scores(where, torch.from_numpy(known)).of(torch.from_numpy(x)).numpy()
    sides = [u[~y], u[y]]
    seen = Classes(
        np.array([(~y).mean(), y.mean()]),
        np.array([side.mean() for side in sides]),
        np.array([side.var() for side in sides]),
        np.full(2, 1e-3),
    )
    latent = fit(known, seen)
    chance = np.diff(ndtr((latent.at(known) - latent.mean[:, None]) / latent.std[:, None]), axis=1)
    assert seen.weight @ chance == pytest.approx(np.diff(known), abs=2e-3)
    assert chance @ levels(known) == pytest.approx(seen.mean, abs=0.02)
    zeros = [float((x[~y] == 0).mean()), float((x[y] == 0).mean())]
    assert chance[:, 0] == pytest.approx(zeros, abs=0.05)


def test_variances_that_are_mostly_noise_do_not_pull_classes_apart() -> None:
    known = np.linspace(0, 1, 65)
    even = np.array([0.5, 0.5])
    terms = (even, np.zeros(2), np.array([0.2, 1.8]))
    sure, unsure = (fit(known, Classes(*terms, np.full(2, n))) for n in (1e-3, 30.0))
    assert sure.std[1] / sure.std[0] > 2
    assert unsure.std[1] / unsure.std[0] == pytest.approx(1, abs=0.05)
