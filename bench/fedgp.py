"""FedGP beside its paper (Triastcyn & Faltings 2020, Table 1): MNIST students, without privacy.

    python bench/fedgp.py [--seeds 0] [--only iid-500 …] [--rounds N] [--quick|--full] [--json F]

Sites hold rows of random number, uniform around the mean (some as few as 100), of all classes (iid)
or of two random ones each (non-iid). About twenty sites join a round by coin flips. A convolutional
student learns from 20,000 synthetic images alone and is tested on the official test images: our
final round beside the paper's figures. Nothing is noised and nothing is claimed, as in the paper.
The core grid is a mean of 1000 rows in both layouts; ``--full`` has all six cells.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from common import arguments, load, provenance, save, spread

from understudy import Records, Schema, Study, run
from understudy.nets.student import StudentTraining, conv_student, fit, predict
from understudy.rng import Streams

PAPER = {
    "iid-500": 0.7945, "iid-1000": 0.9338, "iid-2000": 0.9623,
    "non-iid-500": 0.8326, "non-iid-1000": 0.9589, "non-iid-2000": 0.9688,
}  # fmt: skip
CORE = ("iid-1000", "non-iid-1000")
ROUNDS, JOINING, LEAST, ROWS = 200, 20, 100, 20_000
RECIPE = {"steps": 10, "widths": [128], "critic_widths": [128]}


def schema(rows: int) -> Schema:
    """Grey images of ten digits."""
    return Schema("image", "mnist", rows, classes=tuple("0123456789"), shape=(28, 28))


def sites(cell: str, seed: int) -> list[Records]:
    """The training images, dealt out as the cell says; none is dealt twice."""
    kind, mean = cell.rsplit("-", 1)
    x, y = load("mnist")["train"]
    rng = np.random.default_rng(seed)
    left = {k: list(rng.permutation(np.flatnonzero(y == k))) for k in range(10)}
    sizes = rng.integers(LEAST, 2 * int(mean) - LEAST + 1, len(x) // int(mean))
    found = [_deal(left, int(size), kind == "iid", rng) for size in sizes]
    return [Records(images=x[rows], labels=y[rows].astype(str)) for rows in found if len(rows)]


def _deal(
    left: dict[int, list[int]], size: int, even: bool, rng: np.random.Generator
) -> np.ndarray:
    """Rows of one site: of all classes that are left, or of two of them."""
    classes = [k for k, rows in left.items() if rows]
    if not even and len(classes) > 2:
        classes = rng.choice(classes, 2, replace=False).tolist()
    if not classes:
        return np.zeros(0, np.int64)
    each = np.bincount(rng.integers(0, len(classes), size), minlength=len(classes))
    taken = [left[k].pop() for k, n in zip(classes, each, strict=True) for _ in range(n) if left[k]]
    return np.array(taken, np.int64)


def one(cell: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Student accuracy of the final round, and the minutes of training."""
    held = sites(cell, seed)[: 4 if args.quick else None]
    tables = {
        "study": {"name": cell, "recipe": "fedgp", "rounds": 2 if args.quick else args.rounds},
        "cohort": {"rate": min(1.0, JOINING / len(held))},
        "recipe": {**RECIPE, "steps": 1} if args.quick else RECIPE,
        "simulation": {"data": "-", "sites": len(held)},
    }
    asked = Study.parse(tables, schema=schema(sum(map(len, held))))
    begun = time.perf_counter()
    made = run(asked, held, seed=seed, rows=10)
    minutes = (time.perf_counter() - begun) / 60
    return {
        "accuracy": student(made, seed, 500 if args.quick else ROWS, 50 if args.quick else 2000),
        "minutes": minutes,
        "sites": len(held),
        "claim": made.claims[0].words,
    }


def student(made: Any, seed: int, rows: int, steps: int) -> float:
    """Accuracy on the test images of a student that saw synthetic ones only."""
    rng = Streams.from_seed(seed).child("student")
    labels = rng.numpy("labels").integers(0, 10, rows)
    x = made.generator.sample(labels, rng=rng)
    spec, how = conv_student((28, 28), 10), StudentTraining(steps=steps)
    params = fit(spec, x, torch.from_numpy(labels), rng=rng, training=how)
    test, y = load("mnist")["test"]
    flat = torch.from_numpy(test.reshape(len(test), -1).astype(np.float32) / 255)
    return float((predict(spec, params, flat).argmax(1).numpy() == y).mean())


def main() -> None:
    """Run the cells, print each, write them as they come."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=PAPER, default=None)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    cells = args.only or (list(PAPER) if args.full else list(CORE))
    cells, seeds = (cells[:1], args.seeds[:1]) if args.quick else (cells, args.seeds)
    report: dict[str, Any] = {**provenance("fedgp", args.threads), "recipe": RECIPE, "cells": []}
    for cell in cells:
        runs = [one(cell, seed, args) for seed in seeds]
        found = {name: spread([r[name] for r in runs]) for name in ("accuracy", "minutes")}
        told = {"cell": cell, "rounds": args.rounds, "seeds": seeds, "sites": runs[0]["sites"]}
        report["cells"].append({**told, **found, "paper": PAPER[cell], "claim": runs[0]["claim"]})
        report["not run"] = [c for c in PAPER if c not in {r["cell"] for r in report["cells"]}]
        print(f"{cell:14} {found['accuracy']['mean']:.3f}  paper {PAPER[cell]:.3f}")
        save(report, args.json)


if __name__ == "__main__":
    main()
