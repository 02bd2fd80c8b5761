from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from privacy.plans import part
from understudy.errors import PrivacyError
from understudy.privacy.analytic import analytic_delta, analytic_noise
from understudy.privacy.clip import Bounded, clip
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.mechanism import Use
from understudy.rng import NoiseSource, Streams


def seeded(seed: int = 0) -> NoiseSource:
    return NoiseSource.seeded(Streams.from_seed(seed))


def noised(bounded: Bounded, noise, source: NoiseSource | None = None):
    """The noised value and its receipt; ``noise`` may be that of each site."""
    draws = (source or seeded()).sites(2, range(len(getattr(bounded, "value", bounded))))
    own = noise if isinstance(noise, torch.Tensor) else None
    rule = Gaussian(bounded_by(bounded), noise=float(noise if own is None else own.min()))
    use = Use(part("p", (3,), "client", rule), "site", 2, draws, own)
    value, (receipt,) = rule.add_noise(bounded, use)
    return value, receipt


def bounded_by(value: Bounded) -> float:
    return getattr(value, "sensitivity", 1.0)


@pytest.mark.parametrize("source", [NoiseSource.system(), seeded()], ids=["system", "seeded"])
def test_noise_has_the_deviation_that_the_receipt_says(source: NoiseSource) -> None:
    bounded = clip(torch.ones(2, 50_000), 0.5)
    value, receipt = noised(bounded, 3.0, source)
    residual = (value - bounded.value.double()).numpy().ravel()
    assert receipt.std == 1.5 and receipt.bound == 0.5
    assert stats.kstest(residual / 1.5, "norm").pvalue > 1e-6
    assert abs(residual.std() / 1.5 - 1) < 0.02
    assert abs(residual.mean()) < 5 * 1.5 / math.sqrt(len(residual))


def test_each_site_may_ask_for_more_noise_and_the_receipt_names_the_least() -> None:
    value, receipt = noised(clip(torch.zeros(2, 20_000), 1.0), torch.tensor([1.0, 4.0]))
    assert receipt.std == 1.0
    assert value[0].std() == pytest.approx(1.0, rel=0.05)
    assert value[1].std() == pytest.approx(4.0, rel=0.05)


def test_a_receipt_holds_plan_fields_only() -> None:
    small, large = (noised(clip(torch.full((1, 3), v), 1.0), 2.0)[1] for v in (0.1, 1e9))
    assert small == large, "a receipt depends on the data"
    assert (small.part, small.where, small.round, small.unit) == ("p", "client", 2, "site")
    assert small.source == "simulation"
    assert noised(clip(torch.ones(1, 3), 1.0), 2.0, NoiseSource.system())[1].source == "os"


def test_only_bounded_values_can_be_noised() -> None:
    with pytest.raises(PrivacyError, match="Bounded"):
        noised(torch.ones(1, 3), 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf, torch.tensor([1.0, 0.0])])
def test_a_multiplier_that_hides_nothing_is_refused(noise) -> None:
    with pytest.raises(PrivacyError, match="noise multiplier"):
        noised(clip(torch.ones(2, 3), 1.0), noise)


def test_every_coordinate_of_every_site_gets_its_own_noise() -> None:
    value, _ = noised(clip(torch.zeros(3, 4, 5), 1.0), 1.0)
    assert len(np.unique(value.numpy())) == value.numel()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_the_closed_form_is_tight_and_from_above(epsilon: float, delta: float) -> None:
    noise = analytic_noise(epsilon, delta)
    assert analytic_delta(epsilon, noise) <= delta
    assert analytic_delta(epsilon, noise * (1 - 1e-6)) > delta


def test_the_closed_form_agrees_with_numerical_integration() -> None:
    z, epsilon = 1.3, 1.1
    x = np.linspace(-40, 40, 2_000_001)
    p, q = stats.norm.pdf(x, 1, z), stats.norm.pdf(x, 0, z)
    measured = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0])
    assert analytic_delta(epsilon, z) == pytest.approx(measured, rel=1e-5)
