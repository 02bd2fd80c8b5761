"""A first schema for a human to edit, guessed from a local file.

The draft looks at private rows, so everything in it is a guess until a person has
replaced it by public knowledge: each one is marked, bounds are rounded outwards, and
columns that look like identifiers are left "unclassified", which `Schema.load` refuses.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from understudy.data.arrays import load_npz
from understudy.data.celeba import ATTRIBUTES, IMAGES
from understudy.data.cells import TRUTHS, read_cells, texts
from understudy.data.images import IMAGE_FILES, image_shape
from understudy.data.leaf import is_leaf
from understudy.data.schema import MISSING_AS, Column
from understudy.data.schema_toml import toml_key, toml_value
from understudy.data.table import read_frame
from understudy.errors import DataError

if TYPE_CHECKING:
    from understudy.data.draft_series import SeriesHints

__all__ = ["draft"]

IDENTIFIER = re.compile(
    r"(^|[^a-z])(id|ids|uuid|guid|key|name|names|firstname|lastname|surname|forename|username|"
    r"e?mail|phone|tel|mobile|fax|ssn|nhs|mrn|iban|passport|licen[cs]e|address|street|zip|"
    r"zipcode|postcode|ip|url|dob|birth|birthday|birthdate|patient|person|user|customer|ticket)"
    r"($|[^a-z])"
)
MANY = 20
"""So many distinct values before a column can be an identifier by its values."""
MAX_LISTED = 200
"""More categories than this are for a human to group."""
RARE = 10
FAR = 10**12

CONSTANT = "DECIDE: it has the same value everywhere"
"""Such a column is left to a human: bounds around one value would reveal it, and scale nothing."""
CLASSES = "DECIDE: it is no channel, but could hold the classes"
"""Such a column of a table of series is its label, or left out: no kind would do for it."""
RESIZE = "# resize = true  # crop and scale image files of other sizes; without it they are refused"
CELEBA = (
    'classes = ["no", "yes"]  # -1 and 1 in the list',
    'person = "identity"',
    "rows_per_person = 35  # as published",
)
HEADER = """\
# A DRAFT, made by looking at rows that may be private. Nothing here is public knowledge yet.
# For every line marked "guess": replace it by what is known without these rows, or make
# sure that it gives nobody away. Then delete the remark. See also: understudy schema check
"""


def draft(
    path: str | Path,
    label: str | None = None,
    *,
    name: str | None = None,
    series: SeriesHints | None = None,
) -> tuple[str, list[str]]:
    """Guess a schema: (TOML text, warnings in plain words).

    With ``series`` a table is taken to hold series, as far as the hints say how.
    """
    path = Path(path)
    if not path.exists():
        raise DataError("a data file", f"nothing at {path}", "check the path")
    if name:
        return _draft(path, label, name, series)
    stem = re.split(r"\.(csv|parquet|pq|npz)", path.name)[0]
    text, warnings = _draft(path, label, stem, series)
    return re.sub(r"(?m)^(name = .*)$", r"\1  # guess: the file's name", text, count=1), warnings


def _draft(
    path: Path, label: str | None, name: str, series: SeriesHints | None
) -> tuple[str, list[str]]:
    from understudy.data.draft_series import draft_series, series_in

    if series is not None:
        return draft_series(read_frame(path), label, name, series)
    if is_leaf(path):
        raise DataError("rows to draft from", "LEAF's JSON", "start from docs/schema.md's FEMNIST")
    if path.is_dir():
        return _draft_folder(path, name, label)
    if path.suffix == ".npz":
        return _draft_arrays(load_npz(path), name)
    frame = read_frame(path)
    text, warnings = _draft_table(frame, label, name)
    return text, [*series_in(frame, label), *warnings]


def _draft_table(frame: pd.DataFrame, label: str | None, name: str) -> tuple[str, list[str]]:
    names = [str(column).strip() for column in frame.columns]
    _check_header(names, len(frame), label)
    guesses = [_guess(column, frame.iloc[:, i], column == label) for i, column in enumerate(names)]
    lines = head("table", name, len(frame))
    if label is not None:
        lines.append(f"label = {toml_value(label)}")
    for column, (entry, remarks) in zip(names, guesses, strict=True):
        lines += ["", f"[columns.{toml_key(column)}]"]
        lines += [f"# {remark}" for remark in remarks]
        lines += [f"{key} = {toml_value(value)}" for key, value in entry.items()]
    return HEADER + "\n".join(lines) + "\n", warn(names, guesses)


Guess = tuple[dict[str, object], list[str]]


def _guess(name: str, cells: pd.Series, is_label: bool) -> Guess:
    """Entries and remarks for one column."""
    counts, missing = count_cells(cells)
    reason = None if is_label else _identifies(name, counts)
    if reason:
        return {"kind": "unclassified"}, [decide(reason)]
    entry, remarks = _by_values(counts, is_label)
    if missing and not is_label and entry["kind"] != "unclassified":
        entry["missing"] = True
        remarks.append("guess: some cells are empty")
    return entry, remarks


def _by_values(counts: pd.Series, is_label: bool) -> Guess:
    if not len(counts):
        return {"kind": "unclassified"}, [EMPTY]
    if not is_label and {text.lower() for text in counts.index} <= set(TRUTHS):
        return {"kind": "boolean"}, ["guess: only yes/no values seen"]
    if not is_label:
        for kind in ("integer", "numeric", "date"):
            values = numbers(counts, kind)
            if values is not None:
                guess, said = bounded(kind, values)
                return guess, [*said, *_or_ignore(said)]
    if len(counts) > MAX_LISTED:
        reason = f"it has more than {MAX_LISTED} different texts: group them, or leave it out"
        return {"kind": "unclassified"}, [decide(reason)]
    entry: dict[str, object] = {"kind": "categorical", "categories": sorted(counts.index)}
    remarks = ["guess: the categories seen; add those that are possible"]
    if (counts < RARE).any():
        remarks.append(f"rare ones (fewer than {RARE} rows) may point at people: merge them")
    return entry, remarks


def _or_ignore(remarks: Sequence[str]) -> list[str]:
    """The other way out of a column without variety, where a file may have columns to spare."""
    return ['or kind = "ignore": it is left out'] if is_constant(remarks) else []


def is_constant(remarks: Sequence[str]) -> bool:
    """Whether the remarks are those on a column without variety."""
    return any(remark.startswith(CONSTANT) for remark in remarks)


def as_label(name: str) -> str:
    """The option that makes a column the label, as a shell takes it."""
    return f"--label {shlex.quote(name)}" if name.isprintable() else "--label"


def bounded(kind: str, values: np.ndarray) -> Guess:
    """Entries and remarks for a column with bounds, from the values seen."""
    if (values == values[0]).all():
        return {"kind": "unclassified"}, [f"{CONSTANT}. Give it a kind and public bounds"]
    low, high = outwards(float(values.min()), float(values.max()))
    remarks = ["guess: bounds from the rows, rounded outwards"]
    if kind == "date":
        first, last = (np.datetime64(int(v), "D").astype(object) for v in (low, high))
        return {"kind": kind, "low": first, "high": last}, remarks
    if kind == "integer":
        if len(np.unique(values)) <= RARE:
            remarks.append("few different values: is it rather a category?")
        return {"kind": kind, "low": int(low), "high": int(high)}, remarks
    entry: dict[str, object] = {"kind": kind, "low": low, "high": high}
    places = next((d for d in range(9) if np.allclose(values, values.round(d), 0, 1e-12)), None)
    return entry | ({} if places is None else {"decimals": places}), remarks


def outwards(low: float, high: float) -> tuple[float, float]:
    """Round bounds outwards to one digit of their span, never on the extremes (but for zero)."""
    span = max(high - low, 1e-6 * abs(low), 1e-6 * abs(high), 1e-9)
    power = math.floor(math.log10(span))
    step = 10.0**power
    down = 0.0 if low == 0 else (math.ceil(low / step) - 1) * step
    up = 0.0 if high == 0 else (math.floor(high / step) + 1) * step
    down, up = (0.0 if low >= 0 > down else down), (0.0 if high <= 0 < up else up)
    if down == up:
        up = down + step
    down, up = round(down, -power), round(up, -power)
    if 0 != low <= down:  # the division above rounded past the value
        down = round(down - step, -power)
    if 0 != high >= up:
        up = round(up + step, -power)
    return down, up


def count_cells(cells: pd.Series) -> tuple[pd.Series, int]:
    """How often each text occurs, and how many cells are missing."""
    text = texts(cells)
    missing = cells.isna() | text.isin(MISSING_AS)
    return text[~missing].astype(object).value_counts(), int(missing.sum())


def numbers(counts: pd.Series, kind: str) -> np.ndarray | None:
    """The different values if all can be read as this kind, and are finite."""
    low, high = ("1900-01-01", "2100-01-01") if kind == "date" else (-1, 1)
    column = Column("draft", kind, low, high)  # type: ignore[arg-type]
    cells = read_cells(column, pd.Series(counts.index), ())
    fits = not cells.wrong.any() and np.isfinite(cells.values).all()
    return cells.values if fits and np.abs(cells.values).max(initial=0) < FAR else None


def names_someone(name: str) -> bool:
    """Whether a column is called like an identifier or personal data."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    return IDENTIFIER.search(words) is not None


