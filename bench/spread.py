"""A simulation spread over workers against the same in one process: wall time, and one release.

    python bench/spread.py [--only TEXT] [--quick] [--json FILE]

FedVAE with wide nets on the bundled digits: 128 sites with 14 rows each, all of them in every
round, 100 local epochs. Every run is the real command with one seed: `understudy run` on one
thread and on two, or `serve --simulate` and two or four `join --simulate` with a thread each, on
loopback without TLS. ``seconds`` is the wall time of all of it, start-up included: each process
needs about three seconds of a core until it begins, and reads and deals out all rows. Beside it
is what each process (the server first) kept a core busy for, which counts on a busy machine.
``--only 2-1`` runs the cell of two workers with one thread each, and keeps those that FILE has.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import arguments, provenance, save

STUDY = """
[study]
name = "digits over {sites} sites"
schema = "schema.toml"
recipe = "fedvae"
rounds = {rounds}

[privacy]
trust = "central"
unit = "site"
noise = 1.0

[recipe]
widths = [512]
decoder_widths = [512]

[training]
epochs = {epochs}

[simulation]
data = "bundled:digits"
sites = {sites}
"""
SEED = 1
CELLS = ((0, 1), (0, 2), (2, 1), (4, 1))  # workers, or none; threads of each process


def main() -> None:
    """One process, on one thread and two; then two and four workers, on one each."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="", help="cells by workers and threads of each, as 2-1")
    options = parser.parse_args()
    report: dict[str, Any] = {**provenance("spread", options.threads), "cells": []}
    report["cores"] = os.cpu_count()
    terms, cells = {"sites": 128, "rounds": 4, "epochs": 100}, CELLS
    if options.quick:
        terms, cells = {"sites": 40, "rounds": 1, "epochs": 1}, CELLS[1:3]
    cells = [each for each in cells if options.only in "-".join(map(str, each))]
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text())["cells"]
        report["cells"] = [c for c in kept if (c["workers"], c["threads of each"]) not in cells]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _study(folder, terms)
        for workers, threads in cells:
            os.environ["OMP_NUM_THREADS"] = str(threads)
            done = _timed(folder, workers, f"out-{workers}-{threads}")
            made = {**terms, "workers": workers, "threads of each": threads, **done}
            report["cells"].append(made)
            print(made, flush=True)
            save(report, options.json)
    models = {cell["model"] for cell in report["cells"]}
    assert len(models) == 1, "the releases differ"


def _study(folder: Path, terms: dict[str, int]) -> None:
    from understudy.data.bundled import bundled

    (folder / "schema.toml").write_text(bundled("digits")[0].to_toml())
    (folder / "study.toml").write_text(STUDY.format(**terms))


def _timed(folder: Path, workers: int, name: str) -> dict[str, Any]:
    """One run: no workers, or so many."""
    out, begun = folder / name, time.perf_counter()
    if not workers:
        busy = [_ended(_start("run", "study.toml", "--out", out, "--seed", SEED, folder=folder))]
    else:
        with socket.create_server(("localhost", 0)) as found:
            port = found.getsockname()[1]
        terms = ("--simulate", workers, "--seed", SEED, "--insecure")
        hub = _start("serve", "study.toml", "--out", out, "--port", port, *terms, folder=folder)
        where = ("--server", f"localhost:{port}", *terms)
        names = [f"worker-{i + 1}" for i in range(workers)]
        each = [_start("join", "study.toml", *where, "--site", n, folder=folder) for n in names]
        busy = [_ended(process) for process in (hub, *each)]
    seconds = time.perf_counter() - begun
    return {"seconds": round(seconds, 1), "processor seconds": busy, "model": _model(out)[:16]}


def _start(*words: object, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "understudy", *map(str, words)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def _ended(process: subprocess.Popen[bytes]) -> float:
    """What a process that has ended without an error kept a core busy for."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"exit code {process.returncode}: {process.args}"
    return round(used.ru_utime + used.ru_stime, 1)


def _model(out: Path) -> str:
    return hashlib.sha256((out / "generator.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
