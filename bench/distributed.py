"""What it costs to trust no server: distributed against central trust at the same ε.

    python bench/distributed.py [--cells cancer mnist fedvae many small] [--seeds 0 1 2] [--quick]

Noise in shares is sized for t − c honest survivors; where all n sites answer, the sum holds
n/(t − c) times the variance that a trusted server would have added. Each cell runs the product
with both trusts on the same rows and seeds, and trains the students of `understudy evaluate`
(MNIST: the thesis's; FedVAE on Epilepsy: the thesis's, F1) on the synthetic rows alone:

- cancer: fedmoments, breast cancer, 5 hospitals, t = 4, c = 1, ε = 1, record level;
- mnist: fedmoments, 100 sites, t = 80, c = 10, ε = 1, record level;
- fedvae: Epilepsy, 20 sites in each of 100 rounds, t = 16, c = 2, the thesis's z = 0.2, site level:
  its ε is in the thousands under central trust, and too large to be claimed of shares;
- many: FedVAE on Epilepsy, 100 sites in each of 20 rounds after a warm start, t = 80, c = 10,
  ε = 60, site level: shares claim no more than about 80, and at ε = 10 there is little to compare;
- small: breast cancer at 3 hospitals: a trusted server; t = 3 with c = 0 and c = 1; and neither a
  server that is trusted nor masks (local trust); one student.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from common import arguments, provenance, save, spread
from fedmoments import DELTA, TASKS, Task
from fedvae import epilepsy
from measures import thesis_students
from sklearn.metrics import f1_score

from understudy import Release, Study, run
from understudy.data.encode import encode
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import students
from understudy.evaluation.utility import measure_utility
from understudy.nets.student import StudentTraining, fit, predict
from understudy.rng import Streams

ROWS = 20_000
CENTRAL = {"trust": "central"}
SHARES = {"trust": "distributed"}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "cancer": {"central": CENTRAL, "distributed, t = 4, c = 1": SHARES},
    "mnist": {"central": CENTRAL, "distributed, t = 80, c = 10": SHARES},
    "fedvae": {"central": CENTRAL, "distributed, t = 16, c = 2": SHARES},
    "many": {"central": CENTRAL, "distributed, t = 80, c = 10": SHARES},
    "small": {
        "central": CENTRAL,
        "distributed, t = 3, c = 0": {**SHARES, "survivors": 3, "colluders": 0},
        "distributed, t = 3, c = 1": SHARES,
        "local": {"trust": "local"},
    },
}


def moments(data: str, sites: int, privacy: dict[str, Any], seed: int) -> tuple[Release, Task]:
    """fedmoments on one data set."""
    task = TASKS[data](data, seed)
    tables = {
        "study": {"name": data, "recipe": "fedmoments"},
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": DELTA, **privacy},
        "simulation": {"data": "-", "sites": sites},
    }
    order = np.random.default_rng(seed).permutation(len(task.train))
    held = [task.train.take(np.sort(part)) for part in np.array_split(order, sites)]
    return run(Study.parse(tables, schema=task.schema), held, seed=seed), task


def taught(
    data: str, sites: int, only: str = ""
) -> Callable[..., tuple[Release, dict[str, float]]]:
    """A cell of fedmoments: accuracy of each student, or of one."""

    def one(privacy: dict[str, Any], seed: int, quick: bool) -> tuple[Release, dict[str, float]]:
        made, task = moments(data, sites, privacy, seed)
        drawn = made.sample(500 if quick else ROWS, seed=seed)
        synthetic, test = (
            Rows(e.x, e.y) for e in (encode(task.schema, r) for r in (drawn, task.test))
        )
        learners = thesis_students() if task.schema.kind == "image" else students(task.schema)
        learners = {only: learners[only]} if only else learners
        rng, none = Streams.from_seed(seed), test.take(np.arange(0))
        found = measure_utility(task.schema, synthetic, none, test, rng=rng, learners=learners)
        return made, {
            s.student: c.synthetic.value
            for s in found.students for c in s.scores if c.name == "accuracy"
        }  # fmt: skip

    return one


def trained(
    sites: int, rounds: int, price: dict[str, float], recipe: dict[str, Any]
) -> Callable[..., tuple[Release, dict[str, float]]]:
    """A cell of FedVAE: F1 of the thesis's student."""

    def one(privacy: dict[str, Any], seed: int, quick: bool) -> tuple[Release, dict[str, float]]:
        task = epilepsy()
        tables = {
            "study": {"name": "epilepsy", "recipe": "fedvae", "rounds": 2 if quick else rounds},
            "privacy": {"unit": "site", "clip": task.clip, **price, **privacy},
            "recipe": {**task.recipe, **recipe},
            "simulation": {"data": "-", "sites": sites},
        }
        order = np.random.default_rng(seed).permutation(len(task.train))
        held = [task.train.take(np.sort(part)) for part in np.array_split(order, sites)]
        made = run(Study.parse(tables, schema=task.schema), held, seed=seed, rows=10)
        rng = Streams.from_seed(seed).child("student")
        labels = rng.numpy("labels").choice(2, 500 if quick else ROWS, p=task.balance)
        x, y = made.generator.sample(labels, rng=rng), torch.from_numpy(labels)
        how = StudentTraining(steps=20 if quick else 1000)
        student = fit(task.student, x, y, rng=rng, training=how)
        guess = predict(task.student, student, torch.from_numpy(task.test_x)).argmax(1).numpy()
        return made, {"thesis's network (F1)": float(f1_score(task.test_y, guess))}

    return one


