"""MST and AIM by their authors' code (private-pgm), in a Python of its own: cells in, cells out.

    RIVALS_PYTHON bench/rivals_pgm.py IN.npz OUT.npz

IN has ``codes`` [n, A], ``sizes`` [A] and the settings; see `rivals.py`, which calls this. Both
methods get the public cells as they are; their settings are the authors' defaults (pairs of at
most 10,000 cells, AIM's model at most 80 MB). Their noise is NumPy's, seeded here.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import sys
import time

import numpy as np
import pandas as pd

CELLS, MEGABYTES = 10_000, 80


def synthesise(codes, sizes, method, epsilon, delta, rows, seed):  # type: ignore[no-untyped-def]
    """Fit the method to ``codes`` and draw ``rows`` new ones."""
    sys.path.insert(0, os.path.join(os.environ["UNDERSTUDY_PGM"], "mechanisms"))
    from mbi import Dataset, Domain

    np.random.seed(seed)
    names = [f"c{i:03}" for i in range(len(sizes))]
    data = Dataset(pd.DataFrame(codes, columns=names), Domain(names, [int(s) for s in sizes]))
    made = {"mst": _mst, "aim": _aim}[method](data, epsilon, delta, rows)
    found = made.df[names].to_numpy()
    return found[np.random.default_rng(seed).choice(len(found), rows, replace=len(found) < rows)]


def _mst(data, epsilon, delta, rows):  # type: ignore[no-untyped-def]
    from mst import MST

    return MST(data, epsilon, delta)


def _aim(data, epsilon, delta, rows):  # type: ignore[no-untyped-def]
    from aim import AIM

    pairs = itertools.combinations(data.domain, 2)
    workload = [(pair, 1.0) for pair in pairs if data.domain.size(pair) <= CELLS]
    model = AIM(epsilon, delta, prng=np.random, max_model_size=MEGABYTES)
    return model.run(data, workload, num_synth_rows=rows)[1]


def main() -> None:
    """Read the task, run it, write cells, seconds and the package's version."""
    given = np.load(sys.argv[1], allow_pickle=False)
    ask = {k: given[k].item() for k in ("method", "epsilon", "delta", "rows", "seed")}
    begun = time.process_time()
    made = synthesise(given["codes"], given["sizes"], **ask)
    seconds = time.process_time() - begun
    package = f"private-pgm (mbi {importlib.metadata.version('mbi')})"
    np.savez_compressed(sys.argv[2], codes=made, seconds=seconds, package=package)


if __name__ == "__main__":
    main()
