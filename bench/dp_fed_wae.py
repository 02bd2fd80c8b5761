"""DP-Fed-WAE beside its thesis (Jiang 2023, ch. 4) on a9a: accuracy loss, AVD, CMD, speed.

    python bench/dp_fed_wae.py [--cells core|none] [--only TEXT] [--seeds 0 1 2] [--full] [--quick]
                               [--json F]
    python bench/dp_fed_wae.py --draw bench/results/dp_fed_wae.json

The layout is the thesis's: 5·10⁴ clients of two rows, drawn with repetition from the 32,561
training rows, T = 5000 rounds of 10 clients, each client once, so that ε per update is ε for life.
(The unit is the client: a person whose row was dealt out several times is protected less.) Every
cell runs the product (`understudy.run`), draws synthetic rows and teaches the thesis's two students
(two-layer network, random forest) on them and on as many real rows; both are tested on the official
test rows. The recipe's defaults were picked on held-out training rows (``--validate``): margins,
label head and a linear WAE are taught in turn, one SGD step at a site, γ = 1 that falls along a
cosine, the last models averaged, values drawn by their chance. "as published" is the thesis's own
rule: the whole 64-16 net and its label at once, ten Adam epochs, one coordinate, constant γ = 1,
the last model, the likeliest values; "whole net" is the same with the step, γ = 3, cosine, average
and draws that did best there. The thesis gives its curves as figures; its text says "less than 1 %"
for ε = 8, ξ = .05, its Table 4.6 .808 (network) and .812 (forest) for ε = 8, ξ = .1. The speed part
times the study as published and by default, and 10⁵ rows. ``--draw`` runs nothing and makes a
picture of recorded figures against ε, beside their file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import arguments, load, provenance, save, spread
from measures import accuracies, average_variation, correlation_distance, table_students

from understudy import Release, Schema, Study, run
from understudy.data.encode import encode
from understudy.data.schema import Column
from understudy.data.table import from_frame
from understudy.evaluation.joints import attribute_codes
from understudy.evaluation.rows import Rows
from understudy.rng import Streams

SITES, ROUNDS, SIZE, ROWS = 50_000, 5_000, 10, 20_000
WHOLE = {"teach": "paper", "outputs": 1, "global_rate": 3.0, "average": 0.2}
PUBLISHED = {**WHOLE, "decay": "none", "average": 0.0, "drawn": False, "global_rate": 1.0}
ADAM = {"epochs": 10, "optimiser": "adam", "rate": 1e-3}
PAPER = {
    "loss at ε = 8, ξ = .05": "< .01",
    "network and forest, ε = 8, without and with auxiliary rows": [[0.808, 0.812], [0.815, 0.820]],
    "network and forest, ε = 4, without and with auxiliary rows": [[0.787, 0.775], [0.798, 0.789]],
    "client update": 1.06,
    "10⁵ rows": 7.38,
}


@dataclass(frozen=True)
class Cell:
    """ε (for life: each client answers once), ξ, and options of the recipe."""

    epsilon: float | None
    top: float
    name: str = "ours"
    recipe: dict[str, Any] = field(default_factory=dict)
    core: bool = True
    once: bool = False  # one seed
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """For tables."""
        epsilon = "no privacy" if self.epsilon is None else f"ε={self.epsilon:g}"
        return f"{self.name}, {epsilon}, ξ={self.top:g}"


OFTEN = ((8.0, 0.05), (4.0, 0.05), (2.0, 0.1), (0.5, 0.25))  # with every seed
UNIFORM = {"pretrain": "uniform"}
CELLS = [
    *(Cell(epsilon, top) for epsilon, top in OFTEN),
    Cell(8.0, 0.05, "as published", PUBLISHED, once=True, training=ADAM),
    Cell(8.0, 0.05, "whole net", WHOLE, once=True),
    *(
        Cell(epsilon, top, once=True)
        for epsilon in (8.0, 6.0, 4.0, 2.0, 1.0, 0.5)
        for top in (0.05, 0.1, 0.25)
        if (epsilon, top) not in OFTEN
    ),
    Cell(8.0, 0.05, "pre-trained on uniform rows", UNIFORM, once=True),
    Cell(8.0, 0.05, "64-16 net by parts", {"widths": [64]}, once=True),
    Cell(2.0, 0.1, "pre-trained on uniform rows", UNIFORM, core=False),
    Cell(None, 0.05, "without privacy", core=False),
]


def schema() -> Schema:
    """a9a's 123 yes-or-no features and the label."""
    columns = [Column(f"f{i}", "boolean") for i in range(123)]
    records = 2 * SITES
    return Schema("table", "a9a", records, (*columns, Column("y", "boolean")), label="y")


