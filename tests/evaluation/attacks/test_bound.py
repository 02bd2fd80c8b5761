"""What a claim allows, against closed forms and simulated tests."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from understudy.evaluation.attacks.bound import advantage_bound, allowed
from understudy.privacy.account import Event

from ..conftest import CLAIM


def test_randomised_response_attains_the_bound() -> None:
    for epsilon in (0.1, 1.0, 4.0):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert advantage_bound(epsilon, 0.0) == pytest.approx(2 * truth - 1)
    assert advantage_bound(0.0, 0.1) == pytest.approx(0.1)
    assert advantage_bound(800.0, 1e-5) == 1.0


def test_add_or_remove_counts_twice_and_replace_once() -> None:
    pure = replace(CLAIM, events=(Event((), None, 1, epsilon=0.5),), epsilon=0.5, delta=0.0)
    added, replaced = allowed([pure]), allowed([replace(pure, relation="replace one")])
    assert added is not None and added.value == pytest.approx(advantage_bound(1.0, 0.0))
    assert replaced is not None and replaced.value == pytest.approx(advantage_bound(0.5, 0.0))


def test_a_gaussian_s_best_test_attains_its_bound_and_no_more() -> None:
    """One row replaced moves a sum with sensitivity 1 by up to 2."""
    noise = CLAIM.events[0].noise[0]
    bound = allowed([CLAIM])
    assert bound is not None and "noise" in bound.words
    assert bound.value == pytest.approx(2 * NormalDist().cdf(1 / noise) - 1)
    drawn = np.random.default_rng(0).normal(0, noise, (2, 200_000))
    inside, outside = drawn[0] + 1 > 0, drawn[1] - 1 > 0
    assert inside.mean() - outside.mean() == pytest.approx(bound.value, abs=0.01)
    assert bound.value < advantage_bound(2 * CLAIM.epsilon, CLAIM.delta * 4)


def test_secret_samples_leave_only_epsilon_and_no_claim_leaves_nothing() -> None:
    sampled = replace(CLAIM, events=(Event((1.0,), 0.1, 10),))
    bound = allowed([sampled])
    assert bound is not None and "noise" not in bound.words
    assert allowed([replace(CLAIM, epsilon=None)]) is None
    both = allowed([replace(CLAIM, epsilon=None), CLAIM])
    assert both == allowed([CLAIM])
