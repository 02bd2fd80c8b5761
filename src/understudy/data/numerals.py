"""Numbers as files write them: 1.234,50 €, 12 %, 1'000."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from understudy.data.column import BLANKS
from understudy.data.form import Form

__all__ = ["count_both", "number_forms", "plain_numbers", "read_numbers"]

GROUPS = {".": (",", *BLANKS, "'", "’"), ",": (".", *BLANKS, "'", "’")}
MINUS = "−"
SAMPLE = 200
_SIGN = r"[€$£¥₹%‰]|[A-Z]{3}|kr|zł|Fr\."
_AFFIXES = re.compile(rf"[+-]?((?:{_SIGN})\s?)?[+-]?\d(?:[\d.,'’\s]*\d)?(\s?(?:{_SIGN}))?")


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


def count_both(cells: pa.Array, form: Form, *, whole: bool) -> tuple[int, int]:
    """How many cells only this form reads, and how many the other decimal sign would read, too."""
    decimal = "," if form.decimal == "." else "."
    bare = _bare(cells, form.prefix, form.suffix)
    patterns = [_pattern(decimal, group, whole) for group in ("", *BLANKS, form.decimal)]
    other = pc.match_substring_regex(bare, "|".join(patterns))
    signed = pc.match_substring_regex(bare, "[.,]")
    both = int(pc.sum(pc.and_(signed, other), min_count=0).as_py())
    return int(pc.sum(signed, min_count=0).as_py()) - both, both
