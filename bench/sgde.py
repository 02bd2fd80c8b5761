"""The exchange of Lomurno et al. (2021, §IV): twenty members, each with 5 % of the training rows.

    python bench/sgde.py [--data titanic …] [--seeds 0 1 2] [--columns Local …] [--quick] [--json F]

* Local: a classifier of each member's own rows; the mean over members.
* Federated: one classifier by FedAvg over all members' rows (the product's `signds` with
  trust = "none"), without privacy, on nine tenths of each member's rows.
* Together: one classifier of the real rows of all members, which nobody may see: what there is.
* Synthetic: one classifier of class-balanced rows drawn alike from the releases of all members.
  Each member made its own alone: one site, record level, local trust, ε = 1.5. Three ways: the
  β-VAEs of the paper (sgde), those after a warm start within the same ε, and fedmoments.
  Tables: also with a member's own rows, ``joined`` or to calibrate by (`sgde_learners`).

Tables: logistic regression, as in the paper, fitted and by its steps (`sgde_learners`), and three
seeds; where there are no official test rows a tenth is held out by the seed. Images: one layer of
convolutions and a dense one from scratch, the same steps for all (the paper: the head of a VGG16
that was trained on ImageNet), and LeNet for FedAvg; one seed, the first `LOCALS` members for Local.
"test" is the paper's Table III; "members" its Table I: Local by ten folds (tables only), Federated
on the tenth of each member's rows that it did not see, Synthetic on all rows of the members. F1 is
that of the second class in the schema (the first for breast cancer), or the mean over classes. No
setting was tuned on test rows. Columns that are in the JSON already stay there.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import arguments, provenance, save, spread
from fedmoments import images
from sgde_learners import alone_by_steps, calibrated, joined, pooled_by_steps
from sklearn.metrics import f1_score, roc_auc_score
from tablesets import TABLES, Task

from understudy import Records, Release, Schema, Study, run
from understudy.data.bundled import holdout
from understudy.data.encode import encode
from understudy.evaluation.rows import Rows
from understudy.evaluation.students import Learner, answer, silent, students, taught
from understudy.nets.student import StudentTraining, conv_student
from understudy.rng import Streams

MEMBERS, EPSILON, ROWS = 20, 1.5, 20_000
LOCALS, STEPS = 5, 600  # members whose own CNN is trained; its steps, of 64 images
OFFICIAL = {"adult", "mnist", "fashion_mnist"}  # data sets that come with test rows
POSITIVE = {"breast_cancer": 0}  # benign, as in the copy that the paper used
MARKS = ("accuracy", "F1", "AUC")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "Synthetic (sgde)": ("sgde", {"warm_start": 0}),
    "Synthetic (sgde, warm start)": ("sgde", {"warm_start": 0.7, "warm_steps": 500}),
    "Synthetic (fedmoments)": ("fedmoments", {}),
}

# Tables I and III of the paper: accuracy, F1, AUC in per cent.
PAPER = {
    "members": {
        "titanic": ((75.67, 19.43, 75.70), (76.67, 69.89, 69.38), (80.87, 63.37, 78.35)),
        "breast_cancer": ((89.67, 93.37, 99.17), (89.50, 84.16, 98.75), (97.09, 97.81, 99.27)),
        "mushroom": ((92.93, 92.43, 96.23), (91.51, 91.32, 95.84), (93.49, 93.14, 96.61)),
        "adult": ((80.64, 49.69, 83.30), (76.01, 47.95, 79.81), (79.65, 61.64, 83.73)),
        "mnist": ((98.20, 98.16, 99.02), (99.40, 99.39, 99.66), (98.72, 98.71, 99.31)),
        "fashion_mnist": ((88.47, 88.32, 93.87), (91.75, 91.65, 95.76), (89.30, 89.22, 94.76)),
    },
    "test": {
        "titanic": ((71.83, 29.70, 77.14), (74.81, 71.61, 70.85), (74.01, 56.00, 77.43)),
        "breast_cancer": ((89.42, 92.25, 99.60), (91.86, 90.82, 99.36), (93.02, 94.78, 99.76)),
        "mushroom": ((92.56, 91.92, 96.30), (91.27, 91.20, 96.07), (93.49, 93.14, 96.61)),
        "adult": ((80.87, 50.14, 84.02), (76.47, 47.70, 81.24), (79.00, 60.21, 84.08)),
        "mnist": ((97.76, 97.71, 99.02), (99.08, 99.08, 99.50), (98.49, 98.49, 99.19)),
        "fashion_mnist": ((85.97, 85.81, 92.65), (87.94, 87.99, 93.68), (88.13, 88.04, 94.13)),
    },
}

Marks = dict[str, float]


@dataclass(frozen=True)
class Exchange:
    """A data set among members: what each holds, the rows of the test, and how to learn."""

    name: str
    schema: Schema
    members: tuple[Records, ...]
    test: Rows
    learn: Learner
    seed: int

    @property
    def image(self) -> bool:
        """Whether rows are images."""
        return self.schema.kind == "image"

    def rows(self, records: Records) -> Rows:
        """Encoded."""
        made = encode(self.schema, records)
        return Rows(made.x, made.y)

    def taught(self, rows: Rows) -> Callable[[np.ndarray], np.ndarray]:
        """A classifier of these rows alone; learnt anew for each question."""
        rng = Streams.from_seed(self.seed).child("student")

        def ask(x: np.ndarray) -> np.ndarray:
            found = answer(self.learn, self.schema, rows, x, rng, silent)
            assert found is not None
            return found

        return ask

    def steps(self) -> np.random.Generator:
        """What the learner that goes by steps draws its batches with."""
        return np.random.default_rng([self.seed, 5])

    def marks(self, guess: np.ndarray, truth: np.ndarray) -> Marks:
        """Accuracy, F1 and AUC; an AUC of one class is no number."""
        chosen, classes = guess.argmax(1), self.schema.n_classes
        if classes == 2:
            positive = POSITIVE.get(self.name, 1)
            f1 = f1_score(truth, chosen, pos_label=positive, zero_division=0.0)
            pairs = [positive]
        else:
            f1 = f1_score(truth, chosen, average="macro", zero_division=0.0)
            pairs = list(range(classes))
        areas = [
            roc_auc_score(truth == k, guess[:, k]) if 0 < (truth == k).sum() < len(truth) else None
            for k in pairs
        ]
        known = [a for a in areas if a is not None]
        area = float(np.mean(known)) if known else float("nan")
        return dict(zip(MARKS, (float((chosen == truth).mean()), float(f1), area), strict=True))


def dealt(name: str, seed: int, quick: bool) -> Exchange:
    """The rows of a data set among the members, by the seed."""
    made = images(name, seed) if name not in TABLES else TABLES[name](name, seed)
    task = Task(made.schema, made.train, made.test)
    if name not in OFFICIAL:
        whole = Records(frame=pd.concat([task.train.frame, task.test.frame], ignore_index=True))
        task = Task(task.schema, *holdout(whole, 0.1, rng=np.random.default_rng(1000 + seed)))
    order = np.random.default_rng(seed).permutation(len(task.train))
    many = 3 if quick else MEMBERS
    order = order[: 40 * many] if quick else order
    parts = [np.sort(part) for part in np.array_split(order, many)]
    schema = replace(task.schema, records=round(len(order) / many))
    test = encode(schema, task.test)
    kept = slice(0, 200 if quick else None)
    members = tuple(task.train.take(part) for part in parts)
    learn = _learner(schema, quick)
    return Exchange(name, schema, members, Rows(test.x[kept], test.y[kept]), learn, seed)


def _learner(schema: Schema, quick: bool) -> Learner:
    if schema.kind == "image":
        how = StudentTraining(steps=20 if quick else STEPS)
        return taught(lambda s: conv_student(s.shape, s.n_classes), how)
    return students(schema)["logistic regression"]


def local(exchange: Exchange, quick: bool) -> dict[str, Marks]:
    """What members can do alone."""
    chosen = exchange.members[: LOCALS if exchange.image else None][: 2 if quick else None]
    held = [exchange.rows(member) for member in chosen]
    test = [exchange.marks(exchange.taught(r)(exchange.test.x), exchange.test.y) for r in held]
    found = {"test": _mean(test)}
    if not exchange.image:
        found["members"] = _mean([_folds(exchange, rows) for rows in held])
        terms = (exchange.test, exchange.marks, exchange.steps())
        pairs = [alone_by_steps(exchange.schema, rows, *terms) for rows in held]
        found["by steps"] = _sides(*zip(*pairs, strict=True))
    return found


def _sides(test: Sequence[Marks], members: Sequence[Marks]) -> dict[str, Marks]:
    return {"test": _mean(test), "members": _mean(members)}


def together(exchange: Exchange, quick: bool) -> dict[str, Marks]:
    """One classifier of everybody's real rows."""
    held = [exchange.rows(member) for member in exchange.members[: 2 if quick else None]]
    ask = exchange.taught(_concatenated(held))
    return {"test": exchange.marks(ask(exchange.test.x), exchange.test.y)}


