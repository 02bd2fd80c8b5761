"""A draft as text: what was found in a file, as TOML with a remark on every guess, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from understudy.data.schema_toml import toml_key, toml_value

__all__ = [
    "BOUNDS", "CUT", "LOG", "SEEN", "UNLABELLED", "Found", "FoundColumn", "Setting", "render",
    "warnings",
]  # fmt: skip

HEADER = """\
# A DRAFT, made by looking at rows that may be private. Nothing here is public knowledge yet.
# For every line marked "guess": replace it by what is known without these rows, or make
# sure that it gives nobody away. Then delete the remark. See also: understudy schema check
"""
BOUNDS = "guess: bounds from the rows, rounded outwards"
CUT = "guess: bounds around most rows, rounded outwards; widen them if the few beyond matter"
LOG = 'a heavy tail, so scale = "log"; "linear" if that is wrong'
UNLABELLED = "some rows have no label: fill them, or leave those rows out"
SEEN = "guess: the categories seen; add those that are possible"


@dataclass(frozen=True)
class Setting:
    """A line of the schema. With ``off`` it is a comment; None is a value that was not found."""

    key: str
    value: object
    remark: str = ""
    off: bool = False


@dataclass(frozen=True)
class FoundColumn:
    """A column: its kind and settings, or why a human must decide, and between what."""

    name: str
    kind: str = "unclassified"
    settings: Mapping[str, object] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    why: str = ""
    choice: str = 'Give it a kind, or kind = "ignore", or name it as person, with rows_per_person'


@dataclass(frozen=True)
class Found:
    """All that was found in a file. The first setting is the kind."""

    settings: tuple[Setting, ...]
    columns: tuple[FoundColumn, ...] = ()
    warnings: tuple[str, ...] = ()


def render(found: Found) -> str:
    """The schema as TOML."""
    lines = [_line(setting) for setting in found.settings]
    for column in found.columns:
        decide = (f"DECIDE: {column.why}. {column.choice}",) if column.why else ()
        lines += ["", f"[columns.{toml_key(column.name)}]"]
        lines += [f"# {remark}" for remark in (*decide, *column.remarks)]
        settings = {"kind": column.kind, **column.settings}
        lines += [_line(Setting(key, value)) for key, value in settings.items()]
    return HEADER + "\n".join(lines) + "\n"


def _line(setting: Setting) -> str:
    value = "…" if setting.value is None else toml_value(setting.value)
    remark = f"  # {setting.remark}" if setting.remark else ""
    return f"{'# ' if setting.off else ''}{setting.key} = {value}{remark}"


def warnings(found: Found) -> list[str]:
    """What a draft reveals and leaves open, in plain words."""
    bounded = sum(bool({BOUNDS, CUT} & {*column.remarks}) for column in found.columns)
    listed = sum(SEEN in column.remarks for column in found.columns)
    said = [*found.warnings]
    said.append("The draft was made from the rows: read and edit it before anyone else sees it.")
    if bounded:
        said.append(
            f"Bounds of {_count(bounded)} come from the rows: extremes can belong to one person."
        )
    if listed:
        said.append(
            f"Categories of {_count(listed)} come from the rows: a rare one can give a person away."
        )
    if any(UNLABELLED in column.remarks for column in found.columns):
        said.append(f"{UNLABELLED.capitalize()}.")
    if any(s.key == "classes" and s.remark.startswith("guess") for s in found.settings):
        said.append("The classes come from the rows: a rare one can give a person away.")
    said.append("The number of records was taken from this file and rounded up.")
    for why, choice in dict.fromkeys((c.why, c.choice) for c in found.columns if c.why):
        names = ", ".join(c.name for c in found.columns if (c.why, c.choice) == (why, choice))
        said.append(f"Needs your decision: {names} ({why}). {choice}.")
    return said


def _count(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"
