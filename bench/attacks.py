"""Attacks on releases of the product: beside the thesis's figures, and how long they take.

Membership inference by distance (Jiang's thesis, Tables 4.5 and 5.5: the share of right guesses
about 100 members and as many others) on DP-Fed-WAE at ε = 8 (a9a, where the thesis has Census),
fedmoments at ε = 1 (Adult) and FedSTDG at ε = 8 (Stock); and the minutes that
``evaluate --attacks`` takes on Adult, MNIST and Air Quality. a9a's sites draw their rows with
replacement, so its members are those that were dealt.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_fed_wae
import fedmoments
import fedstdg
import numpy as np
from common import arguments, provenance, save

from understudy import Records, Release
from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.evaluation.attacks.suite import Attacks, attack
from understudy.evaluation.compare import evaluate
from understudy.evaluation.rows import Rows
from understudy.rng import Streams
from understudy.simulation import run
from understudy.study import Study

THESIS = {
    "dp_fed_wae, a9a, ε = 8": {"accuracy": 0.574, "without privacy": 0.735, "on": "Census"},
    "fedstdg, stock, ε = 8": {"accuracy": 0.613, "without privacy": 0.724, "on": "Stock"},
}
Sides = tuple[Rows, Rows]


def wae(seed: int, args: Namespace) -> tuple[Release, Sides]:
    """a9a: the rows that were dealt, and the official test rows."""
    asked = Namespace(validate=False, quick=args.quick, rounds=20 if args.quick else None)
    made, _ = dp_fed_wae.release(dp_fed_wae.Cell(8.0, 0.05), seed, asked)
    x, y, test = dp_fed_wae.data(False)
    dealt = np.unique(np.random.default_rng(seed).integers(0, len(x), 2 * dp_fed_wae.SITES))
    return made, (dp_fed_wae._rows(x[dealt], y[dealt]), test)


def moments(seed: int, args: Namespace) -> tuple[Release, Sides]:
    """Adult with its official test rows."""
    task = fedmoments.adult("adult", seed)
    made, _ = fedmoments.release(task, 1.0, seed)
    return made, (_rows(task.schema, task.train), _rows(task.schema, task.test))


def stock(seed: int, args: Namespace) -> tuple[Release, Sides]:
    """Stock windows, a random hold-out as in the thesis: they overlap with members."""
    data = fedstdg.dataset("stock")
    made = fedstdg.trained(fedstdg.Cell("grid", "stock", fedstdg.OWN, 8.0), data, seed, args.quick)
    sides = (Records(series=part) for part in (data.train, data.test))
    train, test = (_rows(data.schema, side) for side in sides)
    return made, (train, test)


CASES: dict[str, Callable[[int, Namespace], tuple[Release, Sides]]] = {
    "dp_fed_wae, a9a, ε = 8": wae,
    "fedmoments, adult, ε = 1": moments,
    "fedstdg, stock, ε = 8": stock,
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
    return {
        "seed": seed,
        "seconds": round(time.perf_counter() - begun, 1),
        "headline": found.headline,
        "allowed": None if found.bound is None else round(found.bound.value, 4),
        "accuracy": {a.name: round((1 + a.advantage.value) / 2, 4) for a in found.found},
        "advantage": {a.name: [round(v, 4) for v in _ends(a)] for a in found.found},
        "p": {a.name: round(a.p, 4) for a in found.found},
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
