from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from PIL import Image

from understudy.data import records as records_module
from understudy.data.encode import encode
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import read, write
from understudy.errors import DataError

IMAGES = Schema("image", "i", 10, classes=("cat", "dog"), shape=(4, 3))
SERIES = Schema("series", "s", 10, (Column("v", "numeric", -1, 1),), shape=(5, 1))


@pytest.mark.parametrize("key", ["X", "images"])
def test_images_from_an_array_file(tmp_path, key: str) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    np.savez(tmp_path / "a.npz", **{key: pixels, "y": np.array(["dog", "cat"])})
    found = read(tmp_path / "a.npz", IMAGES)
    assert np.array_equal(found.images, pixels) and encode(IMAGES, found).y.tolist() == [1, 0]


def test_written_images_read_back_the_same(tmp_path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    write(Records(images=pixels, labels=np.array(["dog", "cat"])), tmp_path / "a.npz")
    found = read(tmp_path / "a.npz", IMAGES)
    assert np.array_equal(found.images, pixels) and found.labels.tolist() == ["dog", "cat"]


def test_series_of_one_channel_may_leave_out_the_last_axis(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((3, 5), np.int16))
    assert read(tmp_path / "a.npz", SERIES).series.shape == (3, 5, 1)


def test_an_empty_array_file_is_a_site_without_records(tmp_path) -> None:
    (tmp_path / "a.npz").touch()
    assert encode(IMAGES, read(tmp_path / "a.npz", IMAGES)).x.shape == (0, 12)
    assert encode(SERIES, read(tmp_path / "a.npz", SERIES)).x.shape == (0, 5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros((2, 3, 4), np.uint8)}, "shape"),
        ({"X": np.zeros((2, 12), np.uint8)}, "shape"),
        ({"X": np.zeros((2, 4, 3))}, "whole numbers 0 to 255"),
        ({"Z": np.zeros((2, 4, 3), np.uint8)}, "X"),
        ({"X": np.zeros((2, 4, 3), np.uint8), "who": np.zeros(2)}, "found 'X', 'who', 'y'"),
        ({"X": np.array(0, np.uint8)}, "shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros(2, int), **arrays)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "a.npz", IMAGES)


def test_pickled_objects_are_never_loaded(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="readable"):
        read(tmp_path / "a.npz", IMAGES)


def test_a_file_that_unpacks_too_large_is_refused_unread(tmp_path, monkeypatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 4, 3), np.uint8))
    monkeypatch.setattr(records_module, "MAX_FILE", 5000)
    assert (tmp_path / "a.npz").stat().st_size < 5000
    with pytest.raises(DataError, match="GiB"):
        read(tmp_path / "a.npz", IMAGES)


def test_the_person_of_an_image_comes_from_its_array(tmp_path) -> None:
    schema = Schema("image", "i", 9, shape=(4, 3), person="who", rows_per_person=1)
    np.savez(tmp_path / "a.npz", X=np.zeros((3, 4, 3), np.uint8), who=np.array([7, 7, 8]))
    assert encode(schema, read(tmp_path / "a.npz", schema)).person.tolist() == [0, 1]


def _save(path, mode: str = "L", size: tuple[int, int] = (3, 4), value: int = 9) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, value, value)).save(path)


def test_images_from_class_folders(tmp_path) -> None:
    _save(tmp_path / "dog" / "1.png", value=200)
    _save(tmp_path / "dog" / "2.png", value=100)
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    found = read(tmp_path, IMAGES)
    assert found.labels.tolist() == ["dog", "dog"] and found.images[:, 0, 0].tolist() == [200, 100]
    assert len(encode(IMAGES, found)) == 2


def test_colour_images_keep_their_colours(tmp_path) -> None:
    _save(tmp_path / "1.png", mode="RGB", value=100)
    schema = Schema("image", "i", 9, shape=(4, 3, 3))
    assert read(tmp_path, schema).images.shape == (1, 4, 3, 3)


def test_an_empty_folder_is_a_site_without_images(tmp_path) -> None:
    assert encode(IMAGES, read(tmp_path, IMAGES)).x.shape == (0, 12)


