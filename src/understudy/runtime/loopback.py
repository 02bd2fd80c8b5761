"""A transport within one process: a thread per site and real bytes, with faults to inject.

It stands in for a network in tests and in `understudy run --wire`. Faults are named by site and
by how many messages that site was sent before, so that a test can repeat them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import ClassVar, Literal

__all__ = ["Fault", "Handler", "Loopback"]

Handler = Callable[[bytes], bytes]
Fault = Literal[
    "drop",  # the message never arrives
    "lose",  # the site answers, and the reply is lost
    "late",  # the reply comes with the next exchange, before the one that is due
    "delay",  # the reply takes a moment
    "duplicate",  # the message arrives twice
    "truncate",  # half of the reply arrives
    "reorder",  # replies arrive under each other's names
    "die",  # the site never answers again
]
_MOMENT = 0.05  # seconds
_MOST_THREADS = 8


@dataclass
class Loopback:
    """``faults`` maps (site, number of its message from 0) to what goes wrong with it."""

    handlers: Mapping[str, Handler]
    faults: Mapping[tuple[str, int], Fault] = field(default_factory=dict)
    _sent: Counter[str] = field(default_factory=Counter)
    _late: dict[str, bytes] = field(default_factory=dict)
    _dead: set[str] = field(default_factory=set)

    ran: ClassVar[str] = "one process"

    def sites(self) -> Sequence[str]:
        """Every site that has a handler."""
        return list(self.handlers)

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """One thread per message, up to a few at a time."""
        pool = ThreadPoolExecutor(min(_MOST_THREADS, max(1, len(messages))))
        faults = {name: self._fault(name) for name in messages}
        jobs = {n: pool.submit(self._deliver, n, m, faults[n]) for n, m in messages.items()}
        wait(jobs.values(), timeout=deadline)
        pool.shutdown(wait=False, cancel_futures=True)
        replies, failures = _collected(jobs)
        return _swapped(replies, [n for n, f in faults.items() if f == "reorder"]), failures

    def _fault(self, name: str) -> Fault | None:
        fault = self.faults.get((name, self._sent[name]))
        self._sent[name] += 1
        if fault == "die":
            self._dead.add(name)
        return "die" if name in self._dead else fault

    def _deliver(self, name: str, message: bytes, fault: Fault | None) -> bytes:
        if fault in ("drop", "die"):
            raise TimeoutError("no answer")
        reply = self.handlers[name](message)
        if fault == "duplicate":
            reply = self.handlers[name](message)
        if fault == "delay":
            time.sleep(_MOMENT)
        if fault == "late":
            self._late[name] = reply
        if fault in ("lose", "late"):
            raise TimeoutError("no answer")
        if name in self._late:
            return self._late.pop(name)
        return reply[: len(reply) // 2] if fault == "truncate" else reply


def _collected(jobs: Mapping[str, Future[bytes]]) -> tuple[dict[str, bytes], dict[str, str]]:
    """What came back in time, and why the rest did not."""
    replies, failures = {}, {}
    for name, job in jobs.items():
        if not job.done():
            failures[name] = "no answer before the deadline"
        elif (error := job.exception()) is not None:
            failures[name] = f"{type(error).__name__}: {error}"
        else:
            replies[name] = job.result()
    return replies, failures


def _swapped(replies: dict[str, bytes], names: Sequence[str]) -> dict[str, bytes]:
    """The same replies, with those of ``names`` handed round among all."""
    if not names or len(replies) < 2:
        return replies
    order = list(replies)
    return dict(zip(order, [replies[name] for name in (*order[1:], order[0])], strict=True))
