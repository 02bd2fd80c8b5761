"""What a server says of its run while it runs: one small file, replaced in one move.

The console page and whoever looks into the folder read it. It holds what those who take part know
anyway: no row, no loss, nothing that follows from data, and not who is in a secret cohort.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from understudy.errors import UnderstudyError
from understudy.federation.checkpoint import write_atomic
from understudy.privacy.claim import Claim

__all__ = ["FILE", "Phase", "Promised", "SiteState", "SiteStatus", "Status"]

FILE = "status.json"
LINES = 40  # of the log
Phase = Literal["waiting", "training", "paused", "finishing", "done"]
SiteState = Literal["absent", "joined", "lost", "refused", "left", "done"]


@dataclass(frozen=True)
class SiteStatus:
    """One site: its state, when it was last heard of (Unix time), and why, if there is a reason."""

    name: str
    state: SiteState = "absent"
    seen: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _one_of(self.state, SiteState)


@dataclass(frozen=True)
class Promised:
    """What the whole run promises against one adversary; ``epsilon`` None where nothing is.

    ``spent`` is that of the rounds up to the last look (`Status.looked`).
    """

    adversary: str
    unit: str
    epsilon: float | None
    delta: float
    words: str
    spent: float | None = None

    @classmethod
    def of(cls, claims: Iterable[Claim]) -> tuple[Promised, ...]:
        """Of each claim."""
        return tuple(
            cls(claim.adversary, claim.unit, claim.epsilon, claim.delta, claim.words)
            for claim in claims
        )


@dataclass(frozen=True)
class Status:
    """A run as its server sees it. ``round`` rounds of ``rounds`` are done (and charged).

    ``next`` is the command to type, or empty where nothing needs to be done; ``sample`` is a file
    beside this one with rows of the generator (CSV), if there is any. It and what claims have spent
    are looked at now and then: ``looked`` is after how many rounds.
    """

    study: str
    rounds: int
    sites: tuple[SiteStatus, ...]
    claims: tuple[Promised, ...] = ()
    phase: Phase = "waiting"
    round: int = 0
    log: tuple[str, ...] = ()
    next: str = ""
    sample: str = ""
    looked: int = 0
    started: float = 0.0
    updated: float = 0.0

    def __post_init__(self) -> None:
        _one_of(self.phase, Phase)
        if not 0 <= self.round <= self.rounds:
            raise ValueError(f"round {self.round} of {self.rounds}")

    def told(self, *lines: str, **changes: Any) -> Status:
        """The status after ``changes``, with more lines in the log, of which the last are kept."""
        now = time.time()
        stamped = [f"{time.strftime('%H:%M:%S', time.localtime(now))}  {line}" for line in lines]
        log = (*self.log, *stamped)[-LINES:]
        return replace(self, log=log, updated=now, started=self.started or now, **changes)

    def with_site(self, name: str, state: SiteState, note: str = "") -> Status:
        """The status after one site has changed; a site that is heard of was seen now."""

        def changed(site: SiteStatus) -> SiteStatus:
            heard = state in ("joined", "done", "left", "refused")
            seen = time.time() if heard else site.seen
            return replace(site, state=state, seen=seen, note=note)

        sites = tuple(changed(site) if site.name == name else site for site in self.sites)
        return replace(self, sites=sites, updated=time.time())

    def write(self, folder: Path) -> None:
        """Replace the file in one move; a full disk leaves what was there."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(folder / FILE, f"{text}\n".encode())

    @classmethod
    def read(cls, folder: Path) -> Status:
        try:
            return cls.parse(json.loads((folder / FILE).read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise UnderstudyError(
                f"{FILE} in {folder}", "no such file", "name the folder of understudy serve --out"
            ) from error
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UnderstudyError(
                f"a readable {FILE}", "a damaged one", "look at the server's own output instead"
            ) from error

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Status:
        """From its JSON form; `ValueError` or `TypeError` where it is another."""
        sites = tuple(SiteStatus(**site) for site in data["sites"])
        claims = tuple(Promised(**claim) for claim in data["claims"])
        if unknown := data.keys() - {field.name for field in fields(cls)}:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        log = tuple(str(line) for line in data["log"])
        return cls(**{**data, "sites": sites, "claims": claims, "log": log})


def _one_of(value: str, known: Any) -> None:
    if value not in get_args(known):
        raise ValueError(f"{value!r} is none of {get_args(known)}")