def _identifies(name: str, counts: pd.Series) -> str | None:
    """Why a column looks as if it could name a person, if it does."""
    if names_someone(name):
        return "its name suggests an identifier or personal data"
    rows, distinct = int(counts.sum()), len(counts)
    if rows < MANY or distinct <= rows / 2 or numbers(counts, "date") is not None:
        return None
    if numbers(counts, "numeric") is None:
        return "most rows have another text, as in names or free text"
    if distinct == rows and numbers(counts, "integer") is not None:
        return "every row has another value, as in an identifier"
    return None


def decide(reason: str) -> str:
    """The remark that asks a human to decide."""
    return f'DECIDE: {reason}. Give it a kind, or kind = "ignore", or name it as person'


EMPTY = decide("it holds no values")


def head(kind: str, name: str, rows: int) -> list[str]:
    """The first lines of a draft."""
    scale = 10 ** max(0, len(str(max(rows, 1))) - 2)
    return [
        f"kind = {toml_value(kind)}",
        f"name = {toml_value(name)}",
        f"records = {max(1, -(-rows // scale) * scale)}"
        "  # guess: this file's rows, rounded up. Declare all sites' together",
    ]


def warn(names: Sequence[str], guesses: Sequence[Guess], *, classes: bool = False) -> list[str]:
    """What a draft reveals and leaves open, in plain words; ``classes``: if it lists those seen."""
    kinds = [str(entry["kind"]) for entry, _ in guesses]
    bounded = sum(kind in ("numeric", "integer", "date") for kind in kinds)
    listed = kinds.count("categorical")
    found = ["The draft was made from the rows: read and edit it before anyone else sees it."]
    if bounded:
        found.append(
            f"Bounds of {_columns(bounded)} come from the rows: extremes can belong to one person."
        )
    if listed:
        found.append(
            f"Categories of {_columns(listed)} come from the rows: "
            "a rare one can give a person away."
        )
    if classes:
        found.append("The classes come from the rows: a rare one can give a person away.")
    found.append("The number of records was taken from this file and rounded up.")
    unclassified = [i for i, kind in enumerate(kinds) if kind == "unclassified"]
    return found + _decisions({names[i]: guesses[i][1] for i in unclassified})


