"""How the cells of a column are written in one file: 1.234,50 €, 24.12.2021.

Found from the texts alone: a form fits if every cell can be read by it. Cells such as 1.234 and
03/04/2021 can be read in two ways. The schema's statement decides, or a fixed rule (decimal point,
day first), unless other cells of the file show that it is written otherwise: ten rows at least,
because how a record is read must not hang on another one. Fewer are refused. `find_forms` says what
it found, and where it had to choose, how to state the other reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa

from understudy.data.column import BOUNDED, Column
from understudy.data.form import Form
from understudy.data.moments import DAYS, MOMENTS, count_swapped, day_first, time_forms
from understudy.data.numerals import count_both, number_forms
from understudy.data.texts import is_text, text_array
from understudy.errors import DataError

__all__ = ["LEAST", "Forms", "find_form", "find_forms"]

LEAST = 10
"""So many rows must rule out the usual reading before others are read in another way."""


@dataclass(frozen=True)
class Forms:
    """The form of each column of texts; ``chosen`` says where another reading was possible."""

    picked: dict[str, Form]
    described: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say about a file, in plain words."""
        return (*self.described, *(f"{name}: {said}" for name, said in self.chosen.items()))


def find_forms(
    columns: Sequence[Column], frame: pd.DataFrame, missing: Sequence[str], least: int = LEAST
) -> Forms:
    """The form of each column of texts.

    Fewer than ``least`` rows do not settle how others are read.
    """
    named = [c for c in columns if c.kind in BOUNDED and is_text(frame[c.name])]
    read = {c.name: _read(c, text_array(frame[c.name], missing)) for c in named}
    evidence = _evidence(read.values())
    picked = {c.name: _pick(c, read[c.name], evidence, least) for c in named}
    return Forms(picked, tuple(_described(columns, picked)), _chosen(columns, read, picked))


def find_form(column: Column, cells: pa.Array, least: int = LEAST) -> Form:
    """The form of one column by itself."""
    return _pick(column, _read(column, cells), {}, least)


@dataclass(frozen=True)
class _Read:
    """The forms that fit a column, and how many rows rule out the other reading of the first."""

    forms: tuple[Form, ...]
    sure: int = 0
    doubtful: int = 0


def _read(column: Column, cells: pa.Array) -> _Read:
    cells = cells.drop_null()
    if not column.is_number:
        forms = time_forms(cells, MOMENTS if column.kind == "timestamp" else DAYS)
        both = count_swapped(cells, forms[0]) if len(forms) == 1 else 0
        return _Read(tuple(forms), len(cells) - both, both)
    whole = column.kind == "integer"
    forms = number_forms(cells, whole=whole)
    if len(forms) != 1 or not forms[0].decimal:
        return _Read(tuple(forms))
    if forms[0].decimal == (column.decimal or "."):
        return _Read(tuple(forms), sure=count_both(cells, forms[0], whole=whole)[0])
    return _Read(tuple(forms), *count_both(cells, forms[0], whole=whole))


Evidence = dict[str | bool, int]
"""Decimal signs, and whether days stand before months, with the rows that show it."""


def _evidence(read: Iterable[_Read]) -> Evidence:
    """What columns that can be read in one way only show about the file."""
    found: Evidence = {}
    for held in read:
        if len(held.forms) == 1:
            key = _key(held.forms[0])
            if key is not None:
                found[key] = max(found.get(key, 0), held.sure)
    return found


def _key(form: Form) -> str | bool | None:
    return day_first(form.format) if form.format else form.decimal or None


def _pick(column: Column, read: _Read, evidence: Evidence, least: int) -> Form:
    """By the schema's statement or the fixed rule, unless enough rows say otherwise.

    That one row decides how others are read must not happen: it would move them all.
    """
    if not read.forms:
        return declared(column)
    first = stated(column, read.forms) or read.forms[0]
    others = [f for f in read.forms if f != first]
    if not others:
        if read.doubtful and read.sure < least and not _is_default(column, first):
            raise _unsettled(column, first)
        return first
    if stated(column, read.forms):
        return first
    for_it, against = (evidence.get(_key(form), 0) for form in (first, others[0]))  # type: ignore[arg-type]
    if not against:
        return first
    if for_it or against < least:
        raise _unsettled(column, others[0])
    return others[0]


def stated(column: Column, forms: Sequence[Form]) -> Form | None:
    """The form that the schema's statement picks, if it makes one."""
    if column.format is not None:
        return next((form for form in forms if form.format == column.format), None)
    return next((f for f in forms if not f.format and f.decimal == column.decimal), None)


def _is_default(column: Column, form: Form) -> bool:
    """Whether a column would be read so in any case."""
    if form.format:
        return column.format == form.format or (column.format is None and bool(_key(form)))
    return form.decimal == (column.decimal or ".")


def _unsettled(column: Column, form: Form) -> DataError:
    what = f'format = "{form.format}"' if form.format else f'decimal = "{form.decimal}"'
    return DataError(
        f"a file that settles how column {column.name!r} is written",
        "too few rows that can be read in one way only",
        f"state it in the schema, {what} for example, or re-export the file",
    )


def _described(columns: Sequence[Column], picked: Mapping[str, Form]) -> list[str]:
    """Forms that the schema does not declare, each with its columns."""
    held: dict[str, list[str]] = {}
    for column in columns:
        form = picked.get(column.name, Form())
        if form.describe() not in ("", declared(column).describe()):
            held.setdefault(form.describe(), []).append(column.name)
    return [f"{said} in {_names(names)}" for said, names in held.items()]


def declared(column: Column) -> Form:
    """The form that the schema says to write."""
    return Form(
        column.decimal or ".", column.thousands, column.prefix, column.suffix, column.format or ""
    )


def _chosen(
    columns: Sequence[Column], read: Mapping[str, _Read], picked: Mapping[str, Form]
) -> dict[str, str]:
    """Where two readings would have been possible and the schema states neither."""
    said = {}
    for column in columns:
        forms = read[column.name].forms if column.name in read else ()
        others = [form for form in forms if form != picked[column.name]]
        if others and column.format is None and column.decimal is None:
            said[column.name] = _told(picked[column.name], others[0])
    return said


def _told(taken: Form, other: Form) -> str:
    if taken.format:
        order = "day" if day_first(taken.format) else "month"
        return f'read {order} first; if that is wrong, state format = "{other.format}"'
    sign = taken.thousands or taken.decimal
    meaning = "between thousands" if taken.thousands else "before decimals"
    more = f' and thousands = "{other.thousands}"' if other.thousands else ""
    keep = f'decimal = "{taken.decimal}"'
    return (
        f'"{sign}" was read as the sign {meaning}: if that is right, state {keep}, '
        f'else decimal = "{other.decimal}"{more}'
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
