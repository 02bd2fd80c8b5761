"""What reads a schema or a study loads neither NumPy nor anything built on it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "pandas", "scipy", "sklearn", "pyarrow", "numpy"}
LIGHT = ("column", "layout", "names", "rules", "schema", "schema_toml", "split_rules")


def test_the_schema_and_the_study_load_nothing_heavy() -> None:
    names = ", ".join(f"understudy.data.{name}" for name in LIGHT)
    code = f"import sys, {names}, understudy.study\nprint(*sorted({HEAVY!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
