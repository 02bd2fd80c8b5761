"""A transport within one process: a thread per site and real bytes.

It stands in for a network in `understudy run --wire`, and, with faults, in tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import ClassVar

from understudy.runtime.transport import Handler, collected

__all__ = ["Loopback"]

_MOST_THREADS = 8


@dataclass
class Loopback:
    """``handlers`` are the sites' ends, by name."""

    handlers: Mapping[str, Handler]

    ran: ClassVar[str] = "one process"

    def sites(self) -> Sequence[str]:
        return list(self.handlers)

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """One thread per message, up to a few at a time."""
        pool = ThreadPoolExecutor(min(_MOST_THREADS, max(1, len(messages))))
        jobs = {name: pool.submit(self.deliver, name, data) for name, data in messages.items()}
        wait(jobs.values(), timeout=deadline)
        pool.shutdown(wait=False, cancel_futures=True)
        return collected(jobs)

    def deliver(self, name: str, message: bytes) -> bytes:
        """A site's reply."""
        return self.handlers[name](message)
