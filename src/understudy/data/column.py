"""One column of a public schema: what its cells may be."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from understudy.data.names import check_name, check_names
from understudy.errors import SchemaError

__all__ = [
    "BOUNDED",
    "KINDS",
    "MAX_CATEGORIES",
    "Bound",
    "Column",
    "bounds",
    "is_whole",
    "number",
    "parse_bound",
]

KINDS = ("numeric", "integer", "categorical", "boolean", "date", "timestamp")
BOUNDED = ("numeric", "integer", "date", "timestamp")
SCALES = ("linear", "log")

MAX_CATEGORIES = 10_000
MAX_INTEGER = 2**53

BLANKS = (" ", "\u00a0", "\u202f", "\u2009")
"""Blanks that stand between thousands: plain, no-break, narrow and thin."""

Bound = float | int | date | datetime

EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Column:
    """One column: what its cells may be. Out-of-bounds values are clamped when encoded.

    ``other`` is the public category that unknown values map to; without one they are
    refused. ``decimals`` rounds decoded numeric values to so many places. ``scale`` says how
    numbers are laid out between their bounds: "log" gives each order of magnitude its share.

    The others say how cells are written: ``words`` of a boolean (no, yes), the ``format`` of
    times, the signs of numbers for ``decimal`` and ``thousands`` and what stands around them. Files
    may be written otherwise (`forms`); where they could be read in two ways, these decide.
    """

    name: str
    kind: str
    low: Bound | None = None
    high: Bound | None = None
    categories: tuple[str, ...] = ()
    missing: bool = False
    other: str | None = None
    decimals: int | None = None
    scale: str = "linear"
    words: tuple[str, ...] = ()
    format: str | None = None
    decimal: str | None = None
    thousands: str = ""
    prefix: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.kind not in KINDS:
            raise SchemaError(
                f"column {self.name!r} of kind {', '.join(KINDS)}", repr(self.kind), "name a kind"
            )
        if not isinstance(self.missing, bool):
            raise SchemaError(
                f"missing = true or false for {self.name!r}", "something else", "correct it"
            )
        self._check_bounds()
        self._check_categories()
        self._check_decimals()
        self._check_scale()
        self._check_written()

    def _check_bounds(self) -> None:
        given = (self.low, self.high)
        if self.kind not in BOUNDED:
            if given != (None, None):
                raise _unwanted(
                    self, "low and high", "numeric, integer, date and timestamp columns"
                )
            return
        try:
            low, high = parse_bound(self.kind, self.low), parse_bound(self.kind, self.high)
            fits = low < high and _finite(high - low)  # type: ignore[operator]
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise SchemaError(
                f"{self.kind} column {self.name!r} with public bounds low < high",
                f"low = {self.low}, high = {self.high}",
                "write bounds that hold for any such data, not the extremes of your rows",
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def _check_categories(self) -> None:
        if self.kind != "categorical":
            if self.categories or self.other is not None:
                raise _unwanted(self, "categories and other", "categorical columns")
            return
        check_names(self.categories, f"categories of column {self.name!r}", MAX_CATEGORIES)
        if self.other is not None and self.other not in self.categories:
            raise SchemaError(
                f"other of column {self.name!r} to be one of its categories",
                repr(self.other),
                "add it to categories",
            )

    def _check_decimals(self) -> None:
        if self.decimals is None:
            return
        if self.kind != "numeric":
            raise _unwanted(self, "decimals", "numeric columns")
        if not is_whole(self.decimals) or not 0 <= self.decimals <= 15:
            raise SchemaError(
                f"decimals of column {self.name!r} from 0 to 15", str(self.decimals), "change it"
            )

    def _check_scale(self) -> None:
        if self.scale not in SCALES:
            raise SchemaError(
                f"scale of column {self.name!r}: linear or log", repr(self.scale), "choose one"
            )
        if self.scale == "log" and not self.is_number:
            raise _unwanted(self, 'scale = "log"', "numeric and integer columns")

    def _check_written(self) -> None:
        """How cells are written: only what the kind has, and signs that can be told apart."""
        if self.words and self.kind != "boolean":
            raise _unwanted(self, "words", "boolean columns")
        if self.words:
            check_names(self.words, f"words of column {self.name!r} (no, then yes)", 2, least=2)
        if self.format is not None:
            _check_format(self)
        signs = (self.decimal, self.thousands, self.prefix, self.suffix)
        if signs != (None, "", "", "") and not self.is_number:
            raise _unwanted(self, "decimal, thousands, prefix and suffix", "columns of numbers")
        _check_signs(self)

    @property
    def is_number(self) -> bool:
        """Whether cells are numbers, so that it may be a label to predict by regression."""
        return self.kind in ("numeric", "integer")

    @property
    def width(self) -> int:
        """How many encoded features this column takes."""
        return max(1, len(self.categories)) + self.missing

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes it gives as a label."""
        return (self.words or ("false", "true")) if self.kind == "boolean" else self.categories


