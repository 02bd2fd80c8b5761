"""A small release to use and to spoil, and the toy recipes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contracts.toys import TOYS, rows, study, toys
from understudy.recipes import RECIPES
from understudy.release.bundle import Release
from understudy.run import run

__all__ = ["toys"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A released run of a toy: three charged rounds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, toy in TOYS.items():
            patch.setitem(RECIPES, name, toy)  # type: ignore[arg-type]
        folder = tmp_path_factory.mktemp("made") / "release"
        asked = study("toy-mean", 4, privacy={"noise": 4.0})
        run(asked, rows(4), out=folder, seed=0, rows=30)
    return Release.load(folder)


@pytest.fixture
def folder(made: Release, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    assert made.path is not None
    return Path(shutil.copytree(made.path, tmp_path / "release"))
