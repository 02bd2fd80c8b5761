"""Attacks on releases of the product: beside the thesis's figures, and how long they take.

Membership inference by distance (Jiang's thesis, Tables 4.5 and 5.5: the share of right guesses
about 100 members and as many others) on DP-Fed-WAE at ε = 8 (a9a, where the thesis has Census),
fedmoments at ε = 1 (Adult) and FedSTDG at ε = 8 (Stock); every other recipe for tables on half of
breast_cancer, by its defaults at ε = 8 (FedGP: none) with at most `ROUNDS` rounds; and the minutes
that ``evaluate --attacks`` takes on Adult, MNIST and Air Quality. The thesis's two systems are
attacked without privacy too. Shadow models (16 of recipes of sums, which train in seconds, `FEW` of
the others) are tried on breast_cancer. a9a's sites draw their rows with replacement, so its members
are those that were dealt.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_fed_wae
import fedmoments
import fedstdg
import numpy as np
from common import arguments, provenance, save

from understudy import Records, Release
from understudy.data.bundled import bundled
from understudy.data.encode import decode, encode
from understudy.data.schema import Schema
from understudy.evaluation.attacks.outcome import Attack
from understudy.evaluation.attacks.shadow import shadow_models
from understudy.evaluation.attacks.suite import Attacks, attack
from understudy.evaluation.attacks.targets import draw_targets
from understudy.evaluation.compare import evaluate
from understudy.evaluation.rows import Rows
from understudy.recipes import RECIPES
from understudy.rng import Streams
from understudy.simulation import run
from understudy.study import Study

THESIS = {
    "dp_fed_wae, a9a, ε = 8": {"accuracy": 0.574, "without privacy": 0.735, "on": "Census"},
    "fedstdg, stock, ε = 8": {"accuracy": 0.613, "without privacy": 0.724, "on": "Stock"},
}
SITES, ROUNDS = 5, 60
MANY, FEW = 16, 6  # shadow models
Sides = tuple[Rows, Rows]


def wae(epsilon: float | None, seed: int, args: Namespace) -> tuple[Release, Sides]:
    """a9a: the rows that were dealt, and the official test rows."""
    asked = Namespace(validate=False, quick=args.quick, rounds=20 if args.quick else None)
    made, _ = dp_fed_wae.release(dp_fed_wae.Cell(epsilon, 0.05), seed, asked)
    x, y, test = dp_fed_wae.data(False)
    dealt = np.unique(np.random.default_rng(seed).integers(0, len(x), 2 * dp_fed_wae.SITES))
    return made, (dp_fed_wae._rows(x[dealt], y[dealt]), test)


def moments(seed: int, args: Namespace) -> tuple[Release, Sides]:
    """Adult with its official test rows."""
    task = fedmoments.adult("adult", seed)
    made, _ = fedmoments.release(task, 1.0, seed)
    return made, (_rows(task.schema, task.train), _rows(task.schema, task.test))


def stock(epsilon: float | None, seed: int, args: Namespace) -> tuple[Release, Sides]:
    """Stock windows, a random hold-out as in the thesis: they overlap with members."""
    data = fedstdg.dataset("stock")
    method = fedstdg.OWN if epsilon else fedstdg.PLAIN
    cell = fedstdg.Cell("grid", "stock", method, epsilon)
    made = fedstdg.trained(cell, data, seed, args.quick)
    sides = (Records(series=part) for part in (data.train, data.test))
    train, test = (_rows(data.schema, side) for side in sides)
    return made, (train, test)


def by_default(recipe: str) -> Callable[[int, Namespace], tuple[Release, Sides]]:
    """Half of breast_cancer by a recipe's defaults; the other half are controls."""

    def case(seed: int, args: Namespace) -> tuple[Release, Sides]:
        schema, rows = bundled("breast_cancer")
        order = np.random.default_rng(seed).permutation(len(rows))
        sides = [rows.take(np.sort(half)) for half in np.array_split(order, 2)]
        made = _release(recipe, schema, sides[0], seed)
        return made, (_rows(schema, sides[0]), _rows(schema, sides[1]))

    return case


def _release(recipe: str, schema: Schema, rows: Records, seed: int) -> Release:
    info = RECIPES[recipe].info
    tables = {
        "study": {"name": recipe, "recipe": recipe, "rounds": min(info.rounds, ROUNDS)},
        "privacy": {} if info.default[1] == "none" else {"epsilon": 8.0},
        "simulation": {"data": "-", "sites": SITES},
    }
    public = replace(schema, records=len(rows))
    parts = np.array_split(np.arange(len(rows)), SITES)
    return run(
        Study.parse(tables, schema=public), [rows.take(p) for p in parts], seed=seed, rows=10
    )


def shadowed(recipe: str, made: Release, sides: Sides, seed: int, shadows: int) -> Attack:
    """Shadow models of a recipe, on rows of the attacker's own and targets by coin flips."""
    rng = Streams.from_seed(seed)
    synthetic = _rows(made.schema, made.sample(2000, seed=seed))
    targets = draw_targets(made.schema, synthetic, *sides, rng=rng.numpy("targets"))

    def make(rows: Rows, own: Streams) -> Rows:
        dice = int(own.numpy("seed").integers(2**31))
        again = _release(recipe, made.schema, decode(made.schema, rows.x, rows.y), dice)
        return _rows(again.schema, again.sample(2000, seed=dice))

    return shadow_models(targets, make, rng=rng, shadows=shadows)


