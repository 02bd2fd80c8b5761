"""FedSTDG beside its thesis: next-step error against ε **per update** (Jiang 2023, ch. 5).

    python bench/fedstdg.py [--part grid plain methods pretrain poison long] [--data sine …]
                            [--seeds 0 1 2] [--quick] [--full] [--tune] [--json F] [--picture F]

Every run is the product's (`understudy.run`): sites of 10 series, 50 a round by the public
schedule. The thesis's ε is of one update; beside it stands the ε of the most exposed site's whole
life, as the release claims it. A one-layer LSTM learns from synthetic series to predict the next
step and is tested on held-out real ones (Table 5.3); MMD² and coverage say how near the series
themselves come. Two rows need no private series at all and are there to be beaten: repeating the
last step, and the net as it is before the first round. The grid is the recipe's default, SubMDS
without the bit that adapts γ; results/fedstdg*.json are from when it was AdaSubMDS.

Deviations from the thesis: a smaller net, one local SGD step, 100 rounds for 1,000 (so a smaller ε
for life), and a start from smooth series that anyone can draw who knows the bounds. Stock has 3,685
days here, not 4,400. The hold-out is a random fifth of the windows, as TimeGAN has it: windows of
stride 1 overlap with their neighbours, so near-copies of test windows are in training. Settings
were tuned on a part of the training windows (``--tune``), never on the test windows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from common import arguments, load, provenance, save, spread
from measures import coverage, mmd, next_step_mae

from understudy import Records, Release, Schema, Study, run
from understudy.data.bundled import sines
from understudy.data.schema import Column
from understudy.data.table import write
from understudy.evaluation.forecasts import Forecasting
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.privacy.claim import headline
from understudy.recipes import build, fedstdg
from understudy.recipes.fedstdg import FedSTDG
from understudy.release.generator import Generator
from understudy.rng import Streams

FILES = {"stock": "stock", "energy": "appliances_energy", "air": "air_quality"}
SETS, FEW = ("sine", *FILES), ("sine", "stock")
LEFT_OUT = ("date", "datetime", "rv2")  # rv2 equals rv1
STEPS, SINES, HELD_OUT = 24, 50_000, 0.2
SERIES, COHORT, ROUNDS, PUBLIC = 10, 50, 100, 100
EPSILONS = (0.5, 2.0, 8.0)
MOST, CLOUD = 4000, 1000  # series that the LSTM learns from, and that clouds are compared by
STUDENT = Forecasting(steps=800, batch=32)

PLAIN, REAL, FIRST = "no privacy", "real series", "before the first round"
UNEQUAL = {PLAIN: 60, REAL: 0, FIRST: 0}  # rounds where they are not `ROUNDS`
OWN = "SubMDS"  # the recipe's default: no bit
ADA, RULE = "AdaSubMDS", "AdaSubMDS, rule of the paper"
METHODS: dict[str, dict[str, Any]] = {
    "SignDS-S": {"outputs": 1, "subset": 1.0},
    "SignDS-M": {"outputs": 0, "subset": 1.0},
    OWN: {},
    ADA: {"adaptive": "pooled"},
    RULE: {"adaptive": "paper"},
    PLAIN: {},
}
ABSENT = (
    "SignDS-E",
    "trained in one place, without privacy and with central DP",
    "100 and 200 sites a round",
    "distance-based membership inference",
)  # rows of the thesis that no cell here has
FEDAVG = {"epochs": 3, "optimiser": "adam", "rate": 3e-3}

# Table 5.3, by ε = .5, 2 and 8; without privacy and on real rows one figure
THESIS: dict[str, dict[str, tuple[float, ...]]] = {
    "sine": {
        "SignDS-S": (0.211, 0.141, 0.130), "SignDS-M": (0.196, 0.141, 0.111),
        OWN: (0.159, 0.120, 0.107), ADA: (0.134, 0.108, 0.110),
        PLAIN: (0.038,), REAL: (0.020,),
    },
    "stock": {
        "SignDS-S": (0.131, 0.022, 0.017), "SignDS-M": (0.118, 0.021, 0.015),
        OWN: (0.028, 0.016, 0.014), ADA: (0.020, 0.015, 0.014),
        PLAIN: (0.014,), REAL: (0.012,),
    },
    "energy": {
        "SignDS-S": (0.118, 0.066, 0.054), "SignDS-M": (0.108, 0.062, 0.053),
        OWN: (0.084, 0.054, 0.051), ADA: (0.058, 0.052, 0.050),
        PLAIN: (0.043,), REAL: (0.031,),
    },
    "air": {
        "SignDS-S": (0.117, 0.087, 0.079), "SignDS-M": (0.113, 0.085, 0.071),
        OWN: (0.097, 0.082, 0.070), ADA: (0.087, 0.083, 0.070),
        PLAIN: (0.047,), REAL: (0.038,),
    },
}  # fmt: skip
# Table 5.4: MMD without and with 100 public series, by ε; the kernel's scale is not given
THESIS_PUBLIC = {
    "sine": {2.0: (0.101, 0.064), 8.0: (0.024, 0.020)},
    "stock": {2.0: (0.095, 0.070), 8.0: (0.028, 0.023)},
    "energy": {2.0: (0.026, 0.019), 8.0: (0.020, 0.017)},
    "air": {2.0: (0.048, 0.034), 8.0: (0.028, 0.025)},
}


@dataclass(frozen=True)
class Data:
    """Windows ``[n, steps, channels]`` in [0, 1]: for sites, for the server, and held out."""

    schema: Schema
    train: np.ndarray
    public: np.ndarray
    test: np.ndarray


def windows(name: str) -> np.ndarray:
    """All windows of a set, scaled by bounds that are declared public; missing values are 0."""
    if name == "sine":
        return sines(SINES, rng=np.random.default_rng(0))
    frame = load(FILES[name], na=True)["train"]
    values = frame.drop(columns=[c for c in LEFT_OUT if c in frame]).to_numpy(np.float64)
    low, high = np.nanmin(values, 0), np.nanmax(values, 0)
    scaled = np.nan_to_num((values - low) / (high - low), nan=0.0)
    return np.lib.stride_tricks.sliding_window_view(scaled, STEPS, axis=0).transpose(0, 2, 1)


def dataset(name: str, tune: bool = False) -> Data:
    """A random hold-out; to tune, a part of the training windows stands in for the test."""
    found = windows(name)
    order = np.random.default_rng(1).permutation(len(found))
    cut = round((1 - HELD_OUT) * len(found))
    train, test = order[:cut], order[cut:]
    if tune:
        inner = round((1 - HELD_OUT) * cut)
        train, test = train[:inner], train[inner:]
    public, own = train[:PUBLIC], train[PUBLIC:]
    own = own[: len(own) // SERIES * SERIES]
    columns = tuple(Column(f"channel{i}", "numeric", 0.0, 1.0) for i in range(found.shape[2]))
    schema = Schema("series", name, len(own), columns, shape=found.shape[1:])
    return Data(schema, *(found[rows].astype(np.float32) for rows in (own, public, test)))


@dataclass(frozen=True)
class Cell:
    """One figure: a method on a set at an ε per update."""

    part: str
    data: str
    method: str
    epsilon: float | None
    recipe: dict[str, Any] = field(default_factory=dict)
    attack: str = ""
    rounds: int = ROUNDS

    @property
    def name(self) -> str:
        """For files and tables."""
        told = "" if self.epsilon is None else f" ε={self.epsilon:g}"
        own = (f"{key}={value}" for key, value in self.recipe.items())
        return " ".join((self.part, self.data, self.method + told, *own, self.attack)).strip()

    @property
    def thesis(self) -> float | None:
        """What Table 5.3 has here."""
        found = THESIS[self.data].get(self.method)
        if found is None or self.part in ("poison", "pretrain"):
            return None
        return found[0 if self.epsilon is None else EPSILONS.index(self.epsilon)]


def study(cell: Cell, schema: Schema, folder: Path, quick: bool) -> Study:
    """The study file of a cell, as tables."""
    plain = cell.method == PLAIN
    private = {"trust": "local", "epsilon_per_update": cell.epsilon}
    rounds = 3 if quick else UNEQUAL.get(cell.method, cell.rounds)
    tables = {
        "study": {"name": cell.name, "recipe": "fedstdg", "rounds": rounds},
        "privacy": {"unit": "site"} | ({"trust": "none"} if plain else private),
        "cohort": {"size": COHORT},
        "training": FEDAVG if plain else {},
        "recipe": METHODS[cell.method] | cell.recipe,
        "simulation": {"data": "-", "sites": schema.records // SERIES},
    }
    return Study.parse(tables, schema=schema, base=folder)


@dataclass(frozen=True)
class RandomUpdates(FedSTDG):
    """Every fifth site sends noise in the place of its update."""

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The honest update, or standard normals."""
        found, kept = super().local(task, site)
        update = found["update"]
        noise = torch.from_numpy(site.rng.child("attack").normal(update.shape[1:])).float()
        return {**found, "update": torch.where(_malicious(site), noise, update)}, kept


