"""Which columns of a table are numbered by time step, as those of a wide table of series are.

What stands before the number is the channel: ``CO_0 … CO_23``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from understudy.errors import DataError

__all__ = ["LEAST", "Wide", "find_wide"]

LEAST = 4
"""So many numbered columns before a table looks wide, or rows per series before it looks long."""
MOST = 0.75
"""The share of columns that must be numbered alike, unless the table is said to be wide."""

Group = dict[int, str]
"""The columns that are called alike but for their number, by number."""


@dataclass(frozen=True)
class Wide:
    """How the columns of a wide table are named: stems are channels, numbers are steps."""

    channels: dict[str, list[str]]
    pattern: str
    steps: range


def find_wide(
    names: Sequence[str], roles: Collection[str | None], length: int | None, *, said: bool
) -> Wide | None:
    """The numbered columns, if the table is ``said`` to be wide or most are numbered.

    Refused, by name, where they are numbered, but not as a wide table's: columns are not records.
    """
    groups = _groups([name for name in names if name not in roles])
    least = min(length or LEAST, LEAST) if said else LEAST
    many = {stem: group for stem, group in groups.items() if len(group) >= least}
    if not said and sum(map(len, many.values())) < MOST * len(names):
        return None
    runs = Counter(_steps(group) for group in many.values())
    fitting = [steps for steps in runs if length in (None, len(steps))]
    steps = max(fitting, key=lambda steps: len(steps) * runs[steps], default=range(0))
    kept = {stem: group for stem, group in many.items() if _steps(group) == steps}
    columns = sum(map(len, kept.values()))
    whole = columns == len(kept) * len(steps) and (said or columns >= MOST * len(names))
    if not kept or not whole or len({_end(stem) for stem in kept}) > 1:
        raise _misnumbered(many or groups, length, said)
    return _named(kept, steps)


def _groups(names: Sequence[str]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for name in names:
        found = re.fullmatch(r"(.*?)(0|[1-9]\d*)", name)
        if found:
            groups.setdefault(found[1], {})[int(found[2])] = name
    return groups


def _steps(group: Group) -> range:
    """From the first to the last, whether all are there or not."""
    return range(min(group), max(group) + 1)


def _end(stem: str) -> str:
    """What stands between a channel's name and the number."""
    return re.sub(r".*[^_\-. ]", "", stem)


def _named(groups: dict[str, Group], steps: range) -> Wide:
    """Channels and pattern from what stands before the numbers."""
    end = _end(next(iter(groups)))
    pattern = "{channel}" + end + "{step}" if all(s != end for s in groups) else end + "{step}"
    channels = {
        stem.removesuffix(end) or "value": [group[i] for i in steps]
        for stem, group in groups.items()
    }
    return Wide(channels, pattern, steps)


def _misnumbered(groups: dict[str, Group], length: int | None, said: bool) -> DataError:
    each = "columns" if length is None else f"{length} columns for each channel"
    sizes = {stem: {len(group), len(_steps(group)), length} for stem, group in groups.items()}
    odd = {stem: group for stem, group in groups.items() if len(sizes[stem] - {None}) > 1}
    told = [_told(stem, group) for stem, group in (odd or groups).items()]
    return DataError(
        f"{each} numbered by step: CO_0 … CO_{(length or 24) - 1}, for example",
        ", ".join(told[:3]) + (" and others" if told[3:] else "") or "none",
        "number the steps of all channels alike, without gaps, and give --length to match"
        + ("" if said else ", or --layout recording if each row is a time step"),
    )


def _told(stem: str, group: Group) -> str:
    """First and last column; not of numbers alone: without a header they would be a record."""
    if not any(character.isalpha() for character in stem):
        return f"{len(group)} columns that are called by numbers alone"
    many = len(_steps(group))
    count = f"{many}" if len(group) == many else f"only {len(group)} of the {many}"
    return f"{count} columns {group[min(group)]} … {group[max(group)]}"
