"""What a column of a table may be, by its name and its values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from understudy.data.cells import TRUTHS, read_cells
from understudy.data.column import BOUNDED
from understudy.data.draft.bounds import heavy, months, outwards, robust
from understudy.data.draft.text import (
    BOUNDS,
    CUT,
    LOG,
    SEEN,
    UNLABELLED,
    Found,
    FoundColumn,
    Setting,
)
from understudy.data.form import ISO, Form
from understudy.data.forms import Forms, find_form, find_forms
from understudy.data.moments import in_two_orders
from understudy.data.schema import MISSING_AS, Column
from understudy.data.texts import text_array
from understudy.errors import DataError

__all__ = [
    "MAX_LISTED",
    "count_cells",
    "find_bounds",
    "find_table",
    "names_someone",
    "numbers",
    "outwards",
    "top",
]

IDENTIFIER = re.compile(
    r"(^|[^a-z])(id|ids|uuid|guid|key|name|names|firstname|lastname|surname|forename|username|"
    r"e?mail|phone|tel|mobile|fax|ssn|nhs|mrn|iban|passport|licen[cs]e|address|street|zip|"
    r"zipcode|postcode|ip|url|dob|birth|birthday|birthdate|patient|person|user|customer|ticket)"
    r"($|[^a-z])"
)
MAX_LISTED = 200
"""More categories than this are for a human to group."""
RARE = 10
"""A category with fewer rows may point at people."""
MANY = 20
"""With fewer distinct values a column is no identifier by its values."""
ODD = 0.05
"""A column with so few different texts that are no numbers may be one of numbers."""
FAR = 10**12
CONSTANT = "the same value everywhere"
LEVELS = 20
"""A label of more different numbers is taken for a number to predict."""
REGRESSION = "a number to predict (regression); for classes, make it categorical"
CLASSES = (
    "few different numbers, so taken as classes; as a number: kind integer or numeric, and bounds"
)
TWO_ORDERS = "days in two orders: some have the day first, some the month"
ALIKE = "Write all of them alike, and draft again"
ONE_TEXT = 'List all public categories, or kind = "ignore"'
ONE_CLASS = "List all public categories, or remove label and ignore the column"
KEEP = "Give it a kind and public bounds"
CORRECT = "Correct the others, or list their text under missing_as, and draft again"


def find_table(frame: pd.DataFrame, label: str | None, extra: tuple[Setting, ...] = ()) -> Found:
    """A plain table: a row is a record."""
    names = [str(column).strip() for column in frame.columns]
    _check_header(names, len(frame), label)
    frame = frame.set_axis(names, axis=1)
    counted = {name: count_cells(frame[name]) for name in names}
    kinds = {name: _kind(counts) for name, (counts, _) in counted.items()}
    forms = _forms(frame, kinds)
    columns = tuple(
        _nearly(frame[n], counted[n][0], kinds[n])
        or _find(n, *counted[n], kinds[n], forms, n == label)
        for n in names
    )
    labels = () if label is None else (Setting("label", label),)
    return Found((*top("table", len(frame)), *labels, *extra), columns)


def _forms(frame: pd.DataFrame, kinds: Mapping[str, str]) -> Forms:
    """How the file writes its numbers and days; a human checks it, so one row may decide."""
    formed = [_probe(kind, name) for name, kind in kinds.items() if kind in BOUNDED]
    return find_forms(formed, frame, MISSING_AS, least=1)


def top(kind: str, rows: int, remark: str = "") -> tuple[Setting, ...]:
    """The first settings of a draft."""
    scale = 10 ** max(0, len(str(rows)) - 2)
    guess = "guess: this file's rows, rounded up. Declare all sites' together"
    return Setting("kind", kind, remark), Setting("records", -(-rows // scale) * scale, guess)


def _check_header(names: list[str], rows: int, label: str | None) -> None:
    if not names or not rows:
        raise DataError("rows to draft from", "none", "use a site's file that has rows")
    if any(re.fullmatch(r"[-+.\d][-+.\deE]*", name) or not name for name in names):
        raise DataError("a header line with column names", "values", "add the header line")
    if label is not None and label not in names:
        raise DataError("the label among the columns", repr(label), "check its name")


def _find(
    name: str, counts: pd.Series, missing: int, kind: str, forms: Forms, is_label: bool
) -> FoundColumn:
    if not is_label and (why := _identifies(name, counts, kind)):
        return FoundColumn(name, why=why)
    form = forms.picked.get(name, Form())
    found = _label(name, counts, kind, form) if is_label else _by_values(name, counts, kind, form)
    if not found.why and found.kind in BOUNDED:
        found = _with_form(found, form, forms.chosen.get(name))
    if missing and is_label:
        return replace(found, remarks=(*found.remarks, UNLABELLED))
    if not missing or found.why:
        return found
    remarks = (*found.remarks, "guess: some cells are empty")
    return replace(found, settings={**found.settings, "missing": True}, remarks=remarks)


def _nearly(cells: pd.Series, counts: pd.Series, kind: str) -> FoundColumn | None:
    """A column of many different numbers, days or times, but for a few of its texts."""
    if kind != "text" or names_someone(str(cells.name)):
        return None
    if in_two_orders(text_array(pd.Series(counts.index, dtype="str"), ())):
        return FoundColumn(str(cells.name), why=TWO_ORDERS, choice=ALIKE)
    if len(counts) <= MANY:
        return None
    for kind, what in (("numeric", "numbers"), ("date", "days"), ("timestamp", "times")):
        odd = np.isnan(_values(counts, kind))
        if odd.mean() <= ODD:
            there = text_array(cells, ()).to_pandas().isin(counts.index[odd])
            said = f"{what} in all cells but {int(there.sum())}, the first in row"
            why = f"{said} {int(there.to_numpy().argmax()) + 1} below the header"
            return FoundColumn(str(cells.name), why=why, choice=CORRECT)
    return None


def _with_form(found: FoundColumn, form: Form, chosen: str | None) -> FoundColumn:
    """The column with the signs or the format in which the file writes it."""
    signs = {"thousands": form.thousands, "prefix": form.prefix, "suffix": form.suffix}
    said = {key: sign for key, sign in signs.items() if sign}
    if form.decimal == "," or (chosen and not form.format):
        said["decimal"] = form.decimal
    if form.format not in ("", ISO, "%Y-%m-%d"):
        said["format"] = form.format
    remarks = [f"written with {form.describe()}"] if form.describe() else []
    remarks += [f"check: {chosen}"] if chosen else []
    return replace(found, settings={**found.settings, **said}, remarks=(*found.remarks, *remarks))


def _kind(counts: pd.Series) -> str:
    """What all texts of a column are: boolean, a number, a day, a time, or text."""
    if not len(counts):
        return "text"
    if len(counts) <= 2 * len(TRUTHS) and {t.casefold() for t in counts.index} <= set(TRUTHS):
        return "boolean"
    kinds = ("numeric", "date", "timestamp")
    return next((kind for kind in kinds if numbers(counts, kind) is not None), "text")


def _label(name: str, counts: pd.Series, kind: str, form: Form) -> FoundColumn:
    """Classes, or a number to predict where there are many."""
    if len(counts) == 1:
        return FoundColumn(name, why=f"{CONSTANT}: nothing to predict", choice=ONE_CLASS)
    if kind == "numeric" and len(counts) > min(LEVELS, int(counts.sum()) / 2):
        found = _by_values(name, counts, kind, form)
        return replace(found, remarks=(*found.remarks, REGRESSION))
    found = _by_texts(name, counts)
    return replace(found, remarks=(*found.remarks, CLASSES)) if kind == "numeric" else found


def _by_values(name: str, counts: pd.Series, kind: str, form: Form) -> FoundColumn:
    if kind == "boolean":
        words = _words(counts)
        settings = {} if words in ((), ("false", "true")) else {"words": words}
        remarks = ("guess: only yes/no values seen", *([CONSTANT] if len(counts) == 1 else []))
        return FoundColumn(name, "boolean", settings, remarks)
    values = numbers(counts, kind, form) if kind in BOUNDED else None
    if values is None:
        return _by_texts(name, counts)
    kind = "integer" if kind == "numeric" and (values == np.rint(values)).all() else kind
    found = find_bounds(name, kind, values, counts.to_numpy())
    few = kind == "integer" and len(values) <= RARE and not found.why
    more = ("few different values: is it rather a category?",) if few else ()
    return replace(found, remarks=(*found.remarks, *more))


def _words(counts: pd.Series) -> tuple[str, ...]:
    """No and yes as the file writes them, if it has one word for each."""
    sides: list[list[str]] = [[], []]
    for text in counts.index:
        sides[int(TRUTHS[text.casefold()])].append(text)
    return (sides[0][0], sides[1][0]) if all(len(side) == 1 for side in sides) else ()


def _by_texts(name: str, counts: pd.Series) -> FoundColumn:
    """Categories, unless there are none or too many."""
    if not len(counts):
        return FoundColumn(name, why="no values")
    if len(counts) == 1:
        return FoundColumn(name, why=CONSTANT, choice=ONE_TEXT)
    if len(counts) > MAX_LISTED:
        return FoundColumn(name, why=f"more than {MAX_LISTED} different texts: group them")
    few = bool((counts < RARE).any())
    rare = f"rare ones (fewer than {RARE} rows) may point at people: merge them"
    categories = {"categories": sorted(counts.index)}
    return FoundColumn(name, "categorical", categories, (SEEN, rare) if few else (SEEN,))


def find_bounds(
    name: str, kind: str, values: np.ndarray, counts: np.ndarray | None = None
) -> FoundColumn:
    """A column with bounds. One without variety is left to a human.

    Bounds around a single value would reveal it. ``counts`` are the rows of each value.
    """
    if (values == values[0]).all():
        return FoundColumn(name, why=CONSTANT, choice=f'{KEEP}, or kind = "ignore"')
    counts = np.ones(len(values)) if counts is None else counts
    log = kind in ("integer", "numeric") and heavy(values, counts)
    low, high, cut = robust(values, counts)
    if log:
        low, high, cut = float(values.min()), float(values.max()), False
    remarks: tuple[str, ...] = (CUT,) if cut else (BOUNDS,)
    settings = {**_bounds(kind, low, high), **_decimals(kind, values)}
    if log:
        settings, remarks = {**settings, "scale": "log"}, (*remarks, LOG)
    return FoundColumn(name, kind, settings, remarks)


def _bounds(kind: str, low: float, high: float) -> dict[str, object]:
    """Rounded outwards, in the column's own terms."""
    if kind in ("date", "timestamp"):
        first, last = months(low, high, "D" if kind == "date" else "s")
        return {"low": first, "high": last}
    low, high = outwards(low, high)
    if kind == "integer":
        return {"low": math.floor(low), "high": math.ceil(high)}
    return {"low": low, "high": high}


