"""A large table, by the commands a user would type: draft, run, sample, evaluate.

    python bench/large.py [--rows 1000000] [--recipes fedmoments …] [--json FILE]

Makes a CSV of made-up rows in 40 columns (20 numbers, 8 whole numbers, 8 categories, 2 booleans, a
date, a label), then times each command as a process of its own. Sampling draws as many rows as
there were; evaluating reads all of them. Seconds on the wall, and the peak of resident memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from common import arguments, provenance, save

STUDY = """\
[study]
name = "large"
recipe = "{recipe}"
schema = "schema.toml"

[privacy]
unit = "record"
trust = "central"
epsilon = 1.0

[simulation]
data = "rows.csv"
sites = 5
"""


def frame(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows that hang together: a few hidden causes, 39 columns and a label."""
    hidden = rng.standard_normal((rows, 4))
    label = hidden @ [1.0, -0.5, 0.3, 0.0] + rng.standard_normal(rows) > 0.8
    made: dict[str, Any] = {}
    for i in range(20):
        value = hidden[:, i % 4] * rng.uniform(0.3, 1) + rng.standard_normal(rows) * 0.6
        made[f"number_{i}"] = (np.exp(value) if i % 3 == 0 else 50 + 10 * value).round(3)
    for i in range(8):
        made[f"count_{i}"] = rng.poisson(np.exp(0.5 * hidden[:, i % 4] + 0.2 * i))
    for i in range(8):
        shift = (hidden[:, i % 4, None] * np.linspace(-1, 1, 3 + 2 * i)).clip(-3, 3)
        chosen = (shift + rng.gumbel(size=shift.shape)).argmax(1)
        made[f"word_{i}"] = np.array([f"w{k:02}" for k in range(3 + 2 * i)])[chosen]
    for i in range(2):
        made[f"flag_{i}"] = np.where(hidden[:, i] + rng.standard_normal(rows) > 0, "yes", "no")
    days = rng.integers(0, 3650, rows).astype("timedelta64[D]")
    made["day"] = (np.datetime64("2010-01-01") + days).astype(str)
    made["outcome"] = np.where(label, "ill", "well")
    return pd.DataFrame(made)


def timed(folder: Path, *command: str) -> dict[str, float]:
    """Run one command of the package; seconds, and its peak of memory in GB."""
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "understudy", *command], cwd=folder)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"understudy {command[0]} ended with {child.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    processor = round(usage.ru_utime + usage.ru_stime, 1)
    seconds = round(time.perf_counter() - begun, 1)
    return {"seconds": seconds, "processor": processor, "GB": usage.ru_maxrss * unit / 1e9}


def measure(folder: Path, recipe: str, rows: int) -> dict[str, dict[str, float]]:
    """Each command in turn, and all together."""
    (folder / "study.toml").write_text(STUDY.format(recipe=recipe), encoding="utf-8")
    release = f"release-{recipe}"
    draft = ("schema", "draft", "rows.csv", "-o", "schema.toml", "--label", "outcome", "--force")
    drawn = ("sample", release, "-n", str(rows), "-o", "made.csv", "--force", "-q")
    report = ("evaluate", release, "--real", "rows.csv", "--out", f"report-{recipe}", "-q")
    found = {
        "draft": timed(folder, *draft),
        "run": timed(folder, "run", "study.toml", "--out", release, "-q"),
        "sample": timed(folder, *drawn),
        "evaluate": timed(folder, *report),
    }
    whole = {k: sum(f[k] for f in found.values()) for k in ("seconds", "processor")}
    return {**found, "all": {**whole, "GB": max(f["GB"] for f in found.values())}}


def main() -> None:
    """Make the file, run the commands, print and keep the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--recipes", nargs="+", default=["fedmoments", "fedmarginals"])
    args = parser.parse_args()
    rows, recipes = (500, args.recipes[:1]) if args.quick else (args.rows, args.recipes)
    report = {**provenance("large", args.threads), "rows": rows, "columns": 40, "recipes": {}}
    with TemporaryDirectory() as place:
        folder = Path(place)
        frame(rows, np.random.default_rng(args.seeds[0])).to_csv(folder / "rows.csv", index=False)
        for recipe in recipes:
            report["recipes"][recipe] = measure(folder, recipe, rows)
            save(report, args.json)
            for name, found in report["recipes"][recipe].items():
                print(f"{recipe:14} {name:9}", {k: round(v, 2) for k, v in found.items()})


if __name__ == "__main__":
    main()
