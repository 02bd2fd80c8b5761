"""What the benches of the thesis's systems share: data, provenance, means and spreads."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

DATA = Path(os.environ.get("UNDERSTUDY_DATA", Path(__file__).parents[2] / "shared" / "data"))


def load(name: str, **options: Any) -> dict[str, Any]:
    """A data set of the shared folder, by its own loader."""
    spec = importlib.util.spec_from_file_location("shared_data", DATA / "load.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.load(name, root=DATA, **options)
    return found


def arguments(about: str) -> argparse.ArgumentParser:
    """The options that every bench has."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=formatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true", help="a few rounds: does it run at all")
    parser.add_argument("--full", action="store_true", help="the cells beyond the core grid too")
    parser.add_argument("--json", type=Path, help="write the figures here as they come")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def provenance(script: str, threads: int) -> dict[str, Any]:
    """What was run, on which commit and versions."""
    torch.set_num_threads(threads)
    head = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return {
        "command": shlex.join(["python", f"bench/{script}.py", *sys.argv[1:]]),
        "commit": head.stdout.strip(),
        "versions": {n: importlib.metadata.version(n) for n in ("understudy", "torch", "numpy")},
        "machine": f"{platform.machine()}, {threads} thread(s)",
    }


def save(report: dict[str, Any], path: Path | None) -> None:
    """Write a report where one is wanted; called after every cell."""
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, and the values."""
    found = [float(np.round(v, 5)) for v in values]
    deviation = statistics.stdev(found) if len(found) > 1 else None
    return {"mean": statistics.fmean(found), "sd": deviation, "runs": found}
