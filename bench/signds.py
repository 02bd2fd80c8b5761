"""SignDS-FL beside its rivals: accuracy against ε **per update** (Jiang 2023, thesis ch. 3).

    python bench/signds.py [--case NAME …] [--seeds 0 1 2] [--quick] [--full] [--tune] [--json F] …

The thesis's ε is of one update, and its sites make tens to hundreds of them. Each row here has
that ε and, beside it, the ε of the most exposed site's whole life, as the release claims it. SignDS
and the runs without privacy go through the product (`understudy.run`); DM, PM, HM and FedSel
(`perturbation.py`) replace only what a site sends: schedule, local training and server are the
recipe's. The layout is the thesis's: sites of 10 rows, 250 a round, 500 rounds, top set of a tenth.
The second table gives SignDS ε = 8 for the whole life; the thesis has nothing of the kind.

Methods without a further word are as published: dense nets on pixels and a constant γ. "strokes"
is the recipe's default for images: dense nets see strokes (so "nn" is a convolutional net whose
kernels are fixed) and γ falls along a cosine. "standardised" is the same for LeNet, which sees
every image at one brightness and contrast. γ and the top set are tuned for each case. A rival with
strokes has the same net under another mechanism.

Accuracy is of the last round, on the official test rows; rates were tuned on held-out training rows
(``--tune``). Deviations from the thesis: one local SGD step on a site's 10 rows where it makes ten
epochs (cheap, and only the order of coordinates counts); γ is tuned per method, and the models of
the second half of the rounds are averaged (of the last fifth on strokes and with LeNet).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import arguments, load, provenance, save, spread
from perturbation import duchi, fedsel, hybrid, piecewise

from understudy import Records, Schema, Study, run
from understudy.data.encode import encode
from understudy.data.schema import Column
from understudy.data.shards import Shards
from understudy.federation.cohort import scheduled
from understudy.federation.site import Site
from understudy.privacy.claim import claims, headline
from understudy.recipes import build
from understudy.recipes.signds import SignDS
from understudy.release.classifier import Classifier
from understudy.rng import NoiseSource, Streams

COHORT, ROWS, ROUNDS = 250, 10, 500
CHUNK = 2**22  # numbers of updates that are held at once
PLAIN = "no privacy"
VIEWS = ("strokes", "standardised")  # of an image: by dense nets, and by LeNet
PLAIN_VIEWS = tuple(f"{PLAIN} {view}" for view in VIEWS)
STEP = {"optimiser": "sgd", "epochs": 1, "rate": 1.0}  # one step: the update is the gradient
ADAM = {"optimiser": "adam", "epochs": 10, "rate": 1e-3}  # as the thesis
PUBLISHED = {"view": "pixels", "decay": "none", "average": 0.5}
HELD_OUT = 0.15

Perturb = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Case:
    """A data set and a net, with what was tuned for them on held-out rows."""

    data: str
    model: str
    core: dict[float, tuple[str, ...]]  # ε per update: methods
    full: dict[float, tuple[str, ...]]
    rates: dict[str, float]  # γ by method; "SignDS h=1 at 4" goes before "SignDS h=1"
    plain: dict[str, Any]  # [training] without privacy
    clip: float  # public: updates are divided by it and cut to [-1, 1] for the rivals
    own: dict[str, dict[str, float]] = field(default_factory=dict)  # [recipe] beside the defaults
    lifetime: tuple[tuple[int, int, float], ...] = ()  # rounds, h and γ at ε = 8 for a whole life
    seeds: int = 3
    rounds: int = ROUNDS

    @property
    def name(self) -> str:
        """For files and tables."""
        return f"{self.data}-{self.model}"

    def rate(self, method: str, epsilon: float) -> float:
        """γ of a method."""
        return self.rates.get(f"{method} at {epsilon:g}") or self.rates[method]


RIVALS: dict[str, Perturb] = {
    "DM": duchi,
    "PM": piecewise,
    "HM": hybrid,
    "FedSel .1": partial(fedsel, share=0.1),
    "FedSel .5": partial(fedsel, share=0.5),
}
FEW = ("SignDS h=1", "SignDS h=5", "FedSel .5", "PM")
REST = ("SignDS h=3", "DM", "HM", "FedSel .1")
ALL = ("SignDS h=1", "SignDS h=3", "SignDS h=5", *RIVALS)
STROKES = ("SignDS strokes h=1", "SignDS strokes h=5")
STROKES_RIVALS = ("FedSel .5 strokes", "PM strokes")
LENET = ("SignDS standardised h=1", "SignDS standardised h=5")
VIEWED = (*STROKES, *STROKES_RIVALS)
METHODS = (PLAIN, *PLAIN_VIEWS, *VIEWED, *LENET, *ALL)

CASES = (
    Case(
        "usps", "logistic",
        core={4.0: (*VIEWED, *ALL), 8.0: (*VIEWED, *FEW)},
        full={0.5: ALL, 1.0: (*STROKES, *ALL), 2.0: (*STROKES, *ALL), 8.0: REST},
        rates={
            "SignDS h=1": 15.0, "SignDS h=1 at 4": 40.0, "SignDS h=3": 15.0, "SignDS h=5": 10.0,
            "DM": 0.003, "PM": 0.005, "HM": 0.005, "FedSel .1": 10.0, "FedSel .5": 10.0,
            "DM at 1": 0.002, "PM at 1": 0.002, "HM at 1": 0.002, "FedSel .1 at 1": 2.5,
            "FedSel .5 at 1": 2.5,
            "no privacy strokes": 1.0,
            "SignDS strokes h=1": 15.0, "SignDS strokes h=5": 10.0,
            "FedSel .5 strokes": 8.0, "PM strokes": 0.002,
        },
        plain={"optimiser": "sgd", "epochs": 1, "rate": 3.0},
        clip=0.05,
        own={"SignDS strokes h=1": {"top": 0.05}},
        lifetime=((500, 1, 1.0), (20, 1, 10.0)),
    ),
    Case(
        "a9a", "logistic",
        core={4.0: ALL},
        full={0.5: ALL, 1.0: ALL, 2.0: ALL, 8.0: ALL},
        rates={
            "SignDS h=1": 4.0, "SignDS h=3": 2.0, "SignDS h=5": 2.0,
            "DM": 0.02, "PM": 0.06, "HM": 0.06, "FedSel .1": 6.0, "FedSel .5": 6.0,
        },
        plain={"optimiser": "sgd", "epochs": 1, "rate": 1.0},
        clip=0.1,
        lifetime=((500, 1, 1.0), (13, 1, 2.0)),
    ),
    Case(
        "fashion_mnist", "logistic",
        core={8.0: STROKES},
        full={},
        rates={
            "no privacy strokes": 0.4,
            "SignDS strokes h=1": 10.0, "SignDS strokes h=5": 5.0,
        },
        plain={"optimiser": "sgd", "epochs": 1, "rate": 0.3},
        clip=0.05,
        own={"SignDS strokes h=1": {"top": 0.02}},
    ),
    Case(
        "fashion_mnist", "nn",
        core={8.0: (*STROKES, *FEW)},
        full={
            1.0: (*STROKES, *ALL), 2.0: (*STROKES, *ALL), 4.0: (*STROKES, *ALL),
            8.0: (*STROKES_RIVALS, *REST),
        },
        rates={
            "no privacy strokes": 0.3,
            "SignDS strokes h=1": 30.0, "SignDS strokes h=5": 15.0,
            "FedSel .5 strokes": 15.0, "PM strokes": 0.0005,
            "SignDS h=1": 20.0, "SignDS h=3": 15.0, "SignDS h=5": 12.0,
            "DM": 0.0003, "PM": 0.0005, "HM": 0.0005, "FedSel .1": 15.0, "FedSel .5": 15.0,
        },
        plain={"optimiser": "sgd", "epochs": 1, "rate": 0.3},
        clip=0.01,
        own={"SignDS strokes h=1": {"top": 0.02}},
        lifetime=((24, 5, 25.0),),
    ),
    Case(
        "fashion_mnist", "lenet",
        core={8.0: LENET},
        full={4.0: LENET},
        rates={
            "no privacy standardised": 0.4,
            "SignDS standardised h=1": 45.0, "SignDS standardised h=5": 22.0,
        },
        plain={"optimiser": "sgd", "epochs": 1, "rate": 0.4},
        clip=0.01,
        own={"SignDS standardised h=1": {"top": 0.02}},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """The sites' rows, and the rows that a classifier is scored on."""

    schema: Schema
    train: Records
    test: Records

    def accuracy(self, model: Classifier) -> float:
        """Share of the test rows that the model puts in their class."""
        rows = encode(self.schema, self.test)
        found = model.probabilities(torch.from_numpy(rows.x)).argmax(1).numpy()
        return float((found == rows.y).mean())


