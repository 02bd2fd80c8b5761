"""What was found in a file: values, without the words for a human.

``source``, ``notes``, ``why`` and ``about`` are keys of the tables in `render`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MAX_LISTED", "RARE", "Alert", "Found", "FoundColumn", "Setting"]

MAX_LISTED = 200
"""More categories than this are for a human to group."""
RARE = 10
"""A category with fewer rows may point at people."""


@dataclass(frozen=True)
class Setting:
    """A line of the schema. With ``off`` it is a comment; None is a value that was not found."""

    key: str
    value: object
    source: str = ""
    off: bool = False


@dataclass(frozen=True)
class FoundColumn:
    """A column: its kind and settings, or why a human must decide."""

    name: str
    kind: str = "unclassified"
    settings: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Alert:
    """Something to warn about, and the facts of it."""

    about: str
    facts: Mapping[str, object]


@dataclass(frozen=True)
class Found:
    """All that was found in a file. The first setting is the kind."""

    settings: tuple[Setting, ...]
    columns: tuple[FoundColumn, ...] = ()
    alerts: tuple[Alert, ...] = ()
