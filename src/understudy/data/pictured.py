"""Tables with images in npz files: an array for each column, and one for each image."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from understudy.data.pictures import WHITE, Picture
from understudy.data.schema import Schema
from understudy.data.written import cell_texts
from understudy.errors import DataError

__all__ = ["arrays_of", "frame_of_named"]


def frame_of_named(arrays: Mapping[str, np.ndarray], schema: Schema) -> pd.DataFrame:
    """The cells of a file, pixels as columns; of an empty one, the columns alone."""
    if not arrays:
        return pd.DataFrame({column.name: pd.Series(dtype="str") for column in schema.columns})
    images = {image.name: image for image in schema.images}
    found: dict[str, np.ndarray] = {}
    for name, held in arrays.items():
        if name in images:
            found |= _pixels(images[name], held)
        elif held.ndim != 1:
            raise _not(f"one entry per row in array {name!r}", held)
        elif name not in schema.ignore:
            found[name] = held
    if len({len(held) for held in found.values()}) > 1:
        raise DataError("arrays of one length", "others", "row k is the same person in each")
    return pd.DataFrame(found)


def _pixels(image: Picture, held: np.ndarray) -> dict[str, np.ndarray]:
    shape = image.shape[:2] if image.shape[2:] == (1,) else image.shape
    fits = held.ndim and held.shape[1:] in (image.shape, shape) and held.dtype.kind in "iu"
    if not fits:
        expected = f"whole numbers 0 to {WHITE} of shape {[*image.shape]} as image {image.name!r}"
        raise _not(expected, held)
    flat = held.reshape(len(held), len(image.pixels))
    return dict(zip(image.pixels, flat.T, strict=True))


def _not(expected: str, held: np.ndarray) -> DataError:
    found = f"{held.dtype} of shape {[*held.shape[1:]]}"
    return DataError(expected, found, "correct the file or the schema")


def arrays_of(frame: pd.DataFrame, schema: Schema) -> dict[str, np.ndarray]:
    """The inverse: images as bytes, numbers as they are, other cells as a CSV file has them."""
    images, found = {image.name: image for image in schema.images}, {}
    for name in schema.holdings:
        if name in images:
            pixels = frame[list(images[name].pixels)].to_numpy().astype(np.uint8)
            found[name] = pixels.reshape(len(frame), *images[name].shape)
        else:
            found[name] = _cells(frame[name], schema)
    return found


def _cells(cells: pd.Series, schema: Schema) -> np.ndarray:
    if cells.dtype.kind in "iuf":
        return cells.to_numpy()
    column = next(c for c in schema.columns if c.name == cells.name)
    texts = cell_texts(column, cells).to_pylist()
    return np.array(["" if text is None else text for text in texts], dtype=str)
