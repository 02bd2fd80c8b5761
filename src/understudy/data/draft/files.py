"""What an npz file or a folder of images holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from understudy.data.celeba import ATTRIBUTES, IMAGES
from understudy.data.draft.columns import find_bounds, find_table, top
from understudy.data.draft.text import Found, Setting
from understudy.data.images import IMAGE_FILES, image_shape
from understudy.data.schema_toml import toml_key
from understudy.errors import DataError

__all__ = ["find_arrays", "find_images"]


def find_arrays(arrays: dict[str, np.ndarray], label: str | None = None) -> Found:
    """Images (bytes), series [n, L, ch], a table [n, F], or arrays by name, in an npz file."""
    held = next((arrays[k] for k in ("X", "images", "series") if k in arrays), None)
    pictures = {name: a for name, a in arrays.items() if a.dtype == np.uint8 and a.ndim in (3, 4)}
    if held is None and pictures:
        return _find_pictured(arrays, pictures, label)
    if held is None or held.ndim < 2 or not len(held):
        raise DataError("an npz file with X, images or series", "none", "name the array X")
    if held.ndim > 2:
        return _find_records(arrays, held)
    frame = pd.DataFrame(held, columns=[f"x{i + 1}" for i in range(held.shape[1])])
    if "y" in arrays:
        frame["y"] = arrays["y"]
    return find_table(frame, "y" if "y" in arrays else None, _others(arrays))


def _find_pictured(
    arrays: dict[str, np.ndarray], pictures: dict[str, np.ndarray], label: str | None
) -> Found:
    """Images by name, and beside them an array for each column of a table."""
    wrong = [name for name in arrays if name not in pictures and arrays[name].ndim != 1]
    if wrong or len({len(held) for held in arrays.values()}) > 1:
        raise DataError(
            "images as whole numbers 0 to 255 (uint8), and other arrays of one entry per row",
            f"another shape in {wrong[0]!r}" if wrong else "arrays of different lengths",
            "correct the file",
        )
    cells = pd.DataFrame({name: list(arrays[name]) for name in arrays if name not in pictures})
    shapes = [
        Setting(f"images.{toml_key(name)}.shape", held.shape[1:]) for name, held in pictures.items()
    ]
    if cells.columns.empty:
        many = len(next(iter(pictures.values())))
        return Found((*top("table", many), *shapes), ())
    return find_table(cells, label, tuple(shapes))


def _find_records(arrays: dict[str, np.ndarray], held: np.ndarray) -> Found:
    """Images or series: as the array is called, or by its type."""
    image = "images" in arrays or ("series" not in arrays and held.dtype == np.uint8)
    said = () if image or "series" in arrays else (_taken_for_series(held),)
    guess = "guess: images are whole numbers 0–255 (uint8)" if said else ""
    settings = [*top("image" if image else "series", len(held), guess)]
    settings.append(Setting("shape", held.shape[1:]))
    if "y" in arrays:
        seen = [str(c) for c in sorted(np.unique(arrays["y"]).tolist())]
        settings.append(Setting("classes", seen, "guess: those seen"))
    channels = () if image else np.moveaxis(held, 2, 0).astype(np.float64)
    columns = tuple(
        find_bounds(f"channel{i + 1}", "numeric", values.ravel())
        for i, values in enumerate(channels)
    )
    return Found((*settings, *_others(arrays)), columns, said)


def _taken_for_series(held: np.ndarray) -> str:
    """The warning of an array whose name leaves open whether it holds series or images."""
    if held.ndim > 3:
        raise DataError(
            "series [rows, length, channels], or images",
            f"{held.dtype} of {held.ndim} axes",
            "save images as whole numbers 0–255 (uint8)",
        )
    length, channels = held.shape[1:3]
    return (
        f"X holds {held.dtype}, so it was taken for series of {length} steps and {channels} "
        "channels. If these are images, save them as whole numbers 0–255 (uint8) and draft again."
    )


def _others(arrays: dict[str, np.ndarray]) -> tuple[Setting, ...]:
    """Arrays that are neither records nor labels are ignored, until a human says otherwise."""
    extra = sorted(set(arrays) - {"X", "images", "series", "y"})
    return (Setting("ignore", extra, "guess: one of them may be the person"),) if extra else ()


def find_images(path: Path, label: str | None) -> Found:
    """Images in one sub-folder per class, or CelebA."""
    celeba = (path / ATTRIBUTES).exists()
    inside = path / IMAGES if celeba else path
    files = sorted(p for p in inside.rglob("*") if p.suffix.lower() in IMAGE_FILES)
    if not files:
        raise DataError("a folder of PNG or JPEG images", "none", "check the path")
    resize = "crop and scale image files of other sizes; without it they are refused"
    settings = (
        *top("image", len(files)),
        Setting("shape", image_shape(files[0]), "guess: the first image's"),
        Setting("resize", True, resize, off=True),
    )
    return Found((*settings, *(_celeba(label) if celeba else _classes(path))))


def _celeba(label: str | None) -> tuple[Setting, ...]:
    return (
        Setting("label", label or "Male", "any of the attributes"),
        Setting("classes", ["no", "yes"], "-1 and 1 in the list"),
        Setting("person", "identity"),
        Setting("rows_per_person", 35, "as published"),
    )


def _classes(path: Path) -> tuple[Setting, ...]:
    names = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    return (Setting("classes", names, "guess: the sub-folders"),) if names else ()