def dataset(name: str, held_out: bool = False) -> Data:
    """The official split; or, for tuning, a part of the training rows in the place of the test."""
    found = load(name)
    train, test = (_records(name, *found[part]) for part in ("train", "test"))
    if held_out:
        order = np.random.default_rng(99).permutation(len(train))
        cut = round(HELD_OUT * len(train))
        train, test = train.take(order[cut:]), train.take(order[:cut])
    return Data(_schema(name, train), train, test)


def _records(name: str, x: np.ndarray, y: np.ndarray) -> Records:
    if name == "a9a":
        columns = {f"f{i}": x[:, i] > 0 for i in range(x.shape[1])}
        return Records(frame=pd.DataFrame({**columns, "label": y > 0}))
    images = np.rint((x + 1) * 127.5).astype(np.uint8) if name == "usps" else x  # grey in [-1, 1]
    return Records(images=images, labels=y.astype(str))


def _schema(name: str, rows: Records) -> Schema:
    if rows.frame is not None:
        columns = tuple(Column(str(column), "boolean") for column in rows.frame)
        return Schema("table", name, len(rows), columns=columns, label="label")
    assert rows.images is not None
    classes = tuple("0123456789")
    return Schema("image", name, len(rows), classes=classes, shape=rows.images.shape[1:])


