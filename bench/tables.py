"""Tables as people bring them: our recipes beside central MST and AIM, on the same rows and cells.

    python bench/tables.py [--tables adult …] [--methods fedmoments …] [--epsilon .5 1 4]
        [--sites 5 100] [--seeds 0 1 2] [--only 'adult/fed*'] [--json F]
    python bench/tables.py --summary bench/results/tables*.json

Record level, central trust, δ = min(1e-5, N^-1.1) for all; official test rows, or a quarter held
out by the seed. As many synthetic rows as training rows, at most 20,000. "real" is that many
training rows: its distances are the floor, its students the ceiling. A hundred sites are run at
ε = 1 only. Cells are written as they come; a file that is there already is added to, so the grid
can be run in pieces. Seconds are of one processor, from rows in memory to rows drawn. `rivals.py`
says what MST and AIM need. No setting is tuned on test rows.
"""

from __future__ import annotations

import json
import subprocess
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from common import arguments, provenance, save
from rivals import RIVALS, Ask, TooSlowError, synthesise
from tablescores import distances, students
from tablesets import BINS, TABLES, Grid, Task
from threadpoolctl import threadpool_limits

import understudy
from understudy import Records, Study, run
from understudy.recipes import RECIPES

ROWS = 20_000
OURS = [name for name in ("fedmoments", "fedmarginals") if name in RECIPES]
STUDENTS = {"logistic regression": "LR", "linear regression": "LR", "random forest": "RF",
            "boosting": "GB"}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One run: these rows, this method, this budget. ``sites`` is 0 where there are none."""

    table: str
    method: str
    epsilon: float
    sites: int
    seed: int


def grid(args: Namespace) -> Iterator[Cell]:
    """The cells that are asked for, table by table."""
    for table in args.tables:
        for method in args.methods:
            if not any(fnmatch(f"{table}/{method}", only) for only in args.only):
                continue
            for epsilon, sites in _budgets(method, args):
                yield from (Cell(table, method, epsilon, sites, seed) for seed in args.seeds)


def _budgets(method: str, args: Namespace) -> list[tuple[float, int]]:
    if method == "real":
        return [(0.0, 0)]
    if method in RIVALS:
        return [(epsilon, 0) for epsilon in args.epsilon]
    return [(e, n) for n in args.sites for e in args.epsilon if n == args.sites[0] or e == 1]


def measure(cell: Cell, args: Namespace) -> dict[str, Any]:
    """Make the rows of a cell and score them."""
    task = TABLES[cell.table](cell.table, cell.seed)
    try:
        made, about = synthetic(task, cell, args)
    except TooSlowError:
        return {**asdict(cell), "stopped_after": args.limit}
    about = {**asdict(cell), **({"method": args.name} if args.name else {}), **about}
    taught = {} if args.distances else {"students": students(task, made, cell.seed)}
    return {**about, "rows": len(made), **distances(task, made), **taught}


def synthetic(task: Task, cell: Cell, args: Namespace) -> tuple[Records, dict[str, Any]]:
    """Rows by the cell's method, and the seconds they took."""
    n = min(len(task.train), ROWS)
    if cell.method == "real":
        order = np.random.default_rng(cell.seed).permutation(len(task.train))[:n]
        return task.train.take(np.sort(order)), {}
    if cell.method in RIVALS:
        return rival(task, cell, n, args)
    begun = time.process_time()
    release = run(study(task, cell), _sites(task.train, cell), seed=cell.seed)
    drawn = release.sample(n, seed=cell.seed)
    seconds = round(time.process_time() - begun, 1)
    claim = release.claims[0]
    return drawn, {"seconds": seconds, "claim_epsilon": claim.epsilon, "delta": claim.delta}


def study(task: Task, cell: Cell) -> Study:
    """The study file of a cell, with every option at its default."""
    tables = {
        "study": {"name": task.schema.name, "recipe": cell.method},
        "privacy": {"unit": "record", "trust": "central", "epsilon": cell.epsilon},
        "simulation": {"data": "-", "sites": cell.sites},
    }
    return Study.parse(tables, schema=task.schema)


def _delta(task: Task) -> float:
    """What the product takes for δ: the same for rivals."""
    return float(min(1e-5, task.schema.records**-1.1))


def _sites(train: Records, cell: Cell) -> list[Records]:
    order = np.random.default_rng(cell.seed).permutation(len(train))
    return [train.take(np.sort(part)) for part in np.array_split(order, cell.sites)]


