"""Parties: sites that hold different columns of the same people, ``[[party]]`` in a study.

There is one public schema; a party has the part of it that its columns make (`Schema.project`).
Which columns a party holds is public and part of the agreement. A column that several parties
hold must be declared as shared by each of them: else a column claimed twice is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import lru_cache
from typing import Any

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.settings import Settings, known, read, setting

__all__ = [
    "MOST_PARTIES",
    "Parties",
    "PartyEntry",
    "check_parties",
    "check_rows",
    "dealt",
    "party_entries",
]

MOST_PARTIES = 16


@dataclass(frozen=True)
class PartyEntry(Settings, table="party"):
    """``[[party]]``: one party, which holds some columns of every row"""

    name: str = setting(MISSING, "the party's name")
    columns: tuple[str, ...] = setting(
        MISSING, "the columns and images that it holds; one party holds the label"
    )
    shared: tuple[str, ...] = setting((), "those of its columns that other parties hold too")
    data: str | None = setting(None, "path of its rows, aligned with those of the other parties")
    epsilon: float | None = setting(None, "the party's own limit on its total ε", above=0)
    ledger: str | None = setting(None, "the party's own ledger, kept across studies")
    noise: float | None = setting(
        None, "its own noise multiplier, where the recipe lets parties differ", above=0
    )

    @property
    def public(self) -> dict[str, Any]:
        """What everyone may know of a party: not its name, nor its files and limits."""
        more = {"shared": list(self.shared), "noise": self.noise}
        return {"columns": list(self.columns), **{n: value for n, value in more.items() if value}}


@dataclass(frozen=True)
class Parties:
    """Who holds what, as recipes see it: names and columns, pixels too, in the study's order."""

    schema: Schema
    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int:
        return self.names.index(name)

    def schema_of(self, party: int) -> Schema:
        """The part of the public schema that a party holds."""
        return _projected(self.schema, self.columns[party])

    def own(self, party: int) -> tuple[str, ...]:
        """Its columns that no party before it holds: each column of the schema counts once."""
        before = {name for columns in self.columns[:party] for name in columns}
        return tuple(name for name in self.columns[party] if name not in before)

    @property
    def labelled(self) -> int | None:
        """The first party that holds the label, if the schema has one."""
        found = (i for i, columns in enumerate(self.columns) if self.schema.label in columns)
        return next(found, None)


@lru_cache(maxsize=64)
def _projected(schema: Schema, columns: tuple[str, ...]) -> Schema:
    return schema.project(columns)


def party_entries(data: Any) -> tuple[PartyEntry, ...]:
    """From the ``[[party]]`` tables of a study file."""
    if not isinstance(data, list):
        raise StudyError("a list of [[party]] tables", type(data).__name__, "write [[party]]")
    return tuple(read(PartyEntry, entry, "party") for entry in data)


def dealt(schema: Schema, many: int | None, options: Mapping[str, Any]) -> tuple[PartyEntry, ...]:
    """The parties of a simulation that names none: columns dealt out by schema and seed.

    Never by rows: who holds what is public. The first party has the label.
    """
    known(options, ("seed",), "simulation.")
    names = [name for name in schema.holdings if name != schema.label]
    most, seed = min(MOST_PARTIES, len(names)), options.get("seed", 0)
    if many is None or not 2 <= many <= most or type(seed) is not int:
        raise StudyError(
            f"simulation.sites from 2 to {most} and a whole number as seed, or [[party]] entries",
            "neither",
            "say how many parties there are, or which columns each holds",
        )
    from understudy.rng import Streams  # brings numpy, which study files do without

    order = Streams.from_seed(seed).numpy(f"columns {schema.hash}").permutation(len(names))
    held = [{names[at] for at in order[i::many]} for i in range(many)]
    held[0] |= {schema.label} - {None}
    return tuple(
        PartyEntry(f"party-{i + 1}", tuple(name for name in schema.holdings if name in own))
        for i, own in enumerate(held)
    )


def check_parties(schema: Schema, parties: Sequence[PartyEntry]) -> None:
    """Every column is held, by one party or by several that all say so."""
    if not 2 <= len(parties) <= MOST_PARTIES:
        raise StudyError(f"2 to {MOST_PARTIES} [[party]] entries", f"{len(parties)}", "change them")
    if schema.kind != "table":
        raise StudyError("a table, whose columns parties can hold", schema.kind, "use a table")
    for entry in parties:
        _check_columns(schema, entry)
        _check_label(schema, entry)
    for column in schema.holdings:
        _check_holders(column, parties)


def check_rows(parties: Sequence[PartyEntry], *, simulated: bool, sites: int | None) -> None:
    """Where the rows of parties come from: a file each, or one table that is split.

    Over a network a study names no files: each party names its own when it joins.
    """
    if sites not in (None, len(parties)):
        expected = f"simulation.sites = {len(parties)}, as there are [[party]] entries"
        raise StudyError(expected, f"{sites}", "remove it")
    if simulated and any(entry.data is not None for entry in parties):
        raise StudyError(
            "party.data for every party, or [simulation] and no party.data", "both", "remove one"
        )


def _check_columns(schema: Schema, entry: PartyEntry) -> None:
    stray = [name for name in entry.columns if name not in schema.holdings]
    stray += [name for name in entry.shared if name not in entry.columns]
    if stray or not entry.columns or len(set(entry.columns)) < len(entry.columns):
        raise StudyError(
            f"party {entry.name}: different columns of the schema, shared ones among its columns",
            f"{stray[0]!r}" if stray else "none, or one twice",
            "check the spelling",
        )


def _check_label(schema: Schema, entry: PartyEntry) -> None:
    if entry.columns == (schema.label,):
        raise StudyError(
            f"party {entry.name}: a column besides the label", "none", "give it one, shared or not"
        )


def _check_holders(column: str, parties: Sequence[PartyEntry]) -> None:
    holders = [entry for entry in parties if column in entry.columns]
    if not holders:
        raise StudyError(
            f"a party that holds {column!r}", "none", "add it to a party, or cut the schema"
        )
    silent = [entry.name for entry in holders if column not in entry.shared]
    if len(holders) > 1 and silent:
        raise StudyError(
            f"one party that holds {column!r}, or several that declare it shared",
            f"{len(holders)} parties hold it, and {silent[0]} does not say so",
            f'add shared = ["{column}"] to each, or take it from all but one',
        )
