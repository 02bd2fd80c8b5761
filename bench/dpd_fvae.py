"""DPD-fVAE beside its paper (Pfitzner & Arnrich 2022, Tables 1–2) at equal (ε, δ) and sites.

    python bench/dpd_fvae.py [--data mnist|fashion_mnist|all] [--trust central|local|all]
                             [--epsilon 10|1|all] [--seeds 0 1 2] [--quick] [--json F] [--picture D]

Each cell runs the product (`understudy.run`) and the paper's evaluation: logistic regression, MLP
and CNN (Appendix C.2) trained on synthetic rows and tested on the official test rows, which nothing
was tuned on. The layout is the paper's: MNIST at 500 sites of 120 records, Fashion-MNIST at 100 of
600, δ = 1e-5. What differs: the paper averages five sets of 60,000 rows, we take one of 20,000 per
seed; our classifiers have a budget of steps; the paper picks its settings on the test rows. Its
local row claims record level for an algorithm that protects no record (see `understudy recipes
dpd_fvae`); ours protects records. The paper's FID needs Inception weights: ours is a Fréchet
distance in the features of a small CNN, comparable between these cells of one data set only.
After a warm start ``warm_share`` of the released rows come from it and the rest from the refined
decoder; for the first seed the CNN accuracy of each alone stands beside.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measures import score_images

from understudy import Records, Release, Schema, Study, run
from understudy.evaluation import students
from understudy.evaluation.frechet import measure_frechet
from understudy.evaluation.rows import Rows
from understudy.recipes import build
from understudy.release.generator import Generator
from understudy.rng import Streams

DATA = Path(os.environ.get("UNDERSTUDY_DATA", Path(__file__).parents[2] / "shared" / "data"))
DELTA, ROWS, STEPS = 1e-5, 20_000, 1800
SITES = {"mnist": 500, "fashion_mnist": 100}
CNN = "convolutional network"

SMALL = {"latent": 16, "widths": [64], "decoder_widths": [64]}
FROZEN = {
    **SMALL, "encoder": "frozen", "average": 0.5, "server_rate": 0.006, "warm_start": 0.8,
    "warm_share": 0.8,
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One row of the grid: what to run, and what the paper has there."""

    data: str
    trust: str
    epsilon: float
    unit: str
    rounds: int
    recipe: dict[str, Any]
    paper: dict[str, float] | None  # accuracy of the three classifiers, and FID
    target: float  # CNN accuracy
    clip: float | None = None
    rate: float | None = None
    training: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """For files and tables."""
        return f"{self.data}-{self.trust}-{self.epsilon:g}"


def _paper(regression: float, perceptron: float, network: float, fid: float) -> dict[str, float]:
    return {
        "logistic regression": regression,
        "multi-layer perceptron": perceptron,
        CNN: network,
        "FID": fid,
    }


