"""One column of a public schema: what its cells may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta

from understudy.data.names import check_name, check_names
from understudy.errors import SchemaError

__all__ = ["KINDS", "MAX_CATEGORIES", "Column", "is_whole"]

KINDS = ("numeric", "integer", "categorical", "boolean", "date")
BOUNDED = ("numeric", "integer", "date")

MAX_CATEGORIES = 10_000
MAX_INTEGER = 2**53

Bound = float | int | date


@dataclass(frozen=True)
class Column:
    """One column: what its cells may be. Out-of-bounds values are clamped when encoded.

    ``other`` is the public category that unknown values map to; without one they are
    refused. ``decimals`` rounds decoded numeric values to so many places.
    """

    name: str
    kind: str
    low: Bound | None = None
    high: Bound | None = None
    categories: tuple[str, ...] = ()
    missing: bool = False
    other: str | None = None
    decimals: int | None = None

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

    def _check_bounds(self) -> None:
        given = (self.low, self.high)
        if self.kind not in BOUNDED:
            if given != (None, None):
                raise _unwanted(self, "low and high", "numeric, integer and date columns")
            return
        fix = {"numeric": float, "integer": _whole, "date": _day}[self.kind]
        try:
            low, high = fix(self.low), fix(self.high)  # type: ignore[operator]
            fits = low < high and _finite(high - low)
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

    @property
    def width(self) -> int:
        """How many encoded features this column takes."""
        return max(1, len(self.categories)) + self.missing

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes it gives as a label."""
        return ("false", "true") if self.kind == "boolean" else self.categories


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


def _finite(span: float | int | timedelta) -> bool:
    return isinstance(span, timedelta) or math.isfinite(span)


def _unwanted(column: Column, keys: str, owners: str) -> SchemaError:
    return SchemaError(
        f"{keys} only in {owners}", f"them in {column.kind} column {column.name!r}", "remove them"
    )
