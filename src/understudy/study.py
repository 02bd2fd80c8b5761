"""A study: everything the parties agree on before anything runs, read from ``study.toml``.

Each setting is declared once, below, with its help text; the reference page and the
errors derive from these declarations. Unknown keys are refused. What the recipe itself
offers stands in the recipe's own options and is checked when the recipe is built.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from understudy.data.schema import Schema
from understudy.data.schema_toml import toml_value
from understudy.errors import StudyError
from understudy.privacy.terms import Trust, Unit

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

__all__ = [
    "Cohort",
    "Privacy",
    "Simulation",
    "SiteEntry",
    "Study",
    "Training",
    "allowed",
    "setting",
]

T = TypeVar("T")


def setting(default: Any, help: str) -> Any:
    """A field with its one-line explanation."""
    if default is MISSING:
        return field(metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Privacy:
    """``[privacy]``"""

    trust: Trust | None = setting(None, "who adds the noise: central, local, distributed or none")
    unit: Unit | None = setting(None, "what is protected: record, person or site")
    epsilon: float | None = setting(None, "the ε to stay below; the noise is solved for it")
    noise: float | None = setting(None, "the noise multiplier z; ε follows. One of epsilon, noise")
    epsilon_per_update: float | None = setting(
        None, "instead of epsilon, where sites send choices: the ε of one update of one site"
    )
    delta: float | None = setting(None, "δ; min(1e-5, N^-1.1) when left out")
    clip: float | None = setting(None, "the L2 bound S on one unit's contribution")


@dataclass(frozen=True)
class Cohort:
    """``[cohort]``"""

    rate: float | None = setting(None, "chance of each site to join a round, by secret coin flips")
    size: int | None = setting(
        None, "sites called to each round by a public schedule (local trust: no amplification)"
    )
    joins: int | None = setting(None, "the most rounds one site takes part in (local trust)")


@dataclass(frozen=True)
class Training:
    """``[training]``; what is left out is the recipe's choice"""

    epochs: int | None = setting(None, "local passes over the rows per round")
    batch: int | None = setting(None, "rows per local step")
    rate: float | None = setting(None, "local learning rate")
    optimiser: Literal["adam", "sgd"] | None = setting(None, "local optimiser")


@dataclass(frozen=True)
class Simulation:
    """``[simulation]``: one file, cut into sites in this process"""

    data: str = setting(MISSING, "path of the rows, or bundled:NAME")
    sites: int = setting(MISSING, "number of sites to cut the rows into")
    split: Literal[
        "uniform", "kmeans", "geometric", "dirichlet", "classes", "column", "blocks", "person"
    ] = setting(
        "uniform", "uniform, kmeans, geometric, dirichlet, classes, column, blocks or person"
    )
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "options of the split"})


@dataclass(frozen=True)
class SiteEntry:
    """``[[site]]``: one file per site"""

    name: str = setting(MISSING, "the site's name")
    data: str = setting(MISSING, "path of its rows")
    epsilon: float | None = setting(None, "the site's own cap on ε; it joins nothing beyond it")
    ledger: str | None = setting(None, "the site's own ledger, kept across studies")


