"""Products of columns at several parties: bounds, sensitivity, noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from understudy.errors import PrivacyError
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.privacy.products import SCALE, Products
from understudy.rng import Streams

WIDTHS, NORMS = (3, 2, 4), (0.5, 0.2, 0.3)
MADE = Products(WIDTHS, NORMS, most=50, noise=1.5)


def plan(mechanism: Products = MADE) -> PrivacyPlan:
    part = Part("moments", (9, 9), "sum", "client", mechanism)
    return PrivacyPlan("record", "local", (Phase((part,), 1, 3),), 50, 1e-5, held="columns")


def rows(n: int, width: int, seed: int, size: float = 3.0) -> torch.Tensor:
    draw = np.random.default_rng(seed).normal(0, size, (n, width))
    return torch.from_numpy(draw)


def weighed(change: np.ndarray) -> float:
    """The norm of a change of the matrix in units of σ: one noise an entry, less by √2 off it."""
    upper = np.triu_indices(len(change), 1)
    return math.sqrt((np.diagonal(change) ** 2).sum() + 2 * (change[upper] ** 2).sum())


@pytest.mark.parametrize("party", range(3))
def test_whole_numbers_keep_to_the_bound_whatever_the_rows_hold(party: int) -> None:
    wild = rows(40, WIDTHS[party], party, 10.0 ** (party * 3 - 3))
    wild[0, 0], wild[1, 0], wild[2] = float("nan"), float("inf"), 1e300
    found = MADE.rounded(wild, party)
    assert found.shape == (50, WIDTHS[party])  # how many rows there are does not show
    squared = (found.astype(object) ** 2).sum(1)
    assert max(squared) <= math.floor(NORMS[party] * SCALE**2)
    assert not found[40:].any() and not found[:2].any()


def test_one_record_at_all_parties_moves_the_matrix_by_the_bound_at_most() -> None:
    for seed in range(20):
        whole = np.concatenate(
            [MADE.rounded(rows(50, w, 10 * seed + i), i) for i, w in enumerate(WIDTHS)], axis=1
        ).astype(np.float64)
        less = np.delete(whole, seed, axis=0)
        change = (whole.T @ whole - less.T @ less) / SCALE**2
        assert weighed(change) <= MADE.bound * (1 + 1e-12)
    assert weighed(change) > 0.9 * MADE.bound  # rows this long reach it


def test_noise_has_the_promised_deviation_on_every_product_of_every_party() -> None:
    wide = Products((60, 50), (1.0, 1.0), most=50, noise=1.5)
    sigma = 1.5 * 2.0 * SCALE**2
    for party in range(2):
        own, (other,) = wide.noises(party, Streams.from_seed(party).draws("noise"))
        assert own.shape[0] == wide.widths[party] and not np.tril(own, -1).any()
        assert np.diagonal(own).std() == pytest.approx(sigma, rel=0.3)
        assert own[np.triu_indices(len(own), 1)].std() == pytest.approx(sigma / 2**0.5, rel=0.08)
        assert other.std() == pytest.approx(sigma / 2**0.5, rel=0.08)


def test_sums_that_could_wrap_around_are_refused() -> None:
    with pytest.raises(PrivacyError, match="62 bits"):
        plan(replace(MADE, most=10**10))
    with pytest.raises(PrivacyError, match="62 bits"):
        plan(replace(MADE, noise=1e8))


@pytest.mark.parametrize(
    "changes", [{"noise": 0.0}, {"norms": (0.5, 0.2, 0.0)}, {"widths": (3, 2)}, {"most": 0}]
)
def test_a_mechanism_that_promises_nothing_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(PrivacyError):
        plan(replace(MADE, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "width"), [(51, 3), (10, 4)])
def test_more_rows_and_other_widths_are_refused_without_counting_rows(n: int, width: int) -> None:
    with pytest.raises(PrivacyError, match="features of at most 50 records") as error:
        MADE.rounded(rows(n, width, 0), 0)
    assert str(n) not in str(error.value)  # the server is told why a party leaves


def test_a_plan_of_products_is_the_same_after_json() -> None:
    made = plan()
    assert PrivacyPlan.from_dict(made.to_dict()) == made
    (event,) = made.promise()
    assert event.noise == (1.5,) and event.rate is None and 0 < event.gap < 1e-40
