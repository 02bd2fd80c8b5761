"""What all requests and checks share: policy, database, store, rates, the queue of checks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from understudy.exchange.auditlog import head
from understudy.exchange.blobs import Blobs
from understudy.exchange.database import Database
from understudy.exchange.policy import Policy
from understudy.exchange.rates import Rates
from understudy.exchange.worker import Worker

__all__ = ["Exchange"]

_STRIPES = 64


@dataclass(frozen=True)
class Exchange:
    """A running exchange. One process serves it: rates and locks of uploads are its own."""

    policy: Policy
    database: Database
    blobs: Blobs
    worker: Worker
    members: Rates
    strangers: Rates
    queue: ThreadPoolExecutor
    closing: threading.Event = field(default_factory=threading.Event)
    _locks: tuple[threading.Lock, ...] = field(
        default_factory=lambda: tuple(threading.Lock() for _ in range(_STRIPES))
    )

    @classmethod
    def open(cls, policy: Policy, worker: Worker) -> Exchange:
        """Make the store and the tables where they are missing."""
        blobs, database = Blobs(policy.store), Database(policy.database)
        database.migrate()
        limits = policy.limits
        return cls(
            policy,
            database,
            blobs,
            worker,
            Rates(limits.requests),
            Rates(limits.strangers),
            ThreadPoolExecutor(limits.checks, thread_name_prefix="check"),
        )

    def lock(self, push: str) -> threading.Lock:
        """One writer at a time for an upload."""
        return self._locks[int(push, 16) % _STRIPES]

    def later(self, work: Callable[[Exchange, str], None], push: str) -> None:
        """Put a check in the queue."""
        self.queue.submit(work, self, push)

    def note_head(self) -> None:
        """Write down, beside the blobs, how far the audit log went."""
        with self.database.reading() as session:
            self.blobs.note_head(*head(session))

    def close(self) -> None:
        """Checks that are not done are begun again at the next start."""
        self.closing.set()
        self.queue.shutdown(wait=True, cancel_futures=True)
        self.database.close()
