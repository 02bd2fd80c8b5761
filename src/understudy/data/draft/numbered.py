"""Which columns of a table are numbered by time step, as those of a wide table of series are.

What stands before the number is the channel: ``CO_0 … CO_23``. Where many columns are numbered,
but not as a wide table's, an error names them: columns are not records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count, islice

from understudy.errors import DataError

__all__ = ["LEAST", "Wide", "find_wide", "misnumbered"]

LEAST = 4
"""So many numbered columns before a table looks wide, or rows per series before it looks long."""
MOST = 0.75
"""The share of columns that must be numbered alike, unless the table is said to be wide."""
SHOWN = 3

Group = dict[int, str]
"""The columns that are called alike but for their number, by number."""


@dataclass(frozen=True)
class Wide:
    """How the columns of a wide table are named: stems are channels, numbers are steps."""

    channels: dict[str, list[str]]
    pattern: str
    first: int
    length: int


def find_wide(
    names: Sequence[str], roles: Collection[str | None], length: int | None, *, said: bool
) -> Wide | None:
    """The numbered columns, if the table is ``said`` to be wide or most are numbered alike."""
    groups = _groups(names, roles)
    runs = Counter(run for run in map(_run, groups.values()) if length in (None, run[1]))
    (first, steps), many = max(runs.items(), key=_covered, default=((0, 0), 0))
    alike = steps * many >= MOST * len(names) or said
    if steps < (length or LEAST if said else LEAST) or not alike:
        return None
    if any(_lacking(g) and _span(g) == (first, steps) for g in groups.values() if len(g) >= LEAST):
        return None
    kept = {stem: group for stem, group in groups.items() if _run(group) == (first, steps)}
    return _named(kept, first, steps)


def misnumbered(
    names: Sequence[str], roles: Collection[str | None], length: int | None, *, said: bool
) -> DataError | None:
    """The refusal of a table that is not wide, but ``said`` to be or mostly numbered."""
    groups = _groups(names, roles)
    many = {stem: group for stem, group in groups.items() if len(group) >= LEAST}
    if not said and sum(map(len, many.values())) < MOST * len(names):
        return None
    odd = {stem: group for stem, group in many.items() if length not in (None, _run(group)[1])}
    found, do = _told(odd or many or groups, cut=odd == many)
    each = "columns" if length is None else f"{length} columns for each channel"
    do += "" if said else ", or --layout recording if each row is a time step"
    return DataError(
        f"{each} numbered by step: CO_0 … CO_{(length or 24) - 1}, for example", found, do
    )


def _groups(names: Sequence[str], roles: Collection[str | None]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for name in names:
        found = re.fullmatch(r"(.*?)(0|[1-9]\d*)", name)
        if found and name not in roles:
            groups.setdefault(found[1], {})[int(found[2])] = name
    return groups


def _span(group: Group) -> tuple[int, int]:
    """First step, and the number of steps up to the last."""
    return min(group), max(group) - min(group) + 1


def _lacking(group: Group) -> int:
    return _span(group)[1] - len(group)


def _run(group: Group) -> tuple[int, int]:
    """First step and number of steps; none if some lack in between."""
    return (0, 0) if _lacking(group) else _span(group)


def _covered(item: tuple[tuple[int, int], int]) -> int:
    (_, steps), many = item
    return steps * many


def _end(stem: str) -> str:
    """What stands between a channel's name and the number."""
    return re.sub(r".*[^_\-. ]", "", stem)


def _named(groups: dict[str, Group], first: int, length: int) -> Wide | None:
    """Channels and pattern from what stands before the numbers."""
    ends = {_end(stem) for stem in groups}
    if len(ends) > 1:
        return None
    end = ends.pop()
    names = {stem: stem.removesuffix(end) or "value" for stem in groups}
    pattern = "{channel}" + end + "{step}" if all(s != end for s in groups) else end + "{step}"
    channels = {names[stem]: [group[i] for i in sorted(group)] for stem, group in groups.items()}
    return Wide(channels, pattern, first, length)


def _told(groups: dict[str, Group], cut: bool) -> tuple[str, str]:
    """What numbers the columns have, and what to do about it; ``cut``: the length may be wrong."""
    gaps = {stem: group for stem, group in groups.items() if _lacking(group)}
    if gaps:
        return _list([_gap(stem, group) for stem, group in gaps.items()]), "add or rename columns"
    runs = {_run(group): _steps(stem, group) for stem, group in reversed(groups.items())}
    if len(runs) == 1 and cut:
        return next(iter(runs.values())), f"give --length {next(iter(runs))[1]}"
    by_end = {_end(stem): _steps(stem, group) for stem, group in reversed(groups.items())}
    said = by_end if len(runs) == 1 else runs
    return _list([*reversed(said.values())]) or "none", "rename them alike"


def _list(said: Sequence[str]) -> str:
    return ", ".join(said[:SHOWN]) + (" and others" if len(said) > SHOWN else "")


def _steps(stem: str, group: Group) -> str:
    return f"{len(group)} steps ({_ends(stem, group)})" if _has_name(stem) else _ends(stem, group)


def _gap(stem: str, group: Group) -> str:
    """The steps that lack, by name; the first few of them."""
    if not _has_name(stem):
        return _ends(stem, group)
    lacking = (f"{stem}{i}" for i in count(min(group)) if i not in group)
    shown = min(SHOWN, _lacking(group))
    more = f" and {_lacking(group) - shown} more" if _lacking(group) > shown else ""
    return f"no {', '.join(islice(lacking, shown))}{more} among {_ends(stem, group)}"


def _ends(stem: str, group: Group) -> str:
    """First and last column; not of numbers alone: without a header they would be a record."""
    if not _has_name(stem):
        return f"{len(group)} columns that are called by numbers alone"
    return f"{group[min(group)]} … {group[max(group)]}"


def _has_name(stem: str) -> bool:
    return any(character.isalpha() for character in stem)