@dataclass(frozen=True)
class Cell:
    """One figure: a method on a case at an ε, per update or of a site's whole life."""

    case: Case
    method: str
    epsilon: float = 0.0
    rate: float = 1.0
    rounds: int = ROUNDS
    lifetime: bool = False
    adam: bool = False

    @property
    def privacy(self) -> dict[str, Any]:
        """``[privacy]``"""
        if self.plain:
            return {"unit": "site", "trust": "none"}
        key = "epsilon" if self.lifetime else "epsilon_per_update"
        return {"unit": "site", "trust": "local", key: self.epsilon}

    @property
    def training(self) -> dict[str, Any]:
        """``[training]``: what a site does with its rows."""
        if self.plain:
            rate = self.case.rates.get(self.method, self.case.plain["rate"])
            return {**self.case.plain, "rate": rate}
        return ADAM if self.adam else STEP

    @property
    def recipe(self) -> dict[str, Any]:
        """``[recipe]``"""
        outputs = int(self.method[-1]) if "h=" in self.method else 1
        own = {"model": self.case.model, "outputs": outputs, "global_rate": self.rate}
        found = self.case.own
        if not self.view:
            return own | PUBLISHED
        return own | found.get(f"{self.method} at {self.epsilon:g}", found.get(self.method, {}))

    @property
    def view(self) -> str:
        """What the net sees of an image, or nothing: as published."""
        return next((view for view in VIEWS if view in self.method), "")

    @property
    def plain(self) -> bool:
        """Whether sites send their updates as they are."""
        return self.method in (PLAIN, *PLAIN_VIEWS)

    @property
    def rival(self) -> str:
        """The name of another mechanism, or nothing."""
        name = self.method.removesuffix(f" {self.view}")
        return name if name in RIVALS else ""

    def study(self, schema: Schema, folder: Path) -> Study:
        """The study of the method; of a rival, the one whose sites and server it borrows."""
        tables = {
            "study": {"name": self.case.name, "recipe": "signds", "rounds": self.rounds},
            "privacy": self.privacy,
            "cohort": {"size": COHORT},
            "training": self.training,
            "recipe": self.recipe,
            "simulation": {"data": _file(schema), "sites": schema.records // ROWS},
        }
        return Study.parse(tables, schema=schema, base=folder)


def _file(schema: Schema) -> str:
    return "rows.parquet" if schema.kind == "table" else "rows.npz"


def write_rows(data: Data, folder: Path) -> None:
    """The sites' rows in one file, as a study names it."""
    path = folder / _file(data.schema)
    if data.train.frame is not None:
        data.train.frame.to_parquet(path)
    else:
        assert data.train.images is not None and data.train.labels is not None
        np.savez(path, X=data.train.images, y=data.train.labels)


def one(cell: Cell, data: Data, seed: int) -> dict[str, Any]:
    """One run, scored on the test rows."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        write_rows(data, Path(folder))
        study = cell.study(data.schema, Path(folder))
        if cell.rival:
            model, plan = rival(cell, study, data, seed), build(study).plan
            promised = claims(plan, "simulation")
        else:
            release = run(study, seed=seed)
            model, plan, promised = release.classifier, release.plan, release.claims
    return {
        "accuracy": data.accuracy(model),
        "lifetime_epsilon": None if cell.plain else headline(promised),
        "updates": plan.participations,
        "minutes": (time.perf_counter() - start) / 60,
    }


def rival(cell: Cell, study: Study, data: Data, seed: int) -> Classifier:
    """The recipe's rounds with another privatisation of what a site sends."""
    recipe, rng = build(study), Streams.from_seed(seed)
    assert isinstance(recipe, SignDS)
    sites = _sites(data, study.n_sites, rng)
    noise = rng.numpy("rival")
    state = recipe.init(rng=rng.child("init"))
    for round in range(cell.rounds):
        cohort = scheduled(len(sites), COHORT, round, rng=rng)
        total = sum(
            _told(cell, update, noise)
            for update in updates(recipe, state, sites, cohort, round, rng)
        )
        mean = torch.from_numpy(total / COHORT).float()
        state = recipe.step(state, {"update": mean}, rng=rng)
    return recipe.finish(state, rng=rng)


def _sites(data: Data, n: int, rng: Streams) -> Shards:
    rows = encode(data.schema, data.train)
    order = rng.numpy("split").permutation(len(data.train))
    return Shards.pack(rows, np.array_split(order, n))


def updates(
    recipe: SignDS,
    state: dict[str, torch.Tensor],
    sites: Shards,
    cohort: np.ndarray,
    round: int,
    rng: Streams,
) -> Iterator[np.ndarray]:
    """The cohort's updates before privatisation, a chunk at a time."""
    size = max(1, CHUNK // state["model"].numel())
    for start in range(0, len(cohort), size):
        part = cohort[start : start + size]
        update, _ = recipe.local(recipe.task(state, round), _stack(recipe, sites, part, round, rng))
        yield update["update"].numpy()


def _stack(recipe: SignDS, sites: Shards, part: np.ndarray, round: int, rng: Streams) -> Site:
    """Some sites as the recipe sees them."""
    names = tuple(f"site-{client + 1}" for client in part)
    secret = NoiseSource.seeded(rng).sites(round, part)
    own = rng.sites("local", round, part)
    return Site(names, sites.take(part), {}, recipe.plan, round, own, secret)


def _told(cell: Cell, update: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    """The sum of what the server reads of these updates."""
    options = {"top": update.shape[1] // 10} if "FedSel" in cell.method else {}
    scaled = np.clip(update / cell.case.clip, -1, 1)
    told: np.ndarray = RIVALS[cell.rival](scaled, cell.epsilon, rng=noise, **options).sum(0)
    return told


def cells(case: Case, full: bool) -> list[Cell]:
    """What is run of a case: without privacy first, then by ε, then for a whole life."""
    grid = [(e, m) for e, methods in case.core.items() for m in methods]
    if full:
        grid += [(e, m) for e, methods in case.full.items() for m in methods]
    per_update = [Cell(case, m, e, case.rate(m, e), case.rounds) for e, m in grid]
    life = [
        Cell(case, f"SignDS h={h}", 8.0, rate, rounds, True) for rounds, h, rate in case.lifetime
    ]
    viewed = [plain for plain in PLAIN_VIEWS if plain in case.rates]
    plain = viewed if case.model == "lenet" else [PLAIN, *viewed]
    return [*(Cell(case, m, rounds=case.rounds) for m in plain), *per_update, *life]


def wanted(case: Case, args: argparse.Namespace) -> list[Cell]:
    """The cells that the command line asks for."""
    found = [cell for cell in cells(case, args.full) if cell.method in args.methods]
    chosen = args.epsilon
    return [c for c in found if not chosen or c.plain or c.epsilon in chosen]


def row(cell: Cell, runs: list[dict[str, Any]], plain: float | None) -> dict[str, Any]:
    """A row of the report."""
    accuracy = spread([found["accuracy"] for found in runs])
    life = runs[0]["lifetime_epsilon"]
    updates = runs[0]["updates"]
    return {
        "case": cell.case.name,
        "method": cell.method,
        "epsilon_per_update": None if life is None else life / updates,
        "updates_of_most_exposed_site": updates,
        "lifetime_epsilon": life,
        "accuracy": accuracy,
        "loss_against_no_privacy": None if plain is None else plain - accuracy["mean"],
        "rounds": cell.rounds,
        "recipe": cell.recipe,
        "training": cell.training,
        "minutes_each": round(sum(found["minutes"] for found in runs) / len(runs), 2),
    }


def run_case(case: Case, args: argparse.Namespace, report: dict[str, Any]) -> None:
    """All cells of a case, written as they come."""
    data, plain = dataset(case.data), None
    for cell in (replace(cell, adam=args.adam) for cell in wanted(case, args)):
        cell = replace(cell, rounds=min(cell.rounds, 3)) if args.quick else cell
        runs: list[dict[str, Any]] = []
        table = report["lifetime" if cell.lifetime else "per_update"]
        table.append({})
        for seed in args.seeds[: case.seeds]:
            runs.append(one(cell, data, seed))
            table[-1] = row(cell, runs, plain)
            save(report, args.json)
        plain = table[-1]["accuracy"]["mean"] if cell.plain and plain is None else plain
        print(_line(table[-1]), flush=True)


def _line(found: dict[str, Any]) -> str:
    life, accuracy = found["lifetime_epsilon"], found["accuracy"]
    price = "ε = ∞" if life is None else (
        f"ε per update {found['epsilon_per_update']:.3g}, lifetime {life:.4g}"
    )  # fmt: skip
    sd = "" if accuracy["sd"] is None else f" ± {accuracy['sd']:.3f}"
    return (
        f"{found['case']:22} {found['method']:12} {price:40} {accuracy['mean']:.4f}{sd}  "
        f"{found['minutes_each']} min"
    )


def tune(case: Case, args: argparse.Namespace) -> None:
    """Three rates per method and ε, on held-out training rows."""
    data = dataset(case.data, held_out=True)
    for cell in wanted(case, args):
        for factor in (1.0,) if cell.plain else (0.3, 1.0, 3.0):
            tried = replace(cell, rate=cell.rate * factor)
            found = one(tried, data, args.seeds[0])
            print(f"γ = {tried.rate:<8g} {_line(row(tried, [found], None))}", flush=True)


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy against ε per update, one panel per case that has several ε."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = [n for n in dict.fromkeys(r["case"] for r in rows) if len(_epsilons(rows, n)) > 1]
    figure, axes = pyplot.subplots(1, max(1, len(names)), squeeze=False, figsize=(6, 4))
    for axis, name in zip(axes[0], names, strict=False):
        _panel(axis, [r for r in rows if r["case"] == name], name)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _epsilons(rows: list[dict[str, Any]], case: str) -> set[float]:
    found = {row["epsilon_per_update"] for row in rows if row["case"] == case}
    return found - {None}


def _panel(axis: Any, rows: list[dict[str, Any]], name: str) -> None:
    private = [row for row in rows if row["lifetime_epsilon"] is not None]
    for method in dict.fromkeys(row["method"] for row in private):
        line = sorted(
            (row["epsilon_per_update"], row["accuracy"]["mean"], row["accuracy"]["sd"] or 0.0)
            for row in private
            if row["method"] == method
        )
        axis.errorbar(*zip(*line, strict=True), label=method, marker="o", markersize=3)
    for row in rows:
        if row["method"] == PLAIN:
            axis.axhline(row["accuracy"]["mean"], color="grey", linestyle=":", label=PLAIN)
    updates = rows[-1]["updates_of_most_exposed_site"]
    axis.set(title=name, ylabel="accuracy")
    axis.set_xlabel(f"ε per update (× {updates} updates in the life of a site)")
    axis.legend(fontsize=7)


def main() -> None:
    """Run the grid, or tune it."""
    parser = arguments(__doc__ or "")
    names = [case.name for case in CASES]
    parser.add_argument("--case", nargs="+", choices=names, default=names)
    parser.add_argument("--picture", type=Path, help="draw accuracy against ε per update here")
    parser.add_argument("--adam", action="store_true", help="ten local epochs instead of a step")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--epsilon", type=float, nargs="+", help="only these, per update")
    parser.add_argument("--tune", action="store_true", help="try rates on held-out training rows")
    args = parser.parse_args()
    chosen = [case for case in CASES if case.name in args.case]
    report = provenance("signds", args.threads) | {
        "seeds": args.seeds,
        "per_update": [],
        "lifetime": [],
        "not_run": not_run(chosen, args),
    }
    start = time.perf_counter()
    for case in chosen:
        tune(case, args) if args.tune else run_case(case, args, report)
        report["minutes"] = round((time.perf_counter() - start) / 60, 1)
        save(report, None if args.tune else args.json)
    if args.picture and not args.tune:
        picture(report["per_update"], args.picture)


def not_run(chosen: list[Case], args: argparse.Namespace) -> list[str]:
    """The cells of the whole grid that this run leaves out, and missing seeds."""
    left = [f"{c.name}: {c.seeds} seed(s) instead of 3" for c in chosen if c.seeds < 3]
    short = [c for c in chosen if c.rounds < ROUNDS]
    left += [f"{c.name}: {c.rounds} rounds instead of {ROUNDS}" for c in short]
    for case in CASES:
        done = wanted(case, args) if case in chosen else []
        rest = [c for c in cells(case, full=True) if c not in done and not c.lifetime and c.epsilon]
        for e in sorted({c.epsilon for c in rest}):
            missing = ", ".join(c.method for c in rest if c.epsilon == e)
            left.append(f"{case.name}, ε = {e:g}: {missing}")
    return left


if __name__ == "__main__":
    main()
