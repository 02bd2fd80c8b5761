"""``understudy audit`` and ``evaluate --attacks`` from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from understudy.audit import whole
from understudy.audit.replay import Finding, Replay
from understudy.cli import app
from understudy.cli.scores import attacks_panel
from understudy.data.bundled import bundled
from understudy.errors import AuditError
from understudy.evaluation.attacks.outcome import Attack
from understudy.evaluation.attacks.suite import Attacks
from understudy.evaluation.score import Score
from understudy.recipes import RECIPES

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_recipe.py"
STUDY = """
[study]
name = "audit me"
schema = "schema.toml"
recipe = "fedmoments"
[privacy]
unit = "record"
trust = "central"
epsilon = 2.0
[simulation]
data = "rows.csv"
sites = 3
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(bundled("breast_cancer")[0].to_toml(), encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path / "study.toml"


def test_a_sound_study_is_not_falsified_and_no_rows_are_needed(study: Path) -> None:
    out = study.parent / "audit"
    asked = ["audit", str(study), "--out", str(out), "--seed", "1", "-q"]
    asked += ["--canaries", "200", "--runs", "40"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "never certifies" in " ".join(done.output.split())
    found = json.loads((out / "audit.json").read_text("utf-8"))
    assert found["failures"] == [] and found["replay"]["used"] > 0.5
    assert found["claims"][0]["at_least"] <= found["claims"][0]["claimed"] == pytest.approx(2, 1e-2)
    for way in ("canaries", "many_runs", "input_canaries"):
        assert found["claims"][0][way]["rounds"] == 2
    assert "not falsified" in done.output
    assert CliRunner().invoke(app, asked).exit_code == 9


def test_a_claim_proved_wrong_has_its_exit_code(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Replay((Finding("sums", "removed", "moved by 3, declared 1"),), 1, 1.0)
    monkeypatch.setattr(whole, "replay", lambda study, **terms: wrong)
    out = study.parent / "audit"
    done = CliRunner().invoke(app, ["audit", str(study), "--replay", "--out", str(out), "--json"])
    assert done.exit_code == AuditError.exit_code == 11
    assert "sums" in json.loads(done.output)["error"]["found"]
    assert json.loads((out / "audit.json").read_text("utf-8"))["failures"]


@pytest.fixture
def own(study: Path) -> Iterator[Path]:
    study.write_text(STUDY.replace("fedmoments", "naive_bayes"), encoding="utf-8")
    path = study.parent / "own.py"
    path.write_text(EXAMPLE.read_text("utf-8"), encoding="utf-8")
    yield path
    RECIPES.pop("naive_bayes", None)


def replayed(study: Path, recipe: Path):
    asked = ["audit", str(study), "--replay", "--recipe", str(recipe), "--json", "--force"]
    return CliRunner().invoke(app, [*asked, "--out", str(study.parent / "a")])


def test_a_recipe_of_one_s_own_is_replayed_and_its_query_named(study: Path, own: Path) -> None:
    done = replayed(study, own)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["audit"]["replay"]["used"] > 0.5
    line = 'return {"sums": site.sum("sums", self.features, lambda y: y)}, {}'
    thrice = line.replace("site.sum", "thrice(site.sum").replace("y)}", "y))}")
    text = own.read_text("utf-8")
    assert line in text
    more = "\n\ndef thrice(sums):\n    return replace(sums, value=3 * sums.value)\n"
    unbounded = text.replace("import dataclass", "import dataclass, replace").replace(line, thrice)
    unbounded += more
    own.write_text(unbounded, encoding="utf-8")
    done = replayed(study, own)
    assert done.exit_code == 11
    said = json.loads(done.output)["error"]["found"]
    assert "sums" in said and "moved by" in said


@pytest.mark.parametrize(
    "text, said", [("x = 1", "no class"), ("1 / 0", "ZeroDivisionError"), (None, "No such file")]
)
def test_a_file_without_a_recipe_is_said_to_be_one(
    study: Path, own: Path, text: str | None, said: str
) -> None:
    if text is None:
        own.unlink()
    else:
        own.write_text(text, encoding="utf-8")
    done = replayed(study, own)
    assert done.exit_code == 4 and said in json.loads(done.output)["error"]["found"], done.output


def test_parties_that_hold_columns_are_refused_in_plain_words(study: Path) -> None:
    held = STUDY.replace("sites = 3", 'sites = 2\nsplit = "columns"').replace("central", "local")
    study.write_text(held, encoding="utf-8")
    done = CliRunner().invoke(
        app, ["audit", str(study), "--out", str(study.parent / "a"), "--json"]
    )
    assert done.exit_code == 4 and "columns" in json.loads(done.output)["error"]["found"]


def test_what_attacks_found_is_legible_on_80_columns() -> None:
    def score(value: float) -> Score:
        return Score("rate", value, value - 0.1, value + 0.1, 100)

    rates = (score(0.5), score(0.4), score(-0.05))
    known = Attack("density ratio (DOMIAS)", "g", "?", *rates, score(0.5), 1e-9, 1e-9)
    attacks = Attacks("found", "headline", {}, (known, replace(known, naive_p=0.5)))
    terminal = Console(width=80, file=StringIO())
    with terminal.capture() as said:
        terminal.print(attacks_panel(attacks))
    assert "…" not in said.get()
    for word in "advantage density DOMIAS -0.050 -0.150 .001 without release".split():
        assert word in said.get()
