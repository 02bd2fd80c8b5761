"""Columns held apart: fedmoments and fedmarginals, for parties and for sites; and alignment.

python bench/vertical.py --json FILE           accuracy, distances within and across parties
python bench/vertical.py --way --json FILE     from files with identifiers to a verified release
python bench/vertical.py --align N --json FILE alignment of N and N identifiers, half in common

All on Adult, against its official test rows. Rows and students are those of `bench/tables.py`.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from common import arguments, provenance, save, spread
from tablescores import booster
from tablesets import TABLES, Grid, Task

import understudy.simulation.simulate as simulate
from understudy import Records, run
from understudy.cli.align import here
from understudy.data.align import align_here, identifiers
from understudy.data.columns import records_of
from understudy.evaluation.joints import mean_variation
from understudy.evaluation.parties import pairs_apart
from understudy.runtime.loopback import Loopback
from understudy.simulation import verify
from understudy.study import Study

RECIPES = ("fedmoments", "fedmarginals")
CORE = ((1.0, 2), (0.5, 2), (2.0, 2), (8.0, 2), (1.0, 4), (1.0, 8))


def study(task: Task, recipe: str, epsilon: float, parties: int, seed: int) -> Study:
    """Columns dealt out by the seed; for no parties, all rows at one site."""
    split = {"split": "columns", "sites": parties, "seed": seed} if parties else {"split": "pooled"}
    tables = {
        "study": {"name": "adult", "recipe": recipe},
        "privacy": {"epsilon": epsilon},
        "simulation": {"data": "adult", **split},
    }
    return Study.parse(tables, schema=task.schema)


def parts(made: Study, records: Records) -> list[Records]:
    """What each party holds, or the one site."""
    return [records] if made.held is None else [records_of(records, c) for c in made.held.columns]


def distances(task: Task, drawn: Records, split: Study) -> dict[str, float]:
    """Distances of columns, and of pairs within and across the parties of ``split``."""
    grid = Grid(task.schema)
    codes = [grid.codes(records) for records in (drawn, task.test)]
    names = [axis.name for axis in grid.axes]
    found = {"1-way": float(mean_variation(codes, [(j,) for j in range(len(names))])[0, 0])}
    assert split.held is not None
    for where, pairs in pairs_apart(names, split.held.columns).items():
        if pairs:
            found[f"2-way {where}"] = float(mean_variation(codes, [*pairs])[0, 0])
    return found


def cell(epsilon: float, parties: int, seed: int, recipes: Sequence[str]) -> dict[str, float]:
    """The recipes in both forms: pairs are within and across the same parties."""
    task, found = TABLES["adult"]("adult", seed), {}
    split = study(task, RECIPES[0], epsilon, parties, seed)
    for recipe in recipes:
        for form, many in (("columns", parties), ("rows", 0)):
            drawn, marks = made(recipe, epsilon, many, seed)
            told = {**distances(task, drawn, split), **marks}
            found |= {f"{recipe}, {form}: {name}": value for name, value in told.items()}
    return found


@lru_cache(maxsize=64)
def made(recipe: str, epsilon: float, parties: int, seed: int) -> tuple[Records, dict[str, float]]:
    """A release's rows, seconds and student's marks."""
    task = TABLES["adult"]("adult", seed)
    asked = study(task, recipe, epsilon, parties, seed)
    start = time.perf_counter()
    release = run(asked, parts(asked, task.train), seed=seed, rows=10)
    seconds = time.perf_counter() - start
    drawn = release.sample(len(task.train), seed=seed)
    return drawn, {"seconds": seconds, **booster(task, drawn, seed)}


class Counting(Loopback):
    """A transport that counts bytes and exchanges."""

    told: ClassVar[Counter[str]] = Counter()

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """As it is, counted."""
        replies, failures = super().exchange(messages, deadline)
        self.told["exchanges"] += 1
        self.told["bytes to parties"] += sum(map(len, messages.values()))
        self.told["bytes from parties"] += sum(map(len, replies.values()))
        return replies, failures


def way(parties: int, seed: int) -> dict[str, Any]:
    """Shuffled files with identifiers, aligned, run over loopback, saved and verified."""
    task, rng = TABLES["adult"]("adult", seed), np.random.default_rng(seed)
    dealt = study(task, "fedmoments", 1.0, parties, seed)
    simulate.Loopback, Counting.told = Counting, Counter()  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as name:
        folder, entries = Path(name), []
        for entry, part in zip(dealt.parties, parts(dealt, task.train), strict=True):
            order = rng.permutation(len(task.train))
            frame = part.take(order).frame.assign(person=[f"id {i}" for i in order])
            frame.to_csv(folder / f"{entry.name}.csv", index=False)
            entries.append(replace(entry, data=f"aligned/{entry.name}.csv"))
        made = replace(dealt, parties=tuple(entries), simulation=None, base=folder)
        clock = [time.perf_counter()]
        files = [folder / f"{entry.name}.csv" for entry in entries]
        here(files, ["person"], folder / "aligned", json=True)
        clock.append(time.perf_counter())
        simulate.run_apart(made, out=folder / "release", seed=seed)
        clock.append(time.perf_counter())
        verify(folder / "release")
        clock.append(time.perf_counter())
    steps = dict(zip(("align", "run", "verify"), np.diff(clock).round(2).tolist(), strict=True))
    steps["from aligned files"] = round(clock[-1] - clock[1], 2)
    return {
        "parties": parties, "rows": len(task.train), "seconds": steps, **Counting.told,
        "bytes of aligning by files": 2 * parties * (parties - 1) * (12 + 32 * len(task.train)),
        "rounds": 2,
    }  # fmt: skip


def align(many: int) -> dict[str, Any]:
    """Two parties with so many identifiers each, half of them in common."""
    lists = [[f"person {i}" for i in range(a, a + many)] for a in (0, many // 2)]
    start = time.perf_counter()
    found, _ = align_here([identifiers([each]) for each in lists])
    seconds = time.perf_counter() - start
    peak = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "identifiers": many, "common": len(found[0]), "seconds": round(seconds, 1),
        "peak MB of a process": round(peak / 1024),
    }  # fmt: skip


def main() -> None:
    """The cells that were asked for."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--way", action="store_true")
    parser.add_argument("--align", type=int)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES)
    parser.add_argument("--core", type=int, nargs="+", default=range(len(CORE)), help="which cells")
    given = parser.parse_args()
    report: dict[str, Any] = {**provenance("vertical", given.threads), "cells": []}
    begun = time.perf_counter()

    def add(found: dict[str, Any]) -> None:
        report["cells"].append(found)
        report["minutes"] = round((time.perf_counter() - begun) / 60, 1)
        save(report, given.json)
        print(found, flush=True)

    if given.align:
        add(align(given.align))
    elif given.way:
        for parties in (2,) if given.quick else (2, 4):
            add(way(parties, 0))
    else:
        for epsilon, parties in [CORE[i] for i in ((0,) if given.quick else given.core)]:
            seeds = given.seeds[:1] if given.quick else given.seeds
            runs = [cell(epsilon, parties, seed, given.recipes) for seed in seeds]
            marks = {name: spread([r[name] for r in runs]) for name in runs[0]}
            add({"epsilon": epsilon, "parties": parties, "seeds": seeds, **marks})


if __name__ == "__main__":
    main()
