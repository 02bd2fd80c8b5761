"""MargNet by its authors' code, in a Python of its own: cells in, cells out.

    RIVALS_PYTHON bench/rivals_margnet.py IN.npz OUT.npz

Their adaptive form (`fit_adaptive`, a generator fitted to marginals) with the settings of their
Bank file. It gets the public cells instead of a private tree's, and the whole budget, as ρ of
zero-concentrated DP, for its marginals. Their code asks for a graphics card's memory after
training: here there is none to ask.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from argparse import Namespace
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd


def synthesise(codes, sizes, method, epsilon, delta, rows, seed):  # type: ignore[no-untyped-def]
    """Fit the method to ``codes`` and draw ``rows`` new ones."""
    os.chdir(os.environ["UNDERSTUDY_MARGNET"])
    sys.path.insert(0, ".")
    import tomli
    import torch
    from method.MargDL.main import MargDLGen
    from util.rho_cdp import cdp_rho

    torch.set_num_threads(1)
    torch.cuda.reset_peak_memory_stats = lambda: None
    torch.cuda.max_memory_allocated = lambda device=None: 0
    np.random.seed(seed)
    torch.manual_seed(seed)
    with open("method/MargDL/config/gan/bank.toml", "rb") as file:
        config = tomli.load(file)["1.0"]
    names = [f"c{i:03}" for i in range(len(sizes))]
    asked = Namespace(iter=None, lr=None, batch=None, test=False, resample=False)
    with TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        model = MargDLGen(
            asked, pd.DataFrame(codes, columns=names), dict(zip(names, sizes, strict=True)),
            "cpu", config, place, "gan",
        )  # fmt: skip
        model.fit_adaptive(cdp_rho(epsilon, delta))
        return model.model.sample(rows)


def main() -> None:
    """Read the task, run it, write cells and seconds."""
    given = np.load(sys.argv[1], allow_pickle=False)
    ask = {k: given[k].item() for k in ("method", "epsilon", "delta", "rows", "seed")}
    begun = time.process_time()
    made = synthesise(given["codes"], given["sizes"].tolist(), **ask)
    seconds = time.process_time() - begun
    np.savez_compressed(sys.argv[2], codes=made, seconds=seconds, package="MargNet")


if __name__ == "__main__":
    main()
