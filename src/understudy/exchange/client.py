"""A member's calls: subscribe, push, list, show, pull; what `understudy exchange` does.

::

    member = Client.subscribe(Site("https://hub.example:8703", "ca.pem"), Path("my-keys"), code)
    member.push("release.zip", dataset="ward-a")
    pulled = member.pull([each["id"] for each in member.releases()], Path("pulled"), verify)
    rows = balanced(pulled, 10_000, rng=Streams.from_seed(None)).records
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from understudy.errors import ExchangeError, OutputError, unwritable
from understudy.exchange.connection import Connection, Site
from understudy.exchange.transfer import Tick, download, silent, upload, wait_for_checks

if TYPE_CHECKING:  # PyTorch is loaded where it is needed
    from understudy.exchange.admission import Verifier
    from understudy.release.bundle import Release

__all__ = ["Client", "Site"]

_WAIT = 600.0  # seconds for the checks of a push
_PATIENCE = 300.0  # seconds for which a transfer waits for a service that is away
Found = dict[str, Any]


@dataclass(frozen=True)
class Client:
    """A member of an exchange."""

    link: Connection

    @classmethod
    def load(cls, keys: Path) -> Client:
        """The member whose key folder this is."""
        return cls(Connection.known(keys))

    @classmethod
    def subscribe(cls, site: Site, keys: Path, code: str) -> tuple[Client, Found]:
        """Become a member; with the requirements that generators have to meet."""
        link = Connection.first(site, keys)
        asked = {"identity": link.identity, "code": code}
        answer: Found = link.ask("POST", "/members", asked)
        link.remember()
        return cls(link), answer["requirements"]

    def requirements(self) -> Found:
        """What generators have to meet."""
        return dict(self.link.ask("GET", "/requirements"))

    def me(self) -> Found:
        """This member's role, budgets, and whether it may pull."""
        return dict(self.link.ask("GET", "/me"))

    def push(self, release: str | Path, dataset: str = "main", tick: Tick = silent) -> Found:
        """Send a release and wait for its checks; the push, which may have been refused."""
        patient = replace(self.link, patience=_PATIENCE)
        with tempfile.TemporaryDirectory() as folder:
            path = _as_zip(Path(release), Path(folder))
            push = upload(patient, path, dataset, tick)
        return wait_for_checks(patient, push, _WAIT)

    def pushes(self) -> list[Found]:
        """This member's own, newest first."""
        return list(self.link.ask("GET", "/pushes"))

    def releases(self, **asked: Any) -> list[Found]:
        """The pool; ``asked`` are sort, recipe, member, epsilon."""
        given = {key: value for key, value in asked.items() if value not in (None, "")}
        return list(self.link.ask("GET", "/releases" + (f"?{urlencode(given)}" if given else "")))

    def show(self, id: str) -> Found:
        """Everything about a release."""
        return dict(self.link.ask("GET", f"/releases/{_number(id)}"))

    def pull(
        self, ids: Sequence[str], folder: Path, verify: Verifier, tick: Tick = silent
    ) -> dict[str, Release]:
        """Fetch releases into a folder and verify each here, whatever the exchange says of it."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(str(folder), error) from error
        chosen = [self.show(id)["release"] for id in ids]
        return {each["id"]: self._pulled(each, folder, verify, tick) for each in chosen}

    def _pulled(self, told: Found, folder: Path, verify: Verifier, tick: Tick) -> Release:
        id = _number(str(told["id"]))
        path = folder / f"{id}.zip"
        patient = replace(self.link, patience=_PATIENCE)
        download(patient, id, str(told["sha256"]), int(told["bytes"]), path, tick)
        return verify(path).release

    def withdraw(self, id: str) -> Found:
        """Take an own release out of the pool."""
        return dict(self.link.ask("POST", f"/pushes/{_number(id)}/withdraw"))

    def open(self) -> str:
        """An address that opens the pages, once."""
        return self.link.site.url.rstrip("/") + str(self.link.ask("POST", "/sessions")["path"])

    def queue(self) -> list[Found]:
        """Stewards: what waits."""
        return list(self.link.ask("GET", "/queue"))

    def decide(self, id: str, approve: bool, why: str = "") -> Found:
        """Stewards: take a push into the pool, or turn it down."""
        told = {"approve": approve, "why": why}
        return dict(self.link.ask("POST", f"/pushes/{_number(id)}/decision", told))

    def invite(self, role: str = "member") -> Found:
        """Admins: a code for one person."""
        return dict(self.link.ask("POST", "/invitations", {"role": role}))

    def members(self) -> list[Found]:
        """Stewards: everybody, and what each has spent."""
        return list(self.link.ask("GET", "/members"))

    def revoke(self, name: str) -> Found:
        """Admins: take nothing from this member any more."""
        return dict(self.link.ask("POST", f"/members/{_name(name)}/revoke"))

    def change_role(self, name: str, role: str) -> Found:
        """Admins: give a member another role."""
        return dict(self.link.ask("PUT", f"/members/{_name(name)}/role", {"role": role}))

    def audit(self) -> Iterable[Found]:
        """Stewards: the whole audit log."""
        after = 0
        while entries := self.link.ask("GET", f"/audit?after={after}")["entries"]:
            yield from entries
            after = int(entries[-1]["seq"])


def _number(id: str) -> str:
    if len(id) != 16 or set(id) - set("0123456789abcdef"):
        raise ExchangeError(
            "a release's number of 16 digits and letters a–f", repr(id[:40]), "see exchange list"
        )
    return id


def _name(name: str) -> str:
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ExchangeError("a member's name", repr(name[:40]), "see exchange members")
    return name


def _as_zip(release: Path, folder: Path) -> Path:
    """A folder is packed as Understudy packs it; a zip is sent as it is."""
    if release.suffix == ".zip":
        if not release.is_file():
            raise OutputError(f"the release {release}", "no such file", "check the path")
        return release
    from understudy.release.bundle import Release

    path = folder / "release.zip"
    Release.load(release).save(path)
    return path
