"""The systems, one file each. The list is a literal table: nothing is found by scanning.

What a recipe is stands in `catalogue`; the recipe itself is loaded when a study asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.recipes.catalogue import CATALOGUE
from understudy.settings import nearest
from understudy.study import Study

if TYPE_CHECKING:
    from understudy.federation.recipe import Recipe

__all__ = ["RECIPES", "build", "infos"]


class Builder(Protocol):
    """What makes a recipe from a study: a recipe's class, or an entry of the table below."""

    @property
    def info(self) -> RecipeInfo:
        """What the recipe is."""

    def build(self, study: Study) -> Recipe:
        """The recipe a study asks for."""


@dataclass(frozen=True)
class Listed:
    """A recipe by name and class, loaded on use."""

    name: str
    kind: str

    @property
    def info(self) -> RecipeInfo:
        """What the recipe is."""
        return CATALOGUE[self.name]

    def build(self, study: Study) -> Recipe:
        """Load the recipe and let it read the study."""
        found: Recipe = getattr(import_module(f"{__name__}.{self.name}"), self.kind).build(study)
        return found


RECIPES: dict[str, Builder] = {
    "fedvae": Listed("fedvae", "FedVAE"),
    "dpd_fvae": Listed("dpd_fvae", "DpdFVAE"),
    "signds": Listed("signds", "SignDS"),
    "dp_fed_wae": Listed("dp_fed_wae", "DpFedWAE"),
    "fedstdg": Listed("fedstdg", "FedSTDG"),
    "fedmoments": Listed("fedmoments", "FedMoments"),
}


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
