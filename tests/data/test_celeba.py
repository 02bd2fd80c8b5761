"""A made CelebA: faces of noise, listed as the authors list theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.celeba import ATTRIBUTES, IDENTITIES, IMAGES
from understudy.data.draft import draft
from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.data.table import read
from understudy.errors import DataError
from understudy.rng import Streams
from understudy.simulation import load_sites
from understudy.study import Study

SCHEMA = Schema(
    "image",
    "faces",
    40,
    label="Male",
    classes=("no", "yes"),
    shape=(8, 8, 3),
    person="identity",
    rows_per_person=35,
    resize=True,
)
NO_PERSON = SCHEMA.to_toml().replace('person = "identity"\nrows_per_person = 35\n', "")
STUDY = """
[study]
name = "faces"
schema = "schema.toml"
recipe = "fedmoments"
[privacy]
unit = "{unit}"
trust = "central"
epsilon = 5.0
[simulation]
data = "celeba"
split = "person"
least = 5
sites = {sites}
"""


def make(folder: Path, persons: tuple[int, ...] = (12, 4, 9, 5, 10)) -> Path:
    """A CelebA folder: so many images of each person, in mixed order; Male where odd."""
    rng = np.random.default_rng(0)
    (folder / IMAGES).mkdir(parents=True)
    owner = rng.permutation(np.repeat(np.arange(len(persons)), persons))
    attributes, identities = [], []
    for i, who in enumerate(owner):
        name = f"{i + 1:06d}.jpg"
        shade = 80 + 60 * (who % 2) + rng.integers(-20, 20, (22, 18, 3))
        Image.fromarray(shade.astype(np.uint8)).save(folder / IMAGES / name)
        attributes.append(f"{name} {rng.choice([-1, 1]):2d} {2 * (who % 2) - 1:2d}")
        identities.append(f"{name} {who + 2880}")
    header = [str(len(owner)), "Smiling Male "]
    (folder / ATTRIBUTES).write_text("\n".join([*header, *attributes]) + "\n")
    (folder / IDENTITIES).write_text("\n".join(identities) + "\n")
    return folder


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    return make(tmp_path / "celeba")


def change(path: Path, old: str, new: str, count: int = 1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


def test_images_labels_and_persons_belong_together(celeba: Path) -> None:
    found = read(celeba, SCHEMA)
    assert found.images.shape == (40, 8, 8, 3) and found.images.dtype == np.uint8
    bright = found.images.mean((1, 2, 3)) > 110
    assert (bright == (found.labels == "yes")).all()
    assert (bright == (found.person.astype(int) % 2 == 1)).all()
    assert encode(SCHEMA, found).y.tolist() == bright.astype(int).tolist()


def test_the_cap_is_per_identity(celeba: Path) -> None:
    schema = Schema.parse(SCHEMA.to_toml().replace("35", "4"))
    assert np.bincount(encode(schema, read(celeba, schema)).person).tolist() == [4] * 5


def test_the_list_decides_which_images_are_read(celeba: Path) -> None:
    path = celeba / ATTRIBUTES
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["3", lines[1], lines[9], lines[3], lines[5]]))
    names = [line.split()[0] for line in (lines[9], lines[3], lines[5])]
    owner = dict(line.split() for line in (celeba / IDENTITIES).read_text().splitlines())
    assert read(celeba, SCHEMA).person.tolist() == [owner[name] for name in names]


def test_without_classes_or_person_their_lists_do_not_matter(celeba: Path) -> None:
    (celeba / IDENTITIES).unlink()
    schema = Schema("image", "faces", 40, shape=(8, 8, 3), resize=True)
    found = read(celeba, schema)
    assert len(encode(schema, found)) == 40 and found.labels is None and found.person is None


def test_a_folder_without_lines_is_a_site_without_rows(tmp_path: Path) -> None:
    assert len(encode(SCHEMA, read(make(tmp_path / "a", ()), SCHEMA))) == 0
    folder = make(tmp_path / "b", ())
    (folder / ATTRIBUTES).write_text("0\nSmiling Male\n")
    (folder / IMAGES).rmdir()
    assert encode(SCHEMA, read(folder, SCHEMA)).x.shape == (0, 192)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (ATTRIBUTES, "Smiling Male", "Smiling Young", "attribute 'Male'"),
        (ATTRIBUTES, "Smiling Male", "Male Male", "attribute 'Male'"),
        (ATTRIBUTES, "40\n", "41\n", "40 lines"),
        (ATTRIBUTES, "40\n", "", r"-1 or 1|attribute"),
        (ATTRIBUTES, "000007.jpg", "000006.jpg", "1 repeated"),
        (ATTRIBUTES, "000007.jpg", "000041.jpg", "1 missing"),
        (ATTRIBUTES, "000007.jpg", "../7.jpg", r"1 missing|plain names"),
        (ATTRIBUTES, "000007.jpg", "000007.jpg  1", "1 lines"),
        (ATTRIBUTES, "000007.jpg", "", "1 lines"),
        (IDENTITIES, "000007.jpg", "000006.jpg", "1 repeated, 1 missing"),
        (IDENTITIES, "000007.jpg", "", "1 malformed"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    celeba: Path, file: str, old: str, new: str, message: str
) -> None:
    change(celeba / file, old, new)
    with pytest.raises(DataError, match=message) as caught:
        read(celeba, SCHEMA)
    assert "00000" not in str(caught.value) and "288" not in str(caught.value)


@pytest.mark.parametrize("sign", ["0", "2", "yes"])
def test_labels_other_than_yes_and_no_are_refused(celeba: Path, sign: str) -> None:
    path = celeba / ATTRIBUTES
    lines = path.read_text().splitlines()
    lines[5] = " ".join([*lines[5].split()[:2], sign])
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match="1 lines without"):
        read(celeba, SCHEMA)


@pytest.mark.parametrize(("classes", "label"), [(("no", "yes"), None), (("a", "b", "c"), "Male")])
def test_an_attribute_needs_a_name_and_two_classes(
    celeba: Path, classes: tuple[str, ...], label: str | None
) -> None:
    schema = Schema("image", "i", 9, label=label, classes=classes, shape=(8, 8, 3), resize=True)
    with pytest.raises(DataError, match="two classes"):
        read(celeba, schema)


def test_missing_and_damaged_files_are_refused(celeba: Path) -> None:
    (celeba / IMAGES / "000009.jpg").write_bytes(b"\xff\xd8 no image")
    with pytest.raises(DataError, match="image 9"):
        read(celeba, SCHEMA)
    (celeba / IMAGES / "000009.jpg").unlink()
    with pytest.raises(DataError, match="1 missing"):
        read(celeba, SCHEMA)
    (celeba / IDENTITIES).unlink()
    with pytest.raises(DataError, match=IDENTITIES):
        read(celeba, SCHEMA)
    (celeba / ATTRIBUTES).write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="readable"):
        read(celeba, SCHEMA)


def test_without_resize_another_size_is_refused(celeba: Path) -> None:
    schema = Schema.parse(SCHEMA.to_toml().replace("resize = true\n", ""))
    with pytest.raises(DataError, match="resize = true"):
        read(celeba, schema)


def test_a_draft_of_the_folder_is_a_schema(celeba: Path) -> None:
    schema = Schema.parse(draft(celeba)[0])
    assert (schema.shape, schema.label, schema.person) == ((22, 18, 3), "Male", "identity")
    assert len(encode(schema, read(celeba, schema))) == 40
    assert Schema.parse(draft(celeba, "Smiling")[0]).label == "Smiling"


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("unit", ["site", "person"])
def test_one_site_per_identity_from_check_to_release(
    celeba: Path, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    folder = celeba.parent
    monkeypatch.chdir(folder)
    (folder / "schema.toml").write_text(SCHEMA.to_toml())
    (folder / "study.toml").write_text(STUDY.format(unit=unit, sites=4))
    assert "40 rows" in call("schema", "check", "schema.toml", "celeba")
    call("run", "study.toml", "--out", "out", "--seed", "1", "--quiet")
    call("verify", "out")
    call("sample", "out", "-n", "6", "-o", "faces.npz")
    made = read(folder / "faces.npz", Schema.parse(NO_PERSON))
    assert made.images.shape == (6, 8, 8, 3) and set(made.labels) <= {"no", "yes"}


def test_sites_are_the_identities_with_enough_images(celeba: Path) -> None:
    (celeba.parent / "schema.toml").write_text(SCHEMA.to_toml())
    (celeba.parent / "study.toml").write_text(STUDY.format(unit="site", sites=4))
    study = Study.load(celeba.parent / "study.toml")
    sites = load_sites(study, None, rng=Streams.from_seed(0))
    assert sorted(sites.counts.tolist()) == [5, 9, 10, 12]
    assert all(len(sites.rows(i)[1].unique()) == 1 for i in range(4))


def test_images_that_do_not_fit_end_a_run_before_anything_is_spent(
    celeba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = celeba.parent
    monkeypatch.chdir(folder)
    (folder / "schema.toml").write_text(SCHEMA.to_toml())
    (folder / "study.toml").write_text(STUDY.format(unit="site", sites=4))
    Image.new("L", (18, 22)).save(celeba / IMAGES / "000003.jpg")
    done = CliRunner().invoke(app, ["run", "study.toml", "--out", "out"])
    assert done.exit_code == 3 and "000003" not in done.output
    assert not (folder / "out").exists() and not (folder / "out.partial").exists()


def test_a_folder_may_be_a_site_and_may_be_empty(
    celeba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = celeba.parent
    monkeypatch.chdir(folder)
    (folder / "none").mkdir()
    (folder / "schema.toml").write_text(SCHEMA.to_toml())
    sites = '[[site]]\nname = "a"\ndata = "celeba"\n[[site]]\nname = "b"\ndata = "none"\n'
    head = STUDY.format(unit="record", sites=0).split("[simulation]")[0]
    (folder / "study.toml").write_text(head + sites)
    call("run", "study.toml", "--out", "out", "--quiet")
    call("verify", "out")
