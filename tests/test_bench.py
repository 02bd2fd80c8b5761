"""Every bench still runs: ``--quick``, in a process of its own, within its time."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
LIBRARIES = {  # used by the others, nothing to run
    "common", "dealt", "flower_sum", "kernels", "measures", "perturbation", "rivals",
    "rivals_fedsyn", "rivals_margnet", "rivals_pgm", "rivals_speed", "sgde_learners", "tablescores",
    "tablesets", "whole",
}  # fmt: skip
SMALLER = {  # of the benches with many cells, one of each kind of run is enough here
    "baselines": ["--only", "fedavg, epilepsy"],
    "dp_fed_wae": ["--seeds", "0", "--cells", "none"],
    "fedstdg": ["--seeds", "0", "--part", "grid", "plain", "--data", "sine"],
    "signds": ["--seeds", "0", "--case", "a9a-logistic", "--epsilon", "8"],
}
OWN_ROWS = {  # made up, or bundled
    "dpsgd", "exchange", "images", "network", "secure_sum", "speed", "spread", "tables",
}  # fmt: skip
NAMES = sorted(path.stem for path in BENCH.glob("*.py") if path.stem not in LIBRARIES)


def data_folder() -> Path:
    """Where the benches look for data sets."""
    spec = importlib.util.spec_from_file_location("bench_common", BENCH / "common.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Path = module.DATA
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
def test_bench_runs_and_writes_its_figures(name: str, tmp_path: Path) -> None:
    folder = data_folder()
    if name not in OWN_ROWS and not (folder / "load.py").is_file():
        pytest.skip(f"no data sets in {folder}: set UNDERSTUDY_DATA to run bench/{name}.py")
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH / f"{name}.py"), "--quick", *SMALLER.get(name, ())]
    done = subprocess.run(
        [*command, "--json", str(figures)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(figures.read_text(encoding="utf-8"))