def _decisions(remarked: dict[str, list[str]]) -> list[str]:
    """What a human must decide of unclassified columns, by the remarks on them."""
    same = [name for name, remarks in remarked.items() if is_constant(remarks)]
    empty = [name for name, remarks in remarked.items() if EMPTY in remarks]
    classed = [n for n, remarks in remarked.items() if any(r.startswith(CLASSES) for r in remarks)]
    open_ones = [name for name in remarked if name not in same + empty + classed]
    found = []
    if open_ones:
        found.append(
            f"Needs your decision before the schema can be used: {', '.join(open_ones)} "
            "(look like identifiers, personal data or free text)."
        )
    found += [
        f"Needs your decision: {name} is no channel. If it holds the classes, draft again with "
        f'{as_label(name)}; else leave it out, kind = "ignore".'
        for name in classed
    ]
    if empty:
        found.append(f"Needs your decision, too: {', '.join(empty)} (no values in this file).")
    if same:
        found.append(
            f"The same value everywhere: {', '.join(same)}. Needs your decision, as the remarks "
            "say: leave it out, or give it bounds that are public knowledge."
        )
    return found


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _check_header(names: list[str], rows: int, label: str | None) -> None:
    if not names or not rows:
        raise DataError("rows to draft from", "none", "use a site's file that has rows")
    if any(re.fullmatch(r"[-+.\d][-+.\deE]*", name) or not name for name in names):
        raise DataError("a header line with column names", "values", "add the header line")
    if label is not None and label not in names:
        raise DataError("the label among the columns", repr(label), "check its name")


