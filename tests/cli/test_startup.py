"""Help, version, lists and the doctor answer at once: no heavy library is loaded for them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "pandas", "scipy", "sklearn", "matplotlib", "dp_accounting", "pyarrow", "numpy"}
HEAVY |= {"nvflare", "grpc", "cryptography", "fastapi", "sqlalchemy", "uvicorn", "alembic"}
LIGHT = (
    ["--help"],
    ["--version"],
    ["recipes"],
    ["recipes", "signds"],
    ["recipes", "--json"],
    ["doctor"],
    ["run", "--help"],
    ["schema", "draft", "--help"],
    ["ledger", "show", "--help"],
    ["keys", "approve", "--help"],
    ["exchange", "serve", "--help"],
)


def loaded(code: str) -> set[str]:
    """The heavy libraries in memory after ``code`` has run in a process of its own."""
    listed = "import json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    told = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listed}"], check=True, capture_output=True, text=True
    )
    return HEAVY & set(json.loads(told.stdout.splitlines()[-1]))


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_command_loads_no_heavy_library(words: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['understudy', *{words}]\nfrom understudy.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code"
    )
    assert loaded(code) == set()


@pytest.mark.parametrize(
    "module", ["understudy", "understudy.study", "understudy.data", "understudy.federation.info"]
)
def test_import_loads_no_heavy_library(module: str) -> None:
    assert loaded(f"import {module}") == set()


def test_public_names_load_on_use() -> None:
    assert loaded("import understudy; understudy.Study; understudy.Schema") == set()
    assert "torch" in loaded("from understudy import run")


def test_this_test_can_fail() -> None:
    assert loaded("import numpy") == {"numpy"}
