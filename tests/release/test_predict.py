"""A release that holds a classifier: what is in it, what it answers, what it refuses."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from PIL import Image

from contracts.toys import plain, records, schema
from release.classes import SQUARES, squares
from release.test_verify import load, refused, rehash
from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import write
from understudy.errors import DataError, ReleaseError
from understudy.evaluation.compare import evaluate
from understudy.nets import layers
from understudy.nets.classifier import ClassifierNet
from understudy.release import verify
from understudy.release.bundle import Release
from understudy.release.classifier import Classifier
from understudy.release.rows import labels, predictions, read_rows

FILES = {
    "release.json",
    "classifier.safetensors",
    "schema.toml",
    "claims.json",
    "ledger.jsonl",
    "card.md",
}

CONFIG = ClassifierNet(3, 2).to_config()
del CONFIG["kind"]


def unlabelled(rows: Records) -> pd.DataFrame:
    assert rows.frame is not None
    return rows.frame.drop(columns="ill")


# What is in it.


def test_a_classifiers_release_has_no_sample(told: Release, seen: Release) -> None:
    assert told.path is not None and seen.path is not None
    assert {p.name for p in told.path.iterdir()} == FILES
    with zipfile.ZipFile(seen.path) as archive:
        assert set(archive.namelist()) == FILES


def test_the_manifest_says_what_is_held(told: Release, made: Release) -> None:
    assert told.manifest["classifier"] == {"kind": "linear", "config": CONFIG}
    assert "generator" not in told.manifest and "classifier" not in made.manifest


@pytest.mark.parametrize("name", ["again", "again.zip"])
def test_it_survives_saving_and_loading(told: Release, tmp_path: Path, name: str) -> None:
    told.save(tmp_path / name)
    again = verify(tmp_path / name).release
    assert again.manifest == told.manifest and again.claims == told.claims
    pd.testing.assert_frame_equal(again.predict(records(9)), told.predict(records(9)))


def test_claims_are_recomputed_as_for_generators(told_folder: Path) -> None:
    checks = verify(told_folder).checks
    assert any("match the plan: 2 rounds" in check for check in checks)
    said = load(told_folder, "claims.json")
    said[0]["epsilon"] *= 0.99
    (told_folder / "claims.json").write_text(json.dumps(said))
    rehash(told_folder)
    refused(told_folder, "claim")


def test_the_card_says_what_is_predicted_from_what(told: Release, seen: Release) -> None:
    assert told.path is not None
    text = (told.path / "card.md").read_text()
    assert "predicts `ill`, one of 2 classes (`no`, `yes`)" in text
    assert "3 columns (`height`, `smoker`, `age`)" in text
    assert "understudy predict RELEASE --data rows.csv" in text
    assert "Synthetic data" not in text and "understudy sample" not in text
    assert "accuracy" not in text.lower() and "asked about later" in text
    images = seen.files()["card.md"].decode()
    assert "predicts the class" in images and "images of 4 × 4" in images
    assert "--data rows.npz" in images


def test_a_card_of_many_columns_stays_short(told: Release) -> None:
    many = tuple(Column(f"c{i}", "numeric", 0, 1) for i in range(50))
    model = Classifier.of(ClassifierNet(50, 2), torch.zeros(102))
    wide = replace(told, schema=schema(columns=(*many, told.schema.columns[-1])), model=model)
    text = wide.files()["card.md"].decode()
    assert "`c19` and 30 more" in text and "`c20`" not in text


# What it answers.


def test_a_row_gets_a_class_and_a_probability_of_each(told: Release) -> None:
    rows = records(40, seed=3)
    found = told.predict(rows)
    assert list(found.columns) == ["predicted", "probability_no", "probability_yes"]
    x = torch.from_numpy(encode(plain(), Records(frame=rows.frame)).x)
    expected = told.classifier.probabilities(x).numpy()
    np.testing.assert_array_equal(found.iloc[:, 1:].to_numpy(), expected)
    assert found["predicted"].tolist() == [("no", "yes")[k] for k in expected.argmax(1)]
    assert set(found["predicted"]) == {"no", "yes"}, "a test that one class would pass"


def test_labels_and_persons_do_not_matter(told: Release) -> None:
    rows = records(30, seed=3)
    assert rows.frame is not None
    found = told.predict(rows)
    others = (
        rows.frame,
        unlabelled(rows),
        Records(frame=unlabelled(rows)),
        unlabelled(rows).assign(id=range(30)),
        rows.frame.assign(ill="perhaps", id=1),
    )
    for other in others:
        pd.testing.assert_frame_equal(told.predict(other), found)


def test_rows_are_not_capped_per_person(told: Release) -> None:
    rows = records(8)
    assert len(told.predict(Records(frame=rows.frame, person=np.zeros(8)))) == 8


def test_answers_come_in_the_order_of_the_rows(told: Release) -> None:
    rows = records(20, seed=5)
    back = told.predict(rows.take(np.arange(20)[::-1].copy()))
    forth = told.predict(rows).iloc[:, 1:].to_numpy()
    np.testing.assert_allclose(back.iloc[::-1, 1:].to_numpy(), forth, rtol=1e-5)
    assert len(np.unique(forth[:, 0])) > 10, "a test that any order would pass"


def test_no_rows_get_no_answers(told: Release) -> None:
    found = told.predict(records(3).take(np.arange(0)))
    assert len(found) == 0 and list(found.columns) == list(told.predict(records(1)).columns)


@pytest.mark.parametrize("rows", [np.zeros((2, 8, 8), np.uint8), "rows.npz", None])
def test_rows_in_another_form_are_refused_in_words(seen: Release, rows: Any) -> None:
    with pytest.raises(DataError, match=r"Records\(images"):
        seen.predict(rows)


def test_images_are_told_apart_with_labels_or_without(seen: Release) -> None:
    found = seen.predict(squares(30, 7))
    assert found["predicted"].tolist() == ["dark", "light"] * 15
    pd.testing.assert_frame_equal(seen.predict(squares(30, 7, labelled=False)), found)


def test_a_boolean_label_is_answered_as_the_data_holds_it() -> None:
    flag = (*schema().columns[:3], Column("ill", "boolean"))
    given = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    found = predictions(schema(columns=flag), Records(), given)
    assert found["predicted"].tolist() == [False, True]
    assert list(found.columns) == ["predicted", "probability_false", "probability_true"]


@pytest.mark.parametrize(
    "change, match",
    [
        (lambda f: f.drop(columns="age"), "'age'"),
        (lambda f: f.assign(weight=1.0), "'weight'"),
        (lambda f: f.assign(age="old"), "whole numbers in column 'age'"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(told: Release, change, match: str) -> None:
    with pytest.raises(DataError, match=match):
        told.predict(change(unlabelled(records(4))))


def test_rows_of_another_kind_are_refused(told: Release, seen: Release) -> None:
    with pytest.raises(DataError):
        told.predict(squares(3))
    with pytest.raises(DataError):
        seen.predict(records(3))


# What it refuses.


def test_a_classifier_makes_no_rows(told: Release, tmp_path: Path) -> None:
    for draw in (
        lambda: told.sample(3),
        lambda: list(told.batches(3)),
        lambda: evaluate(told, records(40), tmp_path / "report"),
    ):
        with pytest.raises(ReleaseError, match=r"holds a classifier.*understudy predict"):
            draw()
    assert not (tmp_path / "report").exists()


def test_a_generator_predicts_nothing(made: Release) -> None:
    with pytest.raises(ReleaseError, match=r"holds a generator.*understudy sample"):
        made.predict(records(3))


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_cut_or_missing_file_is_found(told_folder: Path, name: str) -> None:
    data = (told_folder / name).read_bytes()
    for place in range(0, len(data), max(1, len(data) // 20)):
        spoiled = bytearray(data)
        spoiled[place] ^= 0x01
        (told_folder / name).write_bytes(bytes(spoiled))
        refused(told_folder)
    (told_folder / name).write_bytes(data[:-2])
    refused(told_folder)
    (told_folder / name).unlink()
    refused(told_folder, name)


def test_parameters_that_do_not_fit_are_found_though_hashes_do(told_folder: Path) -> None:
    path = told_folder / "classifier.safetensors"
    arrays = safetensors.torch.load_file(path)
    weight = arrays["0.weight"]
    for spoiled in (
        {**arrays, "0.weight": torch.full_like(weight, torch.nan)},
        {**arrays, "0.weight": torch.full_like(weight, 3e38)},
        {**arrays, "0.weight": weight[:2].contiguous()},
        {**arrays, "0.weight": weight.double()},
        {**arrays, "1.weight": weight.clone()},
        {"0.weight": weight},
        {},
    ):
        path.write_bytes(safetensors.torch.save(spoiled))
        rehash(told_folder)
        refused(told_folder)
    path.write_bytes(b"\x80\x04pickle")
    rehash(told_folder)
    refused(told_folder)


VIEWS = {
    "standardised": ClassifierNet(16, 2, "mlp", (4,), standardised=True),
    "strokes": ClassifierNet(16, 2, "mlp", (4,), (4, 4), strokes=True),
}


@pytest.mark.parametrize("view", VIEWS)
def test_numbers_too_large_are_found_behind_layers_blind_to_even_images(
    seen: Release, tmp_path: Path, view: str
) -> None:
    net = VIEWS[view]
    rng = torch.Generator().manual_seed(0)
    signs = {n: torch.randn(s, generator=rng).sign() for n, s in layers.shapes(net.net).items()}
    large = {n: 1e30 * s if "weight" in n else 0.0 * s for n, s in signs.items()}
    for name, arrays in (("usual", signs), ("large", large)):
        model = Classifier.of(net, torch.cat([value.flatten() for value in arrays.values()]))
        replace(seen, model=model).save(tmp_path / name)
    verify(tmp_path / "usual")
    refused(tmp_path / "large", "can be used")


@pytest.mark.parametrize(
    "described",
    [
        {},
        None,
        {"kind": "pickle", "config": CONFIG},
        {"kind": "mlp", "config": CONFIG},
        {"kind": "lenet", "config": CONFIG},
        {"kind": "lenet", "config": {**CONFIG, "shape": [16, 16]}},
        {"kind": "linear", "config": {**CONFIG, "shape": [3]}},
        {"kind": "linear", "config": {**CONFIG, "classes": 3}},
        {"kind": "linear", "config": {**CONFIG, "features": 2**40}},
        {"kind": "linear", "config": {**CONFIG, "more": 1}},
        {"kind": "linear", "config": None},
        {"kind": ["linear"], "config": CONFIG},
    ],
)
def test_an_altered_description_is_found(told_folder: Path, described: object) -> None:
    rehash(told_folder, lambda manifest: manifest.update(classifier=described))
    refused(told_folder)


def test_a_release_holds_one_model(told_folder: Path, made: Release) -> None:
    both = {"generator": made.manifest["generator"]}
    rehash(told_folder, lambda manifest: manifest.update(both))
    refused(told_folder, "malformed")
    rehash(told_folder, lambda manifest: [manifest.pop(k) for k in ("generator", "classifier")])
    refused(told_folder, "malformed")


@pytest.mark.parametrize("name", ["sample.parquet", "generator.safetensors"])
def test_a_classifiers_release_lists_no_other_model_and_no_sample(
    told_folder: Path, made: Release, name: str
) -> None:
    data = made.files()[name]
    (told_folder / name).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    rehash(told_folder, lambda manifest: manifest["files"].update({name: digest}))
    refused(told_folder, "lists all files")


def test_a_classifier_of_another_schema_is_refused(told: Release, tmp_path: Path) -> None:
    other = Classifier.of(ClassifierNet(4, 2), torch.zeros(10))
    replace(told, model=other).save(tmp_path / "other")
    with pytest.raises(ReleaseError, match="classifier for this schema"):
        Release.load(tmp_path / "other")


# Rows from files.


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("person", [True, False])
def test_tables_are_read_with_and_without_labels(
    told: Release, tmp_path: Path, name: str, labelled: bool, person: bool
) -> None:
    rows = records(12, seed=2)
    assert rows.frame is not None
    frame = rows.frame if labelled else unlabelled(rows)
    frame = frame.assign(id=1) if person else frame
    write(Records(frame=frame), tmp_path / name)
    found = read_rows(tmp_path / name, told.schema)
    assert len(found) == 12, "rows were capped"
    pd.testing.assert_frame_equal(told.predict(found), told.predict(rows))
    y = labels(told.schema, found)
    assert (y is not None) == labelled
    if y is not None:
        assert y.tolist() == encode(plain(), Records(frame=rows.frame)).y.tolist()


def test_tables_as_arrays_are_read_with_and_without_labels(tmp_path: Path) -> None:
    numbers = Schema(
        "table",
        "numbers",
        100,
        columns=(
            Column("a", "numeric", 0, 1),
            Column("b", "numeric", 0, 1),
            Column("c", "categorical", categories=("0", "1")),
        ),
        label="c",
    )
    x, y = np.random.default_rng(0).random((6, 2)), np.arange(6) % 2
    np.savez(tmp_path / "with.npz", X=x, y=y)
    np.savez(tmp_path / "without.npz", X=x)
    found = [read_rows(tmp_path / f"{name}.npz", numbers) for name in ("with", "without")]
    assert [labels(numbers, rows) is None for rows in found] == [False, True]
    assert labels(numbers, found[0]).tolist() == y.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("labelled", [True, False])
def test_images_are_read_with_and_without_labels(
    seen: Release, tmp_path: Path, labelled: bool
) -> None:
    write(squares(6, labelled=labelled), tmp_path / "rows.npz")
    found = read_rows(tmp_path / "rows.npz", seen.schema)
    y = labels(SQUARES, found)
    assert seen.predict(found)["predicted"].tolist() == ["dark", "light"] * 3
    assert (None if y is None else y.tolist()) == ([0, 1] * 3 if labelled else None)


def test_images_in_a_folder_are_read_sorted_by_class_or_not(seen: Release, tmp_path: Path) -> None:
    rows = squares(6)
    assert rows.images is not None
    for i, (pixels, name) in enumerate(zip(rows.images, ["dark", "light"] * 3, strict=True)):
        for folder in (tmp_path / "pile", tmp_path / "classes" / name):
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    told: list[tuple[int, int]] = []
    pile, classes = (
        read_rows(tmp_path / name, seen.schema, progress=lambda *done: told.append(done))
        for name in ("pile", "classes")
    )
    assert told == [(6, 6), (6, 6)]
    assert labels(SQUARES, pile) is None
    assert labels(SQUARES, classes).tolist() == [0] * 3 + [1] * 3  # type: ignore[union-attr]
    assert seen.predict(pile)["predicted"].tolist() == ["dark", "light"] * 3
    assert seen.predict(classes)["predicted"].tolist() == ["dark"] * 3 + ["light"] * 3


# Series: from arrays, and from tables in which each has many rows.

WAVES = Schema(
    "series",
    "waves",
    100,
    columns=(Column("pulse", "numeric", 0, 1), Column("heat", "numeric", 0, 1)),
    classes=("rest", "run"),
    shape=(3, 2),
)
TIMES = {"label": "mood", "layout": "long", "series": "name", "time": "hour"}
LONG = replace(WAVES, **TIMES)
FOR_EACH = ["probability_rest", "probability_run"]


def waves() -> pd.DataFrame:
    """Two series of five hours, which give windows of three; rows out of order."""
    hours = pd.DataFrame({"name": ["b"] * 5 + ["a"] * 5, "hour": [*range(5)] * 2})
    high = (hours["name"] == "a").to_numpy()
    moods = np.where(high, "run", "rest")
    whole = hours.assign(mood=moods, pulse=0.2 + 0.6 * high, heat=hours["hour"] / 10)
    return whole.iloc[::-1]


def wave_teller(told: Release, kind: Schema) -> Release:
    """A release that looks at the pulse."""
    weight = torch.tensor([[-4.0, 4.0], [0.0, 0.0]]).repeat(3, 1)
    flat = torch.cat((weight.flatten(), torch.tensor([6.0, -6.0])))
    model = Classifier.of(ClassifierNet(6, 2), flat)
    return replace(told, schema=kind, model=model)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("person", [None, "name", "who"])
def test_windows_of_long_tables_say_where_they_are_from(
    told: Release, tmp_path: Path, labelled: bool, person: str | None
) -> None:
    terms = {} if person is None else {"person": person, "rows_per_person": 1}
    release = wave_teller(told, replace(LONG, stride=1, **terms))
    frame = waves() if labelled else waves().drop(columns="mood")
    frame = frame.assign(who="someone") if person == "who" else frame
    frame.to_csv(tmp_path / "rows.csv", index=False)
    rows = read_rows(tmp_path / "rows.csv", release.schema)
    found = release.predict(rows)
    assert list(found.columns) == ["series", "start", "predicted", *FOR_EACH]
    assert found["start"].tolist() == [0, 1, 2] * 2
    assert dict(zip(found["series"], found["predicted"], strict=True)) == {"a": "run", "b": "rest"}
    y = labels(release.schema, rows)
    assert (None if y is None else y.tolist()) == ([1] * 3 + [0] * 3 if labelled else None)
    pd.testing.assert_frame_equal(release.predict(frame), found)


def test_series_as_arrays_are_told_apart(told: Release, tmp_path: Path) -> None:
    release = wave_teller(told, WAVES)
    held = np.full((4, 3, 2), 0.5)
    held[::2, :, 0], held[1::2, :, 0] = 0.1, 0.9
    for name, more in (("with", {"y": [0, 1, 0, 1]}), ("without", {})):
        np.savez(tmp_path / f"{name}.npz", series=held, **more)
        rows = read_rows(tmp_path / f"{name}.npz", WAVES)
        assert (labels(WAVES, rows) is None) == (name == "without")
        found = release.predict(rows)
        assert list(found.columns) == ["predicted", *FOR_EACH]
        assert found["predicted"].tolist() == ["rest", "run"] * 2
    assert "series of 3 × 2 (`pulse`, `heat`)" in release.files()["card.md"].decode()


def test_wide_tables_have_a_series_in_each_row(told: Release) -> None:
    wide = replace(WAVES, label="mood", layout="wide", series="name")
    release = wave_teller(told, wide)
    frame = pd.DataFrame({f"{c}_{t}": [0.9, 0.1] for t in range(3) for c in ("pulse", "heat")})
    found = release.predict(frame.assign(name=["x", "y"]))
    assert found["series"].tolist() == ["x", "y"]
    assert found["predicted"].tolist() == ["run", "rest"]


def test_labels_in_some_rows_only_are_refused_with_what_to_do(
    told: Release, tmp_path: Path
) -> None:
    frame = records(5).frame
    assert frame is not None
    frame.astype({"ill": object}).assign(ill=["yes", "", "no", "", ""]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    with pytest.raises(DataError, match=r"3 rows without.*remove the column"):
        read_rows(tmp_path / "rows.csv", told.schema)


def test_a_file_without_a_header_is_refused_without_its_values(
    told: Release, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("1.25,true,77,no\n1.5,false,66,yes\n")
    with pytest.raises(DataError, match="header") as caught:
        read_rows(tmp_path / "rows.csv", told.schema)
    assert "1.25" not in str(caught.value) and "77" not in str(caught.value)


def test_a_file_that_is_not_there_is_said_so(told: Release, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing at"):
        read_rows(tmp_path / "rows.csv", told.schema)
