from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from understudy.federation.slots import Private, seal

from contracts.toys import ToyMean, ToyStep, ToySum, shards, study
from understudy.errors import PrivacyError
from understudy.federation import slots
from understudy.privacy.clip import Bounded, clip
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.select import Selection
from understudy.rng import Draws, NoiseSource, Streams


def source(sites: int = 1) -> Draws:
    return NoiseSource.seeded(Streams.from_seed(0)).sites(0, range(sites))


def plan(unit: str, trust: str, recipe=ToySum, **privacy) -> PrivacyPlan:
    noise = {} if trust == "none" else {"noise": 1.0}
    return recipe.build(study(privacy={"unit": unit, "trust": trust, **noise, **privacy})).plan


def sums(p: PrivacyPlan, scale: float = 1.0):
    private = Private(p, 0, source(2))
    return private.sum("sum", shards(2, 5), lambda x, y: scale * x, lambda y: y)


def test_a_sum_of_records_is_formed_by_site_and_class_from_clipped_rows() -> None:
    data, found = shards(2, 5), sums(plan("record", "central"), scale=9.0)
    assert (found.sensitivity, found.unit) == (1.0, "record")
    for site in range(2):
        x, y = data.rows(site)
        clipped = clip(9.0 * x, 1.0).value.double()
        for group in range(2):
            assert torch.allclose(found.value[site, group], clipped[y == group].sum(0))


def test_a_person_is_bounded_by_all_of_its_rows() -> None:
    p = plan("person", "central")
    found = sums(p, scale=9.0)
    assert p.part("sum").rows == 2 and p.part("sum").bound == found.sensitivity == 2.0
    assert torch.allclose(found.value, sums(plan("record", "central"), scale=9.0).value)


def test_at_the_site_level_the_whole_sum_is_clipped() -> None:
    found = sums(plan("site", "central"), scale=100.0)
    assert found.unit == "site"
    assert (found.value.flatten(1).norm(dim=1) <= 1.0).all()


def test_rows_that_are_not_finite_add_nothing() -> None:
    p = plan("record", "central")
    private = Private(p, 0, source())

    def spoiled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(len(x))[:, None] == 0, torch.nan, 0.0 * x)

    found = private.sum("sum", shards(1, 3), spoiled, lambda y: y)
    assert torch.equal(found.value, torch.zeros(1, 2, 3).double())


@pytest.mark.parametrize("held", [1, 7, 2**21])
def test_a_sum_is_the_same_whatever_the_number_of_rows_held_at_once(monkeypatch, held) -> None:
    whole = sums(plan("record", "central"), scale=9.0).value
    monkeypatch.setattr(slots, "_HELD", held)
    assert torch.allclose(sums(plan("record", "central"), scale=9.0).value, whole)


@pytest.mark.parametrize("trust, kind", [("central", "entrusted"), ("local", "noised")])
def test_what_leaves_a_site_is_sealed_by_the_plan(trust: str, kind: str) -> None:
    p = plan("site", trust, ToyMean)
    update = torch.full((2, 3), 9.0)
    sealed = seal(p, {"mean": update}, Private(p, 1, source(2)), source(2))
    assert (sealed.kind, sealed.round, len(sealed)) == (kind, 1, 2)
    if trust == "central":
        assert sealed.receipts == ()
        assert (sealed.parts["mean"].norm(dim=1) <= p.parts[0].bound).all()
    else:
        assert [r.slot for r in sealed.receipts] == ["client"]
        assert not torch.allclose(sealed.parts["mean"].float(), clip(update, 0.5).value, atol=1e-3)


def test_without_privacy_the_seal_says_so() -> None:
    p = plan("site", "none", ToyMean)
    sealed = seal(p, {"mean": torch.zeros(1, 3)}, Private(p, 0, source()), source())
    assert sealed.kind == "not private" and sealed.receipts == ()


def test_a_site_may_ask_for_more_noise_than_the_plan_never_for_less() -> None:
    p = plan("site", "local", ToyMean)
    noise = torch.tensor([0.001, 50.0], dtype=torch.float64)
    update = torch.zeros(2, 3)
    draws = [
        seal(p, {"mean": update}, Private(p, 0, s), s, noise).parts["mean"]
        for s in (Streams.from_seed(i).sites("noise", 0, range(2)) for i in range(400))
    ]
    std = torch.stack(draws).flatten(2).std(dim=(0, 2))
    assert std[0] == pytest.approx(0.5, rel=0.1), "a site got less noise than promised"
    assert std[1] == pytest.approx(25.0, rel=0.1)


def test_a_raw_update_cannot_pass_where_records_are_protected() -> None:
    p = plan("record", "central")
    update = {"sum": torch.zeros(1, 2, 3), "count": torch.zeros(1, 2)}
    with pytest.raises(PrivacyError, match="raw update"):
        seal(p, update, Private(p, 0, source()), source())


