"""What the console page shows while a run goes on: rows and ε of the rounds so far."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from contracts.harness import cases, kind_of, small_shards, small_study
from contracts.toys import engine
from recipes.test_joint_critic import study as joint_study
from understudy.deployment import preview
from understudy.deployment.preview import Preview
from understudy.deployment.reception import Report
from understudy.deployment.status import Promised, Status
from understudy.privacy.claim import claims
from understudy.recipes import RECIPES, build


def watched(folder: Path, name: str, unit: str, trust: str) -> tuple[Any, Any, list[Status]]:
    """An engine that reports every round, its ledger, and what was said."""
    recipe = RECIPES[name].build(small_study(name, unit, trust))
    told: list[Status] = []
    promised = Promised.of(claims(recipe.plan, "simulation"))
    report = Report(Status("s", recipe.plan.length, (), promised), folder, told.append)
    made, ledger = engine(recipe, folder, data=small_shards(kind_of(name)))
    made.watch = Preview(recipe, report, "simulation")
    return made, ledger, told


FIRST = {each.values[0]: each for each in reversed(cases()) if each.values[0] in RECIPES}


@pytest.mark.parametrize("name, unit, trust", FIRST.values())
def test_every_recipe_shows_what_it_has_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, unit: str, trust: str
) -> None:
    monkeypatch.setattr(preview, "_PAUSE", 0)
    made, ledger, told = watched(tmp_path, name, unit, trust)
    with ledger:
        made.train()
    assert len(told) == made.recipe.plan.length
    spent = [status.claims[0].spent for status in told]
    assert spent == sorted(spent, key=lambda each: each or 0)
    assert spent[-1] == told[-1].claims[0].epsilon
    assert [status.looked for status in told] == list(range(1, len(told) + 1))
    shown = told[-1].sample
    assert bool(shown) == (name != "signds")  # which makes a classifier here
    if shown and kind_of(name) == "table":
        assert len(pd.read_csv(tmp_path / shown)) == 12


def test_each_claim_shows_what_was_spent_of_itself_also_where_phases_claim_otherwise(
    tmp_path: Path,
) -> None:
    """Parties' sums come before secret batches, and have other claims than these."""
    asked = joint_study(0.5)
    recipe, told = build(asked), []
    promised = claims(recipe.plan, "os")
    status = Status("s", recipe.plan.length, (), Promised.of(promised))
    look = Preview(recipe, Report(status, tmp_path, told.append), "os")
    for rounds in range(1, recipe.plan.length + 1):
        look.report.say(claims=look._spent(rounds))
        so_far = claims(recipe.plan.prefix(rounds), "os")
        known = {(c.adversary, c.relation): c.epsilon for c in so_far}
        expected = [known.get((c.adversary, c.relation)) for c in promised]
        assert [claim.spent for claim in told[-1].claims] == expected and expected[0]


def test_between_looks_the_status_says_of_which_round_it_speaks(tmp_path: Path) -> None:
    """What was spent must not look smaller than it is: an old figure has its round beside it."""
    made, ledger, told = watched(tmp_path, "fedvae", "site", "local")
    look = made.watch
    look(1, made.recipe.init(rng=made.streams))
    look._next = float("inf")
    with ledger:
        made.train()
    assert [status.looked for status in told] == [1, made.recipe.plan.length]
