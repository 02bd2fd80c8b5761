"""Randomised response against its two probabilities, and MagRR's bit."""

from __future__ import annotations

import math

import pytest
import torch

from privacy.plans import part
from understudy.errors import PrivacyError
from understudy.privacy.mechanism import Use
from understudy.privacy.respond import Response, debiased, is_small, respond
from understudy.rng import NoiseSource, Streams


def answers(bits: torch.Tensor, epsilon: float, seed: int = 0) -> torch.Tensor:
    source = NoiseSource.seeded(Streams.from_seed(seed)).sites(0, range(len(bits)))
    return respond(bits, Response(epsilon), source)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 0.8, 3.0])
def test_the_truth_is_told_as_often_as_promised(epsilon: float) -> None:
    n = 100_000
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert Response(epsilon).truth == pytest.approx(truth, rel=1e-12)
    assert truth / (1 - truth) == pytest.approx(math.exp(epsilon)), "the ratio is e^ε"
    for bit in (True, False):
        told = answers(torch.full((n,), bit), epsilon).double().mean()
        expected = truth if bit else 1 - truth
        assert abs(float(told) - expected) < 4 * math.sqrt(0.25 / n)


def test_the_debiased_mean_is_centred_on_the_true_one() -> None:
    bits = torch.arange(200_000) % 10 < 3
    mean = answers(bits, 0.5).double().mean()
    assert float(debiased(mean, Response(0.5))) == pytest.approx(0.3, abs=0.02)


def test_answers_are_bytes_and_receipted() -> None:
    draws = NoiseSource.seeded(Streams.from_seed(1)).sites(0, range(5))
    bit = part("b", (), "client", Response(2.0))
    told, (receipt,) = Response(2.0).seal(torch.ones(5).bool(), Use(bit, "site", 3, draws))
    assert told.dtype == torch.uint8 and bit.bytes == told.element_size()
    assert (receipt.mechanism, receipt.epsilon, receipt.round) == ("respond", 2.0, 3)


def test_an_update_is_small_where_no_coordinate_reaches_the_level() -> None:
    update = torch.tensor([[0.1, -0.2], [0.1, 0.5], [-0.5, 0.0], [0.0, 0.0]])
    assert is_small(update, 0.5).tolist() == [True, False, False, True]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 37.0])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(PrivacyError):
        Response(epsilon)


def test_anything_but_bits_is_refused() -> None:
    with pytest.raises(PrivacyError, match="one bit"):
        answers(torch.zeros(3), 1.0)
