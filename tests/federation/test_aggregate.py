from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from understudy.federation.aggregate import aggregate

from understudy.errors import PrivacyError
from understudy.privacy.clip import Sealed
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.rng import NoiseSource, Streams


def plan(trust: str = "central", unit: str = "site", **changes) -> PrivacyPlan:
    slot = {"local": "client"}.get(trust, "server")
    part = Part("a", (3,), slot, 1.0, 1e-9 if trust != "none" else 0.0)
    terms = dict(parts=(part,), rounds=2, sites=10, units=10, delta=1e-5, rate=0.5)
    return PrivacyPlan(unit, trust, **{**terms, **changes})


def source(seed: int = 0) -> NoiseSource:
    return NoiseSource.seeded(Streams.from_seed(seed))


def reply(p: PrivacyPlan, value: torch.Tensor, **changes) -> Sealed:
    kind = {"central": "entrusted", "local": "noised", "none": "not private"}[p.trust]
    receipts = p.receipts(0, "simulation") if p.trust == "local" else ()
    return replace(Sealed(kind, 0, {"a": value}, receipts), **changes)


def total(p: PrivacyPlan, *replies: Sealed) -> torch.Tensor:
    return aggregate(p, replies, 0, source=source())["a"]


GOOD = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]])
MEAN = torch.tensor([0.5, 0.5, 0.0]) / 5  # over the planned cohort qN = 5, whoever replied


def test_drop_outs_do_not_change_the_divisor() -> None:
    p = plan()
    one, both = reply(p, GOOD[:1]), reply(p, GOOD)
    assert torch.allclose(total(p, both), MEAN, atol=1e-6)
    assert torch.allclose(total(p, one), torch.tensor([0.1, 0, 0]), atol=1e-6)
    assert torch.allclose(total(p, one, reply(p, GOOD[1:])), MEAN, atol=1e-6)


def test_an_empty_round_is_noise_alone() -> None:
    p = replace(plan(), parts=(replace(plan().parts[0], noise=2.0, shape=(20_000,)),))
    found = total(p)
    assert found.std() == pytest.approx(2.0 / 5, rel=0.03)


def test_the_servers_noise_has_the_planned_size_on_the_sum() -> None:
    part = Part("a", (20_000,), "server", 0.5, 3.0, combine="sum")
    p = plan(parts=(part,))
    found = total(p, reply(p, torch.zeros(4, 20_000)))
    assert stats.kstest(found.numpy() / 1.5, "norm").pvalue > 1e-6


def test_private_replies_are_averaged_over_those_received() -> None:
    p = plan("local")
    assert torch.allclose(total(p, reply(p, GOOD)), GOOD.mean(0))
    assert torch.equal(total(p), torch.zeros(3))


def test_without_privacy_no_noise_is_added() -> None:
    p = plan("none")
    assert torch.equal(total(p, reply(p, GOOD)), MEAN)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.9])
def test_a_site_that_sends_nonsense_or_too_much_is_left_out(bad: float) -> None:
    p = plan()
    spoiled = torch.cat([GOOD, torch.full((1, 3), bad)])
    assert torch.allclose(total(p, reply(p, spoiled)), MEAN, atol=1e-6)


@pytest.mark.parametrize(
    "parts",
    [
        {"a": torch.zeros(1, 4)},
        {"a": torch.zeros(1, 1)},  # would broadcast
        {"a": torch.zeros(1)},
        {"a": torch.tensor(1.0)},
        {"a": torch.zeros(0, 3)},
        {"a": torch.zeros(1, 3), "b": torch.zeros(2)},
        {"b": torch.zeros(1, 3)},
        {"a": torch.zeros(1, 3, dtype=torch.complex64)},
        {"a": torch.zeros(1, 3, dtype=torch.int64)},
        {},
    ],
    ids=range(10),
)
def test_a_reply_of_another_shape_is_left_out_and_the_round_goes_on(parts: dict) -> None:
    p = plan()
    strange = reply(p, GOOD, parts=parts)
    assert torch.allclose(total(p, strange, reply(p, GOOD)), MEAN, atol=1e-6)


def test_parts_of_different_lengths_are_left_out() -> None:
    two = (Part("a", (3,), "server", 1.0, 1e-9), Part("b", (3,), "server", 1.0, 1e-9))
    p = plan(parts=two)
    strange = Sealed("entrusted", 0, {"a": GOOD, "b": GOOD[:1]}, ())
    good = Sealed("entrusted", 0, {"a": GOOD, "b": GOOD}, ())
    found = aggregate(p, [strange, good], 0, source=source())
    assert torch.allclose(found["a"], MEAN, atol=1e-6)
    assert torch.allclose(found["b"], MEAN, atol=1e-6)


def test_a_late_reply_is_left_out() -> None:
    p = plan()
    assert torch.allclose(total(p, reply(p, GOOD, round=1), reply(p, GOOD)), MEAN, atol=1e-6)


@pytest.mark.parametrize("kind", ["noised", "masked", "not private"])
def test_a_reply_of_another_kind_stops_the_round(kind: str) -> None:
    p = plan()
    with pytest.raises(PrivacyError, match="kind"):
        total(p, reply(p, GOOD, kind=kind))


def test_a_reply_that_says_noised_but_has_no_receipt_of_it_is_left_out() -> None:
    p = plan("local")
    (receipt,) = p.receipts(0, "simulation")
    for receipts in ((), (replace(receipt, std=0.0),), (receipt, receipt), ("x",)):
        found = total(p, reply(p, 2 * GOOD, receipts=receipts), reply(p, GOOD))
        assert torch.allclose(found, GOOD.mean(0)), "an unnoised reply was believed"


def test_a_sum_over_records_is_not_judged_by_its_norm() -> None:
    p = plan(unit="record", rate=None, sites=5)
    assert torch.allclose(total(p, reply(p, 100 * GOOD)), 100 * MEAN, atol=1e-3)


def test_sums_are_formed_in_double() -> None:
    part = Part("a", (1,), "server", 1.0, 1e-12, combine="sum")
    p = plan(unit="record", rate=None, parts=(part,))
    big, small = torch.tensor([[2.0**30]]).double(), torch.tensor([[1.0]]).double()
    found = aggregate(
        p, [reply(p, big), *[reply(p, small)] * 3, reply(p, -big)], 0, source=source()
    )
    assert float(found["a"]) == pytest.approx(3.0)
