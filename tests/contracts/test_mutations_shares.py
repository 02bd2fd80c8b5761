"""Take a safeguard of noise in shares away: the checkers must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from contracts.harness import check_noise, check_order, check_release, small_recipe
from contracts.test_mutations import (
    CAUGHT,
    Patch,
    case,
    charge_afterwards,
    charge_once,
    no_charge,
    no_row_clip,
    replayed,
    unclipped,
    understated_charge,
)
from contracts.toys import engine
from understudy.federation import site as site_module
from understudy.federation.gather import PlainSum
from understudy.privacy import integer
from understudy.privacy.claim import claims
from understudy.privacy.discrete import DiscreteGaussian
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.plan import Phase
from understudy.rng import Draws, NoiseSource, Streams

TRUST = "distributed"


# Checkers.


def noisy(name: str, unit: str) -> Callable[[Path], None]:
    return lambda folder: check_noise(small_recipe(name, unit, TRUST).plan)


def released(name: str, unit: str) -> Callable[[Path], None]:
    return lambda folder: check_release(name, unit, TRUST, folder)


def ordered(name: str, unit: str) -> Callable[[Path], None]:
    return lambda folder: check_order(small_recipe(name, unit, TRUST), folder)


def within_the_limit(folder: Path) -> None:
    """Rounding that always goes up leaves no site beyond the limit."""
    mechanism = small_recipe("toy-mean", "site", TRUST).plan.own.parts[0].mechanism
    part = replace(small_recipe("toy-mean", "site", TRUST).plan.own.parts[0], shape=(2500,))
    grid = mechanism.grid(part)
    value = torch.full((2, 2500), mechanism.bound / 50 * (1 - 1e-6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer, "_randomly", lambda value, draws: value.ceil().long() + 1)
        draws = NoiseSource.seeded(Streams.from_seed(0)).sites(0, range(2))
        found = mechanism._rounded(value, grid, draws)
    assert int(found.square().sum(1).max()) <= grid.squared


def void_below_t(folder: Path) -> None:
    """A sum over fewer sites than t is not formed, and the round is charged all the same."""
    recipe = small_recipe("toy-mean", "site", TRUST)
    made, ledger = engine(recipe, folder)
    made.runtime.sites.allowance[:, 0] = 1  # of two rounds: in the second, two of three answer
    with ledger:
        made.train()
        assert made._completed == 1
        recipe.plan.settles(
            [receipt for r in range(2) for receipt in recipe.plan.receipts(r, "os")]
        )


def server_pays_for_colluders(folder: Path) -> None:
    """What the server and c sites see has the noise of t − c shares only."""
    plan = small_recipe("toy-mean", "site", TRUST).plan
    grid = plan.own.parts[0].mechanism.grid(plan.own.parts[0])
    left = (plan.own.survivors - plan.own.colluders) * grid.variance
    first = claims(plan, "os")[0]
    assert (first.events[0].noise[0] * grid.limit) ** 2 <= left * (1 + 1e-9)


# Mutations.


def small_shares(patch: Patch) -> None:
    """A tenth less noise than the receipt says."""
    draw = DiscreteGaussian.draw

    def less(self: DiscreteGaussian, source: Draws, n: int):
        return draw(DiscreteGaussian(0.81 * self.variance), source, n)

    patch.setattr(DiscreteGaussian, "draw", less)


def no_shares(patch: Patch) -> None:
    draw = DiscreteGaussian.draw
    patch.setattr(DiscreteGaussian, "draw", lambda self, source, n: 0 * draw(self, source, n))


def unchecked_norms(patch: Patch) -> None:
    patch.setattr(integer, "_squares", lambda numbers: torch.zeros(len(numbers)))


def colluders_ignored(patch: Patch) -> None:
    """Shares sized for t survivors, as if every one of them were honest."""
    patch.setattr(IntegerGaussian, "honest", property(lambda self: self.survivors))
    patch.setattr(integer, "_grid", integer._grid.__wrapped__)  # not one that was kept


def colluders_forgotten(patch: Patch) -> None:
    """The claim against the server counts the colluders' shares as noise."""
    event = IntegerGaussian.event
    patch.setattr(IntegerGaussian, "event", lambda self, *a, **k: event(self.against(0), *a, **k))


def any_survivors(patch: Patch) -> None:
    patch.setattr(Phase, "survivors", property(lambda self: 1))


def no_clip(patch: Patch) -> None:
    patch.setattr(IntegerGaussian, "bounded", lambda self, value, use: unclipped(value, self.bound))
    patch.setattr(site_module, "clip", lambda value, bound, blocks=1: unclipped(value, bound))


def stale_rounding(patch: Patch) -> None:
    """How a site rounds depends on its rows, and all of them."""
    randomly = integer._randomly

    def shaken(value: torch.Tensor, draws: Draws) -> torch.Tensor:
        return randomly(value, draws) + (1e4 * value.sum(1, keepdim=True).sin()).long()

    patch.setattr(integer, "_randomly", shaken)


CASES = [
    case(small_shares, noisy("toy-mean", "site")),
    case(small_shares, noisy("fedmoments", "record"), "small_shares_records"),
    case(no_shares, noisy("toy-sum", "record")),
    case(colluders_ignored, noisy("toy-mean", "site")),
    case(colluders_forgotten, server_pays_for_colluders),
    case(unchecked_norms, within_the_limit),
    case(any_survivors, void_below_t),
    case(no_clip, replayed("toy-mean", "site", TRUST, "replaced by wild")),
    case(no_row_clip, replayed("toy-sum", "record", TRUST, "wild against none")),
    case(stale_rounding, replayed("toy-sum", "record", TRUST, "removed")),
    case(no_charge, released("toy-mean", "site")),
    case(charge_once, released("toy-mean", "site")),
    case(understated_charge, released("toy-mean", "site")),
    case(charge_afterwards, ordered("toy-mean", "site")),
]


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("mutate, check", CASES)
def test_a_safeguard_of_shares_taken_away_is_noticed(
    tmp_path: Path, monkeypatch: Patch, mutate: Callable, check: Callable
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "mutated").mkdir()
    check(tmp_path / "whole")
    mutate(monkeypatch)
    with pytest.raises(CAUGHT):
        check(tmp_path / "mutated")


def test_fewer_shares_than_survivors_have_no_sum() -> None:
    recipe = small_recipe("toy-mean", "site", TRUST)
    assert PlainSum(recipe.plan, NoiseSource.system()).add_up([], 0) is None
