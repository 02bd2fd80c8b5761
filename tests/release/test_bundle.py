from __future__ import annotations

import errno
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from contracts.toys import study
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.errors import OutputError, ReleaseError
from understudy.release import bundle
from understudy.release.bundle import Release
from understudy.release.generator import class_of
from understudy.release.verify import verify
from understudy.simulation import run

FILES = {
    "release.json",
    "generator.safetensors",
    "schema.toml",
    "claims.json",
    "ledger.jsonl",
    "card.md",
    "sample.parquet",
}


def frames(found: Iterator[Records]) -> pd.DataFrame:
    return pd.concat([r.frame for r in found], ignore_index=True)


def test_a_release_is_a_folder_of_known_files(folder: Path) -> None:
    assert {p.name for p in folder.iterdir()} == FILES
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_release_is_shown_in_a_few_words(made: Release, folder: Path) -> None:
    shown = repr(Release.load(folder))
    assert made.name in shown and str(folder) in shown and made.claims[0].words in shown
    assert len(shown) < 500


@pytest.mark.parametrize("name", ["again", "again.zip"])
def test_a_release_survives_saving_and_loading(made: Release, tmp_path: Path, name: str) -> None:
    assert made.save(tmp_path / name) == tmp_path / name
    again = Release.load(tmp_path / name)
    assert again.manifest == made.manifest
    assert again.plan == made.plan and again.claims == made.claims
    assert again.schema == made.schema and again.ledger == made.ledger
    assert again.generator.config == made.generator.config
    assert all(torch.equal(again.generator.arrays[n], v) for n, v in made.generator.arrays.items())
    pd.testing.assert_frame_equal(again.sample(9, seed=1).frame, made.sample(9, seed=1).frame)
    assert [p.name for p in tmp_path.iterdir()] == [name], "something else was left"


def test_a_zip_holds_the_same_files_flat(made: Release, tmp_path: Path) -> None:
    made.save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        assert set(archive.namelist()) == FILES


