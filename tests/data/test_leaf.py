from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from understudy.data import leaf
from understudy.data.draft import draft
from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.data.table import read
from understudy.errors import DataError

WRITERS = Schema(
    "image", "w", 9, classes=("0", "1", "A"), shape=(2, 3), person="writer", rows_per_person=9
)
FACES = Schema(
    "image",
    "f",
    9,
    classes=("no", "yes"),
    shape=(2, 3, 3),
    person="celebrity",
    rows_per_person=9,
    resize=True,
)
PIXELS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def held(**users: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def save(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_writers_and_their_pixels(tmp_path: Path) -> None:
    content = held(f1=([PIXELS, [1] * 6], [2, 0]), f0=([[0] * 6], [1]), none=([], []))
    found = read(save(tmp_path / "a.json", content), WRITERS)
    assert found.images[0].tolist() == [[0, 51, 102], [153, 204, 255]]
    assert found.person.tolist() == ["f1", "f1", "f0"]
    assert encode(WRITERS, found).y.tolist() == [2, 0, 1]


def test_a_folder_joins_its_files_and_a_writer_may_be_in_two(tmp_path: Path) -> None:
    save(tmp_path / "b.json", held(w=([PIXELS], [1])))
    save(tmp_path / "a.json", held(v=([PIXELS], [2]), w=([PIXELS], [0])))
    encoded = encode(WRITERS, read(tmp_path, WRITERS))
    assert encoded.person.tolist() == [0, 1, 1] and encoded.y.tolist() == [2, 0, 1]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 1, 3)])
def test_pixels_may_be_nested_and_have_colours(tmp_path: Path, shape: tuple[int, ...]) -> None:
    schema = Schema("image", "w", 9, shape=shape)
    nested = np.array(PIXELS).reshape(shape).tolist()
    found = read(save(tmp_path / "a.json", held(w=([nested, nested], [0, 0]))), schema)
    assert found.images.shape == (2, *shape) and found.images[0].ravel()[1] == 51


def test_bytes_are_read_where_the_schema_says_so(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", held(w=([[0, 51, 102, 153, 204.0, 255]], [0])))
    with pytest.raises(DataError, match=r"0 to 1; found 1 images.*255"):
        read(path, WRITERS)
    schema = Schema("image", "w", 9, classes=("0",), shape=(2, 3), white=255)
    assert read(path, schema).images.ravel().tolist() == [0, 51, 102, 153, 204, 255]
    assert Schema.parse(schema.to_toml()) == schema


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 255), min_size=6, max_size=6), max_size=5))
def test_bytes_written_as_leaf_writes_them_come_back(tmp_path: Path, images: list) -> None:
    x = (np.array(images).reshape(-1, 6) / 255).tolist()
    found = read(save(tmp_path / "a.json", held(w=(x, [0] * len(x)))), WRITERS)
    assert found.images.reshape(-1, 6).tolist() == images


@pytest.mark.parametrize("place", ["img_align_celeba", "../raw/img_align_celeba", "images"])
def test_celebrities_and_their_files(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "train"
    for name, shade in (("000001.jpg", 40), ("000002.jpg", 200)):
        (folder / place).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (18, 22), (shade,) * 3).save(folder / place / name)
    content = held(c7=(["000002.jpg"], [1.0]), c8=(["000001.jpg"], [0.0]), c9=([], []))
    path = save(folder / "all_data.json", content)
    for source in (path, folder):
        found = read(source, FACES)
        assert found.images[:, 0, 0, 0].tolist() == pytest.approx([200, 40], abs=2)
        assert found.person.tolist() == ["c7", "c8"] and encode(FACES, found).y.tolist() == [1, 0]


@pytest.mark.parametrize("content", ["", held(), held(w=([], []))])
def test_files_without_users_or_rows_are_sites_without_rows(
    tmp_path: Path, content: object
) -> None:
    for schema in (WRITERS, FACES):
        encoded = encode(schema, read(save(tmp_path / "a.json", content), schema))
        assert encoded.x.shape == (0, schema.width)


@pytest.mark.parametrize("name", ["../../x.jpg", "/etc/x.jpg", "in/x.jpg", "mrs-x.jpg"])
def test_files_are_looked_for_in_the_image_folder_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "x.jpg")
    with pytest.raises(DataError, match=r"plain names|1 missing") as caught:
        read(save(tmp_path / "a.json", held(c=([name], [0]))), FACES)
    assert name not in str(caught.value)


def test_the_image_folder_is_found_from_where_the_files_are(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "raw" / "img_align_celeba").mkdir(parents=True)
    Image.new("RGB", (3, 2)).save(tmp_path / "raw" / "img_align_celeba" / "x.jpg")
    path = save(tmp_path / "train" / "a.json", held(c=(["x.jpg"], [0])))
    monkeypatch.chdir(path.parent)
    assert len(read("a.json", FACES)) == len(read(".", FACES)) == 1