@pytest.mark.parametrize("unit, bound", [("site", 1.0), ("record", 1.5), ("person", 1.0)])
def test_a_bound_that_is_not_the_plans_is_refused(unit: str, bound: float) -> None:
    p = plan("record", "central")
    wrong = Bounded(torch.zeros(1, 2, 3), bound, unit)
    with pytest.raises(PrivacyError, match="agree"):
        seal(p, {"sum": wrong, "count": wrong}, Private(p, 0, source()), source())


@pytest.mark.parametrize("names", [(), ("mean", "extra"), ("other",)])
def test_an_update_with_other_parts_is_refused(names: tuple[str, ...]) -> None:
    p = plan("site", "central", ToyMean)
    with pytest.raises(PrivacyError, match="parts"):
        seal(p, {n: torch.zeros(1, 3) for n in names}, Private(p, 0, source()), source())


def stepped() -> PrivacyPlan:
    return ToyStep.build(study("toy-step", privacy={"noise": 1.0})).plan


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_fewer_or_more_noised_steps_than_promised_are_refused(steps: int) -> None:
    private = Private(stepped(), 0, source())
    for _ in range(steps):
        private.step("step", Bounded(torch.zeros(1, 3), 1.0, "record"))
    with pytest.raises(PrivacyError, match="noised step"):
        seal(stepped(), {"step": torch.zeros(1, 3)}, private, source())


@pytest.mark.parametrize("value", [torch.zeros(1, 3), Bounded(torch.zeros(1, 3), 2.0, "record")])
def test_a_step_takes_only_what_is_bounded_as_planned(value) -> None:
    with pytest.raises(PrivacyError):
        Private(stepped(), 0, source()).step("step", value)


def test_steps_hand_back_noise_and_keep_a_receipt() -> None:
    private = Private(stepped(), 4, source(2))
    noised = private.step("step", Bounded(torch.zeros(2, 3), 1.0, "record"))
    assert (noised != 0).all()
    assert [(r.slot, r.round, r.std) for r in private.receipts] == [("step", 4, 1.0)]


def test_a_value_noised_in_steps_must_be_a_tensor() -> None:
    private = Private(stepped(), 0, source())
    for _ in range(3):
        private.step("step", Bounded(torch.zeros(1, 3), 1.0, "record"))
    raw = Bounded(torch.zeros(1, 3), 1.0, "record")
    with pytest.raises(PrivacyError):
        seal(stepped(), {"step": raw}, private, source())


def drawn(times: int, each: int = 3) -> torch.Tensor:
    """Which of the rows of two sites each of many batches holds, ``[times, rows]``."""
    private, data = Private(stepped(), 0, source(2)), shards(2, each)
    inside = torch.zeros(times, 2 * each)
    for batch in inside:
        batch[private.sample("step", data)[:, 1]] = 1
    return inside


def test_records_join_a_batch_at_the_planned_rate_and_independently() -> None:
    inside, rate = drawn(4000), stepped().part("step").rate
    assert torch.allclose(inside.mean(0), torch.tensor(rate), atol=0.035)  # 4.4 deviations
    off = ~torch.eye(inside.shape[1], dtype=torch.bool)
    assert torch.corrcoef(inside.T)[off].abs().max() < 0.07  # 4.4 deviations


def test_successive_batches_are_drawn_afresh() -> None:
    inside = drawn(4000)
    same = (inside[1:] == inside[:-1]).float().mean(0)
    assert torch.allclose(same, torch.tensor(0.5), atol=0.035)


def test_batches_may_be_empty_and_vary_in_size() -> None:
    sizes = drawn(1000).sum(1)
    assert sizes.min() == 0 and sizes.max() == 6  # 2⁻⁶ each


def test_a_drawn_row_belongs_to_its_site() -> None:
    data = shards(3, 5)
    site, row = Private(stepped(), 0, source(3)).sample("step", data).T
    assert len(row) and torch.equal(row // 5, site)


def test_without_a_rate_every_record_is_in_the_batch() -> None:
    p = plan("record", "central")
    members = Private(p, 0, source(2)).sample("sum", shards(2, 5))
    assert torch.equal(members[:, 1], torch.arange(10))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_an_update_of_choices_that_is_not_finite_counts_as_zero(bad: float) -> None:
    """To refuse it would say something about its site; the others' messages are as before."""
    part = Part("update", (9,), "client", rule=Selection(9, 3, 2, 1.0))
    private = plan("site", "local", ToyMean)
    chosen = replace(private, parts=(part,), joins=1)
    update = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    spoiled, quiet = update.clone(), update.clone()
    spoiled[1, 4], quiet[1] = bad, 0.0
    sent = [
        seal(chosen, {"update": value}, Private(chosen, 0, source(3)), source(3)).parts["update"]
        for value in (spoiled, quiet)
    ]
    assert torch.equal(*sent) and sent[0].dtype == torch.int32
