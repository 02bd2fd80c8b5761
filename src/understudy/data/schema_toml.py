"""The schema as a TOML file: pleasant to write, refused when in doubt.

::

    kind = "table"
    name = "clinic"
    records = 569
    label = "diagnosis"

    [columns.age]
    kind = "integer"
    low = 0
    high = 120

Unknown keys are refused with the nearest known one. A column of kind
"unclassified" (which `schema draft` writes for likely identifiers) is refused
until a human gives it a kind, or says ``kind = "ignore"``.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from datetime import date
from typing import Any

from understudy.data.dialect import FileForm
from understudy.data.names import nearest
from understudy.data.pictures import Picture
from understudy.data.rules import LIMITS, Test, parse_rules
from understudy.data.schema import Column, Schema
from understudy.errors import SchemaError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["parse", "toml_key", "toml_value", "tomllib", "write"]

_COLUMN_KEYS = [f.name for f in fields(Column) if f.name != "name"]
_SCHEMA_KEYS = [f.name for f in fields(Schema) if f.name not in ("rules", "file", "images")]
_FILE_KEYS = [f.name for f in fields(FileForm)]
_LISTS = ("classes", "balance", "shape", "ignore", "missing_as", "categories", "words")


def parse(text: str) -> Schema:
    """Read a schema from TOML text."""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SchemaError("a schema in TOML", str(error), "correct that line") from None
    _known(raw, [*_SCHEMA_KEYS, "rule", "file", "images"], "schema")
    file = _file(raw.pop("file", {}))
    rules = parse_rules(raw.pop("rule", []))
    images = tuple(_picture(n, entry) for n, entry in _tables(raw.pop("images", {})).items())
    columns = _tables(raw.pop("columns", {}))
    _classified(columns)
    ignored = [name for name, entry in columns.items() if entry.get("kind") == "ignore"]
    values = {key: _plain(key, value) for key, value in raw.items()}
    values["ignore"] = (*values.get("ignore", ()), *ignored)
    _required(values, ("kind", "name", "records"), "the schema")
    kept = tuple(_column(n, entry) for n, entry in columns.items() if n not in ignored)
    return Schema(columns=kept, rules=rules, file=file, images=images, **values)


def write(schema: Schema) -> str:
    """The canonical text of a schema."""
    lines = _entries(schema, [k for k in _SCHEMA_KEYS if k != "columns"])
    if schema.file != FileForm():
        lines += ["", "[file]", *_entries(schema.file, _FILE_KEYS)]
    pixels = {name for image in schema.images for name in image.pixels}
    for column in (c for c in schema.columns if c.name not in pixels):
        lines += ["", f"[columns.{toml_key(column.name)}]", *_entries(column, _COLUMN_KEYS)]
    for image in schema.images:
        lines += ["", f"[images.{toml_key(image.name)}]", f"shape = {toml_value(image.shape)}"]
    for rule in schema.rules:
        lines += ["", "[[rule]]", f"if = {_tests(rule.when)}", f"then = {_tests(rule.then)}"]
    return "\n".join(lines) + "\n"


def toml_key(name: str) -> str:
    """A key as TOML wants it: bare if it may be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: object) -> str:
    """A value as TOML text."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()


def _file(raw: Any) -> FileForm:
    if not isinstance(raw, dict):
        raise SchemaError("file as a [file] table", "something else", "write [file]")
    _known(raw, _FILE_KEYS, "[file]")
    return FileForm(**{key: _plain(key, value) for key, value in raw.items()})


def _entries(item: Schema | Column | FileForm, keys: list[str]) -> list[str]:
    """``key = value`` for each field that is not at its default."""
    defaults = {f.name: f.default for f in fields(item)}
    if isinstance(item, Schema):
        defaults["classes"] = item.classes if item.kind == "table" else ("all",)
    pairs = ((key, getattr(item, key)) for key in keys)
    return [f"{k} = {toml_value(v)}" for k, v in pairs if v != defaults[k]]


def _tests(tests: tuple[Test, ...]) -> str:
    return "{ " + ", ".join(f"{toml_key(t.column)} = {_test(t)}" for t in tests) + " }"


def _test(test: Test) -> str:
    """A value, a list of values, or a table of conditions."""
    if test.one_of:
        return toml_value(test.one_of[0] if len(test.one_of) == 1 else test.one_of)
    said = {k: v for k in (*LIMITS, "missing") if (v := getattr(test, k)) is not None}
    said |= {"not": test.none_of} if test.none_of else {}
    return "{ " + ", ".join(f"{key} = {toml_value(value)}" for key, value in said.items()) + " }"


def _tables(columns: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
        raise SchemaError(
            "[columns.NAME] and [images.NAME] tables",
            "something else",
            "write [columns.age], for example",
        )
    return columns


def _classified(columns: dict[str, dict[str, Any]]) -> None:
    open_ones = [name for name, entry in columns.items() if entry.get("kind") == "unclassified"]
    if open_ones:
        raise SchemaError(
            "a kind for every column",
            f"{len(open_ones)} unclassified: {', '.join(open_ones[:10])}",
            'give each a kind, or kind = "ignore", or delete its block and name it as person',
        )


def _column(name: str, entry: dict[str, Any]) -> Column:
    _known(entry, _COLUMN_KEYS, f"column {name!r}")
    _required(entry, ("kind",), f"column {name!r}")
    return Column(name, **{key: _plain(key, value) for key, value in entry.items()})


def _picture(name: str, entry: dict[str, Any]) -> Picture:
    _known(entry, ["shape"], f"image {name!r}")
    _required(entry, ("shape",), f"image {name!r}")
    return Picture(name, _plain("shape", entry["shape"]))


def _plain(key: str, value: Any) -> Any:
    """Lists become tuples; numbers in lists of names become text."""
    if key not in _LISTS:
        if isinstance(value, (list, dict)):
            raise SchemaError(f"one value for {key}", type(value).__name__, "write a single value")
        return value
    if not isinstance(value, list):
        raise SchemaError(f"a list for {key}", type(value).__name__, f"write {key} = […]")
    if key == "shape":
        return tuple(value)
    if key == "balance":
        if not all(type(v) in (int, float) for v in value):
            raise SchemaError("numbers in balance", "something else", "write balance = [0.6, 0.4]")
        return tuple(map(float, value))
    return tuple(str(v) if type(v) is int else v for v in value)


def _known(entry: dict[str, Any], keys: list[str], where: str) -> None:
    for key in entry:
        if key not in keys:
            hint = f"use {', '.join(keys)}{nearest(key, keys)}"
            raise SchemaError(f"known keys in {where}", f"{key!r}", hint)


def _required(entry: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    lacking = [key for key in keys if key not in entry]
    if lacking:
        raise SchemaError(f"{', '.join(keys)} in {where}", f"no {', '.join(lacking)}", "add it")