@dataclass(frozen=True)
class SignFlip(FedSTDG):
    """Every fifth site turns its update round."""

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The honest update, or its opposite."""
        found, kept = super().local(task, site)
        update = found["update"]
        return {**found, "update": torch.where(_malicious(site), -update, update)}, kept


ATTACKS: dict[str, type[FedSTDG]] = {
    "": FedSTDG,
    "random updates": RandomUpdates,
    "sign flip": SignFlip,
}


def _malicious(site: Site) -> torch.Tensor:
    """Which sites ``[C, 1]`` are: sites hold random series, so every fifth is a random fifth."""
    return ((site.data.starts // SERIES) % 5 == 0).unsqueeze(1)


START = cache(fedstdg._smooth)  # of one seed it is the same at every ε


def trained(cell: Cell, data: Data, seed: int, quick: bool) -> Release:
    """One run of the product on all sites."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(patch.object(fedstdg, "FedSTDG", ATTACKS[cell.attack]))
        stack.enter_context(patch.object(fedstdg, "_smooth", START))
        write(Records(series=data.public), folder / "public.npz")
        made = study(cell, data.schema, folder, quick)
        parts = data.train.reshape(-1, SERIES, *data.train.shape[1:])
        return run(made, [Records(series=part) for part in parts], seed=seed, rows=0)


