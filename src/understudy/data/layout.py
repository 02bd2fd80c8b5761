"""How tables hold series, as the public schema declares it.

A table is *long* (a row per series and time step), *wide* (a row per series, a column per channel
and step) or one *recording* (a row per time step, no series: FedSTDG's Stock, Energy and Air,
thesis §5.4). Length, stride, spacing and the rule for missing values are public, like all of the
schema: cutting by them costs no privacy. `series` does the cutting; here is what it goes by.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from understudy.data.names import MAX_COLUMNS, check_names
from understudy.errors import SchemaError

if TYPE_CHECKING:
    from understudy.data.schema import Schema

__all__ = [
    "FILLS",
    "LAYOUTS",
    "PATTERN",
    "SPACINGS",
    "channel_columns",
    "check_layout",
    "file_columns",
    "overlap",
    "overlap_notes",
    "spacing",
    "wide_names",
]

LAYOUTS = ("long", "wide", "recording")
FILLS = ("middle", "previous")
PATTERN = "{channel}_{step}"
SPACINGS = {"ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}
_KEYS = ("series", "time", "every", "stride", "pad", "pattern", "first")
_ALLOWED = {
    None: (),
    "long": ("series", "time", "every", "stride", "pad"),
    "wide": ("series", "pattern", "first"),
    "recording": ("time", "every", "stride", "pad"),
}


def check_layout(schema: Schema) -> None:
    """Refuse settings for series that are incomplete or contradict each other."""
    if schema.kind != "series":
        _only_for_series(schema)
        return
    if schema.layout is not None and schema.layout not in LAYOUTS:
        raise SchemaError(f"layout = {', '.join(LAYOUTS)}", repr(schema.layout), "choose one")
    _check_keys(schema)
    _check_numbers(schema)
    _check_fill(schema)
    _check_pattern(schema)
    _check_roles(schema)


def overlap(schema: Schema) -> int:
    """In how many records one time step can be: 1 unless windows overlap."""
    return 1 if schema.stride is None else max(1, -(-schema.shape[0] // schema.stride))


def overlap_notes(schema: Schema) -> tuple[str, ...]:
    """What claims about records, and checks of a file, say about overlapping windows."""
    many = overlap(schema)
    if many == 1:
        return ()
    return (
        f"windows overlap: a time step is in up to {many} records, and only one record is "
        f"protected; stride = {schema.shape[0]} in the schema cuts windows that share no step",
    )


def spacing(every: float | str) -> float | int:
    """The declared time between steps: a number as it is, "10min" in nanoseconds."""
    if not isinstance(every, str):
        return every
    found = re.fullmatch(r"(\d{1,9}) ?(ms|s|min|h|d)", every)
    return int(found[1]) * SPACINGS[found[2]] if found else 0


def file_columns(schema: Schema) -> tuple[str, ...]:
    """The columns a file must have, in the order in which they are written."""
    if schema.kind == "table":
        names = [c.name for c in schema.columns]
        return (*names, *((schema.person,) if schema.person else ()))
    roles = (schema.series, schema.person, schema.time, schema.label)
    given = dict.fromkeys(name for name in roles if name is not None)
    return (*given, *channel_columns(schema))


def channel_columns(schema: Schema) -> tuple[str, ...]:
    """The columns with values: a channel's steps side by side in a wide table."""
    names = [c.name for c in schema.columns]
    if schema.layout == "wide":
        return tuple(name for channel in names for name in wide_names(schema, channel))
    return tuple(names)


def wide_names(schema: Schema, channel: str) -> list[str]:
    """Names of one channel's columns in a wide table, step by step."""
    steps = range(schema.first, schema.first + schema.shape[0])
    patterns = (schema.pattern.replace("{step}", str(step)) for step in steps)
    return [pattern.replace("{channel}", channel) for pattern in patterns]


def _only_for_series(schema: Schema) -> None:
    given = [key for key in ("layout", "fill", *_KEYS) if _given(schema, key)]
    if given:
        raise SchemaError(f"{', '.join(given)} only for series", schema.kind, "remove them")


