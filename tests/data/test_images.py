from __future__ import annotations

import io
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from understudy.data import images
from understudy.data.draft import draft
from understudy.data.encode import encode
from understudy.data.images import read_images, read_listed
from understudy.data.schema import Schema
from understudy.data.table import read
from understudy.errors import DataError

GREY = Schema("image", "i", 9, shape=(4, 3))
COLOUR = Schema("image", "i", 9, shape=(4, 3, 3))
CROPPED = Schema("image", "i", 9, shape=(4, 3, 3), resize=True)


def save(path: Path, mode: str = "RGB", size: tuple[int, int] = (3, 4), **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path, **options)
    return path


@pytest.mark.parametrize(
    ("schema", "mode", "size", "message"),
    [
        (GREY, "RGB", (3, 4), r"\[4, 3\]; found \[4, 3, 3\] in image 1. Do: convert"),
        (COLOUR, "L", (3, 4), r"\[4, 3, 3\]; found \[4, 3\] in image 1. Do: convert"),
        (COLOUR, "RGBA", (3, 4), r"\[4, 3, 4\]"),
        (GREY, "LA", (3, 4), r"\[4, 3, 2\]"),
        (GREY, "I;16", (3, 4), "8-bit"),
        (COLOUR, "RGB", (4, 3), r"\[3, 4, 3\].*resize = true"),
        (CROPPED, "L", (9, 9), "convert"),
    ],
)
def test_another_shape_or_channel_count_is_refused(
    tmp_path: Path, schema: Schema, mode: str, size: tuple[int, int], message: str
) -> None:
    save(tmp_path / "mrs-x.png", mode, size)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, schema)
    assert "mrs" not in str(caught.value)


@pytest.mark.parametrize(("schema", "mode"), [(GREY, "1"), (GREY, "L"), (COLOUR, "P")])
def test_palettes_and_two_tones_lose_nothing_and_are_read(
    tmp_path: Path, schema: Schema, mode: str
) -> None:
    save(tmp_path / "1.png", mode)
    assert read(tmp_path, schema).images.shape == (1, *schema.shape)


def test_one_channel_may_be_declared(tmp_path: Path) -> None:
    save(tmp_path / "1.png", "L")
    schema = Schema("image", "i", 9, shape=(4, 3, 1))
    assert encode(schema, read(tmp_path, schema)).x.shape == (1, 12)


def test_resizing_keeps_the_centre(tmp_path: Path) -> None:
    pixels = np.zeros((40, 90, 3), np.uint8)
    pixels[:, 30:60] = 200  # 40 x 30 is the largest centred part of 4 x 3
    Image.fromarray(pixels).save(tmp_path / "1.png")
    assert (read(tmp_path, CROPPED).images == 200).all()
    assert not read(tmp_path, Schema("image", "i", 9, shape=(4, 9, 3), resize=True)).images.all()


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 40), st.integers(1, 40))
def test_every_size_can_be_resized(height: int, width: int, h: int, w: int) -> None:
    left, top, right, bottom = images._centre((width, height), h, w)
    assert 0 <= left < right <= width and 0 <= top < bottom <= height
    assert right - left == width or bottom - top == height
    scale = min(width / w, height / h)
    assert abs(right - left - w * scale) < 1 and abs(bottom - top - h * scale) < 1
    schema = Schema("image", "i", 9, shape=(h, w, 3), resize=True)
    assert images._fitted(Image.new("RGB", (width, height)), schema).size == (w, h)


def test_decoding_jpeg_smaller_hardly_changes_the_result(tmp_path: Path, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (22, 18, 3), np.uint8))
    noise.resize((178, 218), Image.Resampling.BICUBIC).save(tmp_path / "1.jpg", quality=95)
    schema = Schema("image", "i", 9, shape=(32, 32, 3), resize=True)
    quick = read(tmp_path, schema).images.astype(int)
    monkeypatch.setattr(images, "_decode_smaller", lambda *_: None)
    whole = read(tmp_path, schema).images
    assert np.abs(quick - whole).mean() < 2 and (quick != whole).any()


def test_order_is_kept_by_many_threads(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(200)]
    for i, path in enumerate(paths):
        Image.new("L", (3, 4), i).save(path)
    before = threading.active_count()
    assert read_images(paths, GREY)[:, 0, 0].tolist() == list(range(200))
    assert threading.active_count() == before


def test_reading_a_folder_tells_how_far_it_is(tmp_path: Path) -> None:
    for i in range(150):
        save(tmp_path / "ab"[i % 2] / f"{i}.png", "L")
    seen: list[tuple[int, int]] = []
    classes = Schema("image", "i", 9, classes=("a", "b"), shape=(4, 3))
    read(tmp_path, classes, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 150), (128, 150), (150, 150)]


