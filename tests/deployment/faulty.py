"""A site of a real run that goes wrong in another way each round, as a process.

``faulty.py STUDY PORT KEYS ROWS STATE``. Faults are of single rounds, whose numbers are below; a
process that ends is started again by the test, and does not do the same thing twice.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from understudy.deployment.attendance import Attendant, attend
from understudy.deployment.joining import prepare
from understudy.deployment.keys import load_keys
from understudy.federation.budget import Budget
from understudy.federation.sites import Sites
from understudy.runtime.flare import Address, Tls
from understudy.runtime.greeting import kind_of
from understudy.runtime.wire import unpack
from understudy.study import Study

FAULTS = (
    "none", "twice", "late", "malformed", "cut off", "not finite", "oversized", "replayed",
    "disk full", "dies before", "dies during", "dies after", "none", "none",
)  # fmt: skip
LATE = 4.0  # seconds, beyond the test's deadline


@contextmanager
def full_disk():
    """No file can grow beyond a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Faulty(Attendant):
    """Answers as any site does, and then spoils it."""

    last = b""

    def handle(self, data: bytes) -> bytes:
        if kind_of(data) != "task":
            return super().handle(data)
        header, _ = unpack(data, "task")
        fault = FAULTS[header["round"]]
        if fault in ("twice", "late", "dies before", "dies during", "dies after"):
            done = self.joining.state / f"done {fault}"
            if done.exists():
                return super().handle(data)
            done.touch()
        if fault == "dies before":
            os._exit(1)
        if fault == "dies during":
            Sites.answer = lambda *_: os._exit(1)  # after it is charged, before it is kept
        if fault == "disk full":
            with full_disk():
                return super().handle(data)
        last, reply = self.last, super().handle(data)
        self.last = reply
        if fault == "dies after":
            os._exit(1)
        if fault == "late":
            time.sleep(LATE)
        if fault == "twice":
            assert super().handle(data) == reply
        spoiled = {
            "malformed": b"nonsense",
            "cut off": reply[: len(reply) // 2],
            "not finite": reply[:-8] + struct.pack("<d", float("nan")),
            "oversized": reply + bytes(8 << 20),
            "replayed": last,
        }
        return spoiled.get(fault, reply)


if __name__ == "__main__":
    study, port, folder, rows, state = sys.argv[1:]
    keys = load_keys(folder)
    joining = prepare(Study.load(study), Path(rows), Budget(keys.name), Path(state), keys)
    tls = Tls(keys.ca, keys.cert, keys.key, keys.server)
    attend(Faulty(joining, print), Address("localhost", int(port), tls), print)
