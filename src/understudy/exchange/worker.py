"""Checks in a process of their own: so much memory, so much time, and a line of JSON as the answer.

What a member pushes is read by code that was not written for hostile input. So it runs where it can
be ended without harm: a fresh process for each push, forked from one that has the libraries loaded
and nothing else.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from understudy.errors import UnderstudyError
from understudy.exchange.admission import Rules, Verifier, examine

__all__ = ["Job", "Worker"]

_NEEDED = (
    "dp_accounting",
    "pyarrow.parquet",
    "scipy.signal",
    "PIL.Image",
)  # loaded on use elsewhere
_LARGEST = 8 << 20  # of an answer
_FILES = 64 << 20  # bytes that a check may write to any file
_GONE = {
    "expected": "checks that end within the service's limits",
    "do": "make the generator smaller or quicker; see [limits] of the exchange",
}


@dataclass(frozen=True)
class Job:
    """A push to be checked: its file, the rules, and the shares of earlier ones."""

    path: Path
    rules: Rules
    earlier: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Worker:
    """How pushes are checked: by whom, and within what."""

    verifier: Verifier
    seconds: float
    gigabytes: float

    def check(self, job: Job) -> dict[str, Any]:
        """``{"facts": …, "preview": …}``, or ``{"refused": …}`` with a reason."""
        context = self._context
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(theirs, job, self), daemon=True)
        process.start()
        theirs.close()
        try:
            return self._answer(ours)
        finally:
            process.kill()
            process.join()
            ours.close()

    def _answer(self, ours: Connection) -> dict[str, Any]:
        if not ours.poll(self.seconds):
            return {"refused": {**_GONE, "found": f"no end after {self.seconds:g} s"}}
        try:
            found = json.loads(ours.recv_bytes(_LARGEST))
        except (EOFError, OSError, ValueError, RecursionError):
            return {"refused": {**_GONE, "found": "checks that broke off (memory, most likely)"}}
        return dict(found)

    def warm(self) -> None:
        """Load the libraries before the first push comes."""
        process = self._context.Process(target=_nothing, daemon=True)
        process.start()
        process.join()

    @property
    def _context(self) -> ForkServerContext:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, self.verifier.__module__, *_NEEDED])
        return context


def _nothing() -> None:
    """For `Worker.warm`."""


def _run(theirs: Connection, job: Job, worker: Worker) -> None:
    """In the process: bounds first, then the checks, then the answer."""
    _bound(worker)
    theirs.send_bytes(json.dumps(_checked(job, worker), allow_nan=False).encode())


def _checked(job: Job, worker: Worker) -> dict[str, Any]:
    try:
        return examine(job.path, job.rules, job.earlier, worker.verifier)
    except UnderstudyError as error:
        reason = {"expected": error.expected, "found": error.found, "do": error.do}
        return {"refused": reason}
    except Exception as error:  # whatever hostile bytes make a library raise
        return {
            "refused": {
                "expected": "a release that can be read and used",
                "found": type(error).__name__,
                "do": "check it at home first: understudy verify RELEASE",
            }
        }


def _bound(worker: Worker) -> None:
    """From here on only so much; the parent has the clock, this is for when it is gone."""
    import torch

    torch.set_num_threads(1)
    bytes_, seconds = int(worker.gigabytes * (1 << 30)), int(worker.seconds) + 1
    for limit, most in (
        (resource.RLIMIT_DATA, bytes_),
        (resource.RLIMIT_CPU, int(time.process_time()) + seconds),
        (resource.RLIMIT_FSIZE, _FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    os.nice(5)