SUMS = ("fedmoments", "fedmarginals", "privbayes")
OTHERS = {
    f"{name}, breast_cancer": name
    for name, recipe in RECIPES.items()
    if "table" in recipe.info.kinds and recipe.info.supports and name != "signds"
}
CASES: dict[str, Callable[[int, Namespace], tuple[Release, Sides]]] = {
    "dp_fed_wae, a9a, ε = 8": partial(wae, 8.0),
    "fedmoments, adult, ε = 1": moments,
    "fedstdg, stock, ε = 8": partial(stock, 8.0),
    "dp_fed_wae, a9a, without privacy": partial(wae, None),
    "fedstdg, stock, without privacy": partial(stock, None),
    **{label: by_default(name) for label, name in OTHERS.items()},
}


def _rows(schema: Schema, records: Records) -> Rows:
    found = encode(schema, records)
    return Rows(found.x, found.y)


def attacked(made: Release, sides: Sides, seed: int) -> Attacks:
    """All attacks on 20,000 synthetic rows."""
    synthetic = _rows(made.schema, made.sample(20_000, seed=seed))
    streams = Streams.from_seed(seed)
    return attack(made.schema, (synthetic, *sides), made.claims, rng=streams, progress=_quiet)


def _quiet(*done: object) -> None:
    pass


def cell(name: str, seed: int, args: Namespace) -> dict[str, Any]:
    """One release, attacked."""
    made, sides = CASES[name](seed, args)
    begun = time.perf_counter()
    found = attacked(made, sides, seed)
    tried, shadows = list(found.found), 0
    if name in OTHERS:
        shadows = 4 if args.quick else MANY if OTHERS[name] in SUMS else FEW
        tried.append(shadowed(OTHERS[name], made, sides, seed, shadows))
    return {
        "seed": seed,
        "shadows": shadows,
        "seconds": round(time.perf_counter() - begun, 1),
        "headline": found.headline,
        "allowed": None if found.bound is None else round(found.bound.value, 4),
        "accuracy": {a.name: round((1 + a.advantage.value) / 2, 4) for a in tried},
        "advantage": {a.name: [round(v, 4) for v in _ends(a)] for a in tried},
        "p": {a.name: round(a.p, 4) for a in tried},
        "mu": None if found.average_case is None else round(found.average_case.mu, 5),
    }


def _ends(found: Any) -> tuple[float, float, float]:
    return found.advantage.value, found.advantage.low, found.advantage.high


def timed(name: str, args: Namespace) -> dict[str, Any]:
    """Minutes of a whole evaluation with attacks, and of one without."""
    made, real, test = {"air_quality": air}.get(name, plain)(name)
    spent = {}
    with tempfile.TemporaryDirectory() as folder:
        for attacks in (True,) if args.quick else (True, False):
            begun = time.perf_counter()
            out = args.keep / name if args.keep and attacks else Path(folder) / str(attacks)
            evaluate(made, real, out, test=test, attacks=attacks)
            spent["with" if attacks else "without"] = round(time.perf_counter() - begun, 1)
    return {"seconds": spent}


def plain(name: str) -> tuple[Release, Records, Records]:
    """Adult or MNIST by fedmoments at ε = 1."""
    task = fedmoments.TASKS[name](name, 0)
    return fedmoments.release(task, 1.0, 0)[0], task.train, task.test


def air(name: str) -> tuple[Release, Records, Records]:
    """Air Quality's windows by fedmoments at ε = 1."""
    data = fedstdg.dataset("air")
    tables = {
        "study": {"name": "air", "recipe": "fedmoments"},
        "privacy": {"unit": "record", "trust": "central", "epsilon": 1.0},
        "simulation": {"data": "-", "sites": 10},
    }
    sides = [Records(series=part) for part in (data.train, data.test)]
    parts = np.array_split(np.arange(len(sides[0])), 10)
    study = Study.parse(tables, schema=data.schema)
    return run(study, [sides[0].take(part) for part in parts], seed=0), sides[0], sides[1]


def main() -> None:
    """Run the wanted cells, and write the figures as they come."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="which releases to attack")
    parser.add_argument("--timed", nargs="*", default=["adult", "mnist", "air_quality"])
    parser.add_argument("--keep", type=Path, help="keep the reports of the timed runs here")
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.cases, args.timed = args.seeds[:1], [list(CASES)[1]], []
    report: dict[str, Any] = {**provenance("attacks", args.threads), "thesis": THESIS}
    report |= {"attacks": {}, "timed": {}}
    for name in args.cases:
        report["attacks"][name] = [cell(name, seed, args) for seed in args.seeds]
        print(name, *(one["accuracy"] for one in report["attacks"][name]), sep="\n  ")
        save(report, args.json)
    for name in args.timed:
        report["timed"][name] = timed(name, args)
        print(name, report["timed"][name])
        save(report, args.json)


if __name__ == "__main__":
    main()