def _frame(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(x.astype(bool), columns=[f"f{i}" for i in range(123)])
    return frame.assign(y=y.astype(bool))


def _rows(x: np.ndarray, y: np.ndarray) -> Rows:
    found = encode(schema(), from_frame(_frame(x, y), schema()))
    return Rows(found.x, found.y)


@lru_cache
def data(validate: bool) -> tuple[np.ndarray, np.ndarray, Rows]:
    """Training features and labels, and the rows to test on."""
    found = load("a9a")
    x, y = found["train"]
    if not validate:
        return x, y, _rows(*found["test"])
    held = np.random.default_rng(99).permutation(len(x)) < len(x) // 5
    return x[~held], y[~held], _rows(x[held], y[held])


def study(cell: Cell, folder: Path, rounds: int) -> Study:
    """The study of a cell, with the rows in ``folder``."""
    private = {"trust": "none"} if cell.epsilon is None else {"epsilon": cell.epsilon}
    tables = {
        "study": {"name": "a9a", "recipe": "dp_fed_wae", "rounds": rounds},
        "privacy": private,
        "cohort": {"size": SIZE},
        "training": cell.training,
        "recipe": {"top": cell.top, **cell.recipe},
        "simulation": {"data": "rows.parquet", "sites": SITES},
    }
    return Study.parse(tables, schema=schema(), base=folder)


def release(cell: Cell, seed: int, args: argparse.Namespace) -> tuple[Release, float]:
    """A release and the seconds that its rounds took."""
    x, y, _ = data(args.validate)
    dealt = np.random.default_rng(seed).integers(0, len(x), 2 * SITES)
    rounds = args.rounds or (50 if args.quick else ROUNDS)
    begun: list[float] = []

    def noted(doing: str, done: int, total: int) -> None:
        if doing == "training":
            begun.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as name:
        _frame(x[dealt], y[dealt]).to_parquet(Path(name) / "rows.parquet")
        asked = study(cell, Path(name), rounds)
        made = run(asked, out=Path(name) / "release", seed=seed, rows=0, progress=noted)
    return made, begun[-1] - begun[0]


def one(cell: Cell, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One cell with one seed."""
    made, seconds = release(cell, seed, args)
    n, rng = 2_000 if args.quick else ROWS, Streams.from_seed(seed)
    x, y = made.generator.rows(n, rng=rng.child("rows"))
    synthetic, test = Rows(x.numpy(), y.numpy()), data(args.validate)[2]
    scores: dict[str, Any] = {"seconds": seconds, "positives": float(synthetic.y.mean())}
    streams = rng.child("students")
    scores |= accuracies(table_students(), schema(), synthetic, test, rng=streams)
    scores |= {f"{k}, real rows": v for k, v in real_accuracies(seed, n, args.validate).items()}
    codes = [attribute_codes(schema(), rows) for rows in (test, synthetic)]
    for ways in (2, 4, 6) if not args.full else range(2, 7):
        scores[f"AVD {ways}"] = average_variation(*codes, ways, rng=rng.numpy("sets", ways))
    joined = [np.column_stack((rows.x, rows.y)) for rows in (test, synthetic)]
    scores["CMD"] = correlation_distance(*joined)
    scores["claim"] = made.claims[0].words
    return scores


@lru_cache
def real_accuracies(seed: int, n: int, validate: bool) -> dict[str, float]:
    """What the students reach with as many real rows."""
    x, y, test = data(validate)
    rng = Streams.from_seed(seed)
    chosen = rng.numpy("real").choice(len(x), n)
    rows, streams = _rows(x[chosen], y[chosen]), rng.child("students")
    return dict(accuracies(table_students(), schema(), rows, test, rng=streams))


def summary(cell: Cell, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and spreads of a cell, and what its students lose against real rows."""
    numbers = [k for k, v in runs[0].items() if isinstance(v, float)]
    found = {name: spread([r[name] for r in runs]) for name in numbers}
    for name in table_students():
        losses = [r[f"{name}, real rows"] - r[name] for r in runs]
        found[f"loss of {name}"] = spread(losses)
    epsilon = None if cell.epsilon is None else cell.epsilon
    heading = {"ε per update": epsilon, "ε of a client's life": epsilon, "ξ": cell.top}
    options = dict(cell.recipe)
    return {"cell": cell.title, **heading, "recipe": options, "claim": runs[0]["claim"], **found}


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Client updates per second of the whole run with the thesis's ten epochs, and 10⁵ rows."""
    args = argparse.Namespace(**{**vars(args), "rounds": 50 if args.quick else 500})
    seconds = release(Cell(8.0, 0.05, recipe=PUBLISHED, training=ADAM), 0, args)[1]
    made, quick = release(CELLS[0], 0, args)
    begun = time.perf_counter()
    rows = made.sample(100_000, seed=0)
    took = time.perf_counter() - begun
    updates = made.plan.length * SIZE
    return {
        "client updates": updates,
        "seconds": seconds,
        "updates per second": updates / seconds,
        "updates per second, by default": updates / quick,
        "rows": len(rows),
        "seconds for the rows": took,
        "thesis": {"updates per second": 1 / 1.06, "seconds for the rows": 7.38},
        "minutes for 5·10⁴ updates": SITES / (updates / seconds) / 60,
    }


def draw(path: Path) -> None:
    """Students' accuracy, AVD and CMD against ε, a line per ξ."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = [c for c in json.loads(path.read_text())["cells"] if c["cell"].startswith("ours")]
    figure, axes = pyplot.subplots(1, 5, figsize=(17, 3.4))
    names = ("two-layer network", "random forest", "AVD 2", "AVD 6", "CMD")
    for axis, name in zip(axes, names, strict=True):
        for top in sorted({c["ξ"] for c in found}):
            line = sorted((c["ε per update"], c[name]["mean"]) for c in found if c["ξ"] == top)
            axis.plot(*zip(*line, strict=True), marker="o", markersize=3, label=f"ξ = {top:g}")
        real = found[0].get(f"{name}, real rows")
        if real:
            axis.axhline(real["mean"], color="grey", linestyle=":", label="real rows")
        axis.set(title=name, xlabel="ε per update = ε for life")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=90)


def main() -> None:
    """Run the chosen cells, writing as they come."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--cells", choices=("core", "none"), default="core")
    parser.add_argument("--only", default="", help="cells with this in their title")
    parser.add_argument("--validate", action="store_true", help="test on held-out training rows")
    parser.add_argument("--rounds", type=int, help="another number of rounds")
    parser.add_argument("--draw", type=Path, help="draw these results, and run nothing")
    args = parser.parse_args()
    if args.draw:
        draw(args.draw)
        return
    report: dict[str, Any] = {
        **provenance("dp_fed_wae", args.threads),
        "seeds": args.seeds,
        "heading": "ε per update; every client answers once, so it is the lifetime ε too",
        "thesis": PAPER,
        "speed": speed(args),
        "cells": [],
    }
    print(report["speed"], flush=True)
    chosen = [c for c in CELLS if (c.core or args.full) and args.cells == "core"]
    chosen = [c for c in chosen if args.only in c.title]
    report["not_run"] = [cell.title for cell in CELLS if cell not in chosen]
    save(report, args.json)
    for cell in chosen:
        begun, runs = time.perf_counter(), []
        report["cells"].append({})
        for seed in args.seeds[:1] if cell.once or not cell.core else args.seeds:
            runs.append(one(cell, seed, args))
            report["cells"][-1] = summary(cell, runs)
            report["cells"][-1]["minutes"] = (time.perf_counter() - begun) / 60
            print(cell.title, seed, runs[-1], flush=True)
            save(report, args.json)


if __name__ == "__main__":
    main()
