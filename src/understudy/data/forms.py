"""How the cells of a column are written in one file: 1.234,50 €, 24.12.2021.

Found from the texts alone: a form fits if every cell can be read by it. Cells such as 1.234 and
03/04/2021 can be read in two ways. The schema's statement decides, or a fixed rule (decimal point,
day first), unless other cells of the file show that it is written otherwise: ten rows at least,
because how a record is read must not hang on another one. Fewer are refused. `find_forms` says what
it found, and where it had to choose, how to state the other reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from understudy.data.column import BLANKS, Column
from understudy.data.texts import is_text, text_array
from understudy.errors import DataError

__all__ = [
    "DAYS",
    "ISO",
    "LEAST",
    "MOMENTS",
    "Form",
    "find_form",
    "find_forms",
    "plain_numbers",
    "read_numbers",
    "read_times",
]

GROUPS = {".": (",", *BLANKS, "'", "’"), ",": (".", *BLANKS, "'", "’")}
MINUS = "−"
SAMPLE = 200
LEAST = 10
"""So many rows must rule out the usual reading before others are read in another way."""
_SIGN = r"[€$£¥₹%‰]|[A-Z]{3}|kr|zł|Fr\."
_AFFIXES = re.compile(rf"[+-]?((?:{_SIGN})\s?)?[+-]?\d(?:[\d.,'’\s]*\d)?(\s?(?:{_SIGN}))?")

_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
_SHORT = ("%Y.%m.%d", "%Y%m%d", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y")
_WORDY = ("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y")
DAYS = (*_DAYS, *_SHORT, *_WORDY)
CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
MOMENTS = tuple(f"{day}{gap}{clock}" for day in DAYS for clock in CLOCKS for gap in " T")
ISO = "ISO8601"


@dataclass(frozen=True)
class Form:
    """Numbers: signs for decimals (if any) and thousands, what stands around. Times: a format."""

    decimal: str = "."
    thousands: str = ""
    prefix: str = ""
    suffix: str = ""
    format: str = ""

    def describe(self) -> str:
        """What is out of the ordinary, in plain words; nothing if all is as programs write it."""
        said = ["decimal commas"] if self.decimal == "," else []
        if self.thousands:
            said.append(f"{_SAID.get(self.thousands, self.thousands)} between thousands")
        said += [f"numbers with {part.strip()}" for part in (self.prefix, self.suffix) if part]
        if self.format not in ("", ISO, "%Y-%m-%d"):
            said.append(f"times as {self.format}")
        return ", ".join(said)


_SAID = {",": "commas", ".": "points", "'": "apostrophes", "’": "apostrophes"}
_SAID |= dict.fromkeys(BLANKS, "blanks")


def find_forms(
    columns: Sequence[Column], frame: pd.DataFrame, missing: Sequence[str], least: int = LEAST
) -> tuple[dict[str, Form], list[str]]:
    """The form of each column of texts, and what there is to say about them.

    Fewer than ``least`` rows do not settle how others are read.
    """
    named = [c for c in columns if _has_form(c) and is_text(frame[c.name])]
    read = {c.name: _read(c, text_array(frame[c.name], missing)) for c in named}
    evidence = _evidence(read.values())
    picked = {c.name: _pick(c, read[c.name], evidence, least) for c in named}
    return picked, [*_described(columns, picked), *_chosen(columns, read, picked)]


def find_form(column: Column, cells: pa.Array) -> Form:
    """The form of one column by itself."""
    return _pick(column, _read(column, cells), {}, LEAST)


@dataclass(frozen=True)
class _Read:
    """The forms that fit a column, and how many rows rule out the other reading of the first."""

    forms: tuple[Form, ...]
    sure: int = 0
    doubtful: int = 0


def _has_form(column: Column) -> bool:
    return column.kind not in ("categorical", "boolean")


def _read(column: Column, cells: pa.Array) -> _Read:
    cells = cells.drop_null()
    if not column.is_number:
        return _read_times(cells, MOMENTS if column.kind == "timestamp" else DAYS)
    forms = number_forms(cells, whole=column.kind == "integer")
    if len(forms) != 1 or not forms[0].decimal:
        return _Read(tuple(forms))
    form = forms[0]
    if form.decimal == (column.decimal or "."):
        return _Read((form,), sure=LEAST)  # the reading that needs no evidence
    other = [Form("," if form.decimal == "." else ".", g) for g in ("", *BLANKS, form.decimal)]
    bare = _bare(cells, form.prefix, form.suffix)
    whole = column.kind == "integer"
    fits = [pc.match_substring_regex(bare, _pattern(o.decimal, o.thousands, whole)) for o in other]
    signed = pc.match_substring_regex(bare, r"[.,]")
    both = int(pc.sum(pc.and_(signed, reduce(pc.or_, fits)), min_count=0).as_py())
    return _Read((form,), int(pc.sum(signed, min_count=0).as_py()) - both, both)


def _read_times(cells: pa.Array, formats: Sequence[str]) -> _Read:
    forms = time_forms(cells, formats)
    other = _swapped(forms[0].format) if len(forms) == 1 else ""
    if other not in formats or other == forms[0].format:
        return _Read(tuple(forms))
    coded = cells.dictionary_encode()
    seen = read_times(coded.dictionary.to_pandas(), other).notna().to_numpy()
    both = int(seen[coded.indices.to_numpy()].sum())
    return _Read(tuple(forms), len(cells) - both, both)


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
    return _day_first(form.format) if form.format else form.decimal or None


def _day_first(format: str) -> bool | None:
    """Whether the day stands before the month; None where the year comes first, or a name."""
    if format.startswith("%Y") or "%b" in format or "%B" in format or format == ISO:
        return None
    return format.index("%d") < format.index("%m")


def _pick(column: Column, read: _Read, evidence: Evidence, least: int) -> Form:
    """By the schema's statement or the fixed rule, unless enough rows say otherwise.

    That one row decides how others are read must not happen: it would move them all.
    """
    if not read.forms:
        return Form()
    first = stated(column, read.forms) or read.forms[0]
    others = [f for f in read.forms if f != first]
    if not others:
        if read.doubtful and read.sure < least and not _is_default(column, first):
            raise _unsettled(column, first)
        return first
    shown = {form: evidence.get(_key(form), 0) for form in (first, *others)}  # type: ignore[arg-type]
    if stated(column, read.forms) or shown[first] or not shown[others[0]]:
        return first
    if shown[others[0]] < least:
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
) -> list[str]:
    """Where two readings would have been possible and the schema states neither."""
    said = []
    for column in columns:
        forms = read[column.name].forms if column.name in read else ()
        others = [form for form in forms if form != picked[column.name]]
        if others and column.format is None and column.decimal is None:
            said.append(f"{column.name}: {_told(picked[column.name], others[0])}")
    return said


def _told(taken: Form, other: Form) -> str:
    if taken.format:
        order = "day" if _day_first(taken.format) else "month"
        return f'read {order} first; if that is wrong, state format = "{other.format}"'
    sign = taken.thousands or taken.decimal
    meaning = "between thousands" if taken.thousands else "before decimals"
    more = f' and thousands = "{other.thousands}"' if other.thousands else ""
    keep = f'decimal = "{taken.decimal}"'
    return (
        f'"{sign}" was read as the sign {meaning}; if that is wrong, state '
        f'decimal = "{other.decimal}"{more}, else {keep}'
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def number_forms(cells: pa.Array, *, whole: bool) -> list[Form]:
    """The forms in which all cells are (``whole``) numbers; two where they differ in meaning."""
    cells = cells.drop_null()
    first = cells.slice(0, SAMPLE)
    affixes = _affixes(first)
    found = _all_fit(first, affixes, whole)
    if found in ([Form()], [Form("")]) and plain_numbers(cells) is not None:
        return found
    if len(cells) > SAMPLE:
        found = _all_fit(cells, affixes, whole)
    return found or _most_fit(cells, affixes)


def _all_fit(cells: pa.Array, affixes: tuple[str, str], whole: bool) -> list[Form]:
    bare = _bare(cells, *affixes)
    signs = _signs(bare)
    found = []
    for decimal, groups in GROUPS.items():
        present = ("", *(group for group in groups if group in signs))
        fits = (g for g in present if _matches(bare, decimal, g, whole) == len(cells))
        group = next(fits, None)
        if group is not None:
            found.append(Form(decimal, group, *affixes))
    if not signs & {".", ","}:
        return [replace(form, decimal="") for form in found[:1]]
    return found


def _most_fit(cells: pa.Array, affixes: tuple[str, str]) -> list[Form]:
    """The form of more than half of the cells: the others are what is wrong."""
    bare = _bare(cells, *affixes)
    signs = _signs(bare)
    forms = [Form(d, g, *affixes) for d in GROUPS for g in ("", *GROUPS[d]) if not g or g in signs]
    count = {form: _matches(bare, form.decimal, form.thousands, False) for form in forms}
    best = max(forms, key=count.__getitem__)
    return [best] if count[best] > len(cells) / 2 else []


def plain_numbers(cells: pa.Array) -> pa.Array | None:
    """Cells as doubles, if all are written as programs write them."""
    try:
        return pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return None


def _signs(cells: pa.Array) -> set[str]:
    """The separators that occur anywhere."""
    every = {sign for groups in GROUPS.values() for sign in groups}
    return {sign for sign in every if pc.any(pc.match_substring(cells, sign)).as_py()}


def _pattern(decimal: str, group: str, whole: bool) -> str:
    point, digits = re.escape(decimal or "."), "0*" if whole else r"\d*"
    grouped = rf"|[1-9]\d{{0,2}}({re.escape(group)}\d{{3}})+" if group else ""
    alone = "" if whole else rf"|{point}\d+"
    power = "" if decimal == "," else r"([eE][+-]?\d+)?"
    return rf"^[+-]?((\d+{grouped})({point}{digits})?{alone}){power}$"


def _matches(cells: pa.Array, decimal: str, group: str, whole: bool) -> int:
    fits = pc.match_substring_regex(cells, _pattern(decimal, group, whole))
    return int(pc.sum(fits, min_count=0).as_py())


def _affixes(cells: pa.Array) -> tuple[str, str]:
    """What stands before and after the number in the first cell that has such a sign."""
    for cell in cells:
        found = _AFFIXES.fullmatch(cell.as_py())
        if found and (found[1] or found[2]):
            return found[1] or "", found[2] or ""
    return "", ""


def _bare(cells: pa.Array, prefix: str, suffix: str) -> pa.Array:
    """Cells without what stands around the numbers; a cell without it is left as no number."""
    cells = pc.replace_substring(cells, MINUS, "-")
    for part in (prefix, suffix):
        if part:
            there = pc.match_substring(cells, part)
            cut = pc.replace_substring(cells, part, "", max_replacements=1)
            cells = pc.if_else(there, cut, pa.scalar("?"))
    return cells


def read_numbers(cells: pa.Array, form: Form) -> pa.Array:
    """Cells as doubles by a form; those that it does not fit become null."""
    bare = _bare(cells, form.prefix, form.suffix)
    fits = pc.match_substring_regex(bare, _pattern(form.decimal, form.thousands, False))
    bare = pc.if_else(fits, bare, pa.scalar(None, pa.string()))
    if form.thousands:
        bare = pc.replace_substring(bare, form.thousands, "")
    if form.decimal == ",":
        bare = pc.replace_substring(bare, form.decimal, ".")
    return pc.cast(pc.replace_substring_regex(bare, r"^\+|\.$", ""), pa.float64())


def time_forms(cells: pa.Array, formats: Sequence[str]) -> list[Form]:
    """The format that all cells have; two where day and month could change places."""
    seen = pd.Series(pc.unique(cells.drop_null()).to_pandas())
    first = seen.head(SAMPLE)
    for format in (ISO, *formats) if len(seen) else ():
        if _fits(first, format) and _fits(seen, format):
            swapped = _swapped(format)
            both = (format, swapped) if swapped in formats and _fits(seen, swapped) else (format,)
            return [Form(format=f) for f in both]
    return []


def _swapped(format: str) -> str:
    """Day and month in each other's place."""
    return format.translate({ord("d"): "m", ord("m"): "d"})


def _fits(cells: pd.Series, format: str) -> bool:
    return not read_times(cells, format).isna().any()


_DAY = r"\d{4}-\d\d-\d\d"  # ISO 8601 also takes 2020 for a day


def read_times(cells: pd.Series, format: str) -> pd.Series:
    """Texts as times, of universal time if they have a zone; NaT where the format does not fit."""
    if format == ISO:
        cells = cells.where(cells.str.match(_DAY).fillna(False))
    times = pd.to_datetime(cells, format=format, errors="coerce", utc=True)
    return times.dt.tz_localize(None)
