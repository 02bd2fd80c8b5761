"""What the three forms of DPD-fVAE have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from understudy.federation.info import RecipeInfo
from understudy.recipes.catalogue import DPD_FVAE
from understudy.recipes.options import DpdFVAEOptions
from understudy.recipes.shared_vae import SharedVAE

__all__ = ["DpdFVAERecipe"]


@dataclass(frozen=True)
class DpdFVAERecipe(SharedVAE):
    """What the three algorithms have in common: a conditional VAE under these options."""

    options: DpdFVAEOptions

    info: ClassVar[RecipeInfo] = DPD_FVAE
