"""Names in a public schema (columns, categories, classes): what they may be, and misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from understudy.errors import SchemaError

__all__ = ["MAX_COLUMNS", "check_name", "check_names", "nearest"]

MAX_COLUMNS = 10_000


def check_names(names: tuple[str, ...], what: str, most: int, *, least: int = 1) -> None:
    """Refuse empty, repeated, blank-padded or too many names."""
    if not least <= len(names) <= most:
        raise SchemaError(
            f"{least} to {most} {what}",
            str(len(names)),
            "group rare ones under a public 'other'" if len(names) > most else "list them",
        )
    for name in names:
        check_name(name)
    if len(set(names)) < len(names):
        raise SchemaError(f"{what} without repeats", "a repeated name", "remove the repeats")


def check_name(name: object) -> None:
    """Refuse what is no plain text of at least one letter."""
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise SchemaError(
            "printable names without surrounding blanks", repr(name), "rename it in the schema"
        )


def nearest(word: str, names: Iterable[str]) -> str:
    """(did you mean …?), or nothing where no name is close."""
    found = difflib.get_close_matches(word, list(names), 1)
    return f" (did you mean {found[0]}?)" if found else ""