def drawn(generator: Generator, schema: Schema, seed: int) -> np.ndarray:
    """Synthetic windows."""
    labels = np.zeros(MOST, np.int64)
    x = generator.sample(labels, rng=Streams.from_seed(seed).child("rows"))
    return x.numpy().reshape(MOST, *schema.shape)


def scores(synthetic: np.ndarray, data: Data, seed: int, quick: bool) -> dict[str, float]:
    """Next-step error of a student of these windows; MMD² to held-out ones and their coverage."""
    how = Forecasting(steps=20, batch=32) if quick else STUDENT
    error = next_step_mae(synthetic, data.test, rng=Streams.from_seed(seed), training=how)
    n = min(CLOUD, len(synthetic), len(data.test))
    clouds = data.test[:n], synthetic[:n]
    return {"mae": error, "mmd2": mmd(*clouds), "coverage": coverage(*clouds)}


def untrained(data: Data, seed: int) -> np.ndarray:
    """What the pre-trained net draws before it has met any site."""
    cell = Cell("plain", data.schema.name, OWN, 8.0)
    recipe = build(study(cell, data.schema, Path(), quick=False))
    rng = Streams.from_seed(seed)
    state = recipe.init(rng=rng.child("init"))
    return drawn(recipe.finish(state, rng=rng.child("finish")), data.schema, seed)


