"""Small releases of a generator and a classifier to use and to spoil, and the toy recipes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from contracts.toys import TOYS, rows, study, toys
from release.classes import NAME, SQUARES, ToyClasses, squares
from understudy.recipes import RECIPES
from understudy.release.bundle import Release
from understudy.simulation import run

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


def _classifier(folder: Path, **options: Any) -> Release:
    sites = options.pop("sites", None) or rows(4, 12)
    asked = study(NAME, len(sites), privacy={"noise": 0.01}, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, NAME, ToyClasses)  # type: ignore[arg-type]
        run(asked, sites, out=folder, seed=0)
    return Release.load(folder)


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A released classifier of the toys' table."""
    return _classifier(tmp_path_factory.mktemp("told") / "release")


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A released classifier of images."""
    sites = [squares(20, seed) for seed in (1, 2)]
    return _classifier(tmp_path_factory.mktemp("seen") / "release.zip", schema=SQUARES, sites=sites)


@pytest.fixture
def told_folder(told: Release, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    assert told.path is not None
    return Path(shutil.copytree(told.path, tmp_path / "told"))