@dataclass(frozen=True)
class Study:
    """The whole agreement. ``options`` is the recipe's own table, ``[recipe]``."""

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
    base: Path = Path()

    def __post_init__(self) -> None:
        _check_privacy(self.privacy)
        _check_cohort(self.cohort)
        _check_training(self.training)
        _check_sites(self)
        if self.rounds is not None and self.rounds < 1:
            raise StudyError("study.rounds of at least 1", str(self.rounds), "raise it")

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a study file; paths inside are relative to it."""
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise StudyError("a study file", f"no file {path.name}", "check the path") from error
        except OSError as error:
            raise StudyError(
                "a readable study file", f"{error.strerror}", "check the path"
            ) from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise StudyError("a TOML study file", f"{error}", "fix the syntax") from error
        return cls.parse(data, base=path.parent)

    @classmethod
    def parse(
        cls, data: Mapping[str, Any], *, base: Path = Path(), schema: Schema | None = None
    ) -> Study:
        """Build a study from the tables of a study file."""
        _known(data, {"study", "privacy", "cohort", "training", "recipe", "simulation", "site"}, "")
        head = data.get("study", {})
        _known(head, {"name", "schema", "recipe", "rounds"}, "study.")
        _mapping(data.get("recipe", {}), "recipe.")
        if not isinstance(data.get("site", []), list):
            raise StudyError("a list of [[site]] tables", "something else", "write [[site]]")
        for key in ("name", "recipe") + (() if schema else ("schema",)):
            if not isinstance(head.get(key), str):
                raise StudyError(f"study.{key} as text", "nothing of the kind", f"add {key} = …")
        simulation = data.get("simulation")
        return cls(
            name=head["name"],
            schema=schema or Schema.load(base / head["schema"]),
            recipe=head["recipe"],
            rounds=_typed(head.get("rounds"), int | None, "study.rounds"),
            privacy=_table(Privacy, data.get("privacy", {}), "privacy."),
            cohort=_table(Cohort, data.get("cohort", {}), "cohort."),
            training=_table(Training, data.get("training", {}), "training."),
            options=dict(data.get("recipe", {})),
            simulation=_simulation(simulation) if simulation is not None else None,
            sites=tuple(_table(SiteEntry, s, "site.") for s in data.get("site", [])),
            base=base,
        )

    @property
    def n_sites(self) -> int:
        """How many sites take part (public)."""
        if self.sites:
            return len(self.sites)
        return self.simulation.sites if self.simulation else 1

    @property
    def hash(self) -> str:
        """Names the agreement: both ends compare it. Local paths and caps are not part of it."""
        text = json.dumps(self.agreement(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def inputs(self) -> str:
        """Names where the rows come from and how they are cut: a resumed run must have the same."""
        held = [asdict(entry) for entry in self.sites]
        simulated = None if self.simulation is None else asdict(self.simulation)
        text = json.dumps([held, simulated], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def agreement(self) -> dict[str, Any]:
        """What all parties must have in common."""
        return {
            "name": self.name,
            "schema": self.schema.hash,
            "recipe": self.recipe,
            "rounds": self.rounds,
            "sites": self.n_sites,
            "privacy": asdict(self.privacy),
            "cohort": asdict(self.cohort),
            "training": asdict(self.training),
            "options": dict(self.options),
        }


def options(cls: type[T], data: Mapping[str, Any]) -> T:
    """A recipe's own options from ``[recipe]``, checked like every other table."""
    return _table(cls, data, "recipe.")


def _simulation(data: Mapping[str, Any]) -> Simulation:
    """Keys that are not ours are options of the split."""
    _mapping(data, "simulation.")
    names = {f.name for f in fields(Simulation)} - {"options"}
    own = {k: v for k, v in data.items() if k in names}
    table = _table(Simulation, own, "simulation.")
    if table.sites < 1:
        raise StudyError("simulation.sites of at least 1", str(table.sites), "raise it")
    return Simulation(
        table.data, table.sites, table.split, {k: v for k, v in data.items() if k not in own}
    )


def _mapping(data: object, where: str) -> None:
    if not isinstance(data, Mapping):
        raise StudyError(
            f"a table [{where.rstrip('.')}]", type(data).__name__, "write [table] headers"
        )


def _nearest(key: str, names: set[str]) -> str:
    found = difflib.get_close_matches(key, names, 1)
    return f" (did you mean {found[0]}?)" if found else ""


def _known(data: Mapping[str, Any], names: set[str], where: str) -> None:
    _mapping(data, where)
    for key in data:
        if key not in names:
            raise StudyError(
                f"one of {', '.join(sorted(where + name for name in names))}",
                f"unknown key {where}{key}",
                f"check the spelling{_nearest(key, names)}; unknown keys are never ignored",
            )


