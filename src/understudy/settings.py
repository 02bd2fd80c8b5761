"""Settings: each is declared once, with its type, default, range and one line of help.

A table of a study file is a frozen dataclass derived from `Settings`, with a `setting` for each
key. `read` makes one from TOML; errors and reference pages come from the same declarations.
Unknown keys are refused. Ranges are checked whenever a table is made, from a file or in Python::

    @dataclass(frozen=True)
    class MyOptions(Settings):
        top: float = setting(0.05, "share of coordinates in the top set", above=0, below=1)
        widths: tuple[int, ...] = setting((128,), "hidden layers", least=1)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from understudy.data.names import nearest
from understudy.data.schema_toml import toml_value, tomllib
from understudy.errors import StudyError

__all__ = ["Range", "Settings", "allowed", "known", "nearest", "read", "setting", "tables"]

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """What a number may be. None: no limit on that side."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"from {self.least:g} to {self.most:g}"
        words = {"at least": self.least, "above": self.above}
        words |= {"at most": self.most, "below": self.below}
        return " and ".join(f"{word} {at:g}" for word, at in words.items() if at is not None)

    def __contains__(self, value: float) -> bool:
        return (
            _finite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


def _finite(value: float) -> bool:
    return type(value) is int or math.isfinite(value)


def setting(default: Any, help: str, **limits: float) -> Any:
    """A field with its one-line explanation and the range of its numbers.

    ``limits`` are ``least``, ``most``, ``above`` and ``below``. Numbers are always finite. The
    range holds for each number of a list. None, where the type allows it, has no range.
    """
    metadata = {"help": help, "range": Range(**limits)}
    return (
        field(metadata=metadata)
        if default is MISSING
        else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True)
class Settings:
    """Base of all tables (``table`` names them in errors): ranges are checked when one is made.

    A subclass with a ``__post_init__`` of its own calls ``super().__post_init__()`` first.
    """

    table: ClassVar[str] = "recipe"

    def __init_subclass__(cls, table: str | None = None) -> None:
        cls.table = table or cls.table

    def __post_init__(self) -> None:
        for declared in fields(self):
            _check_range(declared, getattr(self, declared.name), f"{self.table}.{declared.name}")


def _check_range(declared: Field[Any], value: Any, where: str) -> None:
    limits = declared.metadata.get("range", Range())
    for number in value if isinstance(value, tuple) else (value,):
        if type(number) in (int, float) and number not in limits:
            finite = "" if _finite(number) else ", finite"
            raise StudyError(
                f"{where} {str(limits) or 'a number'}{finite}",
                f"{number}",
                f"correct it: {declared.metadata['help']}",
            )


def tables(path: Path, what: str) -> dict[str, Any]:
    """What a TOML file holds; errors call it ``what``."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(what, f"{path.name}: {error.strerror}", "check the path") from error
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{what} in TOML", str(error), "correct the syntax") from error


def read(cls: type[T], data: Mapping[str, Any], table: str) -> T:
    """A table of a study file, its keys and types checked."""
    declared = fields(cls)  # type: ignore[arg-type]
    known(data, [f.name for f in declared], f"{table}.")
    hints = get_type_hints(cls)
    for f in declared:
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise StudyError(f"{table}.{f.name}", "it is missing", f"add it: {f.metadata['help']}")
    values = {key: _typed(value, hints[key], f"{table}.{key}") for key, value in data.items()}
    for f in declared:
        if f.name in values:
            _check_range(f, values[f.name], f"{table}.{f.name}")
    return cls(**values)


def known(data: object, names: Iterable[str], where: str) -> None:
    """Refuse what is no table, and keys that are not among ``names``."""
    if not isinstance(data, Mapping):
        raise StudyError(
            f"a table [{where.rstrip('.')}]", type(data).__name__, "write [table] headers"
        )
    names = sorted(names)
    for key in data:
        if key not in names:
            raise StudyError(
                f"one of {', '.join(where + name for name in names)}",
                f"unknown key {where}{key}",
                f"check the spelling{nearest(key, names)}; unknown keys are never ignored",
            )


def allowed(hint: Any, limits: Range | None = None) -> str:
    """What a setting of this type and range may be, as in a study file."""
    each = "each " if get_origin(hint) is tuple else ""
    return _words(hint) + (f", {each}{limits}" if limits and str(limits) else "")


def _words(hint: Any) -> str:
    *names, last = [_name(choice) for choice in _choices(hint) if choice is not type(None)]
    return " or ".join(filter(None, (", ".join(names), last)))


_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}


def _name(choice: Any) -> str:
    if get_origin(choice) is Literal:
        return _words(choice)
    if get_origin(choice) is tuple:
        item = get_args(choice)[0]
        return "a list of " + (_PLURALS.get(item) or _name(item))
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(
        choice, toml_value(choice) if isinstance(choice, str) else "a table"
    )


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (UnionType, Union, Literal) else (hint,)


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value if it has the declared type. A whole number may stand for a float."""
    for choice in _choices(hint):
        origin = get_origin(choice)
        if origin is tuple and isinstance(value, (list, tuple)):
            return tuple(_typed(v, get_args(choice)[0], where) for v in value)
        if choice is float and type(value) in (int, float):
            return _float(value)
        if _fits(value, choice, origin):
            return value
    words = [w for c in _choices(hint) for w in (c, *get_args(c)) if isinstance(w, str)]
    near = nearest(value, words) if isinstance(value, str) else ""
    raise StudyError(f"{where} as {_words(hint)}", toml_value(value), f"correct the value{near}")


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _fits(value: Any, choice: Any, origin: Any) -> bool:
    if origin is Literal:
        return value in get_args(choice)
    if origin is dict:
        return isinstance(value, dict)
    if choice in (int, str, bool, type(None)):
        return type(value) is choice
    return bool(value == choice) and type(value) is type(choice)
