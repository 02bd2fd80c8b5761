"""How fast and how lean the whole path is, beside its kernel and a plain PyTorch loop.

    python bench/speed.py [--quick] [--json FILE]

All sides take turns within one run; ratios are medians over the turns, with one core and with all.

* ``whole_of_kernel``: client updates per second of whole runs (`whole.py`) over those of the
  training kernel alone, in a process per core that has its share of the cohort. The WAE of 18,188
  parameters, 2 rows, 10 Adam epochs. ``two_workers``: a run on all cores over one on one.
  ``whole_vs_cores``: over a loop with ``nn.Module`` and ``torch.optim.Adam`` per client, in a
  process per core.
* ``conv_vs_cores``, ``recurrent_vs_cores``: the kernel on all cores over such loops, for the
  thesis's conv VAE (SGD) and a recurrent WAE (24 steps of 5 channels, 10 rows, 5 epochs).
* ``whole_vs_flower``, ``whole_vs_pfl``: a run on all cores over Flower's simulation and pfl, where
  they are installed (`rivals_speed.py`), on all cores too.
* ``memory_growth``: of the peak resident memory of a run of one round, from the fewest to the most
  sites, each run in its own process; ``sites_per_second`` its rate.
* ``plan_seconds``: what ``understudy plan`` of a sampled plan takes beyond start-up, cold, and
  again.

Loop and kernel start from the same weights, see the same batches and must agree to 1e-4.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import pandas as pd
import rivals_speed
import torch
from torch import Tensor
from whole import (
    Others,
    PerCore,
    Side,
    Turn,
    high_water,
    rates,
    ratio,
    take_turns,
    timed,
    whole,
)

from understudy import Schema, Study, run
from understudy.data.schema import Column
from understudy.nets.stacked import torch_threads

TOLERANCE = 1e-4
CORES = os.cpu_count() or 1


def main() -> None:
    """Run what was asked for, print it, write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and sites")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        return print(*_peak_memory(args.memory_of))
    begun, others = time.perf_counter(), Others()
    found: dict[str, Any] = {}
    for part in args.parts:
        found |= PARTS[part](args.quick)
    found["minutes"] = round((time.perf_counter() - begun) / 60, 2)
    text = json.dumps({**found, "settings": _settings(args, others)}, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    return None


def _settings(args: argparse.Namespace, others: Others) -> dict[str, Any]:
    head = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return {
        "command": " ".join(["python", "bench/speed.py", *sys.argv[1:]]),
        "commit": subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip(),
        "cores": CORES,
        "used_by_others": others.share(),
        "seed": 0,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
    }


def _agree(ours: Tensor, theirs: Tensor) -> None:
    gap = float((ours[: len(theirs)] - theirs).abs().max())
    if not gap <= TOLERANCE:
        raise SystemExit(f"the two sides disagree by {gap:g}, more than {TOLERANCE:g}")


# --- the WAE: whole path, kernel, loops --------------------------------------------------


def _wae(quick: bool) -> dict[str, Any]:
    loops, stacks = PerCore(kernels.wae_clients), PerCore(kernels.wae_stack)
    found: dict[str, Any] = {"wae": {}, "whole_of_kernel": {}, "whole_of_kernel_one_core": {}}
    found |= {"two_workers": {}, "kernel_two": {}, "whole_vs_cores": {}, "whole_vs_loop": {}}
    for cohort in (10, 250) if quick else (10, 50, 250, 1000):
        turns = take_turns(_wae_sides(cohort, loops, stacks, quick), 2 if quick else 5)
        name = str(cohort)
        found["wae"][name] = rates(turns)
        found["whole_of_kernel"][name] = ratio(turns, "whole, all", "kernel, all")
        found["whole_of_kernel_one_core"][name] = ratio(turns, "whole, one", "kernel, one")
        found["two_workers"][name] = ratio(turns, "whole, all", "whole, one")
        found["kernel_two"][name] = ratio(turns, "kernel, all", "kernel, one")
        found["whole_vs_cores"][name] = ratio(turns, "whole, all", "loop, all")
        found["whole_vs_loop"][name] = ratio(turns, "whole, one", "loop, one")
    loops.close()
    stacks.close()
    return found


def _wae_sides(cohort: int, loops: PerCore, stacks: PerCore, quick: bool) -> dict[str, Side]:
    work, updates = kernels.wae_work(cohort), 400 if quick else 2000
    sample, again = min(cohort, 25), max(1, updates // cohort)
    with torch_threads(1):
        _agree(kernels.stacked(*work), kernels.one_by_one(*work, sample))

    def kernel() -> Turn:
        with torch_threads(1):
            return timed(lambda: kernels.stacked(*work), cohort, again)

    def plain() -> Turn:
        with torch_threads(1):
            return timed(lambda: kernels.one_by_one(*work, sample), sample, 50 // sample)

    def on_cores(number: int) -> Turn:
        with torch_threads(number):
            return whole(cohort, updates)

    return {
        "whole, one": lambda: on_cores(1),
        "whole, all": lambda: on_cores(CORES),
        "kernel, one": kernel,
        "kernel, all": lambda: stacks.turn(cohort // CORES, again),
        "loop, one": plain,
        "loop, all": lambda: loops.turn(50),
    }


def _kernel_vs_cores(
    stack: Callable[[int], None], loop: Callable[[int], None], clients: int, quick: bool
) -> tuple[Any, float]:
    """Rates of a kernel and of the loops, both in a process per core, and their ratio."""
    pools = {"kernel, all": PerCore(stack), "loop, all": PerCore(loop)}
    sides = {name: partial(pool.turn, clients // CORES) for name, pool in pools.items()}
    turns = take_turns(sides, 3 if quick else 5)
    for pool in pools.values():
        pool.close()
    return rates(turns), ratio(turns, "kernel, all", "loop, all")


def _rivals(quick: bool) -> dict[str, Any]:
    """Other simulators, at the same WAE and cohorts; their start-up does not count."""
    found: dict[str, Any] = {"rivals": {}}
    for cohort in (10, 250) if quick else (10, 50, 250):
        rounds = max(3, 500 // cohort)
        sides: dict[str, Side] = {"whole, all": partial(whole, cohort, 2000)}
        for name in rivals_speed.installed():
            sides[name] = partial(_rival, name, cohort, rounds)
        turns = take_turns(sides, 1 if quick else 2)
        measured = rates(turns).items()
        found["rivals"][str(cohort)] = {n: each["updates_per_second"] for n, each in measured}
        for name in list(sides)[1:]:
            against = found.setdefault(f"whole_vs_{name}", {})
            against[str(cohort)] = ratio(turns, "whole, all", name)
    return found


def _rival(name: str, cohort: int, rounds: int) -> Turn:
    return Turn(cohort * rounds, rivals_speed.ask(name, cohort, rounds), busy=0.0)


# --- the conv VAE ----------------------------------------------------------------------


def _conv(quick: bool) -> dict[str, Any]:
    """One epoch over 120 images in batches of 32."""
    clients = 4 if quick else 12
    work = kernels.conv_work(clients)
    with torch_threads(1):
        _agree(kernels.conv_stacked(*work), kernels.conv_one_by_one(*work, 2))
    sides = kernels.conv_stack, kernels.conv_clients
    found, against = _kernel_vs_cores(*sides, clients, quick)
    return {"conv": found, "conv_vs_cores": against}


# --- the recurrent WAE -----------------------------------------------------------------


def _recurrent(quick: bool) -> dict[str, Any]:
    """Five Adam epochs over ten series each, one batch an epoch."""
    clients = 20 if quick else 50
    work = kernels.series_work(clients)
    with torch_threads(1):
        _agree(kernels.series_stacked(*work), kernels.series_one_by_one(*work, 2))
    sides = kernels.series_stack, kernels.series_clients
    found, against = _kernel_vs_cores(*sides, clients, quick)
    return {"recurrent": found, "recurrent_vs_cores": against}


# --- memory ----------------------------------------------------------------------------


def _memory(quick: bool) -> dict[str, Any]:
    """Peak resident MB, and sites per second, of one round over ever more sites."""
    found = {n: _measured(n) for n in ((1_000, 10_000) if quick else (10_000, 100_000, 1_000_000))}
    low, high = min(found), max(found)
    return {
        "memory_mb": {str(n): peak for n, (peak, _) in found.items()},
        "sites_per_second": {str(n): rate for n, (_, rate) in found.items()},
        "memory_growth": round(found[high][0] / found[low][0] - 1, 3),
    }


def _measured(sites: int) -> tuple[float, float]:
    command = [sys.executable, __file__, "--memory-of", str(sites)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, rate = map(float, done.stdout.split())
    return round(peak), round(rate)


def _peak_memory(sites: int) -> tuple[float, float]:
    """A run of one FedVAE round as a user has it; every site has two rows and an encoder."""
    torch.set_num_threads(1)
    names = [*(f"c{i}" for i in range(8)), "label"]
    schema = Schema(
        "table", "bench", 2 * sites, columns=tuple(Column(n, "boolean") for n in names),
        label="label",
    )  # fmt: skip
    bits = np.random.default_rng(0).random((2 * sites, len(names))) < 0.5
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.parquet"
        pd.DataFrame(bits, columns=names).to_parquet(rows)
        del bits
        tables = {
            "study": {"name": "bench", "recipe": "fedvae", "rounds": 1},
            "privacy": {"noise": 1.0},
            "recipe": {"widths": [32], "decoder_widths": [32], "latent": 8, "steps": 1},
            "simulation": {"data": str(rows), "sites": sites},
        }
        stamps: list[float] = []
        run(
            Study.parse(tables, schema=schema), seed=0, rows=10,
            progress=lambda *_: stamps.append(time.perf_counter()),
        )  # fmt: skip
    return high_water(), sites / (stamps[-1] - stamps[-2])


# --- plans -----------------------------------------------------------------------------

PLAN = """
import sys, time
from pathlib import Path
import dp_accounting, torch
from understudy.cli.planning import cost
begun = time.perf_counter()
cost(Path(sys.argv[1]), "")
print(time.perf_counter() - begun)
"""
SAMPLED = {
    "FedVAE, sites": ("fedvae", "site", "central", "rounds = 60", "[cohort]\nrate = 0.05"),
    "DPD-fVAE, records, local": ("dpd_fvae", "record", "local", "rounds = 10", ""),
    "DPD-fVAE, records, central": ("dpd_fvae", "record", "central", "rounds = 10", ""),
}


def _planned(recipe: str, unit: str, trust: str, study: str, cohort: str) -> dict[str, float]:
    """Seconds beyond start-up and imports, cold and then again."""
    text = f"""[study]\nname = "plan"\nrecipe = "{recipe}"\nschema = "schema.toml"\n{study}
[privacy]\nunit = "{unit}"\ntrust = "{trust}"\nepsilon = 4.0\n{cohort}
[simulation]\ndata = "rows.csv"\nsites = 1000\n"""
    schema = Schema("image", "plan", 60_000, shape=(28, 28), classes=tuple("0123456789"))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "study.toml").write_text(text)
        (Path(name) / "schema.toml").write_text(schema.to_toml())
        env = {**os.environ, "XDG_CACHE_HOME": name}
        command = [sys.executable, "-c", PLAN, f"{name}/study.toml"]
        took = [
            float(
                subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
            )
            for _ in range(2)
        ]
    return {"cold": round(took[0], 2), "again": round(took[1], 2)}


def _plans(quick: bool) -> dict[str, Any]:
    """Solving noise in fresh processes: twice with one new cache."""
    return {"plan_seconds": {name: _planned(*how) for name, how in SAMPLED.items()}}


PARTS = {
    "wae": _wae,
    "rivals": _rivals,
    "conv": _conv,
    "recurrent": _recurrent,
    "memory": _memory,
    "plans": _plans,
}


if __name__ == "__main__":
    main()
