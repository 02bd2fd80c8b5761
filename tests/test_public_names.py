"""The public surface is deliberate: these names, importable, documented, and no others."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import metadata, resources

import pytest

import understudy
from understudy.release.manifest import versions_here

PUBLIC = {
    "Records",
    "Release",
    "Schema",
    "Study",
    "UnderstudyError",
    "__version__",
    "evaluate",
    "run",
    "verify",
}


def test_all_lists_the_public_names_and_no_others() -> None:
    assert set(understudy.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_public_name_is_a_documented_class_or_function(name: str) -> None:
    found = getattr(understudy, name)
    assert inspect.isclass(found) or inspect.isfunction(found)
    assert inspect.getdoc(found)


def test_version_is_the_installed_one() -> None:
    assert understudy.__version__ == metadata.version("understudy")


def test_a_run_from_source_knows_its_version_without_an_installed_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would else fail when the release is written, after the budget was charged."""

    def version(name: str, found=metadata.version) -> str:
        assert name != "understudy"
        return found(name)

    monkeypatch.setattr(metadata, "version", version)
    assert versions_here()["understudy"] == understudy.__version__


def test_submodules_do_not_shadow_public_functions() -> None:
    code = (
        "import understudy.simulation, understudy.evaluation.compare, understudy.release.verify\n"
        "from understudy import evaluate, run, verify\n"
        "assert callable(run) and callable(evaluate) and callable(verify)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_package_is_typed() -> None:
    assert resources.files("understudy").joinpath("py.typed").is_file()