def _given(schema: Schema, key: str) -> bool:
    default = {"pad": False, "pattern": PATTERN, "first": 0}.get(key)
    return bool(getattr(schema, key) != default)


def _check_keys(schema: Schema) -> None:
    allowed = _ALLOWED[schema.layout]
    for key in _KEYS:
        if _given(schema, key) and key not in allowed:
            owners = [name for name, keys in _ALLOWED.items() if name and key in keys]
            raise SchemaError(
                f"{key} with layout = {' or '.join(owners)}",
                f"layout = {schema.layout}" if schema.layout else "no layout",
                "set the layout of the tables, or remove it",
            )
    if schema.layout == "long" and (schema.series is None or schema.time is None):
        raise SchemaError(
            "series and time: the columns of a long table that name the series and its steps",
            "one of them missing",
            'add both; a file that is one long series has layout = "recording"',
        )
    if schema.layout == "recording" and schema.stride is None:
        object.__setattr__(schema, "stride", 1)


def _check_roles(schema: Schema) -> None:
    """Roles name columns of their own; a series may be a person."""
    if schema.layout is None:
        return
    if schema.label is None and len(schema.classes) > 1:
        raise SchemaError("label: the column that holds the classes", "none", "add label")
    roles = [schema.series, schema.time, schema.label]
    roles += [schema.person] if schema.person != schema.series else []
    given = tuple(name for name in roles if name is not None)
    if len(schema.columns) * schema.shape[0] > MAX_COLUMNS and schema.layout == "wide":
        raise SchemaError(
            f"at most {MAX_COLUMNS} columns in a wide table", "more", "use a long table, or npz"
        )
    check_names((*given, *channel_columns(schema), *schema.ignore), "columns", 2 * MAX_COLUMNS)


def _check_numbers(schema: Schema) -> None:
    if schema.stride is not None and (type(schema.stride) is not int or schema.stride < 1):
        raise SchemaError(
            "stride: a whole number of steps, at least 1", repr(schema.stride), "correct it"
        )
    if type(schema.first) is not int or schema.first < 0:
        raise SchemaError("first: a whole number, 0 or more", repr(schema.first), "correct it")
    if not isinstance(schema.pad, bool):
        raise SchemaError("pad = true or false", repr(schema.pad), "correct it")
    if schema.every is not None:
        _check_every(schema)


def _check_every(schema: Schema) -> None:
    every = schema.every
    if schema.time is None:
        raise SchemaError("time: the column that every is about", "none", "add time")
    known = type(every) in (int, float, str)
    if not known or not 0 < spacing(every) < math.inf:  # type: ignore[arg-type]
        raise SchemaError(
            'every: a number above 0, or a time such as "500ms", "1s", "10min", "1h", "1d"',
            repr(every),
            "write the public spacing of the steps, or leave it out if only their order counts",
        )
    if not isinstance(every, str):
        object.__setattr__(schema, "every", float(every))  # type: ignore[arg-type]


def _check_fill(schema: Schema) -> None:
    fill = schema.fill
    number = type(fill) in (int, float) and math.isfinite(fill)  # type: ignore[arg-type]
    if fill is not None and not number and fill not in FILLS:
        raise SchemaError(
            f"fill: a number, or {' or '.join(map(repr, FILLS))}", repr(fill), "choose one"
        )
    if number:
        object.__setattr__(schema, "fill", float(fill))  # type: ignore[arg-type]
    if schema.pad and fill is None:
        raise SchemaError(
            "fill: what stands in the steps that pad adds", "none", 'add fill = "previous", say'
        )


def _check_pattern(schema: Schema) -> None:
    text = schema.pattern
    fits = isinstance(text, str) and "{step}" in text
    if not fits or ("{channel}" not in text and len(schema.columns) > 1):
        raise SchemaError(
            "pattern: a name with {step}, and {channel} if there are several",
            repr(text),
            f"leave it out for {PATTERN!r}",
        )