def _draft_arrays(arrays: dict[str, np.ndarray], name: str) -> tuple[str, list[str]]:
    """Images (bytes), series [n, L, ch] or a table [n, F] from an npz file."""
    held = next((arrays[k] for k in ("X", "images", "series") if k in arrays), None)
    if held is None or held.ndim < 2 or not len(held):
        raise DataError("an npz file with X, images or series", "none", "name the array X")
    if held.ndim == 2:
        frame = pd.DataFrame(held, columns=[f"x{i + 1}" for i in range(held.shape[1])])
        if "y" in arrays:
            frame["y"] = arrays["y"]
        text, warnings = _draft_table(frame, "y" if "y" in arrays else None, name)
        return text.replace("\n\n", "\n".join(["", *_others(arrays), "", ""]), 1), warnings
    return _draft_records(arrays, held, name)


def _draft_records(
    arrays: dict[str, np.ndarray], held: np.ndarray, name: str
) -> tuple[str, list[str]]:
    """Images or series: as the array is called, or by its type."""
    image = "images" in arrays or ("series" not in arrays and held.dtype == np.uint8)
    lines = head("image" if image else "series", name, len(held))
    taken = [] if image or "series" in arrays else _taken_for_series(held)
    lines[0] += "  # guess: images are whole numbers 0–255 (uint8)" if taken else ""
    lines.append(f"shape = {toml_value(held.shape[1:])}")
    if "y" in arrays:
        classes = sorted(np.unique(arrays["y"]).tolist())
        lines.append(f"classes = {toml_value([str(c) for c in classes])}  # guess: those seen")
    lines += _others(arrays)
    channels = [] if image else [held[:, :, i].astype(np.float64) for i in range(held.shape[2])]
    names = [f"channel{i + 1}" for i in range(len(channels))]
    guesses = [bounded("numeric", values.ravel()) for values in channels]
    for channel, (entry, remarks) in zip(names, guesses, strict=True):
        lines += ["", f"[columns.{channel}]", *(f"# {remark}" for remark in remarks)]
        lines += [f"{key} = {toml_value(value)}" for key, value in entry.items()]
    return HEADER + "\n".join(lines) + "\n", [*taken, *warn(names, guesses, classes="y" in arrays)]


def _taken_for_series(held: np.ndarray) -> list[str]:
    """The warning for an array whose name leaves open what it holds."""
    if held.ndim > 3:
        raise DataError(
            "series [rows, length, channels], or images",
            f"{held.dtype} of {held.ndim} axes",
            "save images as whole numbers 0–255 (uint8)",
        )
    length, channels = held.shape[1:3]
    return [
        f"X holds {held.dtype}, so it was taken for series of {length} steps and {channels} "
        "channels. If these are images, save them as whole numbers 0–255 (uint8) and draft again."
    ]


def _others(arrays: dict[str, np.ndarray]) -> list[str]:
    """Arrays that are neither records nor labels: left out, until a human says otherwise."""
    extra = sorted(set(arrays) - {"X", "images", "series", "y"})
    line = f"ignore = {toml_value(extra)}  # guess: one of them may be the person"
    return [line] if extra else []


def _draft_folder(path: Path, name: str, label: str | None) -> tuple[str, list[str]]:
    """Images in one sub-folder per class, or CelebA."""
    celeba = (path / ATTRIBUTES).exists()
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    inside = path / IMAGES if celeba else path
    files = sorted(p for p in inside.rglob("*") if p.suffix.lower() in IMAGE_FILES)
    if not files:
        raise DataError("a folder of PNG or JPEG images", "none", "check the path")
    shape = f"shape = {toml_value(image_shape(files[0]))}  # guess: the first image's"
    lines = [*head("image", name, len(files)), shape, RESIZE]
    if celeba:
        lines += [f"label = {toml_value(label or 'Male')}  # any of the attributes", *CELEBA]
    elif folders:
        classes = [folder.name for folder in folders]
        lines.append(f"classes = {toml_value(classes)}  # guess: the sub-folders")
    return HEADER + "\n".join(lines) + "\n", warn([], [], classes=bool(folders) and not celeba)