def _decimals(kind: str, values: np.ndarray) -> dict[str, object]:
    """As many decimals as the values have, if that is few."""
    if kind != "numeric":
        return {}
    near = (d for d in range(9) if np.allclose(values, values.round(d), 0, 1e-12))
    places = next(near, None)
    return {} if places is None else {"decimals": places}


def count_cells(cells: pd.Series) -> tuple[pd.Series, int]:
    """How often each text occurs, and how many cells are missing."""
    held = text_array(cells, MISSING_AS)
    counted = held.drop_null().value_counts()
    values, counts = counted.field(0).to_pylist(), counted.field(1).to_numpy()
    return pd.Series(counts, pd.Index(values, dtype=object)), held.null_count


def numbers(counts: pd.Series, kind: str, form: Form | None = None) -> np.ndarray | None:
    """The different values if all can be read as this kind, and are finite."""
    values = _values(counts, kind, form)
    fits = np.isfinite(values).all() and np.abs(values).max(initial=0) < FAR
    return values if fits else None


def _values(counts: pd.Series, kind: str, form: Form | None = None) -> np.ndarray:
    """The different values as this kind; nan where a text is none."""
    column, texts = _probe(kind), pd.Series(counts.index, dtype="str")
    form = form or find_form(column, text_array(texts, ()), least=1)
    cells = read_cells(column, texts, (), form)
    return np.where(cells.wrong, np.nan, cells.values)


def _probe(kind: str, name: str = "draft") -> Column:
    """A column of a kind, to read cells by."""
    dated = kind in ("date", "timestamp")
    low, high = ("1900-01-01", "2100-01-01") if dated else (-1, 1)
    return Column(name, kind, low, high)  # type: ignore[arg-type]


def names_someone(name: str) -> bool:
    """Whether a column is called like an identifier or personal data."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    return IDENTIFIER.search(words) is not None


def _identifies(name: str, counts: pd.Series, kind: str) -> str:
    """Why a column looks as if it could name a person, if it does."""
    if names_someone(name):
        return "the name suggests an identifier or personal data"
    rows, distinct = int(counts.sum()), len(counts)
    if rows < MANY or distinct <= rows / 2 or kind in ("date", "timestamp"):
        return ""
    if kind == "text":
        return "most rows have another text, as in names or free text"
    if distinct == rows and numbers(counts, "integer") is not None:
        return "every row has another value, as in identifiers"
    return ""
