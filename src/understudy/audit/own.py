"""Recipes of one's own, from a Python file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.recipes import RECIPES

__all__ = ["register"]

MODULE = "understudy_own_recipe"


def register(path: Path) -> tuple[str, ...]:
    """Run a Python file, and let studies name the recipes that it defines."""
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise StudyError("a Python file with a recipe", str(path), "name a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does
        raise StudyError(
            "a Python file with a recipe", f"{path}: {type(error).__name__}: {error}", "correct it"
        ) from error
    found = {
        value.info.name: value
        for value in vars(module).values()
        if isinstance(getattr(value, "info", None), RecipeInfo) and value.__module__ == MODULE
    }
    if not found:
        raise StudyError(
            "a recipe in this file",
            f"{path} defines no class with an info of type RecipeInfo",
            "see docs/recipes.md",
        )
    RECIPES.update(found)
    return tuple(found)
