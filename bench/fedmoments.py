"""fedmoments on images and tables: students that only saw synthetic rows, at small budgets.

    python bench/fedmoments.py [--data mnist …] [--epsilon 1 …] [--seeds 0 1 2] [--quick] [--json F]

Record level, central trust, δ = 1e-5, 100 sites (5 for breast cancer), one round; counts, means and
second moments are all noised. Each cell runs the product: `understudy.run`, then the students of
`understudy evaluate`, trained on 20,000 synthetic rows and tested on the official test rows (or,
where there are none, on a quarter held out by the seed). Beside them the same students trained on
the real rows, once. Options and rules were tuned on parts of the training rows; breast cancer and
mushroom have no test rows of their own and were tuned on other cuts of the same tables.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measures import thesis_students
from threadpoolctl import threadpool_limits

from understudy import Records, Release, Schema, Study, run
from understudy.data.bundled import bundled, holdout
from understudy.data.encode import encode
from understudy.data.schema import Column
from understudy.data.table import from_frame
from understudy.evaluation.rows import Rows
from understudy.evaluation.utility import measure_utility
from understudy.rng import Streams

DATA = Path(os.environ.get("UNDERSTUDY_DATA", Path(__file__).parents[2] / "shared" / "data"))
DELTA, ROWS = 1e-5, 20_000
TARGETS = {"mnist": 0.89, "fashion_mnist": 0.72}  # convolutional network, ε = 1
RIVALS = "CNN accuracy at ε = 1 of central methods: DP-MERF .803/.622, GS-WGAN .724/.527"

# The codes of the mushroom guide and the answers of the census, as their documentation lists them.
MUSHROOM = {
    "cap-shape": "bcxfks", "cap-surface": "fgys", "cap-color": "nbcgrpuewy", "bruises": "tf",
    "odor": "alcyfmnps", "gill-attachment": "adfn", "gill-spacing": "cwd", "gill-size": "bn",
    "gill-color": "knbhgropuewy", "stalk-shape": "et", "stalk-root": "bcuezr",
    "stalk-surface-above-ring": "fyks", "stalk-surface-below-ring": "fyks",
    "stalk-color-above-ring": "nbcgopewy", "stalk-color-below-ring": "nbcgopewy",
    "veil-type": "pu", "veil-color": "nowy", "ring-number": "not", "ring-type": "ceflnpsz",
    "spore-print-color": "knbhrouwy", "population": "acnsvy", "habitat": "glmpuwd",
}  # fmt: skip
ADULT_NUMBERS = {
    "age": (16, 95), "fnlwgt": (0, 1_600_000), "education-num": (1, 16),
    "capital-gain": (0, 100_000), "capital-loss": (0, 5_000), "hours-per-week": (1, 99),
}  # fmt: skip
ADULT_WORDS = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov "
    "Without-pay Never-worked",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th "
    "12th Masters 1st-4th 10th Doctorate 5th-6th Preschool",
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed "
    "Married-spouse-absent Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras Philippines "
    "Italy Poland Jamaica Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador "
    "Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
    "Trinadad&Tobago Peru Hong Holand-Netherlands",
}


@dataclass(frozen=True)
class Task:
    """One data set, cut into training and test records."""

    schema: Schema
    train: Records
    test: Records
    sites: int = 100


def images(name: str, seed: int) -> Task:
    """MNIST or Fashion-MNIST with the official test rows."""
    data = _load(name)
    parts = [Records(images=x, labels=y.astype(str)) for x, y in (data["train"], data["test"])]
    shape, classes = data["train"][0].shape[1:], tuple("0123456789")
    schema = Schema("image", name, len(parts[0]), classes=classes, shape=shape)
    return Task(schema, *parts)


def breast_cancer(name: str, seed: int) -> Task:
    """The bundled table, a quarter held out, five hospitals."""
    schema, records = bundled("breast_cancer")
    return Task(schema, *holdout(records, rng=np.random.default_rng(1000 + seed)), sites=5)


def adult(name: str, seed: int) -> Task:
    """Census rows with the official test rows; "?" is a missing answer."""
    data = _load(name)
    numbers = [Column(n, "integer", *bounds) for n, bounds in ADULT_NUMBERS.items()]
    unknown = ("workclass", "occupation", "native-country")
    words = [
        Column(n, "categorical", categories=tuple(w.split()), missing=n in unknown)
        for n, w in ADULT_WORDS.items()
    ]
    label = Column("income", "categorical", categories=("<=50K", ">50K"))
    schema = Schema("table", name, len(data["train"]), (*numbers, *words, label), label="income")
    return Task(schema, *(from_frame(data[part], schema) for part in ("train", "test")))


def mushroom(name: str, seed: int) -> Task:
    """Edible or poisonous, a quarter held out."""
    columns = [
        Column(n, "categorical", categories=tuple(codes), missing=n == "stalk-root")
        for n, codes in MUSHROOM.items()
    ]
    label = Column("class", "categorical", categories=("e", "p"))
    frame = _load(name)["train"]
    schema = Schema("table", name, len(frame), (*columns, label), label="class")
    rng = np.random.default_rng(1000 + seed)
    return Task(schema, *holdout(from_frame(frame, schema), rng=rng))


TASKS = {
    "mnist": images, "fashion_mnist": images, "breast_cancer": breast_cancer,
    "adult": adult, "mushroom": mushroom,
}  # fmt: skip


def _load(name: str) -> dict[str, Any]:
    sys.path.insert(0, str(DATA))
    from load import load  # type: ignore[import-not-found]

    return load(name)  # type: ignore[no-any-return]


def release(task: Task, epsilon: float, seed: int) -> tuple[Release, float]:
    """The product's release and the seconds it took, rows in memory to generator."""
    tables = {
        "study": {"name": task.schema.name, "recipe": "fedmoments"},
        "privacy": {"unit": "record", "trust": "central", "epsilon": epsilon, "delta": DELTA},
        "simulation": {"data": "-", "sites": task.sites},
    }
    order = np.random.default_rng(seed).permutation(len(task.train))
    sites = [task.train.take(np.sort(part)) for part in np.array_split(order, task.sites)]
    begun = time.perf_counter()
    made = run(Study.parse(tables, schema=task.schema), sites, seed=seed)
    return made, time.perf_counter() - begun