CELLS = {
    "cancer": taught("breast_cancer", 5),
    "mnist": taught("mnist", 100),
    "fedvae": trained(20, 100, {"noise": 0.2}, {}),
    "many": trained(100, 20, {"epsilon": 60.0, "delta": DELTA}, {"warm_start": 0.3}),
    "small": taught("breast_cancer", 3, "logistic regression"),
}


def variants(cell: str, seeds: list[int], quick: bool) -> Iterator[dict[str, Any]]:
    """Each trust of a cell over all seeds, beside the first."""
    first: dict[str, Any] = {}
    for name, privacy in VARIANTS[cell].items():
        begun, runs = time.perf_counter(), []
        for seed in seeds:
            made, scores = CELLS[cell](privacy, seed, quick)
            runs.append(scores)
        found = {student: spread([run[student] for run in runs]) for student in runs[0]}
        first = first or found
        part, claim = made.plan.own.parts[0], made.claims[0]
        yield {
            "trust": name,
            "scores": found,
            "change": {s: round(found[s]["mean"] - first[s]["mean"], 5) for s in found},
            "noise": part.mechanism.std_of_sum(part, made.plan.own),
            "bytes_per_site": part.bytes,
            "claim": {"against": claim.adversary, "epsilon": claim.epsilon, "delta": claim.delta},
            "claims": {f"{c.adversary}, {c.relation}": c.epsilon for c in made.claims},
            "minutes": round((time.perf_counter() - begun) / 60, 2),
        }


def main() -> None:
    """Run the cells, print a line for each trust, write it all."""
    parser = arguments(__doc__)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    args = parser.parse_args()
    if args.quick:
        args.cells, args.seeds = ["cancer", "fedvae"], args.seeds[:1]
    report: dict[str, Any] = {
        **provenance("distributed", args.threads),
        "seeds": args.seeds,
        "cells": {},
    }
    for cell in args.cells:
        report["cells"][cell] = []
        for row in variants(cell, args.seeds, args.quick):
            report["cells"][cell].append(row)
            save(report, args.json)
            scores = ", ".join(
                f"{s} {v['mean']:.4f} ({row['change'][s]:+.4f})" for s, v in row["scores"].items()
            )
            print(f"{cell:8s} {row['trust']:28s} {scores}", flush=True)


if __name__ == "__main__":
    main()
