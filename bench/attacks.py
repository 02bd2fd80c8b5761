"""Attacks on releases of the product: beside the thesis's figures, and how long they take.

Membership inference (Jiang's thesis): by distance, as for FedSTDG (Table 5.5, here Stock at ε = 8
per update) and on DP-Fed-WAE as in ``bench/dp_fed_wae.py`` (a9a at ε = 8); by shadow models, as
for DP-Fed-WAE (Table 4.5), on a federation that trains in seconds: 1,250 sites of two rows of a9a,
each called once. Both systems are attacked without privacy too.
Then every recipe for tables on half of breast_cancer (the other half are controls) by its defaults
at ε = 8 (FedGP: none) with at most `ROUNDS` rounds, also with a few shadow models; and the seconds
that ``evaluate --attacks`` takes on Adult, MNIST and Air Quality. The share of right guesses is
about as many members as controls. a9a's sites draw their rows with replacement, so its members are
those that were dealt.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_fed_wae
import fedmoments
import fedstdg
import numpy as np
from common import arguments, provenance, save
from dealt import deal

from understudy import Records, Release
from understudy.data.bundled import bundled
from understudy.data.columns import records_of
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

THESIS = {  # Tables 4.5 and 5.5; a9a is its Adult
    "dp_fed_wae, Adult": {"ε = 8": 0.535, "without privacy": 0.642},
    "dp_fed_wae, Census": {"ε = 8": 0.574, "without privacy": 0.735},
    "fedstdg, Stock": {"ε = 8": 0.613, "without privacy": 0.650},  # .724 in its article
}
SITES, ROUNDS = 5, 60
MANY, FEW = 16, 6  # shadow models, of what trains in a second and of the rest
SMALL = 2500  # rows of the small federation: what half of an attacker's own rows are
Sides = tuple[Rows, Rows]
Make = Callable[[Records, int], Release]


@dataclass(frozen=True)
class Case:
    """A release, members and controls, and how an attacker can run the recipe again."""

    made: Release
    sides: Sides
    again: Make | None = None
    shadows: int = 0


def wae(epsilon: float | None, seed: int, args: Namespace) -> Case:
    """a9a: the rows that were dealt, and the official test rows."""
    asked = Namespace(validate=False, quick=args.quick, rounds=20 if args.quick else None)
    made, _ = dp_fed_wae.release(dp_fed_wae.Cell(epsilon, 0.05), seed, asked)
    x, y, test = dp_fed_wae.data(False)
    dealt = np.unique(np.random.default_rng(seed).integers(0, len(x), 2 * dp_fed_wae.SITES))
    return Case(made, (dp_fed_wae._rows(x[dealt], y[dealt]), test))


def small_wae(epsilon: float | None, seed: int, args: Namespace) -> Case:
    """A small federation of a9a, which can be run again and again."""
    x, y, test = dp_fed_wae.data(False)
    schema = replace(dp_fed_wae.schema(), records=SMALL)
    chosen = np.random.default_rng(seed).permutation(len(x))[:SMALL]
    members = dp_fed_wae._rows(x[chosen], y[chosen])

    def again(rows: Records, dice: int) -> Release:
        sites = len(rows) // 2
        tables = {
            "study": {"name": "a9a", "recipe": "dp_fed_wae", "rounds": sites // 10},
            "privacy": {"trust": "none"} if epsilon is None else {"epsilon": epsilon},
            "cohort": {"size": 10},
            "recipe": {"top": 0.05},
            "simulation": {"data": "-", "sites": sites},
        }
        return _run(Study.parse(tables, schema=schema), rows, sites, dice)

    made = again(decode(schema, members.x, members.y), seed)
    return Case(made, (members, test), again, args.shadows or MANY)


def moments(seed: int, args: Namespace) -> Case:
    """Adult with its official test rows."""
    task = fedmoments.adult("adult", seed)
    made, _ = fedmoments.release(task, 1.0, seed)
    return Case(made, (_rows(task.schema, task.train), _rows(task.schema, task.test)))


def stock(epsilon: float | None, seed: int, args: Namespace) -> Case:
    """Stock windows, a random hold-out as in the thesis: they overlap with members."""
    data = fedstdg.dataset("stock")
    method = fedstdg.OWN if epsilon else fedstdg.PLAIN
    cell = fedstdg.Cell("grid", "stock", method, epsilon)
    made = fedstdg.trained(cell, data, seed, args.quick)
    sides = (Records(series=part) for part in (data.train, data.test))
    train, test = (_rows(data.schema, side) for side in sides)
    return Case(made, (train, test))


SUMS = ("fedmoments", "fedmarginals", "privbayes")


def by_default(recipe: str, seed: int, args: Namespace) -> Case:
    """Half of breast_cancer by a recipe's defaults; the other half are controls."""
    schema, rows = bundled("breast_cancer")
    order = np.random.default_rng(seed).permutation(len(rows))
    sides = [rows.take(np.sort(half)) for half in np.array_split(order, 2)]
    again = partial(_release, recipe, schema)
    made = again(sides[0], seed)
    shadows = 4 if args.quick else args.shadows or (MANY if recipe in SUMS else FEW)
    return Case(made, (_rows(schema, sides[0]), _rows(schema, sides[1])), again, shadows)


