"""LEAF's JSON files of images: users, and each user's x and y.

``{"users": […], "num_samples": […], "user_data": {user: {"x": […], "y": […]}}}``, in one
file or a folder of them. An image is a list of pixels from 0 to the schema's ``white``
(FEMNIST), or the name of a file (CelebA) in a folder ``img_align_celeba`` or ``images``
beside the JSON files, or where LEAF keeps it. A user is the schema's person.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.images import read_listed
from understudy.data.records import Progress, Records, check_memory, unreadable
from understudy.data.schema import Schema
from understudy.errors import DataError

__all__ = ["is_leaf", "read_leaf"]

MAX_JSON = 2**30
KEYS = {"users", "num_samples", "user_data"}
IMAGE_FOLDERS = ("img_align_celeba", "images", "raw/img_align_celeba")


@dataclass(frozen=True)
class _User:
    """One user's images: bytes [n, F], or names of files; and labels [n]."""

    images: np.ndarray | list[str]
    labels: np.ndarray


def is_leaf(path: Path) -> bool:
    """Whether this is a JSON file, or a folder that holds some."""
    return path.suffix == ".json" or (path.is_dir() and any(path.glob("*.json")))


def read_leaf(path: Path, schema: Schema, *, progress: Progress | None = None) -> Records:
    """All users of a file or of a folder's files, in the order of names and lists."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    named = [pair for file in files for pair in _users(file, schema)]
    users = [user for _, user in named]
    person = np.array([name for name, user in named for _ in user.labels], str)
    return Records(
        images=_images(path if path.is_dir() else path.parent, users, schema, progress),
        labels=None if schema.classes == ("all",) else _joined([u.labels for u in users]),
        person=None if schema.person is None else person,
    )


def _images(
    folder: Path, users: Sequence[_User], schema: Schema, progress: Progress | None
) -> np.ndarray:
    every = [user.images for user in users if len(user.images)]
    named = [images for images in every if isinstance(images, list)]
    given = [images for images in every if isinstance(images, np.ndarray)]
    if named and given:
        raise DataError("pixels or names of files", "both", "keep them in separate folders")
    if named:
        names = [name for images in named for name in images]
        return read_listed(_image_folder(folder), names, schema, progress=progress)
    check_memory(sum(map(len, given)) * schema.width * 4)
    empty = np.zeros((0, schema.width), np.uint8)
    return np.concatenate([empty, *given]).reshape(-1, *schema.shape)


def _image_folder(folder: Path) -> Path:
    here = folder.absolute()
    for place in (base / name for base in (here, here.parent) for name in IMAGE_FOLDERS):
        if place.is_dir():
            return place
    raise DataError(
        "a folder img_align_celeba or images beside the JSON files", "none", "move it there"
    )


def _users(path: Path, schema: Schema) -> list[tuple[str, _User]]:
    """Names and rows of a file's users; the file must agree with itself."""
    held = _parsed(path, schema)
    if not held:
        return []
    users, counts, data = held["users"], held["num_samples"], held["user_data"]
    fits = isinstance(data, dict) and all(isinstance(user, _User) for user in data.values())
    fits = fits and isinstance(users, list) and all(isinstance(name, str) for name in users)
    if not fits or len(set(users)) < len(users) or set(users) != set(data):
        raise DataError(
            "x and y for each of LEAF's users, once", "something else", f"make {path.name} again"
        )
    if counts != [len(data[name].labels) for name in users]:
        raise DataError(
            "num_samples that fit user_data", "something else", f"make {path.name} again"
        )
    return [(name, data[name]) for name in users]


def _parsed(path: Path, schema: Schema) -> dict[str, Any]:
    """The outermost object; users become arrays while it is read, which keeps memory low."""
    size = path.stat().st_size
    if size > MAX_JSON:
        raise DataError(
            f"JSON files of at most {MAX_JSON / 2**30:g} GiB",
            f"{size / 2**30:.1f} GiB",
            "let LEAF write fewer users per file",
        )
    if size == 0:
        return {}
    try:
        held = json.loads(path.read_bytes(), object_pairs_hook=partial(_object, schema))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from None
    if not isinstance(held, dict) or not KEYS <= set(held) <= KEYS | {"hierarchies"}:
        raise DataError(
            "LEAF's users, num_samples and user_data", "other keys", "make the file again"
        )
    return held


def _object(schema: Schema, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _User:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError("each key once in a JSON object", "a repeated key", "make the file again")
    if isinstance(found.get("x"), list) and isinstance(found.get("y"), list):
        return _user(schema, found["x"], found["y"])
    return found


def _user(schema: Schema, x: list[Any], y: list[Any]) -> _User:
    if len(x) != len(y):
        raise DataError(
            "as many labels as images for each user", "something else", "make the file again"
        )
    named = bool(x) and all(isinstance(item, str) for item in x)
    return _User(x if named else _pixels(schema, x), _labels(y))


def _labels(y: list[Any]) -> np.ndarray:
    """Whole numbers (also written 1.0) or names."""
    if y and all(isinstance(label, str) for label in y):
        return np.array(y, str)
    if not all(type(n) in (int, float) and n % 1 == 0 and abs(n) < 2**31 for n in y):
        raise DataError("labels as whole numbers or names", "others", "fix y")
    return np.array(y, np.int64)


def _joined(labels: list[np.ndarray]) -> np.ndarray:
    held = [part for part in labels if len(part)]
    if len({part.dtype.kind for part in held}) > 1:
        raise DataError("labels all as numbers or all as names", "both", "fix y")
    return np.concatenate(held) if held else np.zeros(0, np.int64)


def _pixels(schema: Schema, x: list[Any]) -> np.ndarray:
    """Bytes [n, F]: 0 is black, the schema's ``white`` is 255, nothing lies outside."""
    values = _numbers(schema, x)
    outside = int((~((values >= 0) & (values <= schema.white))).any(axis=1).sum())
    if outside:
        raise DataError(
            f"pixels from 0 to {schema.white:g}",
            f"{outside} images with others",
            "set white in the schema: 1 or 255",
        )
    return np.rint(values * (255 / schema.white)).astype(np.uint8)


def _numbers(schema: Schema, x: list[Any]) -> np.ndarray:
    """One user's images [n, F], whether their lists are flat or nested."""
    try:
        values = np.array(x) if x else np.zeros((0, schema.width))
    except ValueError:  # images of different sizes
        values = np.zeros(0)
    flat, plain = (len(x), schema.width), (len(x), *schema.shape)
    grey = plain[:3] if schema.shape[2:] == (1,) else plain
    if values.dtype.kind not in "iuf" or values.shape not in (flat, plain, grey):
        raise DataError(
            f"{schema.width} pixels in each image, as numbers (shape {list(schema.shape)})",
            "others",
            "correct the schema's shape, or make the file again",
        )
    return values.reshape(flat)
