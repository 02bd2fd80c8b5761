from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contracts.toys import ToyMean, ToyStep, ToySum, shards, study
from understudy.data.shards import Shards
from understudy.errors import PrivacyError
from understudy.federation import site as module
from understudy.federation.site import Site, seal
from understudy.privacy.clip import Bounded, clip
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.select import Selection
from understudy.rng import NoiseSource, Streams


def at(p: PrivacyPlan, data: Shards | int = 1, round: int = 0, **terms) -> Site:
    """A stack of sites in one round; their number stands for as many with a row each."""
    held = shards(data, 1) if isinstance(data, int) else data
    ids, streams = range(len(held)), Streams.from_seed(terms.pop("seed", 0))
    secret = NoiseSource.seeded(streams).sites(round, ids)
    names = tuple(f"site-{i + 1}" for i in ids)
    return Site(names, held, {}, p, round, streams.sites("local", round, ids), secret, **terms)


def plan(unit: str, trust: str, recipe=ToySum, **privacy) -> PrivacyPlan:
    noise = {} if trust == "none" else {"noise": 1.0}
    return recipe.build(study(privacy={"unit": unit, "trust": trust, **noise, **privacy})).plan


def sums(p: PrivacyPlan, scale: float = 1.0):
    return at(p, shards(2, 5)).sum("sum", lambda x, y: scale * x, lambda y: y)


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
    mechanism = p.own.part("sum").mechanism
    assert mechanism.rows == 2 and mechanism.bound == found.sensitivity == 2.0
    assert torch.allclose(found.value, sums(plan("record", "central"), scale=9.0).value)


def test_at_the_site_level_the_whole_sum_is_clipped() -> None:
    found = sums(plan("site", "central"), scale=100.0)
    assert found.unit == "site"
    assert (found.value.flatten(1).norm(dim=1) <= 1.0).all()


def test_rows_that_are_not_finite_add_nothing() -> None:
    p = plan("record", "central")

    def spoiled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(len(x))[:, None] == 0, torch.nan, 0.0 * x)

    found = at(p, shards(1, 3)).sum("sum", spoiled, lambda y: y)
    assert torch.equal(found.value, torch.zeros(1, 2, 3).double())


@pytest.mark.parametrize("held", [1, 7, 2**21])
def test_a_sum_is_the_same_whatever_the_number_of_rows_held_at_once(monkeypatch, held) -> None:
    whole = sums(plan("record", "central"), scale=9.0).value
    monkeypatch.setattr(module, "_HELD", held)
    assert torch.allclose(sums(plan("record", "central"), scale=9.0).value, whole)


