"""Images beside the columns of a table: schema, files, parties and yes-or-no features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.check import check
from understudy.data.draft import draft
from understudy.data.encode import decode, encode
from understudy.data.onehot import OneHot
from understudy.data.pictures import Picture
from understudy.data.schema import Schema
from understudy.data.stream import write
from understudy.data.table import from_frame, read
from understudy.errors import DataError, OutputError, SchemaError, StudyError
from understudy.parties import PartyEntry, check_parties, dealt

TEXT = """
kind = "table"
name = "clinic"
records = 50
label = "ill"

[columns.ill]
kind = "boolean"

[columns.age]
kind = "integer"
low = 0
high = 120

[columns.born]
kind = "date"
low = 1900-01-01
high = 2030-01-01
missing = true

[images.scan]
shape = [2, 3]
"""
SCHEMA = Schema.parse(TEXT)
PIXELS = tuple(f"scan[{i}][{j}]" for i in range(2) for j in range(3))


def arrays(n: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "ill": np.array(["true", "false"] * (n // 2)),
        "age": np.arange(n),
        "born": np.array(["1980-02-03", ""] * (n // 2)),
        "scan": rng.integers(0, 256, (n, 2, 3), dtype=np.uint8),
    }


def saved(path: Path, **changes: np.ndarray) -> Path:
    np.savez(path, **{**arrays(), **changes})
    return path


def test_an_image_is_its_pixels_and_the_text_names_it_once() -> None:
    assert [c.name for c in SCHEMA.columns] == ["ill", "age", "born", *PIXELS]
    assert SCHEMA.holdings == ("ill", "age", "born", "scan")
    assert "[images.scan]\nshape = [2, 3]" in SCHEMA.to_toml()
    assert "scan[0]" not in SCHEMA.to_toml()
    again = Schema.parse(SCHEMA.to_toml())
    assert again == SCHEMA and again.hash == SCHEMA.hash


def test_a_party_holds_an_image_as_a_whole() -> None:
    own = SCHEMA.project(["scan"])
    assert own.images == SCHEMA.images and [c.name for c in own.columns] == list(PIXELS)
    assert own == SCHEMA.project(PIXELS) and SCHEMA.project(["age"]).images == ()
    with pytest.raises(SchemaError, match="columns of the schema"):
        SCHEMA.project(PIXELS[:2])
    scanner = PartyEntry("scanner", ("scan",))
    check_parties(SCHEMA, [PartyEntry("clinic", ("ill", "age", "born")), scanner])
    with pytest.raises(StudyError, match="a party that holds 'scan'"):
        check_parties(SCHEMA, [PartyEntry("a", ("ill", "age")), PartyEntry("b", ("born",))])
    with pytest.raises(StudyError, match="different columns of the schema"):
        check_parties(SCHEMA, [PartyEntry("a", ("ill", "age", "born")), PartyEntry("b", PIXELS)])
    for seed in range(5):
        held = [entry.columns for entry in dealt(SCHEMA, 2, {"seed": seed})]
        assert sorted(name for own in held for name in own) == sorted(SCHEMA.holdings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("shape = [2, 3, 2]", "1 or 3 colours"),
        ("shape = [2]", "shape = "),
        ("shape = [0, 3]", "shape = "),
        ("shape = [100, 100]", "4,096"),
        ('shape = [2, 3]\nkind = "image"', "known keys in image 'scan'"),
        ('shape = [2, 3]\n\n[columns.scan]\nkind = "boolean"', "nothing else has"),
        ('shape = [2, 3]\n\n[columns."scan[0][1]"]\nkind = "boolean"', "nothing else has"),
    ],
)
def test_images_that_cannot_be_are_refused(change: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("[", r"\[")):
        Schema.parse(TEXT.replace("shape = [2, 3]", change))


def test_only_tables_have_images_beside_them_and_no_pixel_is_the_label() -> None:
    with pytest.raises(SchemaError, match="beside a table"):
        Schema("image", "i", 5, shape=(2, 2), images=(Picture("scan", (2, 2)),))
    with pytest.raises(SchemaError, match="a label that is no pixel"):
        replace(SCHEMA, label="scan[0][0]", classes=())


def test_a_file_has_an_array_for_each_column_and_each_image(tmp_path: Path) -> None:
    found = read(saved(tmp_path / "rows.npz"), SCHEMA)
    assert found.frame is not None
    assert (found.frame[list(PIXELS)].to_numpy() == arrays()["scan"].reshape(4, 6)).all()
    coded = encode(SCHEMA, found)
    place = SCHEMA.place(PIXELS[0])[0]
    want = arrays()["scan"].reshape(4, 6) / np.float32(255)
    assert np.allclose(coded.x[:, place:], want, atol=1e-7)
    back = decode(SCHEMA, coded.x, coded.y)
    write(back, tmp_path / "again.npz", SCHEMA)
    with np.load(tmp_path / "again.npz") as again:
        assert set(again) == set(SCHEMA.holdings) and again["scan"].dtype == np.uint8
        assert (again["scan"] == arrays()["scan"]).all()
        assert list(again["born"]) == ["1980-02-03", "", "1980-02-03", ""]
    assert (encode(SCHEMA, read(tmp_path / "again.npz", SCHEMA)).x == coded.x).all()
    write(back, tmp_path / "again.csv", SCHEMA)
    assert (encode(SCHEMA, read(tmp_path / "again.csv", SCHEMA)).x == coded.x).all()
    assert {f.level for f in check(SCHEMA, tmp_path / "rows.npz")} == {"ok", "note"}


def test_a_table_without_images_is_no_npz(tmp_path: Path) -> None:
    plain = SCHEMA.project(["age"])
    with pytest.raises(OutputError, match="for table data"):
        write(from_frame(pd.DataFrame({"age": [3]}), plain), tmp_path / "rows.npz", plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scan": np.zeros((4, 3, 2), np.uint8)}, "of shape [2, 3] as image 'scan'"),
        ({"scan": np.zeros((4, 2, 3))}, "whole numbers 0 to 255"),
        ({"scan": np.zeros((3, 2, 3), np.uint8)}, "arrays of one length"),
        ({"age": np.zeros((4, 2))}, "one entry per row in array 'age'"),
        ({"more": np.zeros(4)}, "only declared columns"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(saved(tmp_path / "rows.npz", **changes), SCHEMA)
    assert message in str(error.value)


def test_a_file_with_an_image_alone_and_an_empty_one(tmp_path: Path) -> None:
    own = SCHEMA.project(["scan"])
    np.savez(tmp_path / "one.npz", scan=arrays()["scan"])
    assert len(read(tmp_path / "one.npz", own)) == 4
    (tmp_path / "none.npz").touch()
    assert len(read(tmp_path / "none.npz", own)) == 0


def test_a_draft_names_images(tmp_path: Path) -> None:
    text, _ = draft(saved(tmp_path / "rows.npz"), "ill")
    made = Schema.parse(text.replace("unclassified", "ignore"))
    assert made.images == SCHEMA.images and made.label == "ill"
    with pytest.raises(DataError, match="different lengths"):
        draft(saved(tmp_path / "rows.npz", scan=np.zeros((3, 2, 3), np.uint8)))


def test_pixels_stay_numbers_among_yes_or_no_features() -> None:
    layout = OneHot.of(SCHEMA, bins=4)
    greys = layout.greys
    assert int(greys.sum()) == len(PIXELS) and OneHot.from_config(layout.to_config()) == layout
    chance = torch.linspace(0.05, 0.95, layout.width).repeat(3, 1)
    drawn = layout.draw(chance, torch.rand(chance.shape))
    assert torch.equal(drawn[:, greys], chance[:, greys])
    assert bool(((drawn == 0) | (drawn == 1))[:, ~greys].all())
    for odds in (False, True):
        x, y = replace(layout, odds=odds).decode(chance, drawn=True, rng=torch.Generator())
        assert torch.equal(x[:, SCHEMA.place(PIXELS[0])[0] :], chance[:, greys])
        assert torch.equal(layout.encode(x, y)[:, greys], chance[:, greys])
