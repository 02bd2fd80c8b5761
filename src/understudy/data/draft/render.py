"""The words of a draft: what was found, as TOML with remarks, and as warnings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from understudy.data.draft.found import MAX_LISTED, RARE, Found, FoundColumn, Setting
from understudy.data.schema_toml import toml_key, toml_value

__all__ = ["render", "warnings"]

HEADER = """\
# A DRAFT, made by looking at rows that may be private. Nothing here is public knowledge yet.
# For every line marked "guess": replace it by what is known without these rows, or make
# sure that it gives nobody away. Then delete the remark. See also: understudy schema check
"""
SOURCES = {
    "file name": "guess: the file's name",
    "rows": "guess: this file's rows, rounded up. Declare all sites' together",
    "uint8": "guess: images are whole numbers 0–255 (uint8)",
    "seen": "guess: those seen",
    "perhaps the person": "guess: one of them may be the person",
    "first image": "guess: the first image's",
    "resize": "crop and scale image files of other sizes; without it they are refused",
    "folders": "guess: the sub-folders",
    "attributes": "any of the attributes",
    "celeba list": "-1 and 1 in the list",
    "published": "as published",
    "numbered": "guess: the columns are numbered",
    "first step": "the number of the first step",
    "no time": "no such column was found: the order of the rows counts",
    "repeats": "times repeat within a series: fix that first",
    "uneven": "the steps are not evenly spaced: only their order counts",
    "spacing": "guess: the spacing seen",
    "apart": "guess: windows that share no step",
    "overlap": "windows overlap: a step is in many records; the length in shape keeps them apart",
    "shorter": "guess: some series are shorter",
    "empty cells": 'guess: some cells are empty; also "previous", or a number',
    "padding": 'guess: for the steps that pad adds; also "previous", or a number',
}
"""Where a setting comes from."""
NOTES = {
    "bounds": "guess: bounds from the rows, rounded outwards",
    "yes or no": "guess: only yes/no values seen",
    "categories": "guess: the categories seen; add those that are possible",
    "few values": "few different values: is it rather a category?",
    "rare": f"rare ones (fewer than {RARE} rows) may point at people: merge them",
    "missing": "guess: some cells are empty",
}
_ANY = 'Give it a kind, or kind = "ignore", or name it as person'
_SAME = "it has the same value everywhere"
DECIDE = {
    "named like an identifier": f"its name suggests an identifier or personal data. {_ANY}",
    "free text": f"most rows have another text, as in names or free text. {_ANY}",
    "a different value in every row": f"every row has another value, as in an identifier. {_ANY}",
    "too many texts": f"it has more than {MAX_LISTED} different texts: group them, or "
    f"leave it out. {_ANY}",
    "no values": f"it holds no values. {_ANY}",
    "no numbers": f"it holds no numbers. {_ANY}",
    "no channel": 'it is no channel. kind = "ignore", or name it as person',
    "perhaps the classes": "it is no channel, but could hold the classes: then draft again with "
    '{label}. Otherwise kind = "ignore"',
    "constant column": f"{_SAME}. Give it a kind and public bounds\n"
    'or kind = "ignore": it is left out',
    "constant channel": f"{_SAME}. Give it a kind and public bounds",
    "constant and no channel": f'{_SAME}. kind = "ignore", or public bounds and a channel more '
    "in shape",
}
ALERTS = {
    "long": "This looks like series, a row per {series} and {time}, but was drafted as a plain "
    "table. If they are series, draft it again with {options}",
    "repeats": "Times repeat: {rows} rows have a time ({time!r}) that their series already has, "
    "which is refused. Remove repeated rows, or name the column that tells the series apart "
    "(--series).",
    "array": "X holds {dtype}, so it was taken for series of {length} steps and {channels} "
    "channels. If these are images, save them as whole numbers 0–255 (uint8) and draft again.",
}
DECISIONS = {
    "other": "Needs your decision before the schema can be used: {names} (look like identifiers, "
    "personal data or free text).",
    "classes": "Needs your decision: {names} is no channel. If it holds the classes, draft again "
    'with {label}; else leave it out, kind = "ignore".',
    "empty": "Needs your decision, too: {names} (no values in this file).",
    "same": "The same value everywhere: {names}. Needs your decision, as the remarks say: leave "
    "it out, or give it bounds that are public knowledge.",
}
GROUPS = {"perhaps the classes": "classes", "no values": "empty"} | {
    why: "same" for why in DECIDE if why.startswith("constant")
}
"""Which decision a reason leads to, unless it is the first."""


def render(found: Found) -> str:
    """The schema as TOML, with a remark on every guess."""
    lines = [_line(setting) for setting in found.settings]
    for column in found.columns:
        lines += ["", f"[columns.{toml_key(column.name)}]", *_remarks(column)]
        lines += [_line(Setting("kind", column.kind))]
        lines += [_line(Setting(key, value)) for key, value in column.settings.items()]
    return HEADER + "\n".join(lines) + "\n"


def _line(setting: Setting) -> str:
    value = "…" if setting.value is None else toml_value(setting.value)
    remark = f"  # {SOURCES[setting.source]}" if setting.source else ""
    return f"{'# ' if setting.off else ''}{setting.key} = {value}{remark}"


def _remarks(column: FoundColumn) -> list[str]:
    if not column.why:
        return [f"# {NOTES[note]}" for note in column.notes]
    said = f"DECIDE: {DECIDE[column.why]}".replace("{label}", _as_label(column.name))
    return [f"# {line}" for line in said.split("\n")]


def warnings(found: Found) -> list[str]:
    """What a draft reveals and leaves open, in plain words."""
    bounded = sum("bounds" in column.notes for column in found.columns)
    listed = sum("categories" in column.notes for column in found.columns)
    said = [ALERTS[alert.about].format(**alert.facts) for alert in found.alerts]
    said.append("The draft was made from the rows: read and edit it before anyone else sees it.")
    if bounded:
        said.append(
            f"Bounds of {_count(bounded)} come from the rows: extremes can belong to one person."
        )
    if listed:
        said.append(
            f"Categories of {_count(listed)} come from the rows: a rare one can give a person away."
        )
    if any(s.key == "classes" and s.source in ("seen", "folders") for s in found.settings):
        said.append("The classes come from the rows: a rare one can give a person away.")
    said.append("The number of records was taken from this file and rounded up.")
    return said + _decisions(found.columns)


def _decisions(columns: Sequence[FoundColumn]) -> list[str]:
    """What a human must decide."""
    said = []
    for group, words in DECISIONS.items():
        names = [c.name for c in columns if c.why and GROUPS.get(c.why, "other") == group]
        told = names if group == "classes" else [", ".join(names)] if names else []
        said += [words.format(names=name, label=_as_label(name)) for name in told]
    return said


def _as_label(name: str) -> str:
    """The option that makes a column the label, as a shell takes it."""
    return f"--label {shlex.quote(name)}" if name.isprintable() else "--label"


def _count(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"
