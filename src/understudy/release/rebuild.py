"""From the public agreement in a release back to its plan, to be compared with the stored one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.federation.recipe import Recipe
from understudy.parties import PartyEntry, party_entries
from understudy.settings import known, read
from understudy.study import TABLES, Heading, Simulation, Study

__all__ = ["Known", "agreed", "difference"]

_KEYS = ("name", "schema", "recipe", "rounds", "sites", "split", *TABLES, "options")
_REMEDY = "do not trust this agreement"


class Known(Protocol):
    """A recipe that this version knows: what it supports, and how its plan follows from a study."""

    @property
    def info(self) -> RecipeInfo:
        """What the recipe is."""

    def build(self, study: Study) -> Recipe:
        """The recipe with its plan."""


def agreed(agreement: Mapping[str, Any], schema: Schema) -> Study:
    """The study that an agreement names: the inverse of `Study.agreement`, which has no files."""
    known(agreement, (*_KEYS, "parties", "alignment"), "agreement.")
    if missing := [key for key in _KEYS if key not in agreement]:
        raise StudyError("a complete agreement", f"one without {missing[0]}", _REMEDY)
    heads = {key: agreement.get(key) for key in ("name", "recipe", "rounds", "alignment")}
    head = read(Heading, heads, "study")
    known(agreement["options"], agreement["options"], "options.")  # a table, of any keys
    study = Study(
        name=head.name,
        schema=schema,
        recipe=head.recipe,
        rounds=head.rounds,
        options=agreement["options"],
        simulation=_split(agreement["split"], agreement["sites"]),
        parties=_parties(agreement.get("parties", [])),
        declared=agreement["sites"],
        alignment=head.alignment,
        **{name: read(table, agreement[name], name) for name, table in TABLES.items()},
    )
    if difference(study.agreement(), agreement):
        raise StudyError("an agreement that holds nothing more, on this schema", "another", _REMEDY)
    return study


def _split(split: Any, sites: Any) -> Simulation | None:
    """A simulation of which all is known that a claim depends on."""
    if type(sites) is not int or sites < 1:
        raise StudyError("a number of sites of at least 1", "another", _REMEDY)
    if split is None:
        return None
    known(split, ("name", "alone", "column"), "split.")
    only = {"only": 1} if split.get("alone") else {}
    count = {} if split.get("name") == "pooled" else {"sites": sites}
    column = {"column": split.get("column")}
    told = {"data": "", "split": split.get("name"), "options": column, **count, **only}
    return read(Simulation, told, "simulation")


def _parties(told: Any) -> tuple[PartyEntry, ...]:
    """What each party holds; their names are not public, and nothing depends on them."""
    if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
        raise StudyError("a list of parties", "another value", _REMEDY)
    return party_entries([{"name": f"party-{i + 1}", **each} for i, each in enumerate(told)])


def difference(stored: Any, expected: Any, tolerance: float = 0.0) -> str:
    """Where two plans, as plain JSON, differ first; nothing if they are the same.

    Numbers may differ by ``tolerance``, relative to their size.
    """
    if isinstance(stored, dict) and isinstance(expected, dict) and stored.keys() == expected.keys():
        pairs = [(key, stored[key], expected[key]) for key in stored]
    elif isinstance(stored, list) and isinstance(expected, list) and len(stored) == len(expected):
        pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(stored, expected, strict=True))]
    else:
        return "" if _same(stored, expected, tolerance) else "value"
    for key, a, b in pairs:
        if place := difference(a, b, tolerance):
            return key if place == "value" else f"{key}.{place}"
    return ""


def _same(stored: Any, expected: Any, tolerance: float) -> bool:
    numbers = {type(stored), type(expected)} <= {int, float}
    if numbers and float in (type(stored), type(expected)):
        return math.isclose(stored, expected, rel_tol=tolerance)
    return type(stored) is type(expected) and bool(stored == expected)
