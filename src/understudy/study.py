"""A study: everything the parties agree on before anything runs, read from ``study.toml``.

Each setting is declared once, below, with its range and its help text. The options of a recipe
are declared beside the recipe, and checked when it is built.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from understudy.data.schema import Schema
from understudy.data.split_rules import SplitName, follows
from understudy.errors import StudyError
from understudy.naming import Numbered, SiteEntry, check_named, site_entries
from understudy.parties import Parties, PartyEntry, check_parties, check_rows, dealt, party_entries
from understudy.privacy.terms import Trust, Unit
from understudy.settings import Settings, known, read, setting, tables

__all__ = [
    "TABLES",
    "Cohort",
    "Heading",
    "PartyEntry",
    "Privacy",
    "Simulation",
    "SiteEntry",
    "Study",
    "Training",
    "agreement_hash",
]


Owner = TypeVar("Owner", SiteEntry, PartyEntry)


@dataclass(frozen=True)
class Heading(Settings, table="study"):
    """``[study]``"""

    name: str = setting(MISSING, "a name for people")
    recipe: str = setting(MISSING, "which recipe to run; `understudy recipes` lists them")
    schema: str | None = setting(None, "path of the schema file")
    rounds: int | None = setting(None, "number of rounds; the recipe has a default", least=1)
    alignment: str | None = setting(
        None, "of parties over a network: which alignment their files come from"
    )


@dataclass(frozen=True)
class Privacy(Settings, table="privacy"):
    """``[privacy]``"""

    trust: Trust | None = setting(None, "who adds the noise")
    unit: Unit | None = setting(None, "what is protected")
    epsilon: float | None = setting(None, "the total ε; the noise is computed from it", above=0)
    noise: float | None = setting(
        None, 'instead of epsilon: the noise multiplier z; for no noise, trust = "none"', above=0
    )
    epsilon_per_update: float | None = setting(
        None, "instead of epsilon, where sites send choices: ε of one update of a site", above=0
    )
    delta: float | None = setting(None, "δ; by default min(1e-5, N^-1.1)", above=0)
    clip: float | None = setting(None, "the L2 bound S on one unit's contribution", above=0)
    survivors: int | None = setting(
        None, "distributed trust: sites that must answer for a round to count (t)", least=2
    )
    colluders: int | None = setting(
        None, "distributed trust: of all sites, those that may side with the server (c)", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("epsilon", "noise", "epsilon_per_update")
        given = [f"privacy.{name}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise StudyError(f"one of {' and '.join(given)}", "several", "keep one of them")
        if given and self.trust == "none":
            raise StudyError(f'no {given[0]} with trust = "none"', "one", "remove one of the two")


@dataclass(frozen=True)
class Cohort(Settings, table="cohort"):
    """``[cohort]``"""

    rate: float | None = setting(
        None, "chance of each site to join a round, by secret coin flips", above=0, most=1
    )
    size: int | None = setting(
        None,
        "sites called to each round by a public schedule (local or distributed trust)",
        least=1,
    )
    joins: int | None = setting(
        None, "the most rounds one site takes part in (local or distributed trust)", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.rate is not None:
            raise StudyError(
                "cohort.rate or cohort.size",
                "both",
                "use rate (coin flips) for central trust, size (a schedule) for local trust",
            )


@dataclass(frozen=True)
class Training(Settings, table="training"):
    """``[training]``; the recipe has a default for each"""

    epochs: int | None = setting(None, "local passes over the rows per round", least=1)
    batch: int | None = setting(None, "rows per local step", least=1)
    rate: float | None = setting(None, "local learning rate", above=0)
    optimiser: Literal["adam", "sgd"] | None = setting(None, "local optimiser")


@dataclass(frozen=True)
class Simulation(Settings, table="simulation"):
    """``[simulation]``: one file, split into sites in this process"""

    data: str = setting(MISSING, "path of the rows, or bundled:NAME")
    sites: int | None = setting(None, "number of sites", least=1)
    split: SplitName = setting("uniform", "how; see below")
    only: int | None = setting(None, "keep only this site, counted from 1", least=1)
    masks: Literal["off", "checked"] = setting(
        "off", "distributed trust: add shares up as they are, or run every leg under real masks"
    )
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "options of the split"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split == "pooled":
            if (self.sites or 1) > 1 or self.only is not None:
                raise StudyError(
                    'one site with simulation.split = "pooled"',
                    "simulation.sites or simulation.only",
                    "remove them",
                )
        elif self.sites is None and self.split != "columns":
            raise StudyError("simulation.sites", "it is missing", "add it: number of sites")
        elif self.sites is None or self.split == "columns":
            self._check_columns()
        elif self.only is not None and self.only > self.sites:
            raise StudyError(f"simulation.only from 1 to {self.sites}", f"{self.only}", "lower it")

    def _check_columns(self) -> None:
        if self.only is not None or self.masks != "off":
            raise StudyError(
                'neither simulation.only nor simulation.masks with split = "columns"',
                "one of them",
                "remove it",
            )

    @property
    def kept(self) -> slice:
        """Which of the sites take part."""
        return slice(None) if self.only is None else slice(self.only - 1, self.only)


@dataclass(frozen=True)
class Study:
    """The whole agreement. ``options`` is the recipe's own table, ``[recipe]``.

    ``declared`` is the number of sites of a study that is known by its agreement alone, from a
    release: it has no files.
    """

    name: str
    schema: Schema
    recipe: str
    rounds: int | None = None
    privacy: Privacy = Privacy()
    cohort: Cohort = Cohort()
    training: Training = Training()
    options: Mapping[str, Any] = field(default_factory=dict)
    simulation: Simulation | None = None
    sites: tuple[SiteEntry, ...] = ()
    parties: tuple[PartyEntry, ...] = ()
    base: Path = Path()
    declared: int | None = None
    alignment: str | None = None

    def __post_init__(self) -> None:
        Heading(self.name, self.recipe, rounds=self.rounds)  # the same ranges as in a file
        if self.simulation is not None and self.simulation.split == "columns":
            cut = self.simulation
            parties = self.parties or dealt(self.schema, cut.sites, cut.options)
            object.__setattr__(self, "parties", parties)
        _check_sites(self)
        if self.parties:
            check_parties(self.schema, self.parties)
            self._check_rows()
        elif self.alignment is not None:
            raise StudyError("study.alignment with [[party]] entries", "none", "remove it")

    def _check_rows(self) -> None:
        cut = self.simulation
        if self.sites or (cut is not None and cut.split != "columns"):
            raise StudyError(
                'no [[site]] entries beside [[party]] entries, and no split but split = "columns"',
                "one of them",
                "sites hold rows, parties hold columns: keep one kind",
            )
        if self.declared is None:
            known(cut.options if cut else {}, ("seed",), "simulation.")
            check_rows(self.parties, simulated=cut is not None, sites=cut.sites if cut else None)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a study file. Paths in it are relative to it."""
        path = Path(path)
        return cls.parse(tables(path, "a study file"), base=path.parent)

    @classmethod
    def parse(
        cls, data: Mapping[str, Any], *, base: Path = Path(), schema: Schema | None = None
    ) -> Study:
        """Build a study from the tables of a study file."""
        known(data, ("study", "recipe", "simulation", "site", "party", *TABLES), "")
        head = read(Heading, data.get("study", {}), "study")
        if schema is None and head.schema is None:
            raise StudyError("study.schema", "it is missing", 'add schema = "schema.toml"')
        simulation = data.get("simulation")
        if simulation is not None and data.get("site"):
            raise _both()
        return cls(
            name=head.name,
            schema=schema or Schema.load(base / str(head.schema)),
            recipe=head.recipe,
            rounds=head.rounds,
            alignment=head.alignment,
            options=_mapping(data.get("recipe", {}), "recipe"),
            simulation=None if simulation is None else _simulation(simulation),
            sites=site_entries(data.get("site", [])),
            parties=party_entries(data.get("party", [])),
            base=base,
            **{name: read(table, data.get(name, {}), name) for name, table in TABLES.items()},
        )

    @property
    def n_sites(self) -> int:
        """How many sites take part (public)."""
        if self.parties or self.declared is not None:
            return len(self.parties) or self.declared or 1
        if self.simulation is None:
            return len(self.sites) or 1
        return 1 if self.simulation.only else self.simulation.sites or 1

    @property
    def site_names(self) -> Sequence[str]:
        """The names of the sites; simulated ones are numbered."""
        return [entry.name for entry in self.owners] or Numbered(self.n_sites)

    @property
    def owners(self) -> tuple[SiteEntry | PartyEntry, ...]:
        """Who is named in the study, with limits and ledgers: its sites, or its parties."""
        return (*self.sites, *self.parties)

    def known_to(self, name: str = "", data: str = "") -> Study:
        """The study as one end of a network knows it: no files, limits or ledgers of others.

        ``data`` are the rows of the site ``name``; a server has none.
        """

        def bare(entry: Owner) -> Owner:
            own = data if entry.name == name else None
            return replace(entry, data=own, epsilon=None, ledger=None)

        sites, parties = tuple(map(bare, self.sites)), tuple(map(bare, self.parties))
        return replace(self, sites=sites, parties=parties)

    @property
    def held(self) -> Parties | None:
        """Who holds which columns; None where sites hold rows."""
        if not self.parties:
            return None
        names = tuple(entry.name for entry in self.parties)
        held = tuple(self.schema.columns_of(entry.columns) for entry in self.parties)
        return Parties(self.schema, names, held)

    @property
    def hash(self) -> str:
        """Names the agreement: both ends compare it. Local paths and limits are not part of it."""
        return agreement_hash(self.agreement())

    @property
    def inputs(self) -> str:
        """Names where the rows come from and how they are split: a resumed run needs the same."""
        simulated = None if self.simulation is None else asdict(self.simulation)
        public = self.options.get(_FILE)
        return agreement_hash([[asdict(entry) for entry in self.owners], simulated, public])

    def agreement(self) -> dict[str, Any]:
        """What all parties must have in common, as plain JSON; a release publishes it.

        It has the settings that are set. Names, files, limits and ledgers of sites are not in it,
        and of a file of public rows it says only that there is one.
        """
        named = {_FILE: _SOME_FILE} if self.options.get(_FILE) else {}
        agreed = {
            "name": self.name,
            "schema": self.schema.hash,
            "recipe": self.recipe,
            "rounds": self.rounds,
            "sites": self.n_sites,
            "split": self._public_split(),
            **{name: _set(getattr(self, name)) for name in TABLES},
            "options": {**self.options, **named},
            **({"parties": [entry.public for entry in self.parties]} if self.parties else {}),
            **({"alignment": self.alignment} if self.alignment else {}),
        }
        plain: dict[str, Any] = json.loads(json.dumps(agreed, default=str))
        return plain

    def _public_split(self) -> dict[str, Any] | None:
        """How rows were dealt out, as claims say it; a column only where the schema lists it."""
        if (cut := self.simulation) is None:
            return None
        listed = cut.split == "column" and follows(self.schema, "column", cut.options) == "row"
        column = {"column": cut.options["column"]} if listed else {}
        return {"name": cut.split, "alone": cut.only is not None, **column}

    def split_moves_others(self, unit: Unit) -> bool:
        """Whether removing one unit can move rows of others to another site."""
        if self.simulation is None or unit == "site" or self.parties:
            return False
        found = follows(self.schema, self.simulation.split, self.simulation.options)
        return found != "row" and (found, unit) != ("person", "person")