def test_folders_that_do_not_fit_are_refused_without_names(tmp_path) -> None:
    _save(tmp_path / "a" / "bird-of-mrs-x" / "1.png")
    with pytest.raises(DataError, match="1 others") as caught:
        read(tmp_path / "a", IMAGES)
    assert "mrs" not in str(caught.value)
    _save(tmp_path / "b" / "dog" / "1.png", size=(9, 9))
    with pytest.raises(DataError, match=r"\[4, 3\].*\[9, 9\]"):
        read(tmp_path / "b", IMAGES)
    (tmp_path / "c" / "dog").mkdir(parents=True)
    (tmp_path / "c" / "dog" / "1.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match="PNG or JPEG"):
        read(tmp_path / "c", IMAGES)


def test_idx_files_bring_their_labels(tmp_path) -> None:
    schema = Schema("image", "i", 9, classes=("0", "1"), shape=(4, 3))
    pixels = bytes(range(24))
    images = b"\0\0\x08\x03" + struct.pack(">3I", 2, 4, 3) + pixels
    labels = b"\0\0\x08\x01" + struct.pack(">I", 2) + b"\x01\x00"
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(images))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    found = read(path, schema)
    assert found.images.tobytes() == pixels and encode(schema, found).y.tolist() == [1, 0]
    path.write_bytes(gzip.compress(images)[:-9])
    with pytest.raises(DataError, match="readable"):
        read(path, schema)


@pytest.mark.parametrize("labels", [np.array(["cat", "cow"]), np.array([0, 2]), np.array([0, -1])])
def test_labels_outside_the_public_classes_are_refused(tmp_path, labels: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 4, 3), np.uint8), y=labels)
    with pytest.raises(DataError, match="2 public classes; found 1") as caught:
        encode(IMAGES, read(tmp_path / "a.npz", IMAGES))
    assert "cow" not in str(caught.value)


def _idx(tmp_path, labels: bytes, count: int = 2):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(b"\0\0\x08\x03" + struct.pack(">3I", count, 4, 3) + bytes(24))
    head = b"\0\0\x08\x01" + struct.pack(">I", len(labels))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(head + labels)
    return path


@pytest.mark.parametrize("labels", [b"\0\2", b"\0", b"\0\0\0"])
def test_idx_labels_that_do_not_fit_are_refused(tmp_path, labels: bytes) -> None:
    with pytest.raises(DataError, match="label"):
        encode(IMAGES, read(_idx(tmp_path, labels), IMAGES))


@pytest.mark.parametrize("count", [1, 3, 2**32 - 1])
def test_idx_files_hold_what_their_header_says(tmp_path, count: int) -> None:
    with pytest.raises(DataError, match=r"readable|GiB"):
        read(_idx(tmp_path, b"\0\0", count), IMAGES)


def test_an_idx_file_that_unpacks_too_large_is_refused_unread(tmp_path, monkeypatch) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 999, 4, 3) + bytes(11988)))
    monkeypatch.setattr(records_module, "MAX_FILE", 5000)
    with pytest.raises(DataError, match="GiB"):
        read(path, IMAGES)


def test_a_class_is_never_followed_as_a_path(tmp_path) -> None:
    _save(tmp_path / "mine" / "cat" / "1.png")
    _save(tmp_path / "secret" / "1.png")
    schema = Schema("image", "i", 10, classes=("cat", "../secret"), shape=(4, 3))
    assert len(read(tmp_path / "mine", schema)) == 1


def test_notes_in_json_do_not_turn_class_folders_into_leaf(tmp_path) -> None:
    _save(tmp_path / "dog" / "1.png")
    (tmp_path / "notes.json").write_text("{}")
    assert len(read(tmp_path, IMAGES)) == 1


def test_of_many_arrays_a_few_are_named_in_plain_letters(tmp_path) -> None:
    names = {"a\x1b[31m\nb": np.zeros(1), **{f"n{i}": np.zeros(1) for i in range(20)}}
    np.savez(tmp_path / "a.npz", **names)
    with pytest.raises(DataError, match="and 16 more") as caught:
        read(tmp_path / "a.npz", IMAGES)
    assert "\x1b" not in str(caught.value) and "n9" not in str(caught.value)