def _release(recipe: str, schema: Schema, rows: Records, seed: int) -> Release:
    info = RECIPES[recipe].info
    sites = 1 if recipe == "sgde" else SITES  # a member of the exchange trains alone
    tables: dict[str, Any] = {
        "study": {"name": recipe, "recipe": recipe, "rounds": min(info.rounds, ROUNDS)},
        "privacy": {} if info.default[1] == "none" else {"epsilon": 8.0},
        "simulation": {"data": "-", "sites": sites},
    }
    public = replace(schema, records=len(rows))
    if info.supports:
        return _run(Study.parse(tables, schema=public), rows, sites, seed)
    parties = deal(public, rows, 2, "together")
    tables["simulation"] = {"data": "-", "split": "columns"}
    tables["party"] = [{"name": f"p{i}", "columns": list(own)} for i, own in enumerate(parties)]
    held = [records_of(rows, own) for own in parties]
    return run(Study.parse(tables, schema=public), held, seed=seed, rows=10)


def _run(asked: Study, rows: Records, sites: int, seed: int) -> Release:
    parts = np.array_split(np.arange(len(rows)), sites)
    return run(asked, [rows.take(part) for part in parts], seed=seed, rows=10)


def shadowed(case: Case, seed: int) -> Attack:
    """Shadow models of a recipe, on rows of the attacker's own and targets by coin flips."""
    made, rng, again = case.made, Streams.from_seed(seed), case.again
    assert again is not None
    synthetic = _rows(made.schema, made.sample(2000, seed=seed))
    targets = draw_targets(made.schema, synthetic, *case.sides, rng=rng.numpy("targets"))

    def make(rows: Rows, own: Streams) -> Rows:
        dice = int(own.numpy("seed").integers(2**31))
        other = again(decode(made.schema, rows.x, rows.y), dice)
        return _rows(other.schema, other.sample(2000, seed=dice))

    return shadow_models(targets, make, rng=rng, shadows=case.shadows)


TABLES = [
    name
    for name, recipe in RECIPES.items()
    if "table" in recipe.info.kinds and name != "signds"  # which releases a classifier
]
CASES: dict[str, Callable[[int, Namespace], Case]] = {
    "dp_fed_wae, a9a, ε = 8": partial(wae, 8.0),
    "fedmoments, adult, ε = 1": moments,
    "fedstdg, stock, ε = 8": partial(stock, 8.0),
    "dp_fed_wae, a9a, without privacy": partial(wae, None),
    "fedstdg, stock, without privacy": partial(stock, None),
    "dp_fed_wae, a9a, small, ε = 8": partial(small_wae, 8.0),
    "dp_fed_wae, a9a, small, without privacy": partial(small_wae, None),
    **{f"{name}, breast_cancer": partial(by_default, name) for name in TABLES},
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
    begun = time.perf_counter()
    case = CASES[name](seed, args)
    trained = time.perf_counter() - begun
    found = attacked(case.made, case.sides, seed)
    tried = [*found.found, *([shadowed(case, seed)] if case.again else [])]
    return {
        "seed": seed,
        "shadows": case.shadows,
        "seconds to train": round(trained, 1),
        "seconds": round(time.perf_counter() - begun, 1),
        "claim": case.made.claims[0].words,
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
    """Seconds of a whole evaluation with attacks."""
    made, real, test = {"air_quality": air}.get(name, plain)(name)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        out = args.keep / name if args.keep else Path(folder) / name
        found = evaluate(made, real, out, test=test, attacks=True)
        spent = round(time.perf_counter() - begun, 1)
    assert found.attacks is not None
    return {"seconds": spent, "rows": dict(found.rows), "headline": found.attacks.headline}


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
    parser.add_argument("--shadows", type=int, help="shadow models, where there are any")
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