def _table(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    assert is_dataclass(cls)
    _known(data, {f.name for f in fields(cls)}, where)
    hints = get_type_hints(cls)
    for f in fields(cls):
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise StudyError(f"{where}{f.name}", "it is missing", f"add it: {f.metadata['help']}")
    return cls(**{k: _typed(v, hints[k], where + k) for k, v in data.items()})


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value if it has the declared type (an int may stand for a float)."""
    for choice in _choices(hint):
        if get_origin(choice) is Literal:
            if value in get_args(choice):
                return value
        elif get_origin(choice) is tuple:
            if isinstance(value, (list, tuple)):
                return tuple(_typed(v, get_args(choice)[0], where) for v in value)
        elif choice is float and type(value) in (int, float):
            return float(value)
        elif choice in (int, str, bool) and type(value) is choice:
            return value
        elif choice is type(None) and value is None:
            return None
        elif get_origin(choice) is dict and isinstance(value, dict):
            return value
        elif value == choice and type(value) is type(choice):
            return value
    raise StudyError(
        f"{where} as {allowed(hint)}", f"{type(value).__name__} {value!r}", "correct the value"
    )


def allowed(hint: Any) -> str:
    """What a setting of this type may be, as it stands in a study file."""
    return " or ".join(_name(choice) for choice in _choices(hint) if choice is not type(None))


def _choices(hint: Any) -> tuple[Any, ...]:
    several = get_origin(hint) in (UnionType, Literal) or _is_union(hint)
    return get_args(hint) if several else (hint,)


def _name(choice: Any) -> str:
    if get_origin(choice) is Literal:
        return allowed(choice)
    if get_origin(choice) is tuple:
        return f"a list of {_name(get_args(choice)[0]).removeprefix('a ')}s"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(
        choice, toml_value(choice) if isinstance(choice, str) else "a table"
    )


def _is_union(hint: Any) -> bool:
    return str(get_origin(hint)) == "typing.Union"


def _check_privacy(privacy: Privacy) -> None:
    for name in ("epsilon", "epsilon_per_update", "delta", "clip"):
        value = getattr(privacy, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise StudyError(f"privacy.{name} above 0 and finite", f"{value}", "correct it")
    given = (privacy.epsilon, privacy.noise, privacy.epsilon_per_update)
    if sum(value is not None for value in given) > 1:
        raise StudyError(
            "one of privacy.epsilon, privacy.noise and privacy.epsilon_per_update",
            "several",
            "give one; the others follow",
        )
    if privacy.trust == "none":
        if any(given):
            raise StudyError('no ε and no noise with trust = "none"', "one of them", "leave it out")
    elif privacy.noise is not None and not (privacy.noise > 0 and math.isfinite(privacy.noise)):
        raise StudyError(
            "privacy.noise above 0",
            f"{privacy.noise}",
            'for a run without noise say trust = "none"',
        )


def _check_cohort(cohort: Cohort) -> None:
    if cohort.size is not None and (cohort.rate is not None or cohort.size < 1):
        raise StudyError(
            "cohort.rate, or a cohort.size of at least 1",
            f"size {cohort.size}, rate {cohort.rate}",
            "coin flips (rate) serve central trust, a schedule (size) serves local trust",
        )
    if cohort.rate is not None and not 0 < cohort.rate <= 1:
        raise StudyError("cohort.rate in (0, 1]", f"{cohort.rate}", "e.g. rate = 0.1")
    if cohort.joins is not None and cohort.joins < 1:
        raise StudyError("cohort.joins of at least 1", f"{cohort.joins}", "raise it")


def _check_training(training: Training) -> None:
    for name in ("epochs", "batch", "rate"):
        value = getattr(training, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise StudyError(f"training.{name} above 0 and finite", f"{value}", "correct it")


def _check_sites(study: Study) -> None:
    if study.sites and study.simulation is not None:
        raise StudyError("[simulation] or [[site]] entries", "both", "leave one of them out")
    if len({entry.name for entry in study.sites}) < len(study.sites):
        raise StudyError("a name of its own for each site", "a repeated name", "rename one")
    ledgers = [study.base / entry.ledger for entry in study.sites if entry.ledger]
    if len({path.resolve() for path in ledgers}) < len(ledgers):
        raise StudyError("a ledger of its own for each site", "a shared one", "name another file")
    for entry in study.sites:
        if entry.epsilon is not None and not (entry.epsilon > 0 and math.isfinite(entry.epsilon)):
            raise StudyError("site.epsilon above 0 and finite", f"{entry.epsilon}", "correct it")
