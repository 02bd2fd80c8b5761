"""Who is there: a server greets its sites, waits for those that are missing, and says goodbye.

Before round one every site of the study must be there and mean the same. Before each later round,
and when a run is resumed, the server waits for sites that are missing; it goes on without those
that stay away, as long as enough are there, and otherwise pauses: a round that nobody answers is
never begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.deployment.status import SiteState, Status
from understudy.errors import UnderstudyError, WireError
from understudy.runtime.flare import FlareTransport
from understudy.runtime.greeting import Farewell, Terms

__all__ = ["Reception", "Report"]

_LOOK = 0.1  # seconds between looks
_GREETING = 30.0  # seconds for a site to answer a greeting
Tell = Callable[[Status], None]


@dataclass
class Report:
    """The status of a run, written to its folder whenever it changes."""

    status: Status
    folder: Path
    tell: Tell = lambda status: None

    def say(self, *lines: str, **changes: Any) -> None:
        """Add lines to the log, and change the status."""
        self.status = self.status.told(*lines, **changes)
        self.status.write(self.folder)
        self.tell(self.status)

    def site(self, name: str, state: SiteState, note: str = "") -> None:
        """A site has changed; nothing is said where it has not."""
        before = next(site for site in self.status.sites if site.name == name)
        if (before.state, before.note) != (state, note):
            self.status = self.status.with_site(name, state, note)
            self.say(f"{name}: {state}{f' ({note})' if note else ''}")


@dataclass
class Reception:
    """``resume`` is the command that goes on after a pause; ``wait`` how long to wait for sites."""

    transport: FlareTransport
    terms: Terms
    run: str
    report: Report
    wait: float
    resume: str
    _greeted: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    _away: set[str] = field(default_factory=set)
    _opened: bool = False

    def __post_init__(self) -> None:
        self.transport.watch = self.look

    @property
    def names(self) -> Sequence[str]:
        return [site.name for site in self.report.status.sites]

    def open(self, least: int | None = None) -> None:
        """Wait until every site is there and agrees; refuse where one does not.

        ``least`` is for a run that was begun before: with so many it goes on when the time is up.
        """
        self._opened = least is not None
        self.report.say(f"waiting for {', '.join(self.names)}", phase="waiting")
        until = time.monotonic() + self.wait
        while missing := self._missing():
            if time.monotonic() > until:
                if len(self.names) - len(missing) < (least or len(self.names)):
                    raise self._pause(f"no word from {', '.join(missing)} for {self.wait:g} s")
                self.report.say(f"going on without {', '.join(missing)}")
                break
            time.sleep(_LOOK)
        self._opened = True

    def _missing(self) -> list[str]:
        present = self.present()
        return [name for name in self.names if name not in present]

    def enough(self, least: int) -> None:
        """Before a round: wait for sites that may come back, then see that enough are there."""
        short_since = time.monotonic()
        while True:
            present = self.present()
            awaited = [name for name in self.names if name in self.transport.awaited()]
            if len(present) == len(self.names) or (len(present) >= least and not awaited):
                break
            if self._training:
                self.report.say(phase="waiting", next="")
            if len(present) < least and time.monotonic() - short_since > self.wait:
                raise self._pause(f"{len(present)} of {len(self.names)} sites, {least} are needed")
            time.sleep(_LOOK)
        if not self._training:
            self.report.say(phase="training", next="")

    @property
    def _training(self) -> bool:
        return self.report.status.phase == "training"

    def present(self) -> Sequence[str]:
        """The sites that are connected and were greeted since they connected."""
        there = self.transport.sites()
        self._away.clear()
        self.look(there)
        self._refused &= set(there)
        new = [name for name in there if name not in self._greeted | self._refused]
        if new:
            self._greet(new)
        return [name for name in there if name in self._greeted]

    def look(self, there: Sequence[str]) -> None:
        """Say who has gone, and who is back while its answer is waited for."""
        gone, back = self._greeted - set(there), self._away & set(there)
        for name in gone:
            self.report.site(name, "lost")
        for name in back:
            self.report.site(name, "joined")
        self._away = (self._away | gone) - back
        self._greeted -= gone

    def _greet(self, names: Sequence[str]) -> None:
        hello = {name: self.terms.encode("hello", self.run, name) for name in names}
        found, _ = self.transport.exchange(hello, _GREETING)
        for name, reply in found.items():
            try:
                theirs = Terms.decode(reply, "welcome", name)
                self.terms.check(theirs, name, time.time())
            except UnderstudyError as error:
                self._refuse(name, error)
                continue
            self._greeted.add(name)
            self.report.site(name, "joined")

    def _refuse(self, name: str, error: UnderstudyError) -> None:
        """Before round one this ends the run; later it goes on without the site."""
        self._refused.add(name)
        self.report.site(name, "refused", error.found[:300])
        if not self._opened:
            raise WireError(f"{name}: {error.expected}", error.found, error.do) from error

    def _pause(self, found: str) -> WireError:
        self.report.say(f"paused: {found}", phase="paused", next=self.resume)
        return WireError(
            "enough sites for a round", found, f"start those that are missing, then: {self.resume}"
        )

    def close(self, farewell: Farewell, deadline: float) -> dict[str, bytes]:
        """Show every site what is published; the signatures that came back."""
        last = {name: farewell.encode(name) for name in self.names}
        found, failed = self.transport.exchange(last, deadline)
        signatures = {}
        for name in self.names:
            try:
                if name in found:
                    signatures[name] = farewell.signature(found[name], name)
                    self.report.site(name, "done")
                else:
                    self.report.site(name, "lost", failed.get(name, ""))
            except UnderstudyError as error:
                self.report.site(name, "refused", error.found[:300])
        return signatures