def _folds(exchange: Exchange, rows: Rows, folds: int = 10) -> Marks:
    """Ten-fold cross-validation on one member's rows."""
    fold = np.random.default_rng(exchange.seed).permutation(len(rows)) % folds
    guess = np.zeros((len(rows), exchange.schema.n_classes))
    for k in range(folds):
        learnt = Rows(rows.x[fold != k], rows.y[fold != k])
        guess[fold == k] = exchange.taught(learnt)(rows.x[fold == k])
    return exchange.marks(guess, rows.y)


def federated(exchange: Exchange, quick: bool) -> dict[str, Marks]:
    """FedAvg over nine tenths of each member's rows."""
    model, rate, rounds = ("lenet", 1e-3, 8) if exchange.image else ("logistic", 1e-2, 40)
    tables = {
        "study": {"name": "fedavg", "recipe": "signds", "rounds": 2 if quick else rounds},
        "privacy": {"trust": "none"},
        "training": {"epochs": 2, "batch": 32, "rate": rate},
        "recipe": {"model": model},
        "simulation": {"data": "-", "sites": len(exchange.members)},
    }
    rng = np.random.default_rng(exchange.seed)
    cut = [holdout(member, 0.1, rng=rng) for member in exchange.members]
    whole = replace(exchange.schema, records=sum(len(kept) for kept, _ in cut))
    study = Study.parse(tables, schema=whole)
    made = run(study, [kept for kept, _ in cut], seed=exchange.seed)
    return _asked(exchange, partial(_classify, made), [exchange.rows(left) for _, left in cut])


