"""Rate limits: so many requests in a minute for each name, in bursts of at most a quarter of it."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from understudy.exchange.refusal import Refused

__all__ = ["Rates"]

_MOST = 10_000  # names that are remembered; older ones are forgotten first


@dataclass
class Rates:
    """A bucket for each name that fills steadily and is emptied by requests."""

    minute: int
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str, now: float | None = None) -> None:
        """One request of this name, or a refusal that says how long to wait."""
        now = time.monotonic() if now is None else now
        rate, burst = self.minute / 60, max(self.minute / 4, 1.0)
        with self._lock:
            left, since = self._left.pop(name, (burst, now))
            left = min(burst, left + (now - since) * rate)
            self._left[name] = (max(left - 1, 0) if left >= 1 else left, now)
            while len(self._left) > _MOST:
                self._left.popitem(last=False)
        if left < 1:
            wait = math.ceil((1 - left) / rate)
            raise Refused(
                429, f"at most {self.minute} requests a minute", "more", f"wait {wait} s", wait
            )