def one(cell: Cell, data: Data, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One run of a cell, scored."""
    start, found = time.perf_counter(), {"seed": seed}
    if cell.method == REAL:
        synthetic = data.train[:MOST]
    elif cell.method == FIRST:
        synthetic = untrained(data, seed)
    else:
        release = trained(cell, data, seed, args.quick)
        synthetic = drawn(release.generator, data.schema, seed)
        found |= _terms(release)
    found["minutes_training"] = round((time.perf_counter() - start) / 60, 2)
    found |= {
        k: float(np.round(v, 5)) for k, v in scores(synthetic, data, seed, args.quick).items()
    }
    found["minutes"] = round((time.perf_counter() - start) / 60, 2)
    if args.picture and cell.part == "grid" and seed == args.seeds[0]:
        args.drawn[cell.data, cell.epsilon] = synthetic[:40]
    return found


def _terms(release: Release) -> dict[str, Any]:
    """What a run promises, and what its sites send."""
    if release.plan.trust == "none":
        return {}
    rule = release.plan.own.part("update").mechanism
    promised = {"lifetime_epsilon": headline(release.claims), "claim": release.claims[0].words}
    return promised | {"parameters": rule.size, "top": rule.top, "outputs": rule.output}  # type: ignore[union-attr]


def grid(full: bool, seeds: list[int]) -> dict[str, list[tuple[Cell, list[int]]]]:
    """All cells by part, and the seeds of each: the first ones of all cells come first."""
    first = seeds[:1]
    return {
        "grid": [(Cell("grid", d, OWN, e), seeds) for e in EPSILONS for d in SETS],
        "plain": [(Cell("plain", d, m, None), first) for m in (REAL, FIRST, PLAIN) for d in SETS],
        "methods": [
            (Cell("methods", d, m, e), first)
            for e in EPSILONS
            for m in (ADA, "SignDS-M", "SignDS-S", RULE)
            for d in SETS
            if m != RULE or e == EPSILONS[-1]  # below, the bit is too noisy for it to act
        ],
        "long": [
            (Cell("long", d, OWN, e, rounds=1000), first) for e in EPSILONS[::-1] for d in SETS
        ],
        "pretrain": list(_pretraining(SETS if full else FEW, first)),
        "poison": list(_poisoning(SETS if full else FEW, first)),
    }


def wanted(args: argparse.Namespace) -> list[tuple[Cell, list[int]]]:
    """What the command line asks for."""
    parts = grid(args.full, args.seeds)
    return [found for part in args.part for found in parts[part] if found[0].data in args.data]


def not_run(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Cells of the whole grid that have no run, those with one seed, and rows of the thesis."""
    names = [cell.name for part in grid(True, [0]).values() for cell, _ in part]
    single = [f"{name}: more than one seed" for name in names if len(runs.get(name, ())) == 1]
    return [*(name for name in names if not runs.get(name)), *single, *ABSENT]


def _pretraining(sets: tuple[str, ...], seeds: list[int]) -> Iterator[tuple[Cell, list[int]]]:
    """From scratch, and from 100 public series (Table 5.4); the rest: the grid's cells."""
    kinds: tuple[dict[str, Any], ...] = (
        {"pretrain": "none"},
        {"pretrain": "public", "public": "public.npz"},
    )
    for data in sets:
        for recipe in kinds:
            for epsilon in (2.0, 8.0):
                yield Cell("pretrain", data, OWN, epsilon, recipe), seeds


def _poisoning(sets: tuple[str, ...], seeds: list[int]) -> Iterator[tuple[Cell, list[int]]]:
    """A fifth of the sites attack (figure 5.9)."""
    for data in sets:
        for attack in ("random updates", "sign flip"):
            for method, epsilon in ((PLAIN, None), (OWN, 2.0), (OWN, 8.0)):
                yield Cell("poison", data, method, epsilon, attack=attack), seeds


def summary(cell: Cell, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and spreads over seeds, beside the thesis."""
    told = {k: runs[0].get(k) for k in ("lifetime_epsilon", "claim", "parameters", "outputs")}
    return {
        "part": cell.part, "data": cell.data, "method": cell.method, "attack": cell.attack,
        "rounds": UNEQUAL.get(cell.method, cell.rounds),
        "epsilon_per_update": cell.epsilon, "recipe": METHODS.get(cell.method, {}) | cell.recipe,
        "thesis_mae": cell.thesis,
        **{k: spread([r[k] for r in runs]) for k in ("mae", "mmd2", "coverage")},
        **{k: v for k, v in told.items() if v is not None}, "runs": runs,
    }  # fmt: skip


def picture(found: dict[tuple[str, float], np.ndarray], sets: dict[str, Data], path: Path) -> None:
    """The first channels of real and synthetic windows: a row per set, a column per ε."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = [name for name in SETS if any(key[0] == name for key in found)]
    figure, axes = pyplot.subplots(
        len(names), 1 + len(EPSILONS), figsize=(11, 2.2 * len(names)), squeeze=False, sharey=True
    )
    for row, name in zip(axes, names, strict=True):
        columns = [("real", sets[name].test[:40])]
        columns += [(f"ε = {e:g} per update", found.get((name, e))) for e in EPSILONS]
        for axis, (title, series) in zip(row, columns, strict=True):
            axis.set(title=f"{name}: {title}", ylim=(0, 1))
            if series is not None:
                axis.plot(series[:, :, 0].T, color="C0" if title == "real" else "C1", lw=0.6)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main() -> None:
    """Run the cells, print them, write them as they come."""
    parser = arguments(__doc__ or "")
    parts = ("grid", "plain", "methods", "pretrain", "poison", "long")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts[:-1])
    parser.add_argument("--data", nargs="+", choices=SETS, help="these sets; with --quick, stock")
    parser.add_argument("--tune", action="store_true", help="score on held-out training windows")
    parser.add_argument("--picture", type=Path, help="a picture of real and synthetic series")
    args = parser.parse_args()
    args.drawn = {}
    args.data = args.data or (("stock",) if args.quick else SETS)
    report = provenance("fedstdg", args.threads) | {
        "seeds": args.seeds,
        "scored_on": "training windows held out" if args.tune else "test windows",
        "sites_a_round": COHORT,
        "series_a_site": SERIES, "student": vars(STUDENT), "cells": [], "not_run": [],
    }  # fmt: skip
    sets = {name: dataset(name, args.tune) for name in args.data}
    report["repeating_the_last_step"] = {
        name: round(float(np.abs(np.diff(data.test, axis=1)).mean()), 5)
        for name, data in sets.items()
    }
    _run_all(wanted(args), sets, args, report)
    if args.picture:
        picture(args.drawn, sets, args.picture)


def _run_all(
    todo: list[tuple[Cell, list[int]]],
    sets: dict[str, Data],
    args: argparse.Namespace,
    report: dict[str, Any],
) -> None:
    """The first seed of every cell, then the second of those that have one, and so on."""
    runs: dict[str, list[dict[str, Any]]] = {cell.name: [] for cell, _ in todo}
    begun = time.perf_counter()
    for turn in range(len(args.seeds)):
        for cell, seeds in todo:
            if turn < len(seeds):
                runs[cell.name].append(one(cell, sets[cell.data], seeds[turn], args))
                report["cells"] = [summary(c, runs[c.name]) for c, _ in todo if runs[c.name]]
                report["not_run"] = not_run(runs)
                report["minutes"] = round((time.perf_counter() - begun) / 60, 1)
                save(report, args.json)
                _print(cell, runs[cell.name][-1])


def _print(cell: Cell, found: dict[str, Any]) -> None:
    beside = "" if cell.thesis is None else f" (thesis {cell.thesis:.3f})"
    life = f", ε for life {found['lifetime_epsilon']:.4g}" if "lifetime_epsilon" in found else ""
    print(
        f"{cell.name}, seed {found['seed']}: MAE {found['mae']:.4f}{beside}, "
        f"MMD² {found['mmd2']:.4f}, coverage {found['coverage']:.3f}{life}, "
        f"{found['minutes']} min",
        flush=True,
    )


if __name__ == "__main__":
    main()
