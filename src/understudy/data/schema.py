"""The public schema: all that is known about the rows before anyone looks at them.

Columns, bounds, categories, classes and the declared number of records are public
input, written by a human and never fitted on private rows. Whatever
is derived from a schema alone (encoding, widths, hashes) is therefore free of
privacy cost. `schema_toml` holds the file format; `Schema.load` reads it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from understudy.data.column import KINDS, MAX_CATEGORIES, Column, is_whole
from understudy.data.dialect import FileForm
from understudy.data.layout import PATTERN, check_layout
from understudy.data.names import MAX_COLUMNS, check_name, check_names
from understudy.data.pictures import Picture, with_pixels
from understudy.data.rules import Rule, check_rules
from understudy.errors import SchemaError

__all__ = ["KINDS", "MISSING_AS", "Column", "Schema"]

MISSING_AS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")

MAX_WIDTH = 2**24


@dataclass(frozen=True)
class Schema:
    """A table, a set of images or a set of series, as publicly declared.

    ``columns`` are a table's columns or a series' channels. ``classes`` come from the
    label column (tables) or are given (images, series); ``("all",)`` if there is none. A table's
    label may be a number: then there are no classes, and it is a feature like the others.
    ``rules`` say what must hold between columns (`rules`), ``file`` how CSV files are written.
    A table may have ``images``, whose pixels are its last columns (`pictures`).
    ``ignore`` names columns a file may hold that are never used; ``missing_as`` the
    cell texts that mean "missing" (unless a column lists one as a category). For images,
    ``label`` may name the attribute that the classes are about; ``resize`` lets image files
    of other sizes be cropped and scaled; ``white`` is the brightest value in lists of pixels.

    For series, ``layout`` says how tables hold them: ``series`` and ``time`` name columns,
    ``every`` is the spacing of the steps, ``stride`` that of windows cut from longer series;
    ``pad`` lengthens shorter ones, ``fill`` is what missing values become. In wide tables
    ``pattern`` names the columns, with steps from ``first`` on. `layout` holds their rules.
    """

    kind: str
    name: str
    records: int
    columns: tuple[Column, ...] = ()
    label: str | None = None
    classes: tuple[str, ...] = ()
    balance: tuple[float, ...] | None = None
    shape: tuple[int, ...] = ()
    person: str | None = None
    rows_per_person: int | None = None
    ignore: tuple[str, ...] = ()
    missing_as: tuple[str, ...] = field(default=MISSING_AS)
    resize: bool = False
    white: float = 1.0
    layout: str | None = None
    series: str | None = None
    time: str | None = None
    every: float | str | None = None
    stride: int | None = None
    pad: bool = False
    fill: float | str | None = None
    pattern: str = PATTERN
    first: int = 0
    rules: tuple[Rule, ...] = ()
    file: FileForm = FileForm()
    images: tuple[Picture, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is incomplete or contradicts itself; derive the classes."""
        if self.kind not in ("table", "image", "series"):
            raise SchemaError("kind = table, image or series", repr(self.kind), "set kind")
        check_name(self.name)
        if not is_whole(self.records) or self.records < 1:
            raise SchemaError(
                "records: the public number of records, at least 1",
                str(self.records),
                "declare it (all sites together; a round figure is fine)",
            )
        self._check_columns()
        self._check_shape()
        self._check_pixels()
        self._check_classes()
        self._check_balance()
        self._check_person()
        check_layout(self)
        self._check_rules()

    def _check_columns(self) -> None:
        if self.images and self.kind != "table":
            raise SchemaError("[images.…] only beside a table", self.kind, "remove them")
        object.__setattr__(self, "columns", with_pixels(self.columns, self.images))
        names = [c.name for c in self.columns]
        check_names((*names, *self.ignore), "columns", MAX_COLUMNS, least=0)
        if self.kind == "table" and not {*names} - {self.label}:
            raise SchemaError("at least one column besides the label", "none", "add [columns.…]")
        if any(self.label in image.pixels for image in self.images):
            raise SchemaError("a label that is no pixel", repr(self.label), "name a column")
        if self.kind == "image" and self.columns:
            raise SchemaError("no columns for images", f"{len(names)}", "remove [columns.…]")
        if self.kind == "series" and any(
            c.missing or c.kind not in ("numeric", "integer") for c in self.columns
        ):
            raise SchemaError(
                "numeric or integer channels without missing values",
                "another kind, or missing = true",
                "change [columns.…]; for missing values set fill",
            )

    def _check_shape(self) -> None:
        if self.kind == "table" and self.shape:
            raise SchemaError("no shape for a table", str(self.shape), "remove shape")
        wanted = {"table": (0,), "image": (2, 3), "series": (2,)}[self.kind]
        if len(self.shape) not in wanted or not all(is_whole(s) and s > 0 for s in self.shape):
            raise SchemaError(
                {"image": "shape = [height, width] or [height, width, colours]"}.get(
                    self.kind, "shape = [length, channels]"
                ),
                str(list(self.shape)),
                "set shape",
            )
        if self.kind == "image" and len(self.shape) == 3 and self.shape[2] not in (1, 3):
            raise SchemaError("1 or 3 colours", str(self.shape[2]), "change shape")
        if self.kind == "series" and len(self.columns) != self.shape[1]:
            raise SchemaError(
                f"one [columns.…] with bounds for each of {self.shape[1]} channels",
                str(len(self.columns)),
                "list the channels in order",
            )
        if self.width > MAX_WIDTH:
            raise SchemaError(
                f"at most {MAX_WIDTH} encoded features",
                str(self.width),
                "use fewer or coarser ones",
            )

    def _check_pixels(self) -> None:
        """The rules for image files: a switch, and a finite number above 0."""
        if not isinstance(self.resize, bool):
            raise SchemaError("resize = true or false", repr(self.resize), "correct it")
        if type(self.white) not in (int, float) or not 0 < self.white < math.inf:
            raise SchemaError("white: a number above 0", repr(self.white), "use 1 or 255")
        object.__setattr__(self, "white", float(self.white))
        if self.kind != "image" and (self.resize or self.white != 1):
            raise SchemaError("resize and white only for images", self.kind, "remove them")

    def _check_classes(self) -> None:
        given = self.classes
        if self.kind == "table" and self.label is not None:
            derived = self._label_classes()
            if given and given != derived:
                raise SchemaError(
                    "a table's classes to come from its label", "other classes", "remove classes"
                )
            given = derived
        elif self.kind == "table" and given not in ((), ("all",)):
            raise SchemaError("a label column for the classes", "none", "set label")
        elif self.label is not None:
            self._check_attribute()
        object.__setattr__(self, "classes", given or ("all",))
        check_names(self.classes, "classes", MAX_CATEGORIES)

    def _label_classes(self) -> tuple[str, ...]:
        column = next((c for c in self.columns if c.name == self.label), None)
        if column is None:
            raise SchemaError(
                "label to be one of the columns", repr(self.label), "add or rename it"
            )
        if column.kind in ("date", "timestamp") or column.missing:
            raise SchemaError(
                "a categorical, boolean, numeric or integer label without missing values",
                f"{column.kind}, missing = {str(column.missing).lower()}",
                "change the column, or leave label out if there is nothing to predict",
            )
        if len(column.categories) == 1:
            raise SchemaError(
                "a label of two categories or more",
                "one: there is nothing to predict",
                "list all public categories, or leave label out",
            )
        return column.classes or ("all",)

    def _check_rules(self) -> None:
        if self.rules and self.kind != "table":
            raise SchemaError("rules only for tables", self.kind, "remove [[rule]]")
        object.__setattr__(self, "rules", check_rules(self.rules, self.columns))

    def _check_attribute(self) -> None:
        """An image's label names what its classes are about, a series' the column they are in."""
        if self.kind == "series" and self.layout is None:
            raise SchemaError(
                "a layout where label names a table's column",
                "no layout",
                "set layout, or remove label: npz files hold the classes as y",
            )
        if len(self.classes) < 2:
            raise SchemaError(
                "classes for images and series", "a label column", "list classes, or remove label"
            )
        check_name(self.label)

    def _check_balance(self) -> None:
        if self.balance is None:
            return
        shares = self.balance
        fits = len(shares) == self.n_classes and all(s >= 0 for s in shares)
        if not fits or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise SchemaError(
                f"balance: {self.n_classes} shares that sum to 1",
                f"{len(shares)} that sum to {sum(shares):.6g}",
                "use public proportions, or leave balance out",
            )

    def _check_person(self) -> None:
        if (self.person is None) != (self.rows_per_person is None):
            raise SchemaError(
                "person and rows_per_person together", "only one of them", "add the other"
            )
        if self.person is None:
            return
        if self.person in {c.name for c in self.columns} or self.person in self.ignore:
            raise SchemaError(
                "the person column apart from the others",
                f"{self.person!r} also listed as a column",
                "remove that entry: an identifier is never learnt",
            )
        if not is_whole(self.rows_per_person) or self.rows_per_person < 1:  # type: ignore[operator]
            raise SchemaError("rows_per_person at least 1", str(self.rows_per_person), "change it")

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that are encoded in ``x``: all but a label that has classes."""
        return tuple(c for c in self.columns if c.name != self.label or c.is_number)

    def place(self, name: str) -> tuple[int, Column]:
        """Where a table's feature column begins in ``x``, and the column."""
        start = 0
        for column in self.features:
            if column.name == name:
                return start, column
            start += column.width
        raise KeyError(name)

    @property
    def task(self) -> str:
        """What the label asks for: "classification", "regression", or "none" without a label."""
        column = self.label_column if self.kind == "table" else None
        if column is not None and column.is_number:
            return "regression"
        return "classification" if self.n_classes > 1 else "none"

    @property
    def class_column(self) -> Column | None:
        """The label's column of a table, if it has classes: ``y`` holds it, not ``x``."""
        column = self.label_column
        return None if column is None or column.is_number else column

    @property
    def label_column(self) -> Column | None:
        """The label's column, if this is a table that has one."""
        return next((c for c in self.columns if c.name == self.label), None)

    @property
    def width(self) -> int:
        """F: the number of encoded features."""
        if self.kind == "table":
            return sum(c.width for c in self.features)
        return math.prod(self.shape)

    @property
    def n_classes(self) -> int:
        """How many classes ``y`` counts."""
        return len(self.classes)

    @property
    def holdings(self) -> tuple[str, ...]:
        """What parties of a table can hold: its columns, and its images, each as a whole."""
        pixels = {name for image in self.images for name in image.pixels}
        columns = (c.name for c in self.columns if c.name not in pixels)
        return (*columns, *(image.name for image in self.images))

    def columns_of(self, held: Sequence[str]) -> tuple[str, ...]:
        """The names of columns, with the pixels of images in place of their names."""
        images = {image.name: image.pixels for image in self.images}
        return tuple(name for one in held for name in images.get(one, (one,)))

    def project(self, columns: Sequence[str]) -> Schema:
        """The public schema of a party that holds only these columns (and images) of a table.

        The label and the person stay if they are named, rules if all their columns are. Columns
        keep their declared order, so that all who name the same ones get the same hash.
        """
        if self.kind != "table":
            raise SchemaError("a table to take columns from", self.kind, "use a table")
        columns = self.columns_of(columns)
        check_names(columns, "columns", MAX_COLUMNS)
        images = tuple(image for image in self.images if set(image.pixels) <= set(columns))
        broken = {name for i in self.images if i not in images for name in i.pixels}
        unknown = set(columns) - ({c.name for c in self.columns} - broken) - {self.person}
        if unknown:
            raise SchemaError(
                "columns of the schema", ", ".join(sorted(unknown)), "check the spelling"
            )
        has_person, has_label = self.person in columns, self.label in columns
        return replace(
            self,
            columns=tuple(c for c in self.columns if c.name in columns),
            images=images,
            label=self.label if has_label else None,
            classes=(),
            balance=self.balance if has_label else None,
            person=self.person if has_person else None,
            rows_per_person=self.rows_per_person if has_person else None,
            rules=tuple(rule for rule in self.rules if set(rule.columns) <= set(columns)),
        )

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Read a schema from TOML text."""
        from understudy.data.schema_toml import parse

        return parse(text)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise SchemaError(
                "a readable schema file", f"{Path(path).name}: {reason}", "check the path"
            ) from None

    def to_toml(self) -> str:
        """The canonical text: equal schemas give equal text."""
        from understudy.data.schema_toml import write

        return write(self)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical text: sites compare it before anything else."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()
