"""Images and series from npz files, folders of images and MNIST's IDX format.

Folders laid out as CelebA's, and LEAF's JSON files, are recognised by what they hold.
"""

from __future__ import annotations

import gzip
import math
import zipfile
from pathlib import Path
from tokenize import TokenError

import numpy as np

from understudy.data.celeba import ATTRIBUTES, read_celeba
from understudy.data.images import IMAGE_FILES, read_images
from understudy.data.leaf import is_leaf, read_leaf
from understudy.data.records import (
    DAMAGED,
    Progress,
    Records,
    check_size,
    file_kind,
    some,
    unreadable,
)
from understudy.data.schema import Schema
from understudy.data.series import fill_missing
from understudy.errors import DataError

__all__ = ["load_npz", "main_array", "read_arrays", "shape_images", "shape_series"]

_NO_ARRAYS = (ValueError, KeyError, RuntimeError, TokenError, zipfile.BadZipFile)


def read_arrays(path: Path, schema: Schema, *, progress: Progress | None = None) -> Records:
    """Read images or series by their public schema; ``progress`` is told of image files."""
    if path.is_dir() or path.suffix == ".json":
        return _read_images(path, schema, progress)
    if "-idx" in path.name:
        return _read_idx(path, schema)
    return _read_npz(path, schema)


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file; none if it is empty. Never unpickles."""
    if path.stat().st_size == 0:
        return {}
    try:
        with zipfile.ZipFile(path) as archive:
            check_size(sum(item.file_size for item in archive.infolist()))
        with np.load(path, allow_pickle=False) as held:
            return {key: held[key] for key in held.files}
    except (*DAMAGED, *_NO_ARRAYS) as error:
        raise unreadable(path, error) from None


def main_array(arrays: dict[str, np.ndarray], schema: Schema) -> np.ndarray:
    """The one array that holds the records; undeclared arrays are refused."""
    keys = [key for key in ("X", "images", "series") if key in arrays]
    extra = set(arrays) - {*keys, "y", *schema.ignore, schema.person}
    if len(keys) != 1 or extra:
        raise DataError(
            "an npz file with X (or images, or series) and y",
            some(sorted(arrays)) or "no array",
            "name the rows X and their classes y, and list other arrays under ignore in the schema",
        )
    return arrays[keys[0]]


def _read_npz(path: Path, schema: Schema) -> Records:
    if file_kind(path) != "npz":
        raise DataError(f"{schema.kind} data as npz", path.name, "save it with numpy.savez")
    arrays = load_npz(path)
    person = arrays.get(schema.person) if schema.person else None
    if not arrays:
        return _arrays_of(schema, np.zeros((0, *schema.shape), np.uint8), np.zeros(0, int))
    held = main_array(arrays, schema)
    return _arrays_of(schema, held, arrays.get("y"), person)


def _arrays_of(
    schema: Schema, held: np.ndarray, labels: np.ndarray | None, person: np.ndarray | None = None
) -> Records:
    labels = None if schema.classes == ("all",) else labels
    if schema.kind == "image":
        return Records(images=shape_images(schema, held), labels=labels, person=person)
    return Records(series=shape_series(schema, held), labels=labels, person=person)


def shape_images(schema: Schema, images: np.ndarray | None) -> np.ndarray:
    """Images as bytes [n, *shape]; whole numbers outside 0–255 are clamped."""
    if images is None or images.dtype.kind not in "iu":
        raise DataError(
            "images as whole numbers 0 to 255",
            "none" if images is None else str(images.dtype),
            "scale them to 0–255 without missing values, and save them as uint8",
        )
    images = _shaped(schema, images)
    return images if images.dtype == np.uint8 else np.clip(images, 0, 255).astype(np.uint8)


def shape_series(schema: Schema, series: np.ndarray | None) -> np.ndarray:
    """Series as doubles [n, L, ch]; what is missing is filled by the schema's rule."""
    if series is None or series.dtype.kind not in "iuf":
        raise DataError(
            "series as numbers", "none" if series is None else str(series.dtype), "convert them"
        )
    return fill_missing(_shaped(schema, series).astype(np.float64), schema)


def _shaped(schema: Schema, held: np.ndarray) -> np.ndarray:
    """Allow for a left-out or an extra last axis of one."""

    def squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(s for i, s in enumerate(shape) if i < 2 or s != 1)

    shape = (len(held) if held.ndim else 0, *schema.shape)
    if squeeze(held.shape) != squeeze(shape):
        raise DataError(
            f"{schema.kind} records of shape {list(schema.shape)}",
            f"{list(held.shape[1:])}",
            "correct the data or the schema's shape",
        )
    return held.reshape(shape)


def _read_images(path: Path, schema: Schema, progress: Progress | None) -> Records:
    """CelebA's folder, LEAF's JSON, or a folder of image files."""
    if schema.kind != "image":
        raise DataError("a file of series", "a folder or JSON", "save the series as npz")
    if (path / ATTRIBUTES).exists():
        return read_celeba(path, schema, progress=progress)
    plain = path.is_dir() and (_images_in(path) or set(_folders(path)) & set(schema.classes))
    if is_leaf(path) and not plain:
        return read_leaf(path, schema, progress=progress)
    return _read_folder(path, schema, progress)


def _read_folder(path: Path, schema: Schema, progress: Progress | None) -> Records:
    """Images in one sub-folder per class (or directly, without classes)."""
    single = schema.classes == ("all",)
    _check_folder(path, schema, single)
    held = {"all": path} if single else _folders(path)
    files = [sorted(_images_in(held[name])) if name in held else [] for name in schema.classes]
    paths = [file for group in files for file in group]
    images = read_images(paths, schema, progress=progress)
    labels = np.repeat(np.array(schema.classes), [len(group) for group in files])
    return _arrays_of(schema, images, labels)


def _check_folder(path: Path, schema: Schema, single: bool) -> None:
    """Refuse images that lie where no class would find them; names are not quoted."""
    found = set(_folders(path))
    others = len(found if single else found - set(schema.classes))
    beside = 0 if single else len(_images_in(path))
    if others or beside:
        raise DataError(
            "images directly in the folder (the schema has no classes)"
            if single
            else "images in sub-folders named after the public classes",
            f"{others} others, {beside} images beside them" if beside else f"{others} others",
            "rename or move them, or correct the schema's classes",
        )


def _folders(path: Path) -> dict[str, Path]:
    """Sub-folders that are really there: a class's name is never followed as a path."""
    return {p.name: p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")}


def _images_in(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.suffix.lower() in IMAGE_FILES]


def _read_idx(path: Path, schema: Schema) -> Records:
    """MNIST's own format: images and, beside them, labels."""
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    found = _idx(labels) if labels != path and labels.exists() else None
    return _arrays_of(schema, _idx(path), found)


def _idx(path: Path) -> np.ndarray:
    """An array of bytes: its shape stands in front, and no more than that is unpacked."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4)
            axes = head[3] if head[:3] == b"\0\0\x08" else 0
            shape = np.frombuffer(file.read(4 * axes), ">u4", axes).tolist()
            check_size(math.prod(shape))
            return np.frombuffer(file.read(math.prod(shape) + 1), np.uint8).reshape(shape)
    except (*DAMAGED, ValueError, IndexError) as error:
        raise unreadable(path, error) from None
