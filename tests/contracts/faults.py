"""A loopback on which messages get lost, doubled, cut short and mixed up, as told.

Faults are named by site and by how many messages that site was sent before, so that a test can
repeat them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from understudy.runtime.loopback import Loopback

__all__ = ["Fault", "Faults", "Faulty"]

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
Faults = Mapping[tuple[str, int], Fault]
_MOMENT = 0.05  # seconds


@dataclass
class Faulty(Loopback):
    """``faults`` maps (site, number of its message from 0) to what goes wrong with it."""

    faults: Faults = field(default_factory=dict)
    _now: dict[str, Fault | None] = field(default_factory=dict)
    _sent: Counter[str] = field(default_factory=Counter)
    _late: dict[str, bytes] = field(default_factory=dict)
    _dead: set[str] = field(default_factory=set)

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        self._now = {name: self._fault(name) for name in messages}
        replies, failures = super().exchange(messages, deadline)
        return _swapped(replies, [n for n, f in self._now.items() if f == "reorder"]), failures

    def _fault(self, name: str) -> Fault | None:
        fault = self.faults.get((name, self._sent[name]))
        self._sent[name] += 1
        if fault == "die":
            self._dead.add(name)
        return "die" if name in self._dead else fault

    def deliver(self, name: str, message: bytes) -> bytes:
        fault = self._now[name]
        if fault in ("drop", "die"):
            raise TimeoutError("no answer")
        reply = super().deliver(name, message)
        if fault == "duplicate":
            reply = super().deliver(name, message)
        if fault == "delay":
            time.sleep(_MOMENT)
        if fault == "late":
            self._late[name] = reply
        if fault in ("lose", "late"):
            raise TimeoutError("no answer")
        if name in self._late:
            return self._late.pop(name)
        return reply[: len(reply) // 2] if fault == "truncate" else reply


def _swapped(replies: dict[str, bytes], names: Sequence[str]) -> dict[str, bytes]:
    """The same replies, with those of ``names`` handed round among all."""
    if not names or len(replies) < 2:
        return replies
    order = list(replies)
    return dict(zip(order, [replies[name] for name in (*order[1:], order[0])], strict=True))
