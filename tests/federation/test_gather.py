from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from privacy.plans import SLOTS, noised, one_phase, part, sent
from understudy.federation.gather import PlainSum, Reply
from understudy.federation.recipe import Task
from understudy.privacy.clip import Sealed
from understudy.privacy.plan import PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.rng import NoiseSource, Streams


def plan(trust: str = "central", unit: str = "site", **changes) -> PrivacyPlan:
    slot = SLOTS.get(trust, "server")
    only = sent("a", (3,), "client") if trust == "none" else noised("a", (3,), slot, 1.0, 1e-9)
    terms = dict(parts=(only,), rounds=2, sites=10, units=10, delta=1e-5, rate=0.5)
    return one_phase(unit, trust, **{**terms, **changes})


def source(seed: int = 0) -> NoiseSource:
    return NoiseSource.seeded(Streams.from_seed(seed))


def reply(p: PrivacyPlan, value: torch.Tensor, **changes) -> Sealed:
    kind = {"central": "entrusted", "local": "noised", "none": "not private"}[p.trust]
    receipts = p.receipts(0, "simulation") if p.trust == "local" else ()
    return replace(Sealed(kind, 0, {"a": value}, receipts), **changes)


def added(p: PrivacyPlan, *replies: Sealed) -> dict[str, torch.Tensor] | None:
    found = PlainSum(p, source())
    return found.add_up(found.subtotals(numbered(replies), 0), 0)


def numbered(replies: Iterable[Sealed]) -> Iterator[Reply]:
    """Whose replies they are: the sites' numbers follow each other."""
    first = 0
    for each in replies:
        many = max((v.shape[0] for v in each.parts.values() if v.dim()), default=1)
        yield np.arange(first, first + many), each
        first += many


def total(p: PrivacyPlan, *replies: Sealed) -> torch.Tensor:
    found = added(p, *replies)
    assert found is not None
    return found["a"]


GOOD = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]])
MEAN = torch.tensor([0.5, 0.5, 0.0]) / 5  # over the planned cohort qN = 5, whoever replied


def test_drop_outs_do_not_change_the_divisor() -> None:
    p = plan()
    one, both = reply(p, GOOD[:1]), reply(p, GOOD)
    assert torch.allclose(total(p, both), MEAN, atol=1e-6)
    assert torch.allclose(total(p, one), torch.tensor([0.1, 0, 0]), atol=1e-6)
    assert torch.allclose(total(p, one, reply(p, GOOD[1:])), MEAN, atol=1e-6)


def test_an_empty_round_is_noise_alone() -> None:
    p = plan(parts=(noised("a", (20_000,), "server", 1.0, 2.0),))
    found = total(p)
    assert found.std() == pytest.approx(2.0 / 5, rel=0.03)


def test_the_servers_noise_has_the_planned_size_on_the_sum() -> None:
    p = plan(parts=(noised("a", (20_000,), "server", 0.5, 3.0, combine="sum"),))
    found = total(p, reply(p, torch.zeros(4, 20_000)))
    assert stats.kstest(found.numpy() / 1.5, "norm").pvalue > 1e-6


def test_private_replies_are_averaged_over_those_received() -> None:
    p = plan("local")
    assert torch.allclose(total(p, reply(p, GOOD)), GOOD.mean(0))


def test_without_privacy_no_noise_is_added() -> None:
    p = plan("none")
    assert torch.equal(total(p, reply(p, GOOD)), GOOD.mean(0))


@pytest.mark.parametrize("trust", ["local", "none"])
def test_where_sites_add_the_noise_a_round_without_replies_has_no_total(trust: str) -> None:
    p = plan(trust)
    assert added(p) is None
    assert added(p, reply(p, GOOD, round=1)) is None, "replies that do not fit are none"
    assert added(p, reply(p, torch.full((2, 3), math.nan))) is None


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
    two = (noised("a", (3,), "server", 1.0, 1e-9), noised("b", (3,), "server", 1.0, 1e-9))
    p = plan(parts=two)
    strange = Sealed("entrusted", 0, {"a": GOOD, "b": GOOD[:1]}, ())
    good = Sealed("entrusted", 0, {"a": GOOD, "b": GOOD}, ())
    found = added(p, strange, good)
    assert found is not None
    assert torch.allclose(found["a"], MEAN, atol=1e-6)
    assert torch.allclose(found["b"], MEAN, atol=1e-6)


def test_a_late_reply_is_left_out() -> None:
    p = plan()
    assert torch.allclose(total(p, reply(p, GOOD, round=1), reply(p, GOOD)), MEAN, atol=1e-6)


@pytest.mark.parametrize("trust", ["central", "local", "none"])
def test_a_reply_of_another_kind_is_left_out_and_the_round_goes_on(trust: str) -> None:
    p = plan(trust)
    good = reply(p, GOOD)
    others = {"noised", "masked", "entrusted", "not private", "strange"} - {p.kind}
    for kind in others:
        assert torch.equal(total(p, reply(p, -GOOD, kind=kind), good), total(p, good))
    assert not torch.equal(total(p, reply(p, -GOOD), good), total(p, good))


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
    only = noised("a", (1,), "server", 1.0, 1e-12, combine="sum")
    p = plan(unit="record", rate=None, parts=(only,))
    big, small = torch.tensor([[2.0**30]]).double(), torch.tensor([[1.0]]).double()
    found = total(p, reply(p, big), *[reply(p, small)] * 3, reply(p, -big))
    assert float(found) == pytest.approx(3.0)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_how_replies_are_stacked_changes_no_bit_of_the_sum(chunk: int) -> None:
    p = plan("local", parts=(noised("a", (50,), "client", 1.0, 1e-9),))
    sent = torch.randn(7, 50, generator=torch.Generator().manual_seed(0)).double() ** 3
    whole = total(p, reply(p, sent))
    assert torch.equal(total(p, *(reply(p, stack) for stack in sent.split(chunk))), whole)


def test_votes_and_bits_are_counted_and_foreign_ones_left_out() -> None:
    parts = (
        part("a", (5,), "client", Selection(5, 2, 2, 1.0), "sum"),
        part("bit", (), "client", Response(1.0)),
    )
    p = plan("local", parts=parts)
    votes = torch.tensor([[1, 0, 4], [-1, 4, 2], [1, 4, 4], [1, 0, 5]], dtype=torch.int32)
    bits = torch.tensor([1, 0, 1, 1], dtype=torch.uint8)
    good = Sealed("noised", 0, {"a": votes, "bit": bits}, p.receipts(0, "simulation"))
    found = added(p, good)
    assert found is not None
    assert found["a"].tolist() == [1, 0, -1, 0, 0] and float(found["bit"]) == 0.5
    for name, value in (("a", votes.long()), ("bit", bits.float()), ("bit", bits + 1)):
        strange = replace(good, parts={**good.parts, name: value})
        assert added(p, strange) is None or name == "bit"


def test_the_cohort_is_asked_once_and_its_round_is_passed_on() -> None:
    p, asked = plan("local"), []

    def ask(task: Task, round: int, cohort: np.ndarray):
        asked.append((task, round, cohort.tolist()))
        return iter([(cohort, reply(p, GOOD))])

    found = PlainSum(p, source()).total(ask, Task(values={"x": 1}), 0, np.array([3, 5]))
    assert found is not None and torch.allclose(found["a"], GOOD.mean(0))
    assert asked == [(Task(values={"x": 1}), 0, [3, 5])]
