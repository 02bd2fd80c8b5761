"""What an exchange asks of its members: the file ``exchange.toml``, and what subscribers are told.

`Requirements` is the paper's answer to *Subscribe*: schema, allowed generators and sizes, caps on ε
and δ, unit, trust, licence. `Limits` are the service's own, far below what a reader of releases
would take: a push is checked before anybody has looked at it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from understudy.data.schema import Schema
from understudy.privacy.terms import Unit
from understudy.settings import Settings, known, read, setting, tables

__all__ = ["DATABASE_VARIABLE", "About", "Limits", "Policy", "Requirements"]

Taken = Literal["central", "distributed", "local"]  # trusts that promise something
DATABASE_VARIABLE = "UNDERSTUDY_EXCHANGE_DATABASE"


@dataclass(frozen=True)
class About(Settings, table="exchange"):
    """``[exchange]``"""

    name: str = setting(MISSING, "a name for people")
    schema: str = setting(MISSING, "path of the schema that all generators share")
    store: str = setting("store", "folder of the releases, and of the database by default")
    database: str = setting(
        "", f"postgresql://… (or in {DATABASE_VARIABLE}); by default a SQLite file in the store"
    )
    licence: str = setting("", "on what terms members may use what they pull")


@dataclass(frozen=True)
class Requirements(Settings, table="requirements"):
    """``[requirements]``"""

    epsilon: float = setting(
        1.5, "the most ε of one member's data, added up over all its pushes of it", above=0
    )
    delta: float = setting(
        1e-5, "δ at which that ε is computed; no push may need more", above=0, below=1
    )
    unit: Unit = setting("record", "what every push must protect")
    trust: tuple[Taken, ...] = setting(("local", "distributed", "central"), "trusts that are taken")
    kinds: tuple[str, ...] = setting((), "kinds of generators that are taken; none named: all")
    megabytes: float = setting(16.0, "the most a push may weigh", above=0, most=1024)
    simulated: bool = setting(False, "take releases whose noise was drawn from a seed: for tests")
    approval: bool = setting(True, "a steward approves each push before members can pull it")
    pull_after_push: bool = setting(
        True, "only members with an accepted push of their own may pull"
    )


@dataclass(frozen=True)
class Limits(Settings, table="limits"):
    """``[limits]``"""

    seconds: float = setting(120.0, "wall-clock time that the checks of one push may take", above=0)
    gigabytes: float = setting(2.0, "memory that they may take", above=0)
    sample_rows: int = setting(20_000, "the most rows of the sample inside a push", least=1)
    checks: int = setting(2, "pushes that are checked at a time", least=1)
    uploads: int = setting(8, "uploads that a member may have open at a time", least=1)
    requests: int = setting(600, "requests of one member in a minute", least=1)
    strangers: int = setting(
        120, "requests in a minute from one address that are not signed", least=1
    )


@dataclass(frozen=True)
class Policy:
    """All of ``exchange.toml``, with the schema that it names."""

    about: About
    schema: Schema
    requirements: Requirements = Requirements()
    limits: Limits = Limits()
    base: Path = Path()

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """From a file; paths in it are relative to it."""
        path = Path(path)
        return cls.parse(tables(path, "an exchange's file"), path.parent)

    @classmethod
    def parse(cls, data: Mapping[str, Any], base: Path = Path()) -> Policy:
        """From its tables."""
        known(data, ("exchange", "requirements", "limits"), "")
        about = read(About, data.get("exchange", {}), "exchange")
        return cls(
            about,
            Schema.load(base / about.schema),
            read(Requirements, data.get("requirements", {}), "requirements"),
            read(Limits, data.get("limits", {}), "limits"),
            base,
        )

    @property
    def store(self) -> Path:
        """The folder of blobs."""
        return self.base / self.about.store

    @property
    def database(self) -> str:
        """Its URL: as set, or a file in the store."""
        url = os.environ.get(DATABASE_VARIABLE) or self.about.database
        return url or f"sqlite:///{(self.store / 'exchange.db').absolute()}"

    @property
    def most_bytes(self) -> int:
        """What a push may weigh."""
        return int(self.requirements.megabytes * 1_000_000)

    def told(self) -> dict[str, Any]:
        """The requirements, as subscribers get them."""
        return {
            "name": self.about.name,
            "licence": self.about.licence,
            "schema": self.schema.to_toml(),
            "schema_hash": self.schema.hash,
            **asdict(self.requirements),
        }