def test_moments_of_wide_rows_hold_few_of_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features may be far fewer than a row's numbers: an image's are."""
    monkeypatch.setattr(module, "_HELD", 12)
    held: list[int] = []

    def first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        held.append(x.numel())
        return x[:, :1]

    data = shards(1, 40)
    at(plan("record", "central"), data).moments("sum", first, lambda y: 0 * y, (1.0, 1.0))
    assert sum(held) == data.x.numel() and max(held) <= 12


@pytest.mark.parametrize("trust, kind", [("central", "entrusted"), ("local", "noised")])
def test_what_leaves_a_site_is_sealed_by_the_plan(trust: str, kind: str) -> None:
    p = plan("site", trust, ToyMean)
    update = torch.full((2, 3), 9.0)
    sealed = seal(at(p, 2, round=1), {"mean": update})
    assert (sealed.kind, sealed.round, len(sealed)) == (kind, 1, 2)
    if trust == "central":
        assert sealed.receipts == ()
        assert (sealed.parts["mean"].norm(dim=1) <= p.own.parts[0].mechanism.bound).all()
    else:
        assert [r.where for r in sealed.receipts] == ["client"]
        assert not torch.allclose(sealed.parts["mean"].float(), clip(update, 0.5).value, atol=1e-3)


def test_without_privacy_the_seal_says_so() -> None:
    p = plan("site", "none", ToyMean)
    sealed = seal(at(p), {"mean": torch.zeros(1, 3)})
    assert sealed.kind == "not private" and sealed.receipts == ()


def test_a_site_may_ask_for_more_noise_than_the_plan_never_for_less() -> None:
    p = plan("site", "local", ToyMean)
    noise = torch.tensor([0.001, 50.0], dtype=torch.float64)
    update, held = torch.zeros(2, 3), shards(2, 1)
    draws = [
        seal(at(p, held, noise=noise, seed=i), {"mean": update}).parts["mean"] for i in range(400)
    ]
    std = torch.stack(draws).flatten(2).std(dim=(0, 2))
    assert std[0] == pytest.approx(0.5, rel=0.1), "a site got less noise than promised"
    assert std[1] == pytest.approx(25.0, rel=0.1)


def test_a_raw_update_cannot_pass_where_records_are_protected() -> None:
    p = plan("record", "central")
    update = {"sum": torch.zeros(1, 2, 3), "count": torch.zeros(1, 2)}
    with pytest.raises(PrivacyError, match="raw update"):
        seal(at(p), update)


@pytest.mark.parametrize("unit, bound", [("site", 1.0), ("record", 1.5), ("person", 1.0)])
def test_a_bound_that_is_not_the_plans_is_refused(unit: str, bound: float) -> None:
    p = plan("record", "central")
    wrong = Bounded(torch.zeros(1, 2, 3), bound, unit)
    with pytest.raises(PrivacyError, match="agree"):
        seal(at(p), {"sum": wrong, "count": wrong})


@pytest.mark.parametrize("names", [(), ("mean", "extra"), ("other",)])
def test_an_update_with_other_parts_is_refused(names: tuple[str, ...]) -> None:
    p = plan("site", "central", ToyMean)
    with pytest.raises(PrivacyError, match="parts"):
        seal(at(p), {n: torch.zeros(1, 3) for n in names})


def stepped() -> PrivacyPlan:
    return ToyStep.build(study("toy-step", privacy={"noise": 1.0})).plan


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_fewer_or_more_noised_steps_than_promised_are_refused(steps: int) -> None:
    site = at(stepped())
    for _ in range(steps):
        site.step("step", Bounded(torch.zeros(1, 3), 1.0, "record"))
    with pytest.raises(PrivacyError, match="noised step"):
        seal(site, {"step": torch.zeros(1, 3)})


@pytest.mark.parametrize("value", [torch.zeros(1, 3), Bounded(torch.zeros(1, 3), 2.0, "record")])
def test_a_step_takes_only_what_is_bounded_as_planned(value) -> None:
    with pytest.raises(PrivacyError):
        at(stepped()).step("step", value)


def test_steps_hand_back_noise_and_keep_a_receipt() -> None:
    site = at(stepped(), 2, round=1)
    noised = site.step("step", Bounded(torch.zeros(2, 3), 1.0, "record"))
    assert (noised != 0).all()
    assert [(r.where, r.round, r.std) for r in site.receipts] == [("step", 1, 1.0)]


def test_a_value_noised_in_steps_must_be_a_tensor() -> None:
    site = at(stepped())
    for _ in range(3):
        site.step("step", Bounded(torch.zeros(1, 3), 1.0, "record"))
    raw = Bounded(torch.zeros(1, 3), 1.0, "record")
    with pytest.raises(PrivacyError):
        seal(site, {"step": raw})


def drawn(times: int, each: int = 3) -> torch.Tensor:
    """Which of the rows of two sites each of many batches holds, ``[times, rows]``."""
    site = at(stepped(), shards(2, each))
    inside = torch.zeros(times, 2 * each)
    for batch in inside:
        batch[site.sample("step")[:, 1]] = 1
    return inside


def test_records_join_a_batch_at_the_planned_rate_and_independently() -> None:
    inside, rate = drawn(4000), stepped().own.part("step").mechanism.rate
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
    site, row = at(stepped(), shards(3, 5)).sample("step").T
    assert len(row) and torch.equal(row // 5, site)


def test_what_a_loss_draws_for_a_record_comes_from_the_noise_source() -> None:
    """By public streams, a record that is left out would give its number to the next one."""
    one = at(plan("record", "local", ToyStep), shards(1, 5))
    other = replace(one, secret=NoiseSource.seeded(Streams.from_seed(9)).sites(0, [0]))
    members = torch.tensor([[0, row] for row in range(5)])
    assert not torch.equal(one.normals(members, 4), other.normals(members, 4))


def test_without_a_rate_every_record_is_in_the_batch() -> None:
    p = plan("record", "central")
    members = at(p, shards(2, 5)).sample("sum")
    assert torch.equal(members[:, 1], torch.arange(10))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_an_update_of_choices_that_is_not_finite_counts_as_zero(bad: float) -> None:
    """To refuse it would say something about its site; the others' messages are as before."""
    part = Part("update", (9,), "sum", "client", Selection(9, 3, 2, 1.0))
    chosen = plan("site", "local", ToyMean).with_own(parts=(part,), joins=1)
    update = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    spoiled, quiet = update.clone(), update.clone()
    spoiled[1, 4], quiet[1] = bad, 0.0
    sent = [seal(at(chosen, 3), {"update": value}).parts["update"] for value in (spoiled, quiet)]
    assert torch.equal(*sent) and sent[0].dtype == torch.int32


def test_an_update_of_choices_is_raw_and_one_of_noise_is_never_a_choice() -> None:
    part = Part("update", (9,), "sum", "client", Selection(9, 3, 2, 1.0))
    chosen = plan("site", "local", ToyMean).with_own(parts=(part,), joins=1)
    with pytest.raises(PrivacyError, match="raw update"):
        seal(at(chosen), {"update": Bounded(torch.zeros(1, 9), 1.0, "site")})
    with pytest.raises(PrivacyError, match="clipped"):
        at(chosen).step("update", Bounded(torch.zeros(1, 9), 1.0, "site"))
    with pytest.raises(PrivacyError, match="clipped"):
        at(chosen).sum("update", lambda x, y: x)


@pytest.mark.parametrize("stack", [[0, 1, 2], [1, 2]])
def test_what_a_site_draws_does_not_depend_on_who_is_stacked_with_it(stack: list[int]) -> None:
    """Coins, normals and noise of the last of three sites, in a stack and alone."""
    p, data = stepped(), shards(3, 5)
    streams = Streams.from_seed(0)

    def drawn(clients: list[int]) -> tuple[torch.Tensor, ...]:
        secret = NoiseSource.seeded(streams).sites(0, clients)
        held = data.take(clients)
        names, rng = tuple(map(str, clients)), streams.sites("local", 0, clients)
        site = Site(names, held, {}, p, 0, rng, secret)
        members = site.sample("step")
        mine = members[:, 0] == len(clients) - 1
        noise = site.step("step", Bounded(torch.zeros(len(clients), 3), 1.0, "record"))
        rows = held.x[members[mine][:, 1]]
        return rows, site.normals(members, 4)[mine], noise[-1]

    for a, b in zip(drawn(stack), drawn([2]), strict=True):
        assert torch.equal(a, b)