TABLES: dict[str, type] = {"privacy": Privacy, "cohort": Cohort, "training": Training}


_FILE, _SOME_FILE = "public", "a file"  # the recipe option that names a file; what is said of it


def agreement_hash(agreed: object) -> str:
    """Names what plain values say: an agreement, or part of one."""
    text = json.dumps(agreed, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _set(table: Any) -> dict[str, Any]:
    """The settings of a table that are set."""
    return {key: value for key, value in asdict(table).items() if value is not None}


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise StudyError(f"a table [{where}]", type(data).__name__, f"write [{where}]")
    return dict(data)


def _simulation(data: Any) -> Simulation:
    """Keys that are not ours are options of the split."""
    names = {f.name for f in fields(Simulation)} - {"options"}
    given = _mapping(data, "simulation")
    own = {key: value for key, value in given.items() if key in names}
    rest = {key: value for key, value in given.items() if key not in names}
    return read(Simulation, {**own, "options": rest}, "simulation")


def _both() -> StudyError:
    do = "remove one of them; shares of named sites are added up under masks without being told to"
    return StudyError("[simulation] or [[site]] entries", "both", do)


def _check_sites(study: Study) -> None:
    if study.sites and study.simulation is not None:
        raise _both()
    check_named(study.owners, study.base)
