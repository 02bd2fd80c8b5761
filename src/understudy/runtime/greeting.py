"""The first and the last words of a run: do both ends mean the same, and what came of it.

Before a site is asked for anything, server and site tell each other all that must be equal: the
public part of the study, the hashes of study, schema and plan, the version, the sites' keys, where
noise comes from, and the time, by which ledgers are dated and certificates expire. Each end
compares for itself and names what differs. At the end the server shows what it is going to publish,
and the site answers with its signature.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from understudy.errors import WireError
from understudy.runtime.wire import Agreement, Refused, encode_arrays, malformed, pack, unpack

__all__ = ["Farewell", "Terms", "kind_of", "run_of"]

_SKEW = 300  # seconds that two clocks may differ
_KINDS = ("hello", "welcome", "bye", "signed", "refusal", "task", "leg")
_WORDS = {
    "roster": "the sites' keys differ: install the newest reply of the server at every site",
    "noise": "noise comes from another source: a run with a seed is for tests, at both ends",
}


def kind_of(data: bytes) -> str:
    """What a message is."""
    return str(unpack(data, *_KINDS)[0]["message"])


def run_of(data: bytes) -> str:
    """The run a message belongs to, as it says itself."""
    run = unpack(data, *_KINDS)[0].get("run")
    if not isinstance(run, str) or not run.isalnum() or len(run) > 64:
        raise malformed("a message with a run")
    return run


@dataclass(frozen=True)
class Terms:
    """What one end takes for granted; ``study`` is the public part of it (`Study.agreement`).

    ``clock`` is the time at that end when it said so.
    """

    agreement: Agreement
    study: Mapping[str, Any]
    roster: str
    noise: str
    clock: float = 0.0

    def encode(self, message: str, run: str, site: str) -> bytes:
        """A "hello" of the server, or the "welcome" of a site."""
        said = asdict(replace(self, clock=time.time()))
        header = {"message": message, "run": run, "site": site, "terms": said}
        return pack(header, encode_arrays({}))

    @classmethod
    def decode(cls, data: bytes, message: str, site: str) -> Terms:
        """Inverse of `encode`, at the other end; a refusal is raised as one."""
        header, _ = unpack(data, message, "refusal")
        if header.get("site") != site:
            raise malformed(f"a {message} for {site}")
        if header["message"] == "refusal":
            raise Refused("a welcome", f"a refusal: {header.get('reason')}", "see the site's log")
        try:
            said = dict(header["terms"])
            agreement = {name: str(hashed) for name, hashed in said["agreement"].items()}
            roster, noise = str(said["roster"]), str(said["noise"])
            clock = float(said["clock"])
            return cls(Agreement(**agreement), dict(said["study"]), roster, noise, clock)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise malformed("the terms of a run") from error

    def differences(self, other: Terms) -> list[str]:
        """What differs, in words; empty where both ends mean the same."""
        found = [f"study: {said}" for said in _settings(self.study, other.study)]
        mine, theirs = asdict(self.agreement), asdict(other.agreement)
        if mine["schema"] != theirs["schema"]:
            found.append("the schema files differ")
        if mine["version"] != theirs["version"]:
            versions = f"{_short(mine['version'])} here and {_short(theirs['version'])} there"
            found.append(f"the versions of Understudy differ: {versions}")
        found += [_WORDS[n] for n in ("roster", "noise") if getattr(self, n) != getattr(other, n)]
        if not found and mine != theirs:
            found.append("the privacy plans differ: compare versions of dp-accounting and SciPy")
        return found

    def check(self, other: Terms, who: str, heard: float) -> None:
        """Refuse terms that differ, by what differs; ``heard`` is when they came in here."""
        if found := self.differences(other):
            raise WireError(
                f"the same study at {who} and here",
                "; ".join(found),
                "use the same study and schema files, keys and version at both ends",
            )
        if abs(apart := other.clock - heard) > _SKEW:
            raise WireError(
                f"the same time at {who} and here, to {_SKEW} s",
                f"a clock that is {abs(apart):.0f} s {'ahead' if apart > 0 else 'behind'} there",
                "set both clocks (timedatectl set-ntp true), then start again",
            )


def _settings(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """Settings of two studies that differ, with the values of both ends."""
    here, there = dict(_flat(mine)), dict(_flat(theirs))
    for name in sorted(here.keys() | there.keys()):
        if name != "schema" and here.get(name) != there.get(name):
            yield f"{name} is {_short(here.get(name))} here and {_short(there.get(name))} there"


def _short(value: object) -> str:
    return "not set" if value is None else repr(value)[:60]


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


@dataclass(frozen=True)
class Farewell:
    """What is published of a run: its manifest, the head of its ledger, the hash of its model."""

    run: str
    head: str
    model: str
    manifest: bytes

    def encode(self, site: str) -> bytes:
        """The server's last message to a site."""
        said = {"run": self.run, "head": self.head, "model": self.model}
        return pack({"message": "bye", "site": site, **said}, b"", self.manifest)

    @classmethod
    def decode(cls, data: bytes, site: str) -> Farewell:
        header, manifest = unpack(data, "bye")
        run, head, model = (header.get(name) for name in ("run", "head", "model"))
        texts = isinstance(run, str) and isinstance(head, str) and isinstance(model, str)
        if header.get("site") != site or not texts:
            raise malformed("the end of a run")
        return cls(str(run), str(head), str(model), manifest)

    def signed(self, site: str, signature: bytes) -> bytes:
        """A site's answer."""
        return pack({"message": "signed", "site": site, "run": self.run}, b"", signature)

    def signature(self, data: bytes, site: str) -> bytes:
        """Inverse of `signed`; a refusal is raised as one."""
        header, signature = unpack(data, "signed", "refusal")
        if header.get("site") != site:
            raise malformed(f"an answer of {site}")
        if header["message"] == "refusal":
            raise Refused("a signature", f"a refusal: {header.get('reason')}", "see its log")
        return signature