def test_a_file_named_twice_would_count_twice_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "images" / "x.jpg")
    save(tmp_path / "a.json", held(c=(["x.jpg"], [0]), d=(["x.jpg"], [0])))
    with pytest.raises(DataError, match="1 repeated"):
        read(tmp_path, FACES)


def test_names_need_a_folder_of_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="img_align_celeba"):
        read(save(tmp_path / "in" / "a.json", held(c=(["x.jpg"], [0]))), FACES)


GOOD = held(mrs=([PIXELS], [0]))
USER = {"x": [PIXELS], "y": [0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "readable"),
        ("[" * 100_000, "readable"),
        ("[]", "users"),
        ("3", "users"),
        ({**GOOD, "secret": 1}, "users"),
        ({"users": [], "user_data": {}}, "users"),
        ({**GOOD, "users": ["mrs", "mrs"]}, "once"),
        ({**GOOD, "users": ["mr"]}, "once"),
        ({**GOOD, "users": [7]}, "once"),
        ({**GOOD, "users": "mrs"}, "once"),
        ({**GOOD, "user_data": {"mrs": USER, "mr": USER}}, "once"),
        ({**GOOD, "user_data": {"mrs": 7}}, "once"),
        ({**GOOD, "user_data": [USER]}, "once"),
        ({**GOOD, "num_samples": [2]}, "num_samples"),
        ({**GOOD, "num_samples": None}, "num_samples"),
        (json.dumps(GOOD).replace('"mrs": {', '"mrs": {}, "mrs": {'), "each key once"),
        (held(mrs=([PIXELS], [0, 1])), "as many labels"),
        (held(mrs=([PIXELS], [0.5])), "whole numbers or names"),
        (held(mrs=([PIXELS], [None])), "whole numbers or names"),
        (held(mrs=([PIXELS], [True])), "whole numbers or names"),
        (held(mrs=([PIXELS], [[0]])), "whole numbers or names"),
        (held(mrs=([PIXELS], [1e300])), "whole numbers or names"),
        (held(mrs=([PIXELS], [float("nan")])), "whole numbers or names"),
        (held(mrs=([PIXELS, PIXELS], [0, "A"])), "whole numbers or names"),
        (held(mrs=([PIXELS], [0]), mr=([PIXELS], ["A"])), "all as numbers"),
        (held(mrs=([PIXELS[:5]], [0])), "6 pixels"),
        (held(mrs=([PIXELS, PIXELS[:5]], [0, 0])), "6 pixels"),
        (held(mrs=([[PIXELS]], [0])), "6 pixels"),
        (held(mrs=([0.5], [0])), "6 pixels"),
        (held(mrs=([["0"] * 6], [0])), "6 pixels"),
        (held(mrs=([[None] * 6], [0])), "6 pixels"),
        (held(mrs=([[10**30] * 6], [0])), "6 pixels"),
        (held(mrs=([PIXELS, "a.jpg"], [0, 0])), "6 pixels"),
        (held(mrs=([PIXELS], [0]), mr=(["a.jpg"], [0])), "both"),
        (held(mrs=([[float("nan")] * 6], [0])), "0 to 1"),
        (held(mrs=([[float("inf")] * 6], [0])), "0 to 1"),
        (held(mrs=([[-0.1] * 6], [0])), "0 to 1"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(save(tmp_path / "a.json", content), WRITERS)
    assert "mr" not in str(caught.value)


@pytest.mark.parametrize("label", [3, -1, "B", "3"])
def test_labels_outside_the_public_classes_are_refused(tmp_path: Path, label: object) -> None:
    path = save(tmp_path / "a.json", held(w=([PIXELS, PIXELS], [label, label])))
    with pytest.raises(DataError, match="3 public classes; found 2"):
        encode(WRITERS, read(path, WRITERS))


def test_a_user_may_be_called_like_a_key(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", held(x=([PIXELS], [0]), y=([PIXELS], [1])))
    assert read(path, WRITERS).person.tolist() == ["x", "y"]


def test_large_files_are_refused_unread(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(leaf, "MAX_JSON", 10)
    with pytest.raises(DataError, match="GiB"):
        read(save(tmp_path / "a.json", GOOD), WRITERS)


def test_other_kinds_and_drafts_are_refused_plainly(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", GOOD)
    series = Schema.parse(
        'kind = "series"\nname = "s"\nrecords = 9\nshape = [2, 1]\n'
        '[columns.v]\nkind = "numeric"\nlow = 0\nhigh = 1\n'
    )
    with pytest.raises(DataError, match="npz"):
        read(path, series)
    with pytest.raises(DataError, match="FEMNIST"):
        draft(path)
