"""What reads a schema or a study loads neither torch nor pandas nor scipy."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HEAVY = {"torch", "pandas", "scipy", "sklearn", "pyarrow", "numpy"}
LIGHT = (
    "data",
    "data.names",
    "data.layout",
    "data.schema",
    "data.schema_toml",
    "data.split_rules",
    "settings",
    "study",
    "terms",
)


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_module_loads_nothing_heavy(name: str) -> None:
    spec = find_spec("understudy")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    code = (
        "import sys, types\n"
        "root = types.ModuleType('understudy')\n"  # without what the package itself offers
        f"root.__path__ = [{str(package)!r}]\n"
        "sys.modules['understudy'] = root\n"
        f"import understudy.{name}\n"
        f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
