"""Sites as a study names them: ``[[site]]`` entries, or numbers where sites are simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from understudy.errors import StudyError
from understudy.parties import PartyEntry
from understudy.settings import Settings, read, setting

__all__ = ["Numbered", "SiteEntry", "check_named", "site_entries"]


@dataclass(frozen=True)
class SiteEntry(Settings, table="site"):
    """``[[site]]``: one file per site, or, over a network, its name alone"""

    name: str = setting(MISSING, "the site's name")
    data: str | None = setting(None, "path of its rows; over a network each site names its own")
    epsilon: float | None = setting(None, "the site's own limit on its total ε", above=0)
    ledger: str | None = setting(None, "the site's own ledger, kept across studies")


@dataclass(frozen=True)
class Numbered(Sequence[str]):
    """Names of simulated sites, made on demand: there may be millions."""

    many: int

    def __len__(self) -> int:
        return self.many

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(self.many)[index]]
        return f"site-{range(self.many)[index] + 1}"


def site_entries(data: Any) -> tuple[SiteEntry, ...]:
    """From the ``[[site]]`` tables of a study file."""
    if not isinstance(data, list):
        raise StudyError("a list of [[site]] tables", type(data).__name__, "write [[site]]")
    return tuple(_entry(entry, number) for number, entry in enumerate(data, 1))


def _entry(data: Any, number: int) -> SiteEntry:
    """One site; errors say which."""
    try:
        return read(SiteEntry, data, "site")
    except StudyError as error:
        which = data.get("name", number) if isinstance(data, Mapping) else number
        raise StudyError(error.expected, f"{error.found} (site {which})", error.do) from error


def check_named(owners: Sequence[SiteEntry | PartyEntry], base: Path) -> None:
    """Names and ledgers are each for one."""
    if twice := _twice([entry.name for entry in owners]):
        raise StudyError("a different name for each site", f"{twice!r} twice", "rename one")
    ledgers = [(base / entry.ledger).resolve() for entry in owners if entry.ledger]
    if twice := _twice(ledgers):
        raise StudyError(
            "a ledger of its own for each site",
            f"{twice.name} for two of them",
            "name another file for one of them",
        )


def _twice(values: Sequence[Any]) -> Any:
    """The first that is there more than once; None if all differ."""
    return next((value for value, times in Counter(values).items() if times > 1), None)