@pytest.mark.parametrize("name", ["again", "again.zip"])
def test_nothing_is_overwritten(made: Release, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        made.save(tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"


def test_a_dangling_link_is_not_written_through(made: Release, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError):
        made.save(tmp_path / "again")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["again", "again.zip"])
def test_a_full_disk_leaves_nothing_half_written(
    made: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files = made.files()  # uses a scratch file of its own
    monkeypatch.setattr(Release, "files", lambda self: files)

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="No space"):
        made.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_sample_in_a_release_has_the_rows_asked_for(folder: Path) -> None:
    assert len(pd.read_parquet(folder / "sample.parquet")) == 30


def test_samples_fit_the_schema_and_repeat_for_a_seed(made: Release) -> None:
    frame = made.sample(200, seed=4).frame
    assert list(frame.columns) == [c.name for c in made.schema.columns]
    assert frame["height"].between(0, 2).all() and frame["age"].between(0, 100).all()
    assert set(frame["ill"]) == {"no", "yes"}
    pd.testing.assert_frame_equal(frame, made.sample(200, seed=4).frame)
    assert not frame.equals(made.sample(200, seed=5).frame)
    assert not made.sample(200).frame.equals(made.sample(200).frame)


@pytest.mark.parametrize("label", ["no", "yes"])
def test_a_label_may_be_asked_for(made: Release, label: str) -> None:
    assert set(made.sample(20, label=label, seed=0).frame["ill"]) == {label}
    assert set(frames(made.batches(20, label=label, seed=0))["ill"]) == {label}


def test_an_unknown_label_is_refused_with_the_known_ones(made: Release) -> None:
    with pytest.raises(ReleaseError, match="no, yes"):
        made.sample(3, label="maybe")
    with pytest.raises(ReleaseError, match="no, yes"):
        list(made.batches(3, label="maybe"))


def test_a_misspelt_label_gets_a_suggestion(made: Release) -> None:
    with pytest.raises(ReleaseError, match=r"\(did you mean yes\?\)"):
        made.sample(3, label="Yess")


@pytest.mark.parametrize("label", [1, "1", np.int64(1), np.uint8(1)])
def test_a_class_that_is_a_number_may_be_asked_for_by_it(label: object) -> None:
    schema = Schema("image", "digits", 9, classes=("0", "1", "7"), shape=(4, 4))
    assert class_of(label, schema) == 1  # type: ignore[arg-type]
    for unknown in (2, 1.0, True, "one"):
        with pytest.raises(ReleaseError, match="a label among 0, 1, 7"):
            class_of(unknown, schema)  # type: ignore[arg-type]


@pytest.mark.parametrize("label", [True, 1, "1", "True", "true", "yes"])
def test_a_boolean_class_may_be_asked_for_as_files_write_it(label: object) -> None:
    columns = (Column("ill", "boolean"), Column("age", "integer", 0, 99))
    schema = Schema("table", "ward", 9, columns=columns, label="ill")
    assert class_of(label, schema) == 1  # type: ignore[arg-type]
    with pytest.raises(ReleaseError, match="a label among false, true"):
        class_of("ill", schema)


def test_a_numeric_label_has_no_classes_to_ask_for() -> None:
    columns = (Column("ill", "boolean"), Column("age", "integer", 0, 99))
    schema = Schema("table", "ward", 9, columns=columns, label="age")
    assert class_of(None, schema) is None
    with pytest.raises(ReleaseError, match="is a number, not a class"):
        class_of("40", schema)


def test_no_rows_may_be_asked_for(made: Release) -> None:
    assert len(made.sample(0).frame) == 0
    assert list(made.sample(0).frame.columns) == list(made.sample(1).frame.columns)
    assert sum(len(r) for r in made.batches(0)) == 0


@pytest.mark.parametrize("n", [-1, 2.5, float("nan"), float("inf")])
def test_a_number_of_rows_that_is_none_is_refused(made: Release, n: float) -> None:
    with pytest.raises(ReleaseError, match="rows"):
        made.sample(n)  # type: ignore[arg-type]
    with pytest.raises(ReleaseError, match="rows"):
        list(made.batches(n))  # type: ignore[arg-type]


def test_any_number_of_rows_comes_in_batches(
    made: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "BATCH", 40)
    sizes = [len(r) for r in made.batches(100, seed=2)]
    assert sizes == [40, 40, 20]
    whole, again = (frames(made.batches(100, seed=2)) for _ in range(2))
    pd.testing.assert_frame_equal(whole, again)
    shorter = frames(made.batches(80, seed=2))
    pd.testing.assert_frame_equal(whole.iloc[:80], shorter)
    assert (
        not whole.iloc[:40].reset_index(drop=True).equals(whole.iloc[40:80].reset_index(drop=True))
    )


def test_labels_are_drawn_in_the_generators_proportions(made: Release) -> None:
    share = (made.sample(4000, seed=1).frame["ill"] == "yes").mean()
    assert share == pytest.approx(made.generator.balance[1], abs=0.04)


@pytest.mark.parametrize("source", ["os", "simulation"])
def test_anyone_can_draw_the_sample_of_a_release_again(made: Release, source: str) -> None:
    release = replace(made, source=source)
    sample = pd.read_parquet(io.BytesIO(release.files()["sample.parquet"]))
    seed = release.manifest["sample_seed"]
    pd.testing.assert_frame_equal(sample, release.sample(30, seed=seed).frame)
    assert release.files()["sample.parquet"] == release.files()["sample.parquet"]


def test_a_large_sample_is_the_same_whatever_the_chunk_it_is_drawn_in(made: Release) -> None:
    found = made.sample(9000, seed=3)
    assert len(found) == 9000
    inside = found.frame["height"][found.frame["height"] < 2]  # beyond, all are cut to the bound
    assert len(np.unique(inside)) > 0.99 * len(inside) > 3000, "chunks repeat each other"


def test_images_are_released_as_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kind = Schema("image", "squares", 100, classes=("a", "b"), shape=(4, 4))
    sites = [
        Records(images=rng.integers(0, 256, (9, 4, 4)).astype(np.uint8), labels=np.arange(9) % 2)
        for _ in range(2)
    ]
    asked = study("fedmoments", 2, schema=kind, privacy={"epsilon": 5.0})
    run(asked, sites, out=tmp_path / "r.zip", rows=6)
    release = verify(tmp_path / "r.zip").release
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        assert "sample.npz" in archive.namelist() and "sample.parquet" not in archive.namelist()
    found = release.sample(7, label="b", seed=0)
    assert found.images is not None and found.images.shape == (7, 4, 4)
    assert found.labels is not None and set(found.labels.tolist()) == {"b"}
