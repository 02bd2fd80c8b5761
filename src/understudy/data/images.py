"""Image files to bytes, by the public shape: the one place that decodes pictures.

An image must have the schema's number of channels; grey is never made of colour, nor
colour of grey. It must have its height and width too, unless the schema says
``resize = true``: then the largest centred part of the shape's proportions is cut out and
scaled (bilinear, averaging over what it shrinks). Nothing depends on what others look
like. No error names a file: file names can name people.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

import numpy as np
from PIL import Image

from understudy.data.records import Progress, check_memory
from understudy.data.schema import Schema
from understudy.errors import DataError

__all__ = ["IMAGE_FILES", "image_shape", "read_images", "read_listed"]

IMAGE_FILES = (".png", ".jpg", ".jpeg")
MAX_FILE = 2**28
MAX_PIXELS = 2**26
MODES = ("L", "1", "RGB", "P")
CHUNK = 64
"""Images that one thread takes at a time; decoding releases Python's lock."""
DAMAGED = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    struct.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


def read_images(
    paths: Sequence[Path], schema: Schema, *, progress: Progress | None = None
) -> np.ndarray:
    """The images [n, *shape] in the given order, decoded into place by several threads."""
    check_memory(len(paths) * schema.width * 4)  # as `encode` will ask, but before the work
    images = np.empty((len(paths), *schema.shape), np.uint8)

    def fill(start: int) -> int:
        stop = min(start + CHUNK, len(paths))
        for row in range(start, stop):
            images[row] = _read_image(paths[row], schema, row)
        return stop

    with ThreadPoolExecutor(min(8, 2 * (os.cpu_count() or 1))) as pool:
        for done in pool.map(fill, range(0, len(paths), CHUNK)):
            if progress is not None:  # the first error ends the loop, which cancels the rest
                progress(done, len(paths))
    return images


def read_listed(
    folder: Path, names: Sequence[str], schema: Schema, *, progress: Progress | None = None
) -> np.ndarray:
    """Images that a list names, each once and from one folder: no name leads out of it."""
    outside = sum(os.path.basename(name) != name or "\\" in name for name in names)
    if outside:
        raise DataError("plain names of image files", f"{outside} others", "correct the list")
    repeated = len(names) - len(set(names))
    if repeated:
        raise DataError("each image once", f"{repeated} repeated names", "correct the list")
    held = set(os.listdir(folder)) if folder.is_dir() else set()
    lacking = sum(name not in held for name in names)
    if lacking:
        raise DataError(
            f"every listed image in {folder.name}",
            f"{lacking} missing",
            "add them, or trim the list",
        )
    return read_images([folder / name for name in names], schema, progress=progress)


def image_shape(path: Path) -> tuple[int, ...]:
    """Height, width and, unless it is grey, channels of an image file; nothing is decoded."""
    try:
        with _open(path) as image:
            return _shape(image)
    except DAMAGED:
        raise DataError("PNG or JPEG images", "a file that is not", "remove it") from None


def _read_image(path: Path, schema: Schema, row: int) -> np.ndarray:
    try:
        with _open(path) as image:
            _check(image, schema, row)
            return np.asarray(_fitted(image, schema)).reshape(schema.shape)
    except DAMAGED:
        raise DataError(
            f"whole 8-bit PNG or JPEG images of at most {MAX_PIXELS} pixels",
            f"a damaged, huge or other file as image {row + 1}",
            "replace or remove it",
        ) from None


def _open(path: Path) -> Image.Image:
    if path.stat().st_size > MAX_FILE:
        raise ValueError("too large")
    image = Image.open(path, formats=("PNG", "JPEG"))
    if image.width * image.height > MAX_PIXELS or image.mode not in (*MODES, "LA", "RGBA", "CMYK"):
        image.close()
        raise ValueError("too large, or more than eight bits")
    return image


def _check(image: Image.Image, schema: Schema, row: int) -> None:
    wanted, found = schema.shape[:2] + tuple(c for c in schema.shape[2:] if c > 1), _shape(image)
    if found[2:] == wanted[2:] and (schema.resize or found == wanted):
        return
    recolour = "convert them to grey or colour, or change the schema's shape"
    rescale = "resize them, or set resize = true in the schema"
    raise DataError(
        f"images of shape {list(wanted)}",
        f"{list(found)} in image {row + 1}",
        rescale if found[2:] == wanted[2:] else recolour,
    )


def _shape(image: Image.Image) -> tuple[int, ...]:
    channels = len(image.getbands())
    if image.mode == "P":
        channels = 4 if "transparency" in image.info else 3
    return (image.height, image.width, *([] if channels == 1 else [channels]))


def _fitted(image: Image.Image, schema: Schema) -> Image.Image:
    """Grey or colour bytes of the public height and width."""
    height, width = schema.shape[:2]
    mode = "RGB" if schema.shape[2:] == (3,) else "L"
    if image.size == (width, height):
        return image.convert(mode)
    _decode_smaller(image, height, width)
    centre = image.crop(_centre(image.size, height, width)).convert(mode)
    return centre.resize((width, height), Image.Resampling.BILINEAR)


def _decode_smaller(image: Image.Image, height: int, width: int) -> None:
    """Let JPEG halve a large image while decoding, never below twice what is needed."""
    left, top, right, bottom = _centre(image.size, height, width)
    ratio = 2 * max(width / (right - left), height / (bottom - top))
    if ratio < 1:
        image.draft(image.mode, (ceil(image.width * ratio), ceil(image.height * ratio)))


def _centre(size: tuple[int, int], height: int, width: int) -> tuple[int, int, int, int]:
    """The largest centred box of these proportions: left, top, right, bottom."""
    scale = min(size[0] / width, size[1] / height)
    across, down = max(1, round(width * scale)), max(1, round(height * scale))
    left, top = (size[0] - across) // 2, (size[1] - down) // 2
    return left, top, left + across, top + down
