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
    names, labels = _attribute(folder / ATTRIBUTES, schema)
    person = None if schema.person is None else _persons(folder / IDENTITIES, names)
    images = read_listed(folder / IMAGES, names, schema, progress=progress)
    values = None if schema.classes == ("all",) else np.array(schema.classes)[np.array(labels, int)]
    return Records(images=images, labels=values, person=person)


def _attribute(path: Path, schema: Schema) -> tuple[list[str], list[int]]:
    """Listed images and the class of each. Without classes no attribute is read."""
    rows = _lines(path)
    count, header = next(rows, ["0"]), next(rows, [])
    place = None if schema.classes == ("all",) else _place(header, schema)
    names, labels = [], []
    for name, *signs in rows:
        names.append(name)
        sign = "1" if place is None else "".join(signs[place : place + 1])
        labels.append(SIGNS.get(sign, -1) if len(signs) == len(header) else -1)
    wrong = labels.count(-1)
    if wrong:
        raise DataError("-1 or 1 for every attribute", f"{wrong} lines without", f"fix {path.name}")
    if count != [str(len(names))]:
        raise DataError(
            f"as many lines in {path.name} as its first line says",
            f"{len(names)} lines",
            "correct that line, or fetch the file again",
        )
    return names, labels


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
    return header.index(schema.label)


def _persons(path: Path, names: list[str]) -> np.ndarray:
    """Identity of each named image."""
    lines = list(_lines(path))
    known = {cells[0]: cells[-1] for cells in lines}
    wrong = sum(len(cells) != 2 for cells in lines)
    lacking = sum(name not in known for name in names)
    if wrong or len(known) < len(lines) or lacking:
        raise DataError(
            f"one identity for each image in {path.name}",
            f"{wrong} malformed, {len(lines) - len(known)} repeated, {lacking} missing lines",
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
