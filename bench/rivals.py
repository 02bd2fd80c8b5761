"""Rivals of `bench/tables.py`: other people's code, run in a Python of its own, never copied.

Each gets the public cells of the training rows and gives cells back, at the same ε and δ. MST, AIM
(private-pgm), HeteroFedSyn and MargNet are their authors' code. It wants other versions than this
project, so it has an environment of its own:

    python -m venv rivals && git clone https://github.com/ryan112358/private-pgm
    git clone https://github.com/XiaochenLi-w/Federated-Tabular-Data-Synthesis-Framework fedsyn
    git clone https://github.com/KaiChen9909/margnet
    rivals/bin/pip install ./private-pgm jax==0.7.0 chex==0.1.90 "pandas<3" matplotlib loguru pyyaml
    rivals/bin/pip install torch scikit-learn tomli tqdm
    export UNDERSTUDY_RIVALS=rivals/bin/python UNDERSTUDY_PGM=private-pgm
    export UNDERSTUDY_FEDSYN=fedsyn UNDERSTUDY_MARGNET=margnet
    python bench/tables.py --methods mst aim heterofedsyn margnet
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

RIVALS = {
    "mst": "rivals_pgm.py",
    "aim": "rivals_pgm.py",
    "heterofedsyn": "rivals_fedsyn.py",
    "margnet": "rivals_margnet.py",
}
ONE_THREAD = {
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")},
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class TooSlowError(Exception):
    """A rival was stopped at its limit of processor time."""


@dataclass(frozen=True)
class Ask:
    """What a rival is asked for, and the seconds of processor time it may take."""

    method: str
    epsilon: float
    delta: float
    rows: int
    seed: int
    limit: int


@dataclass(frozen=True)
class Made:
    """What it made: cells ``[rows, A]``, how long it took, and which package it was."""

    codes: np.ndarray
    seconds: float
    package: str


def synthesise(codes: np.ndarray, sizes: list[int], ask: Ask, kept: Path | None = None) -> Made:
    """Run the rival, or take what it made earlier from the file ``kept``."""
    if kept is None or not kept.is_file():
        with TemporaryDirectory() as folder:
            out = Path(folder) / "out.npz"
            _run(codes, sizes, ask, out)
            if kept is None:
                return _read(out)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(out.read_bytes())
    return _read(kept)


def _run(codes: np.ndarray, sizes: list[int], ask: Ask, out: Path) -> None:
    python = os.environ.get("UNDERSTUDY_RIVALS")
    if not python:
        sys.exit(f"Not installed: {ask.method}. Do what the head of bench/rivals.py says.")
    given = out.with_name("in.npz")
    np.savez(given, codes=codes, sizes=np.array(sizes), **vars(ask))
    script = Path(__file__).with_name(RIVALS[ask.method])
    done = subprocess.run(
        [python, str(script), str(given), str(out)],
        capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (ask.limit, ask.limit + 5)),
    )  # fmt: skip
    if done.returncode == -signal.SIGXCPU:
        raise TooSlowError
    if done.returncode:
        sys.exit(f"The rival {ask.method} failed:\n{done.stderr[-2000:]}")


def _read(path: Path) -> Made:
    found = np.load(path, allow_pickle=False)
    return Made(found["codes"], float(found["seconds"]), str(found["package"]))
