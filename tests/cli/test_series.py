"""Series from a table to a table: schema, study, release, sample."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.check import check
from understudy.data.schema import Schema

STUDY = """
[study]
name = "one station, two owners"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "{unit}"
trust = "central"
epsilon = 8.0

[simulation]
data = "station.csv"
sites = 2
split = "blocks"
"""


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("station")
    rng = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=240, freq="1h")
    wave = np.sin(np.arange(240) * np.pi / 12)
    held = pd.DataFrame({"time": hours, "CO": 5 + 3 * wave + rng.normal(0, 0.3, 240)})
    held["cars"] = rng.integers(0, 9, 240)
    held.sample(frac=1, random_state=1).to_csv(folder / "station.csv", index=False)
    invoke("schema", "draft", folder / "station.csv", "--length", 12, "-o", folder / "schema.toml")
    invoke("schema", "check", folder / "schema.toml", folder / "station.csv")
    for unit in ("record", "site"):
        (folder / f"{unit}.toml").write_text(STUDY.format(unit=unit))
    invoke("run", folder / "record.toml", "--out", folder / "release", "--quiet", "--seed", 1)
    return folder


def test_a_claim_for_records_says_that_windows_overlap(place: Path) -> None:
    said = json.loads((place / "release" / "claims.json").read_text())[0]
    assert any("a time step is in up to 12 records" in caveat for caveat in said["caveats"])
    assert "overlap" in (place / "release" / "card.md").read_text()
    invoke("verify", place / "release")
    assert "windows overlap" not in invoke("plan", place / "site.toml")


def test_a_claim_for_windows_apart_says_nothing_of_the_kind(place: Path) -> None:
    apart = (place / "schema.toml").read_text().replace("stride = 1 ", "stride = 12 ")
    (place / "apart.toml").write_text(apart)
    study = STUDY.format(unit="record").replace("schema.toml", "apart.toml")
    (place / "study.toml").write_text(study)
    assert "windows overlap" not in invoke("plan", place / "study.toml")
    assert "windows overlap" in invoke("plan", place / "record.toml")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_sample_writes_long_tables(place: Path, tmp_path: Path, name: str) -> None:
    invoke("sample", place / "release", "-n", 20_000, "-o", tmp_path / name, "--seed", 3)
    found = pd.read_csv(tmp_path / name) if name == "a.csv" else pd.read_parquet(tmp_path / name)
    assert list(found.columns) == ["series", "time", "CO", "cars"]
    assert (found.groupby("series").size() == 12).all() and found["series"].nunique() == 20_000
    assert found["cars"].dtype == np.int64
    text = (place / "schema.toml").read_text()
    text = text.replace('"recording"', '"long"\nseries = "series"').replace("stride = 1 ", "# ")
    assert all(f.level != "error" for f in check(Schema.parse(text), tmp_path / name))


def test_sample_writes_wide_tables_and_arrays_of_the_same_series(
    place: Path, tmp_path: Path
) -> None:
    draw = ("sample", place / "release", "-n", 50, "--seed", 3, "-o")
    invoke(*draw, tmp_path / "a.npz")
    said = invoke(*draw, tmp_path / "a.csv", "--layout", "wide")
    assert "50 synthetic series in" in said
    said = invoke(*draw, tmp_path / "b.csv", "--layout", "long")
    assert "50 synthetic series in" in said, "however many rows of the file they take"
    wide, long = pd.read_csv(tmp_path / "a.csv"), pd.read_csv(tmp_path / "b.csv")
    names = [f"{channel}_{i}" for channel in ("CO", "cars") for i in range(12)]
    with np.load(tmp_path / "a.npz") as held:
        series = held["series"]
    assert list(wide.columns) == names and np.allclose(wide[names[:12]], series[:, :, 0])
    assert np.allclose(long[["CO", "cars"]].to_numpy().reshape(50, 12, 2), series)


@pytest.mark.slow
def test_evaluate_shows_the_error_of_repeating_the_last_step(place: Path, tmp_path: Path) -> None:
    real = ("--real", place / "station.csv", "--out", tmp_path / "report")
    text = invoke("evaluate", place / "release", *real, "--quiet")
    found = json.loads((tmp_path / "report" / "scores.json").read_text())["forecasts"]
    card = text.split("all models")[0]
    assert f"{found['models'][0]['scores'][0]['guess']['value']:.4f}" in card


def test_sample_refuses_layouts_that_make_no_sense(place: Path, tmp_path: Path) -> None:
    draw = ("sample", place / "release", "-n", 5, "-o")
    assert "long or wide" in invoke(*draw, tmp_path / "a.csv", "--layout", "tall", code=9)
    said = invoke(*draw, tmp_path / "a.npz", "--layout", "wide", code=9)
    assert "remove it" in said and "found    .npz" in said
    assert not list(tmp_path.iterdir())


def test_unknown_options_of_a_split_are_refused(place: Path) -> None:
    for line in ("records = 5", "alpha = 1.0", "rng = 3"):
        (place / "odd.toml").write_text(STUDY.format(unit="record") + line)
        invoke("run", place / "odd.toml", "--out", place / "none", "--quiet", code=4)
