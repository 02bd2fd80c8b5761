"""Verification against the recipes that this version knows."""

from __future__ import annotations

from pathlib import Path

from understudy.recipes import RECIPES
from understudy.release.verify import Verdict
from understudy.release.verify import verify as check

__all__ = ["verify"]


def verify(path: str | Path) -> Verdict:
    """Check a release folder or zip; raise `ReleaseError` at the first thing that is wrong.

    `Verdict.checks` says what was checked, `Verdict.notes` what could not be.
    """
    return check(path, RECIPES)