@pytest.mark.parametrize("ending", [".jpg", ".png"])
def test_truncated_images_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"mrs-x{ending}"
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-2000])
    schema = Schema("image", "i", 9, shape=(64, 64, 3))
    with pytest.raises(DataError, match="damaged") as caught:
        read(tmp_path, schema)
    assert "mrs" not in str(caught.value)


def encoded(ending: str) -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (3, 4), (9, 9, 9)).save(held, ending)
    return held.getvalue()


FILES = {ending: encoded(ending) for ending in ("png", "jpeg")}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(FILES)), st.integers(0, 2000), st.binary(min_size=1, max_size=8))
def test_spoilt_bytes_give_an_image_or_a_plain_error(
    tmp_path: Path, ending: str, place: int, spoilt: bytes
) -> None:
    raw = bytearray(FILES[ending])
    place %= len(raw)
    raw[place : place + len(spoilt)] = spoilt
    path = tmp_path / f"1.{ending}"
    path.write_bytes(raw)
    try:
        assert read_images([path], COLOUR).shape == (1, 4, 3, 3)
    except DataError:
        pass


def test_huge_images_are_refused_unread(tmp_path: Path, monkeypatch) -> None:
    save(tmp_path / "1.png", size=(300, 400))
    monkeypatch.setattr(images, "MAX_PIXELS", 1000)
    with pytest.raises(DataError, match="1000 pixels"):
        read(tmp_path, CROPPED)
    monkeypatch.setattr(images, "MAX_PIXELS", 10**9)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    with pytest.raises(DataError, match="huge"):
        read(tmp_path, CROPPED)
    monkeypatch.setattr(images, "MAX_FILE", 10)
    with pytest.raises(DataError, match="huge"):
        read(tmp_path, CROPPED)


def test_more_images_than_memory_holds_are_refused_before_decoding(monkeypatch) -> None:
    monkeypatch.setattr("understudy.data.records.memory_limit", lambda: 100)
    with pytest.raises(DataError, match="GiB"):
        read_images([Path("never-opened")] * 3, COLOUR)


def test_only_png_and_jpeg_are_decoded(tmp_path: Path) -> None:
    save(tmp_path / "1.png", format="BMP")
    with pytest.raises(DataError, match="PNG or JPEG"):
        read(tmp_path, COLOUR)


@pytest.mark.parametrize("name", ["../x.jpg", "a/x.jpg", "/x.jpg", "..\\x.jpg", "a/"])
def test_listed_names_never_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    save(tmp_path / "x.jpg")
    (tmp_path / "in").mkdir()
    with pytest.raises(DataError, match="plain names") as caught:
        read_listed(tmp_path / "in", [name], COLOUR)
    assert name not in str(caught.value)


@pytest.mark.parametrize("name", ["", "..", "mrs-x.jpg"])
def test_a_listed_image_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="1 missing") as caught:
        read_listed(tmp_path, [name], COLOUR)
    assert "mrs" not in str(caught.value)


def test_a_folder_that_cannot_be_opened_as_an_image(tmp_path: Path) -> None:
    (tmp_path / "1.png").mkdir()
    with pytest.raises(DataError):
        read(tmp_path, COLOUR)


def test_images_beside_the_class_folders_are_not_overlooked(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    schema = Schema("image", "i", 9, classes=("cat", "dog"), shape=(4, 3, 3))
    with pytest.raises(DataError, match="1 images beside"):
        read(tmp_path, schema)
    save(tmp_path / "b" / "cat" / "1.png")
    with pytest.raises(DataError, match="no classes"):
        read(tmp_path / "b", COLOUR)


def test_a_draft_says_how_to_resize_and_can_be_used(tmp_path: Path) -> None:
    for i in range(20):
        save(tmp_path / "images" / "cat" / f"{i}.png")
    text, _ = draft(tmp_path / "images")
    assert "resize = true" in text
    assert Schema.parse(text).shape == (4, 3, 3)
    (tmp_path / "images" / "cat" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="PNG or JPEG"):
        draft(tmp_path / "images")


@pytest.mark.parametrize(
    "line",
    ["resize = 1", "white = 0", "white = inf", "white = true", 'white = "1"', 'label = "Male"'],
)
def test_rules_for_images_are_checked(line: str) -> None:
    with pytest.raises(Exception, match="Expected"):
        Schema.parse(f'kind = "image"\nname = "i"\nrecords = 9\nshape = [4, 3]\n{line}\n')


def test_rules_for_images_are_part_of_the_schema_and_its_hash() -> None:
    assert Schema.parse(CROPPED.to_toml()) == CROPPED
    assert len({GREY.hash, COLOUR.hash, CROPPED.hash}) == 3
    assert "resize" not in GREY.to_toml() and "white" not in GREY.to_toml()


def test_an_empty_folder_of_persons_is_a_site_without_rows(tmp_path: Path) -> None:
    schema = Schema("image", "i", 9, shape=(4, 3, 3), person="who", rows_per_person=2)
    found = encode(schema, read(tmp_path, schema))
    assert len(found) == 0 and found.person.tolist() == []
