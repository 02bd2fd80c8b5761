"""What a column of a table may be, by its name and its values."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from understudy.data.cells import TRUTHS, read_cells, texts
from understudy.data.draft.text import BOUNDS, SEEN, Found, FoundColumn, Setting
from understudy.data.schema import MISSING_AS, Column
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
FAR = 10**12
CONSTANT = "the same value everywhere"
LEVELS = 20
"""A label of more different numbers is taken for a number to predict."""
REGRESSION = "a number to predict (regression); for classes, make it categorical"
CLASSES = (
    "few different numbers, so taken as classes; as a number: kind integer or numeric, and bounds"
)
UNLABELLED = "some rows have no label: fill them, or leave those rows out"
ONE_CLASS = "List all public categories, or remove label and ignore the column"
KEEP = "Give it a kind and public bounds"


def find_table(frame: pd.DataFrame, label: str | None, extra: tuple[Setting, ...] = ()) -> Found:
    """A plain table: a row is a record."""
    names = [str(column).strip() for column in frame.columns]
    _check_header(names, len(frame), label)
    columns = tuple(_find(c, frame.iloc[:, i], c == label) for i, c in enumerate(names))
    labels = () if label is None else (Setting("label", label),)
    return Found((*top("table", len(frame)), *labels, *extra), columns)


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


def _find(name: str, cells: pd.Series, is_label: bool) -> FoundColumn:
    counts, missing = count_cells(cells)
    if not is_label and (why := _identifies(name, counts)):
        return FoundColumn(name, why=why)
    found = _label(name, counts) if is_label else _by_values(name, counts)
    if missing and is_label:
        return replace(found, remarks=(*found.remarks, UNLABELLED))
    if not missing or found.why:
        return found
    remarks = (*found.remarks, "guess: some cells are empty")
    return replace(found, settings={**found.settings, "missing": True}, remarks=remarks)


def _label(name: str, counts: pd.Series) -> FoundColumn:
    """Classes, or a number to predict where there are many."""
    if len(counts) == 1:
        return FoundColumn(name, why=f"{CONSTANT}: nothing to predict", choice=ONE_CLASS)
    many = len(counts) > min(LEVELS, int(counts.sum()) / 2)
    for kind in ("integer", "numeric") if len(counts) else ():
        values = numbers(counts, kind)
        if values is not None and many:
            found = find_bounds(name, kind, values)
            return replace(found, remarks=(*found.remarks, REGRESSION))
        if values is not None:
            found = _by_texts(name, counts)
            return replace(found, remarks=(*found.remarks, CLASSES))
    return _by_texts(name, counts)


def _by_values(name: str, counts: pd.Series) -> FoundColumn:
    if len(counts) and {text.lower() for text in counts.index} <= set(TRUTHS):
        return FoundColumn(name, "boolean", remarks=("guess: only yes/no values seen",))
    for kind in ("integer", "numeric", "date", "timestamp") if len(counts) else ():
        values = numbers(counts, kind)
        if values is not None:
            found = find_bounds(name, kind, values)
            few = kind == "integer" and len(values) <= RARE and not found.why
            more = ("few different values: is it rather a category?",) if few else ()
            return replace(found, remarks=(*found.remarks, *more))
    return _by_texts(name, counts)


def _by_texts(name: str, counts: pd.Series) -> FoundColumn:
    """Categories, unless there are none or too many."""
    if not len(counts):
        return FoundColumn(name, why="no values")
    if len(counts) > MAX_LISTED:
        return FoundColumn(name, why=f"more than {MAX_LISTED} different texts: group them")
    few = bool((counts < RARE).any())
    rare = f"rare ones (fewer than {RARE} rows) may point at people: merge them"
    categories = {"categories": sorted(counts.index)}
    return FoundColumn(name, "categorical", categories, (SEEN, rare) if few else (SEEN,))


def find_bounds(name: str, kind: str, values: np.ndarray) -> FoundColumn:
    """A column with bounds. One without variety is left to a human.

    Bounds around a single value would reveal it.
    """
    if (values == values[0]).all():
        return FoundColumn(name, why=CONSTANT, choice=f'{KEEP}, or kind = "ignore"')
    low, high = outwards(float(values.min()), float(values.max()))
    settings: dict[str, object] = {"low": low, "high": high}
    if kind in ("date", "timestamp"):
        unit = "D" if kind == "date" else "s"
        first, last = (np.int64(v).astype(f"datetime64[{unit}]").item() for v in (low, high))
        settings = {"low": first, "high": last}
    elif kind == "integer":
        settings = {"low": int(low), "high": int(high)}
    else:
        near = (d for d in range(9) if np.allclose(values, values.round(d), 0, 1e-12))
        places = next(near, None)
        settings |= {} if places is None else {"decimals": places}
    return FoundColumn(name, kind, settings, (BOUNDS,))


def outwards(low: float, high: float) -> tuple[float, float]:
    """Round bounds outwards to one digit of their span, never on the extremes (but for zero)."""
    span = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high), 1e-9)
    power = math.floor(math.log10(span))
    down, up = 0.0 - _above(-low, power), _above(high, power)
    return down, up if up > down else 10.0**power


def _above(value: float, power: int) -> float:
    """The next multiple of 10^power; zero stays, and is never crossed."""
    if value == 0:
        return 0.0
    step = 10.0**power
    up = round((math.floor(value / step) + 1) * step, -power)
    if up <= value:  # the division rounded past the value
        up = round(up + step, -power)
    return min(up, 0.0) if value < 0 else up


def count_cells(cells: pd.Series) -> tuple[pd.Series, int]:
    """How often each text occurs, and how many cells are missing."""
    text = texts(cells)
    missing = cells.isna() | text.isin(MISSING_AS)
    return text[~missing].astype(object).value_counts(), int(missing.sum())


def numbers(counts: pd.Series, kind: str) -> np.ndarray | None:
    """The different values if all can be read as this kind, and are finite."""
    dated = kind in ("date", "timestamp")
    low, high = ("1900-01-01", "2100-01-01") if dated else (-1, 1)
    column = Column("draft", kind, low, high)  # type: ignore[arg-type]
    cells = read_cells(column, pd.Series(counts.index), ())
    fits = not cells.wrong.any() and np.isfinite(cells.values).all()
    return cells.values if fits and np.abs(cells.values).max(initial=0) < FAR else None


def names_someone(name: str) -> bool:
    """Whether a column is called like an identifier or personal data."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    return IDENTIFIER.search(words) is not None


def _identifies(name: str, counts: pd.Series) -> str:
    """Why a column looks as if it could name a person, if it does."""
    if names_someone(name):
        return "the name suggests an identifier or personal data"
    rows, distinct = int(counts.sum()), len(counts)
    if rows < MANY or distinct <= rows / 2 or numbers(counts, "timestamp") is not None:
        return ""
    if numbers(counts, "numeric") is None:
        return "most rows have another text, as in names or free text"
    if distinct == rows and numbers(counts, "integer") is not None:
        return "every row has another value, as in identifiers"
    return ""
