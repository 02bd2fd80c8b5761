"""HeteroFedSyn by its authors' code, in a Python of its own: cells in, cells out.

    RIVALS_PYTHON bench/rivals_fedsyn.py IN.npz OUT.npz

Their adaptive form (`fed_privsyn_adv`) with the settings of their Adult file: budget in parts of
.3, .3 and .4, fifty updates, five clients of equal size. It gets the public cells instead of
equal bins of the private range, and the same ε and δ as everyone.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time

import numpy as np
import pandas as pd

SHARES = {
    "noise_to_one_way_marginal": 0.3,
    "noise_to_two_way_marginal": 0.3,
    "two-way-publish": 0.4,
}
CLIENTS, UPDATES = 5, 50


def synthesise(codes, sizes, method, epsilon, delta, rows, seed):  # type: ignore[no-untyped-def]
    """Fit the method to ``codes`` and draw ``rows`` new ones."""
    sys.path.insert(0, os.environ["UNDERSTUDY_FEDSYN"])
    from loguru import logger
    from synthesizer.privsyn_lib.core_fedsyn_adv import FedprivSyn_adv
    from synthesizer.privsyn_lib.data_loader import DataLoader

    logger.remove()
    np.random.seed(seed)
    names = [f"c{i:03}" for i in range(len(sizes))]
    loader = DataLoader()
    cells = {name: {c: c for c in range(size)} for name, size in zip(names, sizes, strict=True)}
    loader.load_data(pd.DataFrame(codes, columns=names), cells)
    split = {**{k: share * epsilon for k, share in SHARES.items()}, "delta": delta}
    split |= {"client_num": CLIENTS, "dist_method": "uniform"}
    with contextlib.redirect_stdout(io.StringIO()):
        model = FedprivSyn_adv(loader, UPDATES, epsilon, delta, 1, split)
        model.train(None)
        model.synthesized_df = None
        return model.synthesize(num_records=rows)[names].to_numpy()


def main() -> None:
    """Read the task, run it, write cells and seconds."""
    given = np.load(sys.argv[1], allow_pickle=False)
    ask = {k: given[k].item() for k in ("method", "epsilon", "delta", "rows", "seed")}
    begun = time.process_time()
    made = synthesise(given["codes"], given["sizes"].tolist(), **ask)
    seconds = time.process_time() - begun
    np.savez_compressed(sys.argv[2], codes=made, seconds=seconds, package="HeteroFedSyn")


if __name__ == "__main__":
    main()