def rival(task: Task, cell: Cell, n: int, args: Namespace) -> tuple[Records, dict[str, Any]]:
    """Rows by somebody else's code, all training rows in one place."""
    cells = Grid(task.schema)
    ask = Ask(cell.method, cell.epsilon, _delta(task), n, cell.seed, args.limit)
    file = f"{cell.table}-{cell.method}-{cell.epsilon}-{cell.seed}.npz"
    kept = args.keep / file if args.keep else None
    made = synthesise(cells.codes(task.train), cells.sizes, ask, kept)
    drawn = cells.draw(made.codes, np.random.default_rng(cell.seed))
    return drawn, {"seconds": round(made.seconds, 1), "package": made.package, "delta": ask.delta}


def main() -> None:
    """Run the cells that are asked for, or print what files hold."""
    args = _arguments()
    if args.summary:
        print(summary([c for f in args.summary for c in json.loads(f.read_text())["cells"]]))
        return
    threadpool_limits(args.threads)
    report = _begin(args)
    begun = time.perf_counter()
    for cell in grid(args):
        found = {**measure(cell, args), "run": len(report["runs"]) - 1}
        print(json.dumps(found), flush=True)
        report["cells"] = [c for c in report["cells"] if _key(c) != _key(found)] + [found]
        report["runs"][-1]["minutes"] = round((time.perf_counter() - begun) / 60, 2)
        save(report, args.json)
    print(summary(report["cells"]))


def _arguments() -> Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=["real", *OURS], metavar="METHOD",
                        help="real, a recipe's name, or a rival's")  # fmt: skip
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.5, 1.0, 4.0])
    parser.add_argument("--sites", nargs="+", type=int, default=[5, 100])
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of table/method")
    parser.add_argument("--name", help="record the method under this name")
    parser.add_argument("--distances", action="store_true", help="leave the students out")
    parser.add_argument("--keep", type=Path, help="keep what rivals make in this folder")
    parser.add_argument("--limit", type=int, default=3600,
                        help="seconds of processor time until a rival is stopped")  # fmt: skip
    parser.add_argument("--summary", nargs="+", type=Path, help="print these files' figures")
    args = parser.parse_args()
    unknown = set(args.methods) - {"real", *RECIPES, *RIVALS}
    if unknown:
        parser.error(f"no such method: {', '.join(sorted(unknown))}")
    if args.quick:  # bundled with the package: no data folder is needed
        args.tables, args.epsilon, args.seeds = ["breast_cancer"], [1.0], args.seeds[:1]
    return args


def _begin(args: Namespace) -> dict[str, Any]:
    """The report so far, with a new run that says what is run now."""
    about = provenance("tables", args.threads)
    source = Path(understudy.__file__).parent  # the package may be older than the bench
    head = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(head, capture_output=True, text=True, cwd=source, check=False)
    about["commit"] = said.stdout.strip()
    old: dict[str, Any] = {"cells": [], "runs": []}
    if args.json and args.json.is_file():
        old = json.loads(args.json.read_text(encoding="utf-8"))
    settings = {"unit": "record", "trust": "central", "rows": ROWS, "bins": BINS}
    return {"settings": settings, "runs": [*old["runs"], about], "cells": old["cells"]}


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[k] for k in ("table", "method", "epsilon", "sites", "seed"))


def summary(cells: list[dict[str, Any]]) -> str:
    """Means over seeds as a Markdown table."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(_key(cell)[:-1], []).append(cell)
    order = list(TABLES)
    lines = [
        "| table | ε | sites | method | seeds | 1-way | 2-way | columns | AUC or R²: LR | RF | GB "
        "| accuracy: LR | RF | GB | s |",
        "|" + "---|" * 15,
    ]
    for key in sorted(groups, key=lambda k: (order.index(k[0]), k[2], k[3], k[1])):
        lines.append(_line(key, groups[key]))
    return "\n".join(lines)


def _line(key: tuple[Any, ...], runs: list[dict[str, Any]]) -> str:
    table, method, epsilon, sites = key
    figures = [_mean([r.get(k) for r in runs]) for k in ("1-way", "2-way", "columns")]
    for marks in (("AUC", "R2"), ("accuracy",)):
        for short in ("LR", "RF", "GB"):
            figures.append(_mean([_mark(r.get("students", {}), short, marks) for r in runs]))
    seconds = [r["seconds"] for r in runs if "seconds" in r]
    time_spent = f"{fmean(seconds):.0f}" if seconds else ""
    shown = [table, f"{epsilon:g}" if epsilon else "", str(sites or ""), method, str(len(runs))]
    return "| " + " | ".join([*shown, *figures, time_spent]) + " |"


def _mark(students: dict[str, Any], short: str, marks: tuple[str, ...]) -> float | None:
    for name, found in students.items():
        if STUDENTS.get(name) == short:
            return next((found[m] for m in marks if m in found), None)
    return None


def _mean(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{fmean(known):.3f}".replace("0.", ".", 1) if known else ""


if __name__ == "__main__":
    main()