CELLS = (
    Cell(
        "mnist", "central", 10.0, "site", 100,
        {**SMALL, "steps": 30, "server_rate": 0.05, "warm_start": 0.3, "warm_coefficients": 40,
         "warm_share": 0.3},
        _paper(0.794, 0.811, 0.881, 76.4), 0.881, clip=1.0, rate=0.2,
        training={"batch": 20, "rate": 3e-3},
    ),
    Cell(
        "mnist", "local", 10.0, "record", 20,
        {**FROZEN, "warm_start": 0.9, "warm_coefficients": 100, "warm_spread": 3.0},
        _paper(0.814, 0.818, 0.913, 56.9), 0.913,
    ),
    Cell(
        "fashion_mnist", "local", 10.0, "record", 20, {**FROZEN, "warm_contrast": 0.0},
        _paper(0.750, 0.754, 0.800, 84.4), 0.80,
    ),
    Cell("mnist", "central", 1.0, "record", 20, FROZEN, None, 0.92),
    Cell(
        "fashion_mnist", "central", 1.0, "record", 20, {**FROZEN, "warm_contrast": 0.0}, None, 0.75
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Images:
    """One data set: the official split."""

    schema: Schema
    train: Records
    real: Rows
    test: Rows


def images(name: str) -> Images:
    """Records for the sites; flat rows for the classifiers."""
    sys.path.insert(0, str(DATA))
    from load import load  # type: ignore[import-not-found]

    (x, y), (test_x, test_y) = (load(name)[part] for part in ("train", "test"))
    schema = Schema("image", name, len(x), classes=tuple("0123456789"), shape=x.shape[1:])
    flat = [(a.reshape(len(a), -1) / 255).astype(np.float32) for a in (x, test_x)]
    real, test = (Rows(a, b.astype(np.int64)) for a, b in zip(flat, (y, test_y), strict=True))
    return Images(schema, Records(images=x, labels=y.astype(str)), real, test)


def study(cell: Cell, schema: Schema, quick: bool) -> Study:
    """The study file of a cell, as tables."""
    privacy = {"unit": cell.unit, "trust": cell.trust, "epsilon": cell.epsilon, "delta": DELTA}
    tables = {
        "study": {"name": cell.name, "recipe": "dpd_fvae", "rounds": 3 if quick else cell.rounds},
        "privacy": privacy | ({"clip": cell.clip} if cell.clip else {}),
        "cohort": {"rate": cell.rate} if cell.rate else {},
        "training": cell.training or {},
        "recipe": cell.recipe | ({"warm_steps": 100} if quick else {}),
        "simulation": {"data": "-", "sites": SITES[cell.data]},
    }
    return Study.parse(tables, schema=schema)


def sites(data: Images, n: int, seed: int) -> list[Records]:
    """The training rows in equal random parts, as the paper has them."""
    order = np.random.default_rng(seed).permutation(len(data.train))
    return [data.train.take(np.sort(part)) for part in np.array_split(order, n)]


def drawn(generator: Generator, rows: int, seed: int) -> Rows:
    """Balanced synthetic rows."""
    labels = np.arange(rows) % len(generator.balance)
    x = generator.sample(labels, rng=Streams.from_seed(seed).child("rows"))
    return Rows(x.numpy(), labels)


def halves(generator: Generator) -> dict[str, Generator]:
    """Decoder and warm start of a mixture, each alone."""
    if generator.kind != "mixture":
        return {}
    found = {}
    for name, shares in (("decoder alone", (1.0, 0.0)), ("warm start alone", (0.0, 1.0))):
        parts = [
            {**part, "share": share}
            for part, share in zip(generator.config["parts"], shares, strict=True)
        ]
        found[name] = replace(generator, config={**generator.config, "parts": parts})
    return found


def one(
    cell: Cell, data: Images, seed: int, args: argparse.Namespace
) -> tuple[dict[str, Any], Release]:
    """One run, scored."""
    rows, how = ROWS, replace(students.IMAGE_TRAINING, steps=STEPS)
    if args.quick:
        rows, how = 2000, replace(how, steps=100)
    start = time.perf_counter()
    made = study(cell, data.schema, args.quick)
    release = run(made, sites(data, SITES[cell.data], seed), seed=seed, rows=10)
    minutes = (time.perf_counter() - start) / 60
    found: dict[str, Any] = {"seed": seed, "minutes_training": round(minutes, 2)}
    rng = Streams.from_seed(seed)
    synthetic = drawn(release.generator, rows, seed)
    test = (data.test, data.schema)
    found["accuracy"] = score_images(synthetic, *test, rng=rng, training=how)
    for name, generator in halves(release.generator).items() if seed == args.seeds[0] else ():
        half = drawn(generator, rows, seed)
        found[f"{CNN}, {name}"] = score_images(half, *test, rng=rng, training=how)[CNN]
    found["frechet_cnn_features"] = _frechet(data, synthetic)
    found["minutes"] = round((time.perf_counter() - start) / 60, 2)
    return found, release


def _frechet(data: Images, synthetic: Rows) -> dict[str, float]:
    """Distance to the test rows, and that of as many real training rows, by one fixed CNN."""
    some = np.random.default_rng(0).permutation(len(data.real))[:10_000]
    sides = (synthetic.take(np.arange(min(10_000, len(synthetic)))), data.real.take(some))
    score = measure_frechet(data.schema, *sides, data.test, rng=Streams.from_seed(0)).scores[0]
    return {"synthetic": score.synthetic.value, "real": score.real.value if score.real else 0.0}


def summary(cell: Cell, runs: list[dict[str, Any]], claims: list[str]) -> dict[str, Any]:
    """Mean and spread over seeds, beside the paper."""
    scores = {k: [r["accuracy"][k] for r in runs] for k in runs[0]["accuracy"]}
    reached = statistics.fmean(scores[CNN])
    return {
        "cell": cell.name,
        "unit": cell.unit,
        "claims": claims,
        "mean": {k: statistics.fmean(v) for k, v in scores.items()},
        "sd": {k: statistics.stdev(v) if len(v) > 1 else None for k, v in scores.items()},
        "paper": cell.paper,
        "target_cnn": cell.target,
        "reached": reached >= cell.target,
        "settings": {
            "sites": SITES[cell.data], "rounds": cell.rounds, "clip": cell.clip, "rate": cell.rate,
            "training": cell.training, "recipe": cell.recipe,
        },
        "runs": runs,
    }  # fmt: skip


def picture(release: Release, path: Path) -> None:
    """Ten rows of each class, one class per row."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    labels = np.repeat(np.arange(10), 10)
    x = release.generator.sample(labels, rng=Streams.from_seed(0)).reshape(10, 10, 28, 28)
    tiles = x.permute(0, 2, 1, 3).reshape(280, 280).numpy()
    pyplot.imsave(path, tiles, cmap="gray_r", vmin=0, vmax=1)


def _commit() -> str:
    asked = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    found = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def main() -> None:
    """Run the grid, print a table, write it as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=(*SITES, "all"), default="all")
    parser.add_argument("--trust", choices=("central", "local", "all"), default="all")
    parser.add_argument("--epsilon", choices=("10", "1", "all"), default="all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true", help="a short run per trust: does it work")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--picture", type=Path, help="a folder for pictures of samples")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.seeds = args.seeds[:1] if args.quick else args.seeds
    torch.set_num_threads(args.threads)
    chosen = [
        cell
        for cell in CELLS
        if args.data in (cell.data, "all")
        and args.trust in (cell.trust, "all")
        and args.epsilon in (f"{cell.epsilon:g}", "all")
    ]
    if args.quick:
        chosen = list({cell.trust: cell for cell in reversed(chosen)}.values())
    report: dict[str, Any] = {
        "command": "python bench/dpd_fvae.py " + " ".join(sys.argv[1:]),
        "commit": _commit(),
        "delta": DELTA,
        "synthetic_rows": 2000 if args.quick else ROWS,
        "classifier_steps": 100 if args.quick else STEPS,
        "versions": {n: importlib.metadata.version(n) for n in ("understudy", "torch", "numpy")},
        "machine": f"{platform.machine()}, {args.threads} thread(s)",
        "cells": [],
        "not_run": [cell.name for cell in CELLS if cell not in chosen],
    }
    for cell in chosen:
        _run_cell(cell, args, report)


def _run_cell(cell: Cell, args: argparse.Namespace, report: dict[str, Any]) -> None:
    data, runs = images(cell.data), []
    plan = build(study(cell, data.schema, args.quick)).plan
    report["cells"].append({})
    for seed in args.seeds:
        found, release = one(cell, data, seed, args)
        runs.append(found)
        report["cells"][-1] = summary(cell, runs, [claim.words for claim in release.claims])
        parts = [part for phase in plan.phases for part in phase.parts]
        report["cells"][-1]["noise"] = [part.mechanism.noise for part in parts]
        print(f"{cell.name} seed {seed}: {found}", flush=True)
        if args.picture and seed == args.seeds[0]:
            args.picture.mkdir(parents=True, exist_ok=True)
            picture(release, args.picture / f"dpd_fvae-{cell.name}.png")
        if args.json:
            args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    _print(report["cells"][-1])


def _print(found: dict[str, Any]) -> None:
    print(f"\n{found['cell']} ({'reached' if found['reached'] else 'below'} {found['target_cnn']})")
    for name, mean in found["mean"].items():
        sd, paper = found["sd"][name], (found["paper"] or {}).get(name)
        beside = "" if paper is None else f"   paper {paper:.3f}"
        print(f"  {name:24} {mean:.3f}{'' if sd is None else f' ± {sd:.3f}'}{beside}")
    for words in found["claims"]:
        print(f"  {words}", flush=True)


if __name__ == "__main__":
    main()