def _check_format(column: Column) -> None:
    if column.kind not in ("date", "timestamp"):
        raise _unwanted(column, "format", "date and timestamp columns")
    parts = re.findall(r"%(.)", column.format) if isinstance(column.format, str) else []
    day = {*parts} & {*"d"} and {*parts} & {*"mbB"} and {*parts} & {*"yY"}
    clock = {*parts} & {*"HI"}
    if not day or {*parts} - {*"dmbByYHIMSfp"} or (column.kind == "date" and clock):
        raise SchemaError(
            f'format of {column.kind} column {column.name!r}, such as "%d.%m.%Y"'
            + ("" if column.kind == "date" else ' or "%d.%m.%Y %H:%M"'),
            repr(column.format),
            "use %d, %m, %Y, and for times %H, %M, %S",
        )


def _check_signs(column: Column) -> None:
    fits = column.decimal in (None, ".", ",")
    fits = fits and column.thousands in ("", ".", ",", "'", "’", *BLANKS)
    if not fits or column.thousands == (column.decimal or "."):
        raise SchemaError(
            f"decimal of column {column.name!r} a point or comma, thousands another sign",
            f"{column.decimal!r} and {column.thousands!r}",
            "correct them",
        )
    for part in (column.prefix, column.suffix):
        if not isinstance(part, str) or re.search(r"[\d.,+\-\n\r]", part):
            raise SchemaError(
                f"prefix and suffix of column {column.name!r} without digits and signs of numbers",
                repr(part),
                "correct it",
            )


def parse_bound(kind: str, value: object) -> Bound:
    """A bound, or a value between them, as a column of this kind has it, or ValueError."""
    read = {"numeric": float, "integer": _whole, "date": _day, "timestamp": _moment}[kind]
    return read(value)  # type: ignore[operator]


def bounds(column: Column) -> tuple[float, float]:
    """Low and high as doubles (dates: days since 1970; timestamps: seconds)."""
    return number(column, column.low), number(column, column.high)


def number(column: Column, value: object) -> float:
    """A value of a column as the double that stands for it in `cells`."""
    if isinstance(value, datetime):
        return (value - EPOCH).total_seconds()
    if isinstance(value, date):
        return float(value.toordinal() - EPOCH.toordinal())
    if isinstance(value, str):
        return float(column.categories.index(value))
    return float(value)  # type: ignore[arg-type]


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, and not true or false."""
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: object) -> int:
    if not is_whole(value) or abs(value) > MAX_INTEGER:  # type: ignore[arg-type]
        raise ValueError
    return value  # type: ignore[return-value]


def _day(value: object) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if type(value) is not date:
        raise ValueError
    return value


def _moment(value: object) -> datetime:
    """A date and time of day without a zone, in whole seconds; a date alone is its midnight."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if type(value) is date:
        value = datetime.combine(value, time())
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise ValueError
    return value.replace(microsecond=0)


def _finite(span: float | int | timedelta) -> bool:
    return isinstance(span, timedelta) or math.isfinite(span)


def _unwanted(column: Column, keys: str, owners: str) -> SchemaError:
    return SchemaError(
        f"{keys} only in {owners}", f"them in {column.kind} column {column.name!r}", "remove them"
    )
