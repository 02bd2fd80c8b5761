"""Every command on a small study: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.bundled import bundled
from understudy.data.schema import Schema
from understudy.data.table import write
from understudy.recipes import RECIPES

runner = CliRunner()

MOMENTS = """
[study]
name = "small"
schema = "schema.toml"
recipe = "fedmoments"
[privacy]
epsilon = 2.0
[simulation]
data = "rows.csv"
sites = 4
"""

MANY_ROUNDS = """
[study]
name = "many rounds"
schema = "schema.toml"
recipe = "fedvae"
rounds = {rounds}
[privacy]
unit = "site"
trust = "{trust}"
noise = 1.0
[cohort]
rate = 0.5
[simulation]
data = "rows.csv"
sites = 10
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows, a schema, a study and its release."""
    folder = tmp_path_factory.mktemp("study")
    schema, records = bundled("breast_cancer")
    (folder / "schema.toml").write_text(schema.to_toml())
    write(records, folder / "rows.csv")
    (folder / "study.toml").write_text(MOMENTS)
    invoke("run", folder / "study.toml", "--out", folder / "release", "--quiet")
    return folder


def invoke(*words: object, code: int = 0) -> str:
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_version_and_help_name_every_command() -> None:
    assert invoke("--version").startswith("understudy ")
    text = invoke("--help")
    assert invoke("-h") == text and invoke("plan", "-h") == invoke("plan", "--help")
    for command in "demo recipes schema plan run sample evaluate verify doctor".split():
        assert command in text
        assert "Example" in invoke(command, "--help") or command == "schema"


def test_recipes_lists_all_and_explains_each() -> None:
    listed = json.loads(invoke("recipes", "--json"))
    assert {recipe["name"] for recipe in listed} == set(RECIPES)
    for name in RECIPES:
        assert name in invoke("recipes", name)
    assert "choose one" in invoke("recipes", "nothing", code=4)


def test_recipes_says_what_each_option_may_be_and_is_by_default() -> None:
    shown = runner.invoke(app, ["recipes", "signds"], env={"COLUMNS": "200"}).output
    lines = {line.split("│")[1].strip(): line for line in shown.splitlines() if "│" in line}
    assert '"logistic", "nn" or "lenet"' in lines["model"]
    assert lines["model"].split("│")[2].strip() == '"logistic"', "as it stands in a study file"
    assert "a whole number" in lines["hidden"] and "a number" in lines["top"]
    vae = runner.invoke(app, ["recipes", "fedvae"], env={"COLUMNS": "200"}).output
    assert "a list of whole numbers" in vae and "None" not in vae
    (found,) = json.loads(invoke("recipes", "fedvae", "--json"))
    options = {option["name"]: option for option in found["options"]}
    assert options["net"]["allowed"] == ["dense", "conv"] and options["net"]["default"] == "dense"
    assert options["widths"]["default"] == [128] and options["cosines"]["default"] is None


def test_plan_prints_the_claim_and_spends_nothing(place: Path) -> None:
    before = {path.name for path in place.iterdir()}
    assert "ε = 2" in invoke("plan", place / "study.toml").replace("\n", " ")
    plan = json.loads(invoke("plan", place / "study.toml", "--json"))
    assert plan["claims"][0]["epsilon"] <= 2.0
    assert plan["claims"][1]["epsilon"] is None, "the trusted server gets no promise"
    assert {path.name for path in place.iterdir()} == before


def test_the_plan_of_parties_speaks_of_parties(place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "schema.toml", tmp_path)
    study = MOMENTS.replace("sites = 4", 'sites = 2\nsplit = "columns"')
    (tmp_path / "study.toml").write_text(study, encoding="utf-8")
    said = invoke("plan", tmp_path / "study.toml")
    for words in ("parties and rounds", "2 parties, ", "every party in every", "a party sends"):
        assert words in said


def test_plan_does_not_take_rows_for_persons(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(
        'kind = "table"\nname = "t"\nrecords = 5_000\nperson = "who"\nrows_per_person = 2\n'
        '[columns.age]\nkind = "integer"\nlow = 0\nhigh = 99\n[columns.ill]\nkind = "boolean"\n'
    )
    (tmp_path / "study.toml").write_text(
        '[study]\nname = "t"\nschema = "schema.toml"\nrecipe = "fedmoments"\n'
        '[privacy]\nunit = "person"\nepsilon = 1.0\n[simulation]\ndata = "rows.csv"\nsites = 5\n'
    )
    assert "one person among at most 5,000" in invoke("plan", tmp_path / "study.toml")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_working_out_the_cost_shows_a_sign_of_life(
    command: str, place: Path, tmp_path: Path
) -> None:
    def told(*options: str) -> str:
        out = ("--out", tmp_path / f"release{len(list(tmp_path.iterdir()))}")
        words = [command, place / "study.toml", *(out if command == "run" else ()), *options]
        result = runner.invoke(app, [str(w) for w in words], env={"FORCE_COLOR": "1"})
        assert result.exit_code == 0, result.output
        assert "working out what it costs" not in result.stdout
        return result.stderr

    assert "working out what it costs" in told(), "on standard error"
    assert told("--quiet") == "" and told("--json") == ""


PICTURES = """
[study]
name = "pictures"
schema = "schema.toml"
recipe = "fedmoments"
[privacy]
epsilon = 8.0
[simulation]
data = "images"
sites = 2
"""


@pytest.mark.parametrize("command", ["run", "check"])
def test_reading_a_folder_of_images_shows_a_bar(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []

    @contextmanager
    def bar(title: str, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
        yield lambda *told: None if quiet else seen.append(told)

    for module in ("training", "schema"):
        monkeypatch.setattr(f"understudy.cli.{module}.bar", bar)
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(70):
        pixels = rng.integers(0, 256, (4, 4), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    schema = Schema("image", "dots", 70, shape=(4, 4))
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    (tmp_path / "study.toml").write_text(PICTURES)
    check = ("schema", "check", tmp_path / "schema.toml", tmp_path / "images")
    run = ("run", tmp_path / "study.toml", "--rows", 1, "--out", tmp_path / "out")
    invoke(*(run if command == "run" else check), "--quiet")
    assert not seen
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    invoke(*(run if command == "run" else check))
    assert [told for told in seen if told[0] == "reading images"] == [
        ("reading images", 64, 70),
        ("reading images", 70, 70),
    ]


CHOICES = """
[study]
name = "choices"
schema = "schema.toml"
recipe = "dp_fed_wae"
rounds = 5
[privacy]
epsilon = 6.0
[cohort]
size = 7
[simulation]
data = "rows.csv"
sites = 10
"""


def test_plan_says_how_often_a_schedule_calls_a_site_and_what_it_chooses_from(place: Path) -> None:
    (place / "choices.toml").write_text(CHOICES)
    words = ["plan", str(place / "choices.toml")]
    shown = runner.invoke(app, words, env={"COLUMNS": "300"}).output
    assert "7 sites per round on a public schedule, each at most 4 times" in shown
    assert "chosen from" in shown and "update itself" not in shown, "parts of it, both signs"
    (phase,) = json.loads(invoke(*words, "--json"))["plan"]["phases"]
    (part,) = phase["parts"]
    assert part["mechanism"]["epsilon"] == 1.5


def test_plan_projects_to_larger_populations_and_says_it_is_no_claim(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "schema.toml").write_text((place / "schema.toml").read_text())
    (tmp_path / "study.toml").write_text(MANY_ROUNDS.format(rounds=5, trust="central"))
    text = invoke("plan", tmp_path / "study.toml", "--project", "1000,100000")
    assert "not a claim" in text
    rows = json.loads(
        invoke("plan", tmp_path / "study.toml", "--project", "1000,100000", "--json")
    )["projections"]
    assert rows[0]["central"] > rows[1]["central"]
    invoke("plan", tmp_path / "study.toml", "--project", "many", code=4)


def test_verify_accepts_the_release_and_refuses_a_changed_one(place: Path, tmp_path: Path) -> None:
    assert "unbroken chain" in invoke("verify", place / "release")
    assert json.loads(invoke("verify", place / "release", "--json"))["ok"]
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (place / "release").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    claims = (copy / "claims.json").read_text()
    (copy / "claims.json").write_text(claims.replace('"epsilon": 1.', '"epsilon": 0.'))
    assert "expected" in invoke("verify", copy, code=8)
    invoke("verify", tmp_path / "nothing", code=8)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_sample_writes_any_number_of_rows(name: str, place: Path, tmp_path: Path) -> None:
    out = tmp_path / name
    invoke("sample", place / "release", "-n", 20_000, "-o", out, "--seed", 3)
    frame = pd.read_csv(out) if out.suffix == ".csv" else pd.read_parquet(out)
    assert len(frame) == 20_000
    assert set(frame["diagnosis"]) == {"benign", "malignant"}
    invoke("sample", place / "release", "-n", 5, "-o", out, code=9)


def test_sample_by_label_and_none_at_all(place: Path, tmp_path: Path) -> None:
    invoke("sample", place / "release", "-n", 30, "--label", "malignant", "-o", tmp_path / "m.csv")
    assert set(pd.read_csv(tmp_path / "m.csv")["diagnosis"]) == {"malignant"}
    invoke("sample", place / "release", "-n", 0, "-o", tmp_path / "none.csv")
    assert len(pd.read_csv(tmp_path / "none.csv")) == 0
    invoke(
        "sample", place / "release", "-n", 3, "--label", "green", "-o", tmp_path / "g.csv", code=8
    )
    assert not (tmp_path / "g.csv").exists()


def test_evaluate_writes_a_report_and_not_into_the_release(place: Path, tmp_path: Path) -> None:
    text = invoke(
        "evaluate", place / "release", "--real", place / "rows.csv", "--out", tmp_path / "report"
    )
    assert text.count("trained on") == 2
    found = json.loads((tmp_path / "report" / "scores.json").read_text())
    verdict = found["verdict"]
    assert text.index(verdict["title"]) < text.index("trained on"), "the verdict comes first"
    card = text.split("all models")[0]
    for side in ("synthetic", "guess", "real"):
        assert f"{100 * verdict['judgements'][0][side]['value']:.1f}" in card
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    inside = place / "release" / "report"
    invoke("evaluate", place / "release", "--real", place / "rows.csv", "--out", inside, code=9)


@pytest.fixture
def unlabelled(place: Path, tmp_path: Path) -> Path:
    """The release of a table without a label, and its rows."""
    frame = pd.read_csv(place / "rows.csv").iloc[:, :3]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    invoke("schema", "draft", tmp_path / "rows.csv", "-o", tmp_path / "schema.toml")
    (tmp_path / "study.toml").write_text(MOMENTS)
    invoke("run", tmp_path / "study.toml", "--out", tmp_path / "release", "--quiet")
    return tmp_path


def test_evaluate_shows_distances_where_there_is_nothing_to_learn(unlabelled: Path) -> None:
    out = unlabelled / "report"
    text = invoke(
        "evaluate", unlabelled / "release", "--real", unlabelled / "rows.csv", "--out", out
    )
    assert "all models" not in text, "an empty table says nothing"
    assert "names no label" in " ".join(text.replace("│", " ").split())
    judged = json.loads((out / "scores.json").read_text())["verdict"]["judgements"]
    assert [j["use"] for j in judged] == ["single columns", "pairs of columns"]
    for j in judged:
        line = next(line for line in text.splitlines() if j["use"] in line and "0." in line)
        assert all(f"{j[side]['value']:.3f}" in line for side in ("synthetic", "guess", "real"))
    assert max(map(len, text.splitlines()[:-1])) <= 80


def test_a_label_is_refused_where_the_schema_has_none(unlabelled: Path) -> None:
    words = ("sample", unlabelled / "release", "-n", 3, "-o", unlabelled / "new.csv")
    said = invoke(*words, "--label", "red", code=8)
    assert "leave the label out" in said and "among all" not in said


def test_bundled_rows_are_for_study_files(place: Path, tmp_path: Path) -> None:
    words = ("--real", "bundled:breast_cancer", "--out", tmp_path / "report")
    assert "study file" in invoke("evaluate", place / "release", *words, code=3)


def test_fid_needs_images(place: Path, tmp_path: Path) -> None:
    real, out = ("--real", place / "rows.csv"), ("--out", tmp_path / "report")
    weights = ("--inception", tmp_path / "fid.safetensors")
    said = invoke("evaluate", place / "release", *real, *out, *weights, code=1)
    assert "images, for an FID" in said


def test_a_seeded_run_is_repeatable_and_says_simulation(place: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        invoke("run", place / "study.toml", "--out", tmp_path / name, "--seed", 5, "--json")
    one, two = ((tmp_path / n / "generator.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two
    assert "simulation" in (tmp_path / "one" / "card.md").read_text()
    assert "simulation" not in (place / "release" / "card.md").read_text()


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_run_of_many_rounds_through_the_wire(trust: str, place: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(MANY_ROUNDS.format(rounds=3, trust=trust))
    for name in ("schema.toml", "rows.csv"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    invoke("run", study, "--out", tmp_path / "release", "--wire", "--quiet")
    assert json.loads(invoke("verify", tmp_path / "release", "--json"))["ok"]


def test_ctrl_c_keeps_state_and_resume_goes_on(place: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(MANY_ROUNDS.format(rounds=400, trust="central"))
    for name in ("schema.toml", "rows.csv"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    command = [sys.executable, "-m", "understudy", "run", str(study), "--out", str(tmp_path / "r")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    partial = tmp_path / "r.partial"
    deadline = time.monotonic() + 60
    while not (partial / "checkpoint.previous").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "press Ctrl-C again to stop now" in said and "--resume" in said
    assert partial.is_dir() and not (tmp_path / "r").exists()
    study.write_text(study.read_text())  # the same study, so that it may go on
    invoke("run", study, "--out", tmp_path / "r", "--resume", "--quiet")
    verdict = json.loads(invoke("verify", tmp_path / "r", "--json"))
    assert verdict["ok"] and not partial.exists()


def test_ctrl_c_before_the_first_round_ends_at_once_and_spends_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(study: object, *, progress: Callable[..., None], **_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        progress("reading", 64, 4000)
        pytest.fail("it goes on reading")

    monkeypatch.setattr("understudy.cli.training.run", pressed)
    said = invoke("run", place / "study.toml", "--out", tmp_path / "r", "--quiet", code=130)
    assert "Nothing was spent" in said and "--resume" not in said


def test_demo_goes_the_whole_way(tmp_path: Path) -> None:
    text = invoke("demo", "--out", tmp_path / "demo", "--no-open", "--quiet")
    assert "ε = " in text and "report.html" in text
    assert json.loads(invoke("verify", tmp_path / "demo" / "release", "--json"))["ok"]
    invoke("demo", "--recipe", "nothing", code=4)


def test_images_are_sampled_as_arrays(tmp_path: Path) -> None:
    schema, records = bundled("digits")
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    write(records, tmp_path / "rows.npz")
    (tmp_path / "study.toml").write_text(MOMENTS.replace("rows.csv", "rows.npz"))
    invoke("run", tmp_path / "study.toml", "--out", tmp_path / "release", "--quiet")
    invoke("sample", tmp_path / "release", "-n", 10, "-o", tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as held:
        assert held["images"].shape == (10, 8, 8)
    invoke("sample", tmp_path / "release", "-n", 10, "-o", tmp_path / "x.csv", code=9)


def test_demo_never_writes_into_a_folder_with_content(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "choose another" in invoke("demo", "--out", tmp_path, "--no-open", code=9)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_stranger_in_a_release_is_noticed(place: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (place / "release").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "CLAIM.md").write_text("perfectly private")
    assert "manifest" in invoke("verify", copy, code=8)


def test_a_study_without_epsilon_or_noise_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text((place / "schema.toml").read_text())
    (tmp_path / "study.toml").write_text(MOMENTS.replace("epsilon = 2.0", ""))
    assert "epsilon" in invoke("plan", tmp_path / "study.toml", code=4)


def commands(command: object, *above: str) -> Iterator[tuple[str, ...]]:
    within = getattr(command, "commands", {})
    for name in within:
        yield from commands(within[name], *above, name)
    if not within:
        yield above


@pytest.mark.parametrize("command", list(commands(get_command(app))), ids=" ".join)
def test_the_help_of_every_command_is_shown_as_written(command: tuple[str, ...]) -> None:
    """No line is broken at 80 columns, and no word in brackets is taken for markup."""
    at = get_command(app)
    for name in command:
        at = at.commands[name]
    shown = [line.strip() for line in invoke(*command, "--help").splitlines()]
    text = at.help.partition("\n\n")[2].replace("\b", "")
    assert [line for line in map(str.strip, text.splitlines()) if line not in shown] == []
    assert not [p.name for p in at.params if re.search(r"\[[a-z]", getattr(p, "help", None) or "")]
