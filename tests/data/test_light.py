"""What reads a schema or a study loads neither NumPy nor anything built on it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "pandas", "scipy", "sklearn", "pyarrow", "numpy"}
LIGHT = (
    "data.column",
    "data.layout",
    "data.names",
    "data.schema",
    "data.schema_toml",
    "data.split_rules",
)


def test_the_schema_and_the_study_load_nothing_heavy() -> None:
    names = ", ".join(f"understudy.{name}" for name in (*LIGHT, "settings", "study"))
    code = f"import sys, {names}\nprint(*sorted({HEAVY!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
