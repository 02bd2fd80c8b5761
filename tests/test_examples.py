from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from understudy import Release, Study, run
from understudy.data.bundled import bundled
from understudy.data.table import read
from understudy.recipes import RECIPES

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_hospitals_meet_their_caps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "hospitals_with_budgets.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "ε = 2" in said and "was refused" in said
    assert (tmp_path / "hospitals" / "release" / "claims.json").exists()
    assert not (tmp_path / "hospitals" / "again").exists()


def test_a_clinic_and_a_registry_make_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "columns_at_two_parties.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "patients are known to both" in said and "the server together with a party" in said


def test_series_go_from_table_to_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "series_at_many_sites.py"), run_name="__main__")
    assert "5000 series" in capsys.readouterr().out
    schema, records = bundled("sines")
    made = read(tmp_path / "waves" / "synthetic.csv", schema).series
    assert made.shape == (1000, 30, 5)
    assert np.abs(made.mean((0, 2)) - records.series.mean((0, 2))).max() < 0.1


def test_phones_learn_a_classifier_that_nobody_could_look_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "phones_without_trust.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "ε = 8 at δ = 0, in its one update" in said and "held-out rows" in said
    assert (tmp_path / "phones" / "release" / "classifier.safetensors").exists()


def test_a_recipe_of_ones_own_runs_verifies_and_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("understudy.recipes.RECIPES", dict(RECIPES))
    runpy.run_path(str(EXAMPLES / "my_recipe.py"), run_name="__main__")
    assert "ε = 0.999" in capsys.readouterr().out
    assert Release.load(tmp_path / "naive-bayes").recipe == "naive_bayes"
    schema, real = bundled("breast_cancer")
    tables = {
        "study": {"name": "seeded", "recipe": "naive_bayes"},
        "privacy": {"epsilon": 20.0},
        "simulation": {"data": "bundled:breast_cancer", "sites": 5},
    }
    made = run(Study.parse(tables, schema=schema), seed=0).sample(4000, seed=0).frame
    share = (real.frame["diagnosis"] == "benign").mean()
    assert abs((made["diagnosis"] == "benign").mean() - share) < 0.05
    for column in ("mean radius", "mean texture"):
        means = [f.groupby("diagnosis")[column].mean() for f in (made, real.frame)]
        assert (means[0] - means[1]).abs().max() < 0.15 * means[1].mean()
    assert len((EXAMPLES / "my_recipe.py").read_text().splitlines()) < 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not importlib.util.find_spec("nvflare"), reason="FLARE is not installed")
def test_three_hospitals_end_with_a_release_that_all_have_signed(tmp_path: Path) -> None:
    script = EXAMPLES / "three_hospitals" / "run.py"
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=560
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "signed by hub, counter-signed by north, south, west (all 3 sites)" in done.stdout
    assert "the keys are those in roster.json" in done.stdout
    assert "the cap is ε = 4: ε = 2 is left" in done.stdout
    made = tmp_path / "three-hospitals"
    assert len(Release.load(made / "hub" / "release").sample(10)) == 10
    assert not list((made / "hub").rglob("rows.csv"))  # they stayed where they were
    again = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 1 and "exists: remove it" in again.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not importlib.util.find_spec("fastapi"), reason="no extra 'exchange' here")
def test_an_exchange_drops_a_poisoned_generator_and_takes_others(tmp_path: Path) -> None:
    """Members' noise is the operating system's: it may make an honest generator one of no use."""
    script = EXAMPLES / "exchange" / "run.py"
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=560
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2,000 rows of 3 generators in unscreened.csv" in done.stdout
    assert re.search(r"2,000 rows of (one generator|2 generators) in screened\.csv", done.stdout)
    assert "4 releases: each is in store and database" in done.stdout
    told = (tmp_path / "exchange-example" / "west" / "screened.csv.sources.json").read_text("utf-8")
    dropped = {each["name"] for each in json.loads(told)["screened"] if each["dropped"]}
    (poisoned,) = set(re.findall(r"([0-9a-f]{16}) +east\b", done.stdout))
    assert poisoned in dropped
