"""What `pull --screen` drops: pools in which two generators were made from swapped labels.

    python bench/screen.py [--pools 0 1 2 3] [--seeds 0 1 2] [--quick] [--json F]

Members train fedmoments alone (record level, local trust); two of them had a share of their labels
swapped first. Another member screens the pool by rows of its own. Told are: how many of the two are
dropped, how many of the honest, and the balanced accuracy of logistic regression, on rows that
nobody held, taught by the whole pool, by what was kept, and by the honest alone. Pools that are
in the JSON already and not asked for stay there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from common import arguments, provenance, save, spread
from sklearn.metrics import balanced_accuracy_score
from tablesets import TABLES

from understudy import Records, Release, Schema, Study, run
from understudy.data.bundled import bundled
from understudy.data.encode import encode
from understudy.evaluation.students import answer, silent, students
from understudy.exchange.dataset import balanced
from understudy.exchange.screen import screen
from understudy.rng import Streams

SWAPPED = (0.0, 0.25, 0.5, 1.0)
POISONED = 2
MARKS = ("caught", "honest dropped", "whole pool", "screened", "honest alone")


@dataclass(frozen=True)
class Pool:
    """So many members with so many rows each; ``own`` rows screen."""

    data: str
    members: int
    rows: int
    own: int
    epsilon: float
    seed: int = 0

    @cached_property
    def _dealt(self) -> tuple[Schema, list[Records]]:
        """The rows of members, those to screen with, and those to test with."""
        if self.data == "breast_cancer":
            schema, records = bundled(self.data)
        else:
            task = TABLES[self.data](self.data, self.seed)
            schema, records = task.schema, task.train
        order = np.random.default_rng(self.seed).permutation(len(records))
        cuts = np.cumsum([*[self.rows] * self.members, self.own, 3000])
        return schema, [records.take(part) for part in np.split(order, cuts)[: self.members + 2]]

    def measured(self, swapped: float) -> dict[str, float]:
        """One screening."""
        schema, (*parts, own, test) = self._dealt
        bad = {f"{i}" for i in range(POISONED)} if swapped else set()
        releases = {
            f"{i}": self._made(flipped(schema, part, swapped, i) if f"{i}" in bad else part, i)
            for i, part in enumerate(parts)
        }
        told = screen(releases, own, rng=Streams.from_seed(self.seed))
        gone = {each.name for each in told if each.dropped}
        honest = releases.keys() - bad
        caught = {"caught": len(gone & bad) / POISONED} if bad else {}
        return {
            **caught,
            "honest dropped": len(gone & honest) / len(honest),
            "whole pool": self._taught(releases, test),
            "screened": self._taught({n: r for n, r in releases.items() if n not in gone}, test),
            "honest alone": self._taught({n: releases[n] for n in sorted(honest)}, test),
        }

    def _made(self, rows: Records, member: int) -> Release:
        tables = {
            "study": {"name": f"member {member}", "recipe": "fedmoments"},
            "privacy": {"unit": "record", "trust": "local", "epsilon": self.epsilon},
            "simulation": {"data": "-", "sites": 1},
        }
        study = Study.parse(tables, schema=replace(self._dealt[0], records=self.rows))
        return run(study, [rows], seed=100 * self.seed + member, rows=0)

    def _taught(self, releases: dict[str, Release], test: Records) -> float:
        if not releases:
            return float("nan")
        schema, rng = self._dealt[0], Streams.from_seed(self.seed)
        made, real = balanced(releases, 6000, rng=rng), encode(schema, test)
        learn = students(schema)["logistic regression"]
        found = answer(learn, schema, made.rows, real.x, rng, silent)
        assert found is not None
        return float(balanced_accuracy_score(real.y, found.argmax(1)))


POOLS = (
    Pool("breast_cancer", 5, 75, 80, 3.0),
    Pool("breast_cancer", 5, 75, 80, 8.0),
    Pool("titanic", 5, 110, 110, 3.0),
    Pool("adult", 8, 800, 300, 1.5),
)


def flipped(schema: Schema, rows: Records, share: float, member: int) -> Records:
    """The other class in this share of the rows."""
    assert rows.frame is not None
    told = rows.frame[schema.label].astype(str)
    other = told.map(dict(zip(schema.classes, reversed(schema.classes), strict=True)))
    hit = np.random.default_rng(member).random(len(told)) < share
    labels = pd.Categorical(np.where(hit, other, told), schema.classes)
    return Records(frame=rows.frame.assign(**{str(schema.label): labels}))


def main() -> None:
    """Pool by pool, share by share; figures are written as they come."""
    parser = arguments(__doc__)
    parser.add_argument("--pools", type=int, nargs="+", default=list(range(len(POOLS))))
    args = parser.parse_args()
    known = json.loads(args.json.read_text("utf-8")) if args.json and args.json.exists() else {}
    cells = [cell for cell in known.get("cells", []) if cell["pool"] not in args.pools]
    for turn in args.pools[: 1 if args.quick else None]:
        for swapped in SWAPPED:
            cells.append(measured(turn, swapped, args.seeds))
            save({**provenance("screen", args.threads), "cells": cells}, args.json)
            print({name: cells[-1][name] for name in ("data", "epsilon", "swapped")})
            print({m: round(cells[-1][m]["mean"], 3) for m in MARKS if m in cells[-1]}, flush=True)


def measured(turn: int, swapped: float, seeds: list[int]) -> dict[str, Any]:
    """A pool with this share of two members' labels swapped, over seeds."""
    pool = POOLS[turn]
    found = [replace(pool, seed=seed).measured(swapped) for seed in seeds]
    about = {name: getattr(pool, name) for name in ("data", "members", "rows", "own", "epsilon")}
    marks = {mark: spread([each[mark] for each in found]) for mark in found[0]}
    return {"pool": turn, **about, "swapped": swapped, **marks}


if __name__ == "__main__":
    main()
