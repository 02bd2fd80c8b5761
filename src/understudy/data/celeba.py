"""CelebA as its authors publish it: faces, forty yes/no attributes, identities.

A folder with ``img_align_celeba/``, ``list_attr_celeba.txt`` and, where the schema
declares a person, ``identity_CelebA.txt``. The schema's label names the attribute; its
first class is the attribute's -1, the second its 1 (DPD-fVAE §4: Male, 32 x 32). The
attribute list decides which images are read, in its order; images it does not name are
left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from understudy.data.images import read_listed
from understudy.data.records import Progress, Records, check_size, unreadable
from understudy.data.schema import Schema
from understudy.errors import DataError

__all__ = ["ATTRIBUTES", "IDENTITIES", "IMAGES", "read_celeba"]

IMAGES = "img_align_celeba"
ATTRIBUTES = "list_attr_celeba.txt"
IDENTITIES = "identity_CelebA.txt"
SIGNS = {"-1": 0, "1": 1}


def read_celeba(folder: Path, schema: Schema, *, progress: Progress | None = None) -> Records:
    """Images, labels and persons of a CelebA folder. The lists are checked before any decoding."""
    signs = _attribute(folder / ATTRIBUTES, schema)
    names = list(signs)
    person = None if schema.person is None else _persons(folder / IDENTITIES, names)
    images = read_listed(folder / IMAGES, names, schema, progress=progress)
    labels = np.fromiter(signs.values(), np.int64, len(names))
    values = None if schema.classes == ("all",) else np.array(schema.classes)[labels]
    return Records(images=images, labels=values, person=person)


def _attribute(path: Path, schema: Schema) -> dict[str, int]:
    """Class of each listed image. Without classes no attribute is read."""
    rows = _lines(path)
    count, header = next(rows, ["0"]), next(rows, [])
    place = 0 if schema.classes == ("all",) else _place(header, schema)
    found, lines, wrong = {}, 0, 0
    for cells in rows:
        lines += 1
        fits = len(cells) == len(header) + 1
        sign = "1" if place == 0 else cells[place] if fits else ""
        wrong += not fits or sign not in SIGNS
        found[cells[0]] = SIGNS.get(sign, 0)
    if wrong:
        raise DataError("-1 or 1 for every attribute", f"{wrong} lines without", f"fix {path.name}")
    _check_lines(path, lines, len(found), count)
    return found


def _place(header: list[str], schema: Schema) -> int:
    """Which cell of a line holds the label; an attribute has two classes."""
    if schema.n_classes != 2 or schema.label is None:
        raise DataError(
            "label (an attribute) and two classes in the schema, or no classes",
            f"{schema.n_classes} classes and {'a' if schema.label else 'no'} label",
            'write label = "Male" and classes = ["no", "yes"], for example',
        )
    if header.count(schema.label) != 1:
        raise DataError(
            f"the attribute {schema.label!r} in {ATTRIBUTES}",
            f"{len(header)} attributes without it",
            "check the schema's label",
        )
    return header.index(schema.label) + 1


def _check_lines(path: Path, lines: int, names: int, count: list[str]) -> None:
    if names < lines:
        raise DataError("each image once", f"{lines - names} repeated lines", f"fix {path.name}")
    if count != [str(lines)]:
        raise DataError(
            f"as many lines in {path.name} as its first line says",
            f"{lines} lines",
            "correct that line, or fetch the file again",
        )


def _persons(path: Path, names: list[str]) -> np.ndarray:
    """Identity of each named image."""
    known: dict[str, str] = {}
    lines, wrong = 0, 0
    for cells in _lines(path):
        lines += 1
        wrong += len(cells) != 2
        known[cells[0]] = cells[-1]
    lacking = sum(name not in known for name in names)
    if wrong or len(known) < lines or lacking:
        raise DataError(
            f"one identity for each image in {path.name}",
            f"{wrong} malformed, {lines - len(known)} repeated, {lacking} missing lines",
            "fetch the file again",
        )
    return np.array([known[name] for name in names], dtype=str)


def _lines(path: Path) -> Iterator[list[str]]:
    """Cells of each line that is not blank."""
    if not path.is_file():
        raise DataError(f"CelebA's list {path.name}", "none", "add it to the folder")
    check_size(path.stat().st_size)
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from (cells for cells in map(str.split, file) if cells)
    except (OSError, UnicodeError) as error:
        raise unreadable(path, error) from None