def _classify(made: Release, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = made.model.probabilities(torch.from_numpy(x)).numpy()
    return found


def synthetic(method: str, exchange: Exchange, quick: bool) -> dict[str, Any]:
    """Every member makes a release alone; one classifier learns from them all."""
    begun = time.perf_counter()
    made = [_release(exchange, method, k, quick) for k in range(len(exchange.members))]
    seconds = time.perf_counter() - begun
    most = max(claim.epsilon for release in made for claim in release.claims[:1])
    pool = _pool(exchange, made, 400 if quick else ROWS)
    held = [exchange.rows(member) for member in exchange.members]
    found: dict[str, Any] = _asked(exchange, exchange.taught(pool), held)
    if not exchange.image:
        sides, terms = (exchange.test, held), (exchange.marks, exchange.steps())
        moved = pooled_by_steps(exchange.schema, pool, sides, *terms)
        found["by steps"] = _sides(moved["test"], moved["members"])
        found["by steps, calibrated"] = {"test": _mean(moved["calibrated"])}
        both = [joined(own, pool, exchange.test.x) for own in held]
        scaled = calibrated(pool, held, exchange.test.x)
        for learner, guesses in (("joined", both), ("calibrated", scaled)):
            marks = [exchange.marks(guess, exchange.test.y) for guess in guesses]
            found[learner] = {"test": _mean(marks)}
    delta = made[0].claims[0].delta
    return {**found, "epsilon": most, "delta": delta, "seconds": seconds / len(made)}


def _release(exchange: Exchange, method: str, member: int, quick: bool) -> Release:
    recipe, own = METHODS[method]
    own = {**own, **({"steps": 3, "warm_steps": 20} if quick and recipe == "sgde" else {})}
    tables = {
        "study": {"name": f"member {member + 1}", "recipe": recipe},
        "privacy": {"unit": "record", "trust": "local", "epsilon": EPSILON},
        "recipe": own,
        "simulation": {"data": "-", "sites": 1},
    }
    study = Study.parse(tables, schema=exchange.schema)
    return run(study, [exchange.members[member]], seed=100 * exchange.seed + member, rows=0)


def _pool(exchange: Exchange, releases: list[Release], rows: int) -> Rows:
    """As many rows of each class from each release."""
    each = max(1, rows // len(releases) // exchange.schema.n_classes)
    drawn = [
        exchange.rows(release.sample(each, label=label, seed=exchange.seed))
        for release in releases
        for label in exchange.schema.classes
    ]
    return _concatenated(drawn)


def _concatenated(parts: list[Rows]) -> Rows:
    return Rows(np.concatenate([r.x for r in parts]), np.concatenate([r.y for r in parts]))


def _asked(
    exchange: Exchange, ask: Callable[[np.ndarray], np.ndarray], members: list[Rows]
) -> dict[str, Marks]:
    """One classifier's marks on the test rows, and the mean of those on members' rows."""
    sides = [exchange.test, *members]
    guesses = np.split(
        ask(np.concatenate([side.x for side in sides])),
        np.cumsum([len(side) for side in sides])[:-1],
    )
    marks = [exchange.marks(g, side.y) for g, side in zip(guesses, sides, strict=True)]
    return {"test": marks[0], "members": _mean(marks[1:])}


def _mean(marks: Sequence[Marks]) -> Marks:
    return {name: float(np.nanmean([m[name] for m in marks])) for name in MARKS}


COLUMNS: dict[str, Callable[[Exchange, bool], dict[str, Any]]] = {
    "Local": local,
    "Federated": federated,
    "Together": together,
    **{method: partial(synthetic, method) for method in METHODS},
}


def cell(known: dict[str, Any], name: str, seed: int, args: Namespace) -> None:
    """Measure the columns of one data set and seed; they replace those that are known."""
    exchange = dealt(name, seed, args.quick)
    known["rows per member"] = len(exchange.members[0])
    commit = provenance("sgde", args.threads)["commit"]
    for column in args.columns:
        begun = time.perf_counter()
        found = COLUMNS[column](exchange, args.quick)
        minutes = round((time.perf_counter() - begun) / 60, 2)
        known["columns"][column] = {**found, "minutes": minutes, "commit": commit}
        print(name, seed, column, {m: round(v, 3) for m, v in found["test"].items()}, flush=True)


LEARNERS = ("fitted", "by steps", "joined", "calibrated", "by steps, calibrated")


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds beside the paper's, and how far each column is ahead of Local."""
    names = list(dict.fromkeys(c["data"] for c in cells))
    found: dict[str, Any] = {}
    for side, learner in product(("test", "members"), LEARNERS):
        tables = {n: _means([c for c in cells if c["data"] == n], side, learner) for n in names}
        kept = {name: table for name, table in tables.items() if table}
        against = "by steps" if "by steps" in learner else "fitted"
        alone = {n: _means([c for c in cells if c["data"] == n], side, against) for n in kept}
        found[f"{side}, {learner}"] = {**kept, "ahead of Local": _ahead(kept, alone)}
    found["paper"] = {side: {n: PAPER[side][n] for n in names} for side in PAPER}
    return found


def _means(cells: list[dict[str, Any]], side: str, learner: str) -> dict[str, Any]:
    """Of each column that this learner was asked for: over seeds."""
    got: dict[str, list[Marks]] = {}
    for column, found in ((n, c) for each in cells for n, c in each["columns"].items()):
        part = found if learner == "fitted" else found.get(learner, {})
        if side in part:
            got.setdefault(column, []).append(part[side])
    return {c: {m: spread([one[m] for one in all_]) for m in MARKS} for c, all_ in got.items()}


def _ahead(found: dict[str, Any], alone: dict[str, Any]) -> dict[str, Marks]:
    """Mean over tables of the difference to Local, in points; images have few members' Local."""
    tables = [n for n in found if n in TABLES and "Local" in alone[n]]
    columns = [c for c in COLUMNS if c != "Local" and all(c in found[n] for n in tables)]
    return {
        c: {
            m: round(100 * _average(found[n][c][m]["mean"] - alone[n]["Local"][m]["mean"]
                                    for n in tables), 2)
            for m in MARKS
        }
        for c in columns
        if tables
    }  # fmt: skip


def _average(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def main() -> None:
    """Measure cell by cell; figures are written as they come."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="+", default=list(PAPER["test"]), choices=PAPER["test"])
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS), choices=COLUMNS)
    args = parser.parse_args()
    cells = _known(args.json)
    for name, seed in _grid(args):
        cell(cells.setdefault((name, seed), _empty(name, seed)), name, seed, args)
        held = list(cells.values())
        save({**provenance("sgde", args.threads), "cells": held, "summary": summary(held)},
             args.json)  # fmt: skip


def _empty(name: str, seed: int) -> dict[str, Any]:
    return {"data": name, "seed": seed, "columns": {}}


def _known(path: Path | None) -> dict[tuple[str, int], dict[str, Any]]:
    """The cells of an earlier run."""
    if path is None or not path.exists():
        return {}
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return {(each["data"], each["seed"]): each for each in cells}


def _grid(args: Namespace) -> list[tuple[str, int]]:
    """Seed by seed, so that a run cut short has all tables; images last, and once."""
    if args.quick:
        return [("titanic", args.seeds[0]), ("mnist", args.seeds[0])]
    tables = [(name, seed) for seed in args.seeds for name in args.data if name in TABLES]
    return [*tables, *((name, args.seeds[0]) for name in args.data if name not in TABLES)]


if __name__ == "__main__":
    main()
