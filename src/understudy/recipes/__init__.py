"""The systems, one module each, listed in `catalogue`: nothing is found by scanning.

The recipe itself is loaded when a study asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.recipes.catalogue import CATALOGUE
from understudy.settings import nearest, read
from understudy.study import Study

if TYPE_CHECKING:
    from understudy.federation.recipe import Recipe
    from understudy.release.rebuild import Known

__all__ = ["RECIPES", "build", "infos"]


@dataclass(frozen=True)
class Listed:
    """A recipe of the catalogue; its module is loaded on use, and has a ``build``."""

    info: RecipeInfo

    def build(self, study: Study) -> Recipe:
        """Load the recipe and let it read the study."""
        own: Any = read(self.info.options, study.options, "recipe")
        found: Recipe = import_module(f"{__name__}.{self.info.name}").build(study, own)
        return found


RECIPES: dict[str, Known] = {name: Listed(info) for name, info in CATALOGUE.items()}


def infos() -> dict[str, RecipeInfo]:
    """What each recipe is, by name."""
    return {name: recipe.info for name, recipe in RECIPES.items()}


def build(study: Study) -> Recipe:
    """The recipe a study asks for, with its plan solved and checked."""
    if study.recipe not in RECIPES:
        raise StudyError(
            f"a recipe of {', '.join(RECIPES)}",
            repr(study.recipe),
            f"see understudy recipes{nearest(study.recipe, RECIPES)}",
        )
    from understudy.federation.planning import check_kind

    check_kind(study, RECIPES[study.recipe].info)
    return RECIPES[study.recipe].build(study)
