"""Two phases, one claim: numbering, hand-over, charges of both, and what a kill leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.toys import (
    WIDTH,
    ToyMean,
    ToySum,
    engine,
    networked,
    plain,
    records,
    shards,
    study,
)
from federation.test_engine import charged, killed_at, trained
from understudy.errors import PrivacyError, ReleaseError
from understudy.federation.checkpoint import Checkpoint
from understudy.federation.phases import Then, then
from understudy.federation.recipe import Recipe, Task
from understudy.federation.sites import Sites
from understudy.privacy.account import cost
from understudy.privacy.claim import claims
from understudy.privacy.ledger import Ledger, read_entries, receipts_in
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import RECIPES
from understudy.release.verify import verify
from understudy.rng import Draws, Streams
from understudy.simulation import run
from understudy.study import Study


@dataclass(frozen=True)
class Refined(ToyMean):
    """`ToyMean` that can start from what a first phase made, and says which round it thinks."""

    def begin(self, made: Any, *, rng: Streams) -> dict:
        return {"mean": made.arrays["mean"][0], "begun": torch.ones(1)}

    def step(self, state: dict, total: dict, *, rng: Streams) -> dict:
        return {**state, "mean": state["mean"] + total["mean"]}


def two_phases(trust: str = "central", *, rounds: int = 3, warm: int = 1, **tables: Any) -> Then:
    """ToySum for ``warm`` rounds, then the mean: both protect sites."""
    privacy = {"unit": "site", "trust": trust, "noise": 2.0}
    if trust == "none":
        privacy.pop("noise")
    asked = study("toy-sum", 6, study={"rounds": warm}, privacy=privacy)
    first = ToySum.build(asked)
    terms = dict(study={"rounds": rounds}, privacy=privacy, **tables)
    second = ToyMean.build(study("toy-mean", 6, **terms))
    return then(first, Refined(second.schema, after(first.plan, second.plan)))


def alone(plan: PrivacyPlan) -> PrivacyPlan:
    """The plan without what comes before its last phase."""
    return replace(plan, phases=plan.phases[-1:])


def after(first: PrivacyPlan, second: PrivacyPlan) -> PrivacyPlan:
    """The second plan with the phases of the first before its own."""
    return replace(second, phases=(*first.phases, *second.phases))


# Numbering and hand-over.


def test_rounds_are_numbered_for_the_run_and_from_zero_for_the_second_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    for kind in (ToySum, ToyMean):
        original = kind.task

        def task(self: Any, state: dict, round: int, original: Any = original) -> Task:
            asked.append((type(self).__name__, round))
            return original(self, state, round)

        monkeypatch.setattr(kind, "task", task)
    trained(two_phases(warm=2), tmp_path)
    assert asked == [("ToySum", 0), ("ToySum", 1), ("Refined", 0), ("Refined", 1), ("Refined", 2)]
    found = [(r.round, r.part) for r in charged(tmp_path)]
    first = [(r, part) for r in (0, 1) for part in ("sum", "count")]
    assert found == [*first, (2, "mean"), (3, "mean"), (4, "mean")]


def test_the_second_phase_begins_from_what_the_first_one_made() -> None:
    both = two_phases(warm=2)
    rng = Streams.from_seed(0)
    total = {"sum": torch.ones(2, WIDTH), "count": torch.full((2,), 2.0)}
    state = both.step(both.init(rng=rng), total, rng=rng)
    assert "begun" not in state and "sum" in state, "handed over before the phase was complete"
    state = both.step(state, total, rng=rng)
    assert set(state) == {"mean", "begun"}
    torch.testing.assert_close(state["mean"], torch.full((WIDTH,), 0.25))  # 4 / 8 / 2
    after = both.step(state, {"mean": torch.ones(WIDTH)}, rng=rng)
    torch.testing.assert_close(after["mean"], state["mean"] + 1)


def test_sites_keep_nothing_of_the_first_phase(tmp_path: Path) -> None:
    both = two_phases(rounds=2, warm=2)
    made, ledger = engine(both, tmp_path)
    with ledger:
        made.train()
    kept = made.runtime.sites.memory.gather(np.arange(6))
    assert torch.equal(kept["rounds"], torch.full((6, 1), 2.0)), "warm rounds reached the memory"


def test_what_comes_first_may_keep_nothing_and_must_be_in_the_plan() -> None:
    both = two_phases()
    with pytest.raises(AssertionError):
        then(both.first, replace(both.second, plan=alone(both.plan)))
    keeps: Recipe = ToyMean.build(study(privacy={"noise": 1.0}))
    second = Refined(keeps.schema, after(keeps.plan, keeps.plan))
    with pytest.raises(AssertionError):
        then(keeps, second)


@pytest.mark.parametrize("trust", ["central", "local", "none"])
def test_both_phases_run_over_the_wire_as_without(tmp_path: Path, trust: str) -> None:
    found = []
    for apart in (False, True):
        folder = tmp_path / str(apart)
        folder.mkdir()
        made, ledger = engine(two_phases(trust), folder)
        if apart:
            made.runtime = networked(made.runtime.sites, folder)
        with ledger:
            found.append(made.train()["mean"])
    assert torch.equal(*found)


# Participation.


def test_participations_of_one_phase_are_not_those_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[tuple[int, int]] = []
    answer = Sites.answer

    def noted(self: Sites, task: Task, round: int, clients: np.ndarray) -> Any:
        joined.append((round, len(clients)))
        return answer(self, task, round, clients)

    monkeypatch.setattr(Sites, "answer", noted)
    both = two_phases("local", rounds=4, cohort={"joins": 2})
    made, ledger = engine(both, tmp_path)
    assert made.runtime.sites.allowance.tolist() == [[1] * 6, [2] * 6]
    with ledger:
        made.train()
    assert joined == [(0, 6), (1, 6), (2, 6)], "two rounds of the second phase, not one or three"
    assert made.runtime.sites.allowance.tolist() == [[0] * 6, [0] * 6]


# Kills.


def resume(both: Then, folder: Path) -> dict:
    return trained(both, folder, seed=None, checkpoint=Checkpoint(folder))


@pytest.mark.parametrize("owner, name, after", [
    (Ledger, "charge", True),
    (Sites, "answer", False),
    (Sites, "answer", True),
    (Draws, "normal", True),
    (ToySum, "step", True),
    (Checkpoint, "save", False),
])  # fmt: skip
def test_a_warm_start_that_was_cut_short_cannot_be_gone_on_with(
    tmp_path: Path, owner: type, name: str, after: bool
) -> None:
    both = two_phases()
    with killed_at(owner, name, 1, after):
        resume(both, tmp_path)
    with pytest.raises(ReleaseError, match="warm start") as refusal:
        resume(both, tmp_path)
    assert "cannot be recovered" in str(refusal.value)
    assert {r.round for r in charged(tmp_path)} == {0}, "resuming charged a round for nothing"


def test_a_kill_before_the_warm_start_was_charged_costs_nothing(tmp_path: Path) -> None:
    both = two_phases()
    with killed_at(Ledger, "charge", 1, False):
        resume(both, tmp_path)
    resume(both, tmp_path)
    assert sorted({r.round for r in charged(tmp_path)}) == [0, 1, 2, 3]
    both.plan.settles(charged(tmp_path))


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("owner, name", [
    (Ledger, "charge"),
    (Sites, "answer"),
    (ToyMean, "task"),
    (Refined, "step"),
    (Checkpoint, "save"),
])  # fmt: skip
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_in_a_later_round_is_gone_on_from_and_spends_no_round_twice(
    tmp_path: Path, trust: str, owner: type, name: str, after: bool
) -> None:
    both = two_phases(trust)
    call = 2 if owner in (ToyMean, Refined) else 3  # the second round of the second phase
    with killed_at(owner, name, call, after):
        resume(both, tmp_path)
    state = resume(both, tmp_path)
    assert torch.isfinite(state["mean"]).all() and "begun" in state
    found = charged(tmp_path)
    assert [r.round for r in found] == [0, 0, 1, 2, 3]
    both.plan.settles(found)


def test_a_void_round_costs_a_participation_of_its_own_phase(tmp_path: Path) -> None:
    both = two_phases("local", rounds=4, cohort={"joins": 2})
    with killed_at(Sites, "answer", 2, True):  # the first round of the second phase
        resume(both, tmp_path)
    made, ledger = engine(both, tmp_path, checkpoint=Checkpoint(tmp_path))
    with ledger:
        start, _ = made._resume()
    assert start == 2
    assert made.runtime.sites.allowance.tolist() == [[0] * 6, [1] * 6]


# The whole way, with a real warm start.

NETS = {"widths": [4], "decoder_widths": [4], "latent": 2, "steps": 2, "warm_steps": 3}
EPSILON = 3.0


def warm_study(unit: str = "site", trust: str = "central", recipe: str = "dpd_fvae") -> Study:
    return study(
        recipe,
        3,
        schema=plain(),
        study={"rounds": 2},
        privacy={"unit": unit, "trust": trust, "epsilon": EPSILON},
        recipe={**NETS, "warm_start": 0.4},
    )


def three_sites() -> list:
    return [records(6, seed=i + 1, kind=plain()) for i in range(3)]


@pytest.mark.parametrize(
    "recipe, unit, trust",
    [
        ("dpd_fvae", "site", "central"),
        ("fedvae", "site", "local"),
    ],
)
def test_one_claim_holds_the_events_of_both_phases(
    tmp_path: Path, recipe: str, unit: str, trust: str
) -> None:
    release = run(warm_study(unit, trust, recipe), three_sites(), out=tmp_path / "out", rows=5)
    verify(tmp_path / "out")
    claim = release.claims[0]
    assert len(claim.events) == 2 and claim.events[0].count == 1
    assert claim.epsilon is not None and 0.95 * EPSILON <= claim.epsilon <= EPSILON
    assert cost([claim.events[0]], claim.delta).epsilon <= 0.4 * EPSILON * (1 + 1e-6)
    assert "; then " in claim.sampling
    found = receipts_in(list(read_entries(release.ledger)))
    assert {r.part for r in found if r.round == 0} == {"moments"}
    assert "moments" not in {r.part for r in found if r.round > 0}


def _chained(entries: list[dict]) -> str:
    """The same bodies as an unbroken chain: what a forger would write."""
    from understudy.privacy.ledger import _seal

    previous, lines = "0" * 64, []
    for entry in entries:
        sealed = _seal(previous, entry["kind"], entry["body"])
        lines.append(json.dumps(sealed, sort_keys=True, ensure_ascii=False) + "\n")
        previous = sealed["hash"]
    return "".join(lines)


@pytest.mark.parametrize("rechained", [False, True], ids=["cut", "cut and chained anew"])
def test_a_ledger_without_the_warm_charge_fails_verification(
    tmp_path: Path, rechained: bool
) -> None:
    release = run(warm_study(), three_sites(), rows=5)
    replace(release, ledger=release.ledger).save(tmp_path / "same")
    verify(tmp_path / "same")
    lines = release.ledger.splitlines(keepends=True)
    cut = [line for line in lines if '"part": "moments"' not in line]
    assert len(cut) == len(lines) - 1
    text = _chained([json.loads(line) for line in cut]) if rechained else "".join(cut)
    with pytest.raises((ReleaseError, PrivacyError)):
        replace(release, ledger=text).save(tmp_path / "cut")
        verify(tmp_path / "cut")


def test_a_plan_that_hides_its_warm_start_fails_verification(tmp_path: Path) -> None:
    release = run(warm_study(), three_sites(), rows=5)
    hidden = alone(release.plan)
    assert claims(hidden, "os")[0].epsilon < release.claims[0].epsilon
    with pytest.raises((ReleaseError, PrivacyError)):
        replace(release, plan=hidden).save(tmp_path / "hidden")
        verify(tmp_path / "hidden")


def press(at: int) -> Any:
    def progress(doing: str, done: int, total: int) -> None:
        if doing == "training" and done == at:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_run_goes_on_after_its_warm_start(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(warm_study(), three_sites(), out=out, progress=press(1))
    run(warm_study(), three_sites(), out=out, resume=True, rows=5)
    assert [r.round for r in verify_receipts(out)] == [0, 1, 2]
    assert not (tmp_path / "out.partial").exists()


def verify_receipts(out: Path) -> list:
    return receipts_in(list(read_entries(verify(out).release.ledger)))


def test_a_run_killed_in_its_warm_start_says_so_and_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with killed_at(Sites, "answer", 1, True):
        run(warm_study(), three_sites(), out=out)
    with pytest.raises(ReleaseError, match="warm start"):
        run(warm_study(), three_sites(), out=out, resume=True)
    assert not out.exists() and (tmp_path / "out.partial" / "ledger.jsonl").exists()


@pytest.mark.parametrize("name", ["dpd_fvae", "fedvae"])
def test_unit_and_trust_may_be_left_to_the_recipe(name: str) -> None:
    asked = study(
        name, 3, schema=plain(), privacy={"epsilon": EPSILON}, recipe={**NETS, "warm_start": 0.4}
    )
    plan = RECIPES[name].build(asked).plan
    assert (plan.unit, plan.trust) == RECIPES[name].info.default
    assert len(plan.phases) == 2 and plan.phases[0].parts[0].name == "moments"


def test_a_site_without_rows_takes_part_in_both_phases(tmp_path: Path) -> None:
    state = trained(two_phases("local"), tmp_path, data=shards(6, 0))
    assert torch.isfinite(state["mean"]).all()
