"""The thesis's baselines beside its figures (Margaritis 2021, §4.5.4, §4.5.5), and FedAvg.

    python bench/baselines.py [--only NAME …] [--seeds 0] [--quick] [--json F]

PrivBayes at ε = 1: the thesis's protects a record from everyone (each of 20 sites adds its own
noise, pure ε); ours is run that way (local) and with one noisy sum (central), both Gaussian. The
network is grown, or given: each step of a window by the step before and the label, each pixel by
its left neighbour and the label. DP-FedAvg-GAN as the thesis ran it: ten sites, half of them a
round, S = 1, one GAN per class or, ours, one for all. FedAvg of a classifier, without privacy, is
what rows that never become synthetic would give. Test rows and the GANs' students are those of
``bench/fedvae.py``; MNIST stands in for EMNIST digits. The thesis takes the best of ten classifiers
on PrivBayes's rows; here they teach a random forest and naive Bayes, and both are shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import fedvae
import numpy as np
import pandas as pd
import torch
from common import arguments, provenance, save, spread
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import f1_score
from sklearn.naive_bayes import GaussianNB

from understudy import Records, Schema, Study, run
from understudy.data.column import Column
from understudy.data.table import from_frame
from understudy.nets.student import StudentTraining, fit, predict
from understudy.release.classifier import Classifier
from understudy.rng import Streams


@dataclass(frozen=True)
class Case:
    """One run: data, tables of the study, and what the thesis reports."""

    data: str
    recipe: str
    paper: float | None
    privacy: dict[str, Any] = field(default_factory=lambda: {"trust": "none"})
    own: dict[str, Any] = field(default_factory=dict)
    rounds: int | None = None
    training: dict[str, Any] = field(default_factory=dict)
    sites: int = 20
    rate: float | None = None
    table: bool = False
    given: bool = False


ONE = {"unit": "record", "trust": "central", "epsilon": 1.0}
EACH = {**ONE, "trust": "local"}
GAN: dict[str, Any] = {"recipe": "dp_fedavg_gan", "rounds": 400, "sites": 10, "rate": 0.5}
NOISE = {"unit": "site", "trust": "central", "clip": 1.0}
FEDAVG: dict[str, Any] = {"recipe": "signds", "paper": None, "rounds": 100}
PLAIN = {"optimiser": "sgd", "epochs": 1, "rate": 0.3, "batch": 50}
CASES = {
    "privbayes, epilepsy, central, grown": Case("epilepsy", "privbayes", 0.712, ONE, table=True),
    "privbayes, epilepsy, central, given": Case(
        "epilepsy", "privbayes", 0.712, ONE, {"degree": 2}, table=True, given=True
    ),
    "privbayes, epilepsy, local, given": Case(
        "epilepsy", "privbayes", 0.712, EACH, {"degree": 2}, table=True, given=True
    ),
    "privbayes, mnist, central, given": Case(
        "mnist", "privbayes", 0.128, ONE, {"degree": 2}, table=True, given=True
    ),
    "gan, mnist, z = 0": Case("mnist", paper=0.75, **GAN),
    "gan, mnist, z = 0, per class": Case("mnist", paper=0.75, own={"classes": "separate"}, **GAN),
    "gan, mnist, z = .01": Case("mnist", paper=0.67, privacy={**NOISE, "noise": 0.01}, **GAN),
    "gan, mnist, z = .02": Case("mnist", paper=0.53, privacy={**NOISE, "noise": 0.02}, **GAN),
    "fedavg, mnist": Case("mnist", own={"model": "nn"}, training=PLAIN, **FEDAVG),
    "fedavg, epilepsy": Case("epilepsy", own={"model": "nn"}, training=PLAIN, **FEDAVG),
}


def as_table(task: fedvae.Task) -> tuple[Schema, Records]:
    """Every step or pixel is a column, with the bounds that it had."""
    held = task.schema
    rows = task.train.series if held.kind == "series" else task.train.images
    assert rows is not None and task.train.labels is not None
    flat = np.asarray(rows).reshape(len(rows), -1)
    low, high = (held.columns[0].low, held.columns[0].high) if held.columns else (0, 255)
    names = [f"x{i}" for i in range(flat.shape[1])]
    label = Column("label", "categorical", categories=held.classes)
    columns = (*(Column(n, "numeric", low, high) for n in names), label)
    frame = pd.DataFrame(flat, columns=names).assign(label=task.train.labels)
    whole = Schema("table", held.name, len(flat), columns, label="label")
    return whole, from_frame(frame, whole)


def known(case: Case, width: int) -> list[str]:
    """The network that anyone would draw: the neighbour before, and the label."""
    side = 28 if case.data == "mnist" else width
    before = [f"x{i - 1}, label" if i % side else "label" for i in range(width)]
    return [f"x{i} < {parents}" for i, parents in enumerate(before)]


def study(case: Case, schema: Schema, quick: bool) -> Study:
    """The study of a case."""
    own = {**case.own, **({"network": known(case, schema.width)} if case.given else {})}
    rounds = {} if case.rounds is None else {"rounds": 3 if quick else case.rounds}
    tables = {
        "study": {"name": case.data, "recipe": case.recipe, **rounds},
        "privacy": case.privacy,
        "cohort": {} if case.rate is None else {"rate": case.rate},
        "training": case.training,
        "recipe": own,
        "simulation": {"data": "-", "sites": case.sites},
    }
    return Study.parse(tables, schema=schema)


def one(case: Case, seed: int, quick: bool) -> tuple[dict[str, float], float, str]:
    """Scores of students (or of the classifier itself) on test rows, minutes, the claim."""
    task = fedvae.TASKS[case.data]()
    schema, rows = as_table(task) if case.table else (task.schema, task.train)
    asked = study(case, schema, quick)
    order = np.random.default_rng(seed).permutation(len(rows))
    held = [rows.take(np.sort(part)) for part in np.array_split(order, case.sites)]
    begun = time.perf_counter()
    made = run(asked, held, seed=seed, rows=10)
    minutes = (time.perf_counter() - begun) / 60
    test = task.test_x.reshape(len(task.test_x), -1)
    if isinstance(made.model, Classifier):
        chances = made.model.probabilities(torch.from_numpy(test))
        found = {"itself": chances.argmax(1).numpy()}
    else:
        found = taught(case, task, made.model, seed, quick)
    return {name: _score(task, told) for name, told in found.items()}, minutes, made.claims[0].words


def _score(task: fedvae.Task, told: np.ndarray) -> float:
    return float(
        f1_score(task.test_y, told) if task.score == "F1" else (told == task.test_y).mean()
    )


def taught(
    case: Case, task: fedvae.Task, model: Any, seed: int, quick: bool
) -> dict[str, np.ndarray]:
    """What students that saw synthetic rows only say of the test rows."""
    rng = Streams.from_seed(seed).child("student")
    rows, classes = 2000 if quick else 10_000 if case.table else 20_000, len(task.balance)
    labels = rng.numpy("labels").choice(classes, rows, p=task.balance)
    x, test = model.sample(labels, rng=rng), torch.from_numpy(task.test_x)
    if case.table:
        plain = test.reshape(len(test), -1).numpy()
        forest = RandomForestClassifier(100, random_state=seed)
        students = {"forest": forest, "naive Bayes": GaussianNB()}
        return {n: s.fit(x.numpy(), labels).predict(plain) for n, s in students.items()}
    how = StudentTraining(steps=50 if quick else 2000)
    params = fit(task.student, x, torch.from_numpy(labels), rng=rng, training=how)
    return {"network": predict(task.student, params, test).argmax(1).numpy()}


def main() -> None:
    """Run the cases, print each, write them as they come."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    chosen = args.only[:1] if args.quick else args.only
    seeds = args.seeds[:1] if args.quick else args.seeds
    report: dict[str, Any] = {**provenance("baselines", args.threads), "cases": []}
    for name in chosen:
        case = CASES[name]
        scores, minutes, words = zip(*(one(case, s, args.quick) for s in seeds), strict=True)
        each = {name: spread([s[name] for s in scores]) for name in scores[0]}
        found = {"scores": each, "minutes": spread(minutes), "thesis": case.paper}
        told = {"case": name, "seeds": seeds, "claim": words[0], "rounds": case.rounds}
        report["cases"].append({**told, **found})
        report["not run"] = [n for n in CASES if n not in {c["case"] for c in report["cases"]}]
        shown = ", ".join(f"{student} {score['mean']:.3f}" for student, score in each.items())
        print(f"{name:40} {shown}  thesis {case.paper}", flush=True)
        save(report, args.json)


if __name__ == "__main__":
    main()
