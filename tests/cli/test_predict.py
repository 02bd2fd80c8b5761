"""``understudy predict``, on classifiers of a table and of images that toy studies release."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from release.classes import NAME, ToyClasses
from understudy.cli import app, predict
from understudy.data.bundled import bundled
from understudy.data.schema import Schema
from understudy.data.table import write
from understudy.recipes import RECIPES
from understudy.release import Release

runner = CliRunner()

STUDY = """
[study]
name = "small"
schema = "schema.toml"
recipe = "{recipe}"
[privacy]
{price}
[simulation]
data = "{data}"
sites = 4
"""


def invoke(*words: object, code: int = 0) -> str:
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def released(folder: Path, name: str, data: str, recipe: str = NAME) -> str:
    """Run a study of bundled rows through the command; what it said."""
    schema, records = bundled(name)
    (folder / "schema.toml").write_text(schema.to_toml())
    write(records, folder / data)
    price = "noise = 0.01" if recipe == NAME else "epsilon = 2.0"
    (folder / "study.toml").write_text(STUDY.format(recipe=recipe, price=price, data=data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, NAME, ToyClasses)  # type: ignore[arg-type]
        return invoke("run", folder / "study.toml", "--out", folder / "release", "--quiet")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of the breast cancer table and a released classifier."""
    folder = tmp_path_factory.mktemp("cells")
    said = released(folder, "breast_cancer", "rows.csv")
    assert "understudy predict" in said and "understudy sample" not in said
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of handwritten digits."""
    folder = tmp_path_factory.mktemp("digits")
    released(folder, "digits", "rows.npz")
    return folder


def test_help_has_an_example() -> None:
    text = invoke("predict", "--help")
    assert "understudy predict release --data" in text and "internal" in text
    assert "predict" in invoke("--help")


@pytest.mark.parametrize("name", ["said.csv", "said.csv.gz", "said.parquet"])
def test_a_table_with_labels_is_predicted_and_measured(
    cells: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    text = invoke("predict", cells / "release", "--data", cells / "rows.csv", "-o", out)
    found = pd.read_parquet(out) if name.endswith("parquet") else pd.read_csv(out)
    truth = pd.read_csv(cells / "rows.csv")["diagnosis"]
    assert list(found.columns) == ["predicted", "probability_benign", "probability_malignant"]
    right = (found["predicted"].astype(str) == truth).mean()
    assert right > 0.85, "the toy should tell these apart"
    assert f"accuracy {right:.3f}" in text
    often = truth.value_counts(normalize=True).max()
    assert f"always predicting the most common class: {often:.3f}" in text
    assert "on these 569 rows" in text and "not part of the release" in " ".join(text.split())
    assert [p.name for p in tmp_path.iterdir()] == [name], "something else was left"


def test_a_table_without_labels_is_predicted_alike_and_not_measured(
    cells: Path, tmp_path: Path
) -> None:
    rows = pd.read_csv(cells / "rows.csv").drop(columns="diagnosis")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    places = ((cells / "rows.csv", "with.csv"), (tmp_path / "rows.csv", "without.csv"))
    said = [
        invoke("predict", cells / "release", "--data", data, "-o", tmp_path / out)
        for data, out in places
    ]
    assert "accuracy" in said[0] and "accuracy" not in said[1]
    one, two = (pd.read_csv(tmp_path / out) for _, out in places)
    pd.testing.assert_frame_equal(one, two)


def test_what_is_said_fits_a_terminal_and_names_what_was_read(digits: Path, tmp_path: Path) -> None:
    where = ("--data", digits / "rows.npz", "-o", tmp_path / "said.csv", "--quiet")
    first, *lines = invoke("predict", digits / "release", *where).splitlines()
    assert "predictions of 1,797 images in" in first
    assert "on these 1,797 images" in lines[0] and "rows" not in "".join(lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("labelled", [True, False])
def test_images_are_predicted_with_and_without_labels(
    digits: Path, tmp_path: Path, labelled: bool
) -> None:
    with np.load(digits / "rows.npz") as held:
        images, y = held["images"], held["y"]
    np.savez(tmp_path / "rows.npz", images=images, **({"y": y} if labelled else {}))
    out = tmp_path / "said.csv"
    words = ("predict", digits / "release", "--data", tmp_path / "rows.npz", "-o", out, "--json")
    said = json.loads(invoke(*words))
    found = pd.read_csv(out)
    assert list(found.columns) == ["predicted", *(f"probability_{k}" for k in range(10))]
    right = (found["predicted"].to_numpy() == y).mean()
    assert right > 0.8, "the toy should read digits"
    assert (said["ok"], said["rows"], said["output"]) == (True, len(y), str(out))
    if not labelled:
        assert said["accuracy"] is None
        return
    assert said["accuracy"]["value"] == pytest.approx(right, abs=1e-6)
    assert said["accuracy"]["low"] < right < said["accuracy"]["high"]
    assert said["accuracy"]["commonest"] == pytest.approx(np.bincount(y).max() / len(y), abs=1e-6)
    assert "internal" in said["accuracy"]["mark"]


def test_batches_leave_no_seam(
    cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", cells / "release", "--data", cells / "rows.csv", "--quiet", "-o")
    one = invoke(*words, tmp_path / "one.parquet")
    monkeypatch.setattr(predict, "BATCH", 50)
    many = invoke(*words, tmp_path / "many.parquet")
    assert one.splitlines()[1] == many.splitlines()[1], "another accuracy"
    whole, parts = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in ("one", "many"))
    pd.testing.assert_frame_equal(whole, parts, rtol=1e-5)


def test_no_rows_give_a_table_without_rows(cells: Path, tmp_path: Path) -> None:
    header = (cells / "rows.csv").read_text().splitlines()[0]
    (tmp_path / "rows.csv").write_text(header + "\n")
    words = ("predict", cells / "release", "--data", tmp_path / "rows.csv")
    said = json.loads(invoke(*words, "-o", tmp_path / "said.csv", "--json"))
    assert said["rows"] == 0 and said["accuracy"] is None
    found = pd.read_csv(tmp_path / "said.csv")
    assert len(found) == 0 and found.columns[0] == "predicted"


def test_the_release_is_left_as_it_was(cells: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in (cells / "release").iterdir()}
    words = ("predict", cells / "release", "--data", cells / "rows.csv")
    invoke(*words, "-o", tmp_path / "said.csv")
    inside = invoke(*words, "-o", cells / "release" / "said.csv", code=9)
    assert "outside" in inside
    assert {p.name: p.read_bytes() for p in (cells / "release").iterdir()} == before
    assert json.loads(invoke("verify", cells / "release", "--json"))["ok"]


def test_an_output_is_checked_before_any_work(cells: Path, tmp_path: Path) -> None:
    words = ("predict", cells / "release", "--data", tmp_path / "nothing.csv", "-o")
    (tmp_path / "said.csv").write_text("mine")
    assert "exists" in invoke(*words, tmp_path / "said.csv", code=9)
    assert (tmp_path / "said.csv").read_text() == "mine"
    assert ".csv or .parquet" in invoke(*words, tmp_path / "said.npz", code=9)
    assert "folder" in invoke(*words, tmp_path / "no" / "said.csv", code=9)
    assert "nothing at" in " ".join(invoke(*words, tmp_path / "new.csv", code=3).split())
    words = ("predict", cells / "release", "--data", cells / "rows.csv", "-o")
    invoke(*words, tmp_path / "said.csv", "--force")
    assert len(pd.read_csv(tmp_path / "said.csv")) == 569


def test_the_data_is_never_overwritten(cells: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    data.write_bytes((cells / "rows.csv").read_bytes())
    words = ("predict", cells / "release", "--data", data, "-o", data, "--force")
    assert "the data file itself" in invoke(*words, code=9)
    assert data.read_bytes() == (cells / "rows.csv").read_bytes()


def test_rows_that_do_not_fit_are_refused_without_their_values(cells: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(cells / "rows.csv")
    words = ("predict", cells / "release", "--data", tmp_path / "rows.csv", "-o")
    column = rows.columns[0]
    for changed, match in (
        (rows.drop(columns=column), f"no '{column}'"),
        (rows.assign(secret=123456), "secret"),
        (rows.astype({column: object}).assign(**{column: "123x456"}), "numbers"),
        (rows.assign(diagnosis="123456"), "public categories"),
        (rows.assign(diagnosis=""), "remove the column"),
    ):
        changed.to_csv(tmp_path / "rows.csv", index=False)
        said = " ".join(invoke(*words, tmp_path / "said.csv", code=3).split())
        assert match in said and "123" not in said
        assert not (tmp_path / "said.csv").exists()


def test_labels_of_other_rows_are_refused(digits: Path, tmp_path: Path) -> None:
    images = np.zeros((6, 8, 8), np.uint8)
    words = ("predict", digits / "release", "--data", tmp_path / "rows.npz", "-o")
    for y in (np.arange(5), np.arange(7), np.array(3), np.arange(6) + 10):
        np.savez(tmp_path / "rows.npz", images=images, y=y)
        assert "label" in invoke(*words, tmp_path / "said.csv", code=3)


def test_a_generator_release_points_to_sample(tmp_path: Path) -> None:
    released(tmp_path, "breast_cancer", "rows.csv", recipe="fedmoments")
    words = ("predict", tmp_path / "release", "--data", tmp_path / "rows.csv")
    said = invoke(*words, "-o", tmp_path / "said.csv", code=8)
    assert "holds a generator" in said and "understudy sample" in said
    error = json.loads(invoke(*words, "-o", tmp_path / "said.csv", "--json", code=8))["error"]
    assert "understudy sample" in error["do"]


def test_a_classifier_release_points_to_predict(cells: Path, tmp_path: Path) -> None:
    for words in (
        ("sample", cells / "release", "-n", 5, "-o", tmp_path / "rows.csv"),
        ("evaluate", cells / "release", "--real", cells / "rows.csv", "--out", tmp_path / "report"),
    ):
        said = " ".join(invoke(*words, code=8).split())
        assert "holds a classifier" in said and "understudy predict" in said
    assert not list(tmp_path.iterdir())


def test_a_tampered_classifier_is_not_asked(cells: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (cells / "release").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    data = bytearray((copy / "classifier.safetensors").read_bytes())
    data[-1] ^= 0x01
    (copy / "classifier.safetensors").write_bytes(bytes(data))
    words = ("predict", copy, "--data", cells / "rows.csv", "-o", tmp_path / "said.csv")
    assert "classifier.safetensors" in invoke(*words, code=8)


def test_the_command_and_python_agree(cells: Path, tmp_path: Path) -> None:
    words = ("predict", cells / "release", "--data", cells / "rows.csv")
    invoke(*words, "-o", tmp_path / "said.parquet")
    frame = pd.read_csv(cells / "rows.csv")
    found = Release.load(cells / "release").predict(frame)
    pd.testing.assert_frame_equal(found, pd.read_parquet(tmp_path / "said.parquet"))


@pytest.mark.parametrize("model", ["logistic", "nn", "lenet"])
def test_what_signds_learns_goes_the_whole_way(tmp_path: Path, model: str) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 16, 16)).astype(np.uint8)
    np.savez(tmp_path / "rows.npz", images=images, y=np.arange(40) % 2)
    schema = Schema("image", "noise", 40, classes=("a", "b"), shape=(16, 16))
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    price = "epsilon_per_update = 2.0"
    study = STUDY.format(recipe="signds", price=price, data="rows.npz")
    study = study.replace('recipe = "signds"', 'recipe = "signds"\nrounds = 2')
    (tmp_path / "study.toml").write_text(f'{study}\n[recipe]\nmodel = "{model}"\n')
    release = tmp_path / "release.zip"
    invoke("run", tmp_path / "study.toml", "--out", release, "--quiet")
    assert json.loads(invoke("verify", release, "--json"))["ok"]
    words = ("predict", release, "--data", tmp_path / "rows.npz", "-o", tmp_path / "said.csv")
    said = json.loads(invoke(*words, "--json"))
    found = pd.read_csv(tmp_path / "said.csv")
    right = (found["predicted"] == np.where(np.arange(40) % 2, "b", "a")).mean()
    assert said["rows"] == 40 and said["accuracy"]["value"] == pytest.approx(right)
    np.testing.assert_allclose(found[["probability_a", "probability_b"]].sum(axis=1), 1, rtol=1e-5)
