"""The rivals that the SignDS-FL bench compares with: unbiased, within range, and ε-private."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

DRAWS = 100_000


def bench(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rivals = bench("perturbation")


def _stack(values: list[float]) -> np.ndarray:
    return np.tile(np.array(values), (DRAWS, 1))


@pytest.mark.parametrize("name", ["duchi", "piecewise", "hybrid"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("values", [[-0.7, 0.0, 1.0], [0.9, -1.0, 0.3, 0.2]])
def test_vector_mechanisms_are_unbiased(name: str, epsilon: float, values: list[float]) -> None:
    told = getattr(rivals, name)(_stack(values), epsilon, rng=np.random.default_rng(0))
    error = (told.mean(0) - values) / (told.std(0) / math.sqrt(DRAWS))
    assert np.abs(error).max() < 4.5


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_fedsel_is_unbiased_for_the_coordinate_it_picks(epsilon: float) -> None:
    values = [-0.7, 0.05, 1.0, 0.1]
    told = rivals.fedsel(_stack(values), epsilon, 0.5, 2, rng=np.random.default_rng(0))
    for column, value in zip(told.T, values, strict=True):
        sent = column[column != 0]
        assert abs(sent.mean() - value) < 4.5 * sent.std() / math.sqrt(len(sent))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_fedsel_picks_among_the_largest_as_often_as_its_epsilon_allows(share: float) -> None:
    told = rivals.fedsel(_stack([0.1, -0.9, 0.2]), 2.0, share, 1, rng=np.random.default_rng(0))
    odds = math.exp(2.0 * share)
    expected = odds / (odds + 2)
    hits = (told[:, 1] != 0).mean()
    assert (np.count_nonzero(told, axis=1) == 1).all()
    assert abs(hits - expected) < 4.5 * math.sqrt(expected * (1 - expected) / DRAWS)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_values_stay_within_their_range(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    ends = 1 / math.tanh(epsilon / 2)
    pieces = 1 / math.tanh(epsilon / 4)
    values = _stack([1.0])
    assert np.allclose(np.abs(rivals.duchi(values, epsilon, rng=rng)), ends)
    told = np.abs(rivals.piecewise(values, epsilon, rng=rng))
    assert 0.99 * pieces < told.max() <= pieces
    assert np.abs(rivals.hybrid(values, epsilon, rng=rng)).max() <= max(ends, pieces)


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 1), (5.1, 2), (8.0, 3), (100.0, 6)])
def test_a_few_coordinates_share_epsilon(epsilon: float, count: int) -> None:
    told = rivals.piecewise(np.full((50, 6), 0.5), epsilon, rng=np.random.default_rng(0))
    assert (np.count_nonzero(told, axis=1) == count).all()
    assert np.abs(told).max() <= 6 / count / math.tanh(epsilon / count / 4)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_duchi_keeps_its_epsilon_for_every_corner(d: int) -> None:
    epsilon, counts = 1.0, []
    for seed, value in enumerate((-1.0, 1.0)):
        told = rivals.duchi(_stack([value] * d), epsilon, rng=np.random.default_rng(seed))
        counts.append(Counter(map(bytes, (told > 0).astype(np.uint8))))
    ratios = [counts[1][c] / counts[0][c] for c in counts[0]]
    assert len(ratios) == 2**d
    assert max(ratios) < math.exp(epsilon) * 1.06
    if d % 2:  # as much as ε allows, and no less
        assert max(ratios) > math.exp(epsilon) * 0.94


@pytest.mark.parametrize("name", ["piecewise", "hybrid"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_densities_of_any_two_values_differ_by_epsilon(name: str, epsilon: float) -> None:
    mechanism, rng = getattr(rivals, name), np.random.default_rng(0)
    limit = 1 / math.tanh(epsilon / 4) + 1e-9
    bins = np.linspace(-limit, limit, 21)
    low, high = (
        np.histogram(mechanism(_stack([value]), epsilon, rng=rng), bins)[0] for value in (-1, 1)
    )
    seen = (low > 0) & (high > 0)
    spread = 5 * np.sqrt(1 / low[seen] + 1 / high[seen])
    ratio = np.abs(np.log(high[seen] / low[seen]))
    assert (ratio < epsilon + spread).all()
    assert ratio.max() > 0.9 * epsilon
    assert ((low > 0) == (high > 0)).all()
