"""The whole way of a round, beside its kernel and a plain loop: library of `speed.py`.

What is timed is everything from the first round to the last: cohorts, ledger, tasks, training,
selection, sums, checkpoints. Reading rows and making the release are not. The study is the one of
DP-Fed-WAE as published: 18,188 parameters, two rows a site, ten Adam epochs, the top tenth.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from understudy import Schema, Study, run
from understudy.data.schema import Column

SITES = 5_000
PUBLISHED = {"teach": "paper", "outputs": 1, "decay": "none", "average": 0.0, "drawn": False}


@dataclass(frozen=True)
class Turn:
    """What one side did in one turn, in wall time, and in processor time of this process."""

    updates: int
    seconds: float
    busy: float

    @property
    def rate(self) -> float:
        """Client updates per second."""
        return self.updates / self.seconds


Side = Callable[[], Turn]


def take_turns(sides: Mapping[str, Side], times: int) -> dict[str, list[Turn]]:
    """Every side in turn, after one turn to warm up that does not count."""
    rounds = [{name: side() for name, side in sides.items()} for _ in range(times + 1)]
    return {name: [each[name] for each in rounds[1:]] for name in sides}


def rates(found: Mapping[str, list[Turn]]) -> dict[str, dict[str, float]]:
    """Per side, the median of client updates per second, and of processor milliseconds for one."""
    return {
        name: {
            "updates_per_second": round(statistics.median(t.rate for t in turns), 1),
            "processor_ms": round(statistics.median(1e3 * t.busy / t.updates for t in turns), 3),
        }
        for name, turns in found.items()
    }


def ratio(found: Mapping[str, list[Turn]], one: str, other: str) -> float:
    """The median, over turns, of how much faster one side is than the other."""
    pairs = zip(found[one], found[other], strict=True)
    return round(statistics.median(a.rate / b.rate for a, b in pairs), 2)


def timed(work: Callable[[], object], updates: int, again: int = 1) -> Turn:
    """So many updates, again and again."""
    begun, busy = time.perf_counter(), time.process_time()
    for _ in range(again):
        work()
    return Turn(updates * again, time.perf_counter() - begun, time.process_time() - busy)


# --- the whole path ----------------------------------------------------------------------


def study(folder: Path, cohort: int, rounds: int) -> Study:
    """The study, whose rows are put into the folder."""
    columns = [*(f"f{i}" for i in range(122)), "y"]  # and the label's two: 124 features
    bits = np.random.default_rng(0).random((2 * SITES, len(columns))) < 0.2
    pd.DataFrame(bits, columns=columns).to_parquet(folder / "rows.parquet")
    kinds = tuple(Column(name, "boolean") for name in columns)
    tables: dict[str, dict[str, Any]] = {
        "study": {"name": "bench", "recipe": "dp_fed_wae", "rounds": rounds},
        "privacy": {"epsilon_per_update": 8.0},
        "cohort": {"size": cohort},
        "training": {"epochs": 10, "optimiser": "adam", "rate": 1e-3},
        "recipe": {"top": 0.1, **PUBLISHED},
        "simulation": {"data": "rows.parquet", "sites": SITES},
    }
    schema = Schema("table", "a9a", 2 * SITES, kinds, label="y")
    return Study.parse(tables, schema=schema, base=folder)


def whole(cohort: int, updates: int) -> Turn:
    """One run as a user has it."""
    rounds, stamps = max(2, updates // cohort), []

    def noted(*told: Any) -> None:
        if told[0] != "reading":
            stamps.append((time.perf_counter(), time.process_time()))

    with tempfile.TemporaryDirectory() as name:
        asked = study(Path(name), cohort, rounds)
        run(asked, out=Path(name) / "release", rows=0, progress=noted)
    (begun, busy), (ended, used) = stamps[0], stamps[-1]
    return Turn(cohort * rounds, ended - begun, used - busy)


# --- work on every core ------------------------------------------------------------------


class PerCore:
    """Processes that each do the same work for clients of their own, on one thread."""

    def __init__(self, work: Callable[..., None]) -> None:
        self.work, self.cores = work, os.cpu_count() or 1
        self.pool = ProcessPoolExecutor(
            self.cores, get_context("spawn"), torch.set_num_threads, (1,)
        )

    def turn(self, clients: int, again: int = 1) -> Turn:
        """So many clients on every core, again and again."""
        begun = time.perf_counter()
        told = ([each] * self.cores for each in (self.work, clients, again))
        busy = sum(self.pool.map(_busy, *told))
        updates = clients * self.cores * again
        return Turn(updates, time.perf_counter() - begun, busy)

    def close(self) -> None:
        """End the processes."""
        self.pool.shutdown()


def _busy(work: Callable[[int], None], clients: int, again: int) -> float:
    begun = time.process_time()
    for _ in range(again):
        work(clients)
    return time.process_time() - begun


# --- the machine -------------------------------------------------------------------------


class Others:
    """How much of the machine others used, as a share of its cores."""

    def __init__(self) -> None:
        self.begun = self._now()

    def share(self) -> float:
        """Since the beginning."""
        wall, busy, own = (b - a for a, b in zip(self.begun, self._now(), strict=True))
        return round(max(0.0, busy - own) / (wall * (os.cpu_count() or 1)), 3)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        ticks = [int(n) for n in first]
        used = os.times()
        own = used.user + used.system + used.children_user + used.children_system
        busy = sum(ticks[:8]) - ticks[3] - ticks[4]
        return time.perf_counter(), busy / os.sysconf("SC_CLK_TCK"), own


def high_water() -> float:
    """Peak resident MB of this process. (``ru_maxrss`` would start at the parent's size.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not say how much memory a process has used")