def cell(data: str, epsilon: float, seed: int, rows: int, real: bool) -> dict[str, Any]:
    """One run: what was claimed, how long it took, how well the students do."""
    task = TASKS[data](data, seed)
    made, seconds = release(task, epsilon, seed)
    drawn, train, test = (
        Rows(e.x, e.y)
        for e in (
            encode(task.schema, r) for r in (made.sample(rows, seed=seed), task.train, task.test)
        )
    )
    train = train if real else train.take(np.arange(0))
    # Images: the students that the recorded figures were measured with.
    learners = thesis_students() if task.schema.kind == "image" else None
    utility = measure_utility(
        task.schema, drawn, train, test, rng=Streams.from_seed(seed), learners=learners
    )
    claim = made.claims[0]
    scores = {
        s.student: {c.name: round(c.synthetic.value, 4) for c in s.scores} for s in utility.students
    }
    result = {
        "seed": seed, "delta": claim.delta,
        "noise": round(made.plan.own.parts[0].mechanism.noise, 4),
        "claim_epsilon": claim.epsilon, "claim_epsilon_rdp": claim.epsilon_rdp,
        "release_seconds": round(seconds, 1), "synthetic": scores,
    }  # fmt: skip
    if real:
        result["real"] = {
            s.student: {c.name: round(c.real.value, 4) for c in s.scores if c.real}
            for s in utility.students
        }
    return result


def summary(data: str, epsilon: float, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, beside the real-trained students and the target."""
    mean = {
        student: {
            m: round(statistics.mean(r["synthetic"][student][m] for r in runs), 4) for m in scores
        }
        for student, scores in runs[0]["synthetic"].items()
    }
    target = TARGETS.get(data) if epsilon == 1 else None
    found = mean.get("convolutional network", {}).get("accuracy")
    return {
        "data": data, "epsilon": epsilon, "mean": mean, "real": runs[0].get("real"),
        "target_cnn_accuracy": target,
        "reached": None if target is None or found is None else bool(found >= target),
        "release_seconds": max(r["release_seconds"] for r in runs), "runs": runs,
    }  # fmt: skip


def main() -> None:
    """Run the grid, print a line per cell, write it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true", help="one seed, breast cancer only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here, as they come")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    threadpool_limits(args.threads)
    if args.quick:
        args.data, args.seeds = ["breast_cancer"], args.seeds[:1]
    begun, cells = time.perf_counter(), []
    for data, epsilon in ((d, e) for d in args.data for e in args.epsilon):
        runs = []
        for seed in args.seeds:
            runs.append(cell(data, epsilon, seed, ROWS, real=seed == args.seeds[0]))
            print(data, epsilon, json.dumps(runs[-1]), flush=True)
        cells.append(summary(data, epsilon, runs))
        minutes = round((time.perf_counter() - begun) / 60, 2)
        text = json.dumps({"cells": cells, "minutes": minutes, **_settings(args)}, indent=2)
        if args.json:
            args.json.write_text(text + "\n")
    for c in cells:
        print(c["data"], c["epsilon"], c["mean"], f"{c['release_seconds']} s")


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    names = ("understudy", "torch", "numpy", "scikit-learn", "dp-accounting")
    return {
        "settings": {
            "unit": "record", "trust": "central", "delta": DELTA, "synthetic_rows": ROWS,
            "seeds": args.seeds, "threads": args.threads, "quick": args.quick, "rivals": RIVALS,
        },
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in names},
        },
    }  # fmt: skip


if __name__ == "__main__":
    main()
