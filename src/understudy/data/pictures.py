"""Images beside the columns of a table: ``[images.NAME]`` in the schema.

An image is a whole number from 0 to 255 for each pixel, and each is a column like any other, named
``NAME[0][0]``, ``NAME[0][1]``, … by row and column (and colour): so everything that is done with
columns of numbers is done with pixels. What an image adds is that its pixels stay together: one
party holds all of them, files keep them as one array, and the report shows them as a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from understudy.data.column import Column, is_whole
from understudy.data.names import check_name
from understudy.errors import SchemaError

__all__ = ["WHITE", "Picture", "with_pixels"]

WHITE = 255
MOST = 4096  # numbers in an image: wider ones are wider than tables are meant to be


@dataclass(frozen=True)
class Picture:
    """An image that every record has: a name and its public shape."""

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        sizes = all(is_whole(size) and size > 0 for size in self.shape)
        colours = len(self.shape) == 2 or self.shape[2:] in ((1,), (3,))
        if not (sizes and colours and prod(self.shape) <= MOST):
            raise SchemaError(
                f"shape = [height, width] or [height, width, colours] of image {self.name!r}, "
                f"1 or 3 colours and at most {MOST:,} numbers in all",
                str(list(self.shape)),
                "set shape; scale larger images down",
            )

    @cached_property
    def pixels(self) -> tuple[str, ...]:
        """The names of its columns, row by row."""
        places = product(*(range(size) for size in self.shape))
        return tuple(self.name + "".join(f"[{i}]" for i in place) for place in places)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Its pixels as columns."""
        return tuple(Column(name, "integer", 0, WHITE) for name in self.pixels)


def with_pixels(columns: Sequence[Column], images: Sequence[Picture]) -> tuple[Column, ...]:
    """The columns, those of images last; refuses names that are taken."""
    pixels = {column.name: column for image in images for column in image.columns}
    names = [image.name for image in images]
    others = tuple(column for column in columns if column.name not in pixels)
    taken = [c.name for c in columns if c != pixels.get(c.name, c)]
    taken += [c.name for c in others if c.name in names]
    if taken or len(set(names)) < len(names) or len(pixels) < sum(len(i.pixels) for i in images):
        found = f"{taken[0]!r} twice" if taken else "one name twice"
        raise SchemaError("names of images that nothing else has", found, "rename the image")
    return (*others, *pixels.values())
