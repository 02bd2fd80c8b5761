"""The systems, one file each. The list is a literal table: nothing is found by scanning."""

from __future__ import annotations

from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.federation.planning import check_kind
from understudy.federation.recipe import Recipe
from understudy.recipes.dp_fed_wae import DpFedWAE
from understudy.recipes.dpd_fvae import DpdFVAE
from understudy.recipes.fedmoments import FedMoments
from understudy.recipes.fedstdg import FedSTDG
from understudy.recipes.fedvae import FedVAE
from understudy.recipes.signds import SignDS
from understudy.settings import nearest
from understudy.study import Study

__all__ = ["RECIPES", "build", "infos"]

_Recipe = (
    type[FedVAE] | type[DpdFVAE] | type[SignDS] | type[DpFedWAE] | type[FedSTDG] | type[FedMoments]
)

RECIPES: dict[str, _Recipe] = {
    "fedvae": FedVAE,
    "dpd_fvae": DpdFVAE,
    "signds": SignDS,
    "dp_fed_wae": DpFedWAE,
    "fedstdg": FedSTDG,
    "fedmoments": FedMoments,
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
    check_kind(study, RECIPES[study.recipe].info)
    return RECIPES[study.recipe].build(study)
