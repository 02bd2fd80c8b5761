"""The byte seam that a network engine fills: bytes to named sites, bytes back before a deadline.

Transport only. Rounds, attempts, sites and hashes are inside our bytes (`wire`), so an engine
cannot mix them up; a deadline is ours to enforce, whatever the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

__all__ = ["LATE", "Handler", "Transport", "collected"]

LATE = "no answer before the deadline"
Handler = Callable[[bytes], bytes]  # a site's end: a message in, the reply out


class Transport(Protocol):
    """One method that matters, and the list of who can be reached."""

    @property
    def ran(self) -> str:
        """What ran where, as claims say it: a key of `privacy.claim.RAN`."""

    def sites(self) -> Sequence[str]:
        """Names of the sites that are connected and approved."""

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Send each site its message, wait ``deadline`` seconds: replies, and failures by name."""


def collected(jobs: Mapping[str, Future[bytes]]) -> tuple[dict[str, bytes], dict[str, str]]:
    """What came back in time, and why the rest did not."""
    replies, failures = {}, {}
    for name, job in jobs.items():
        if not job.done():
            failures[name] = LATE
        elif (error := job.exception()) is not None:
            failures[name] = str(error)
        else:
            replies[name] = job.result()
    return replies, failures
