"""What a DPD-fVAE study may set, and what the recipe supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo
from understudy.recipes.shared_vae import SharedVAE
from understudy.recipes.vae import VAEOptions
from understudy.study import setting

__all__ = ["INFO", "DpdFVAEOptions", "DpdFVAERecipe"]


@dataclass(frozen=True)
class DpdFVAEOptions(VAEOptions):
    """``[recipe]`` of a DPD-fVAE study."""

    encoder: Literal["private", "frozen", "paper"] = setting(
        "private",
        "where records are protected: private (under the same clip and noise as the decoder), "
        "frozen (fixed before any private row is seen), paper (as published: protects no record)",
    )
    share: Literal["decoder", "vae"] = setting(
        "decoder",
        "where sites are protected: the decoder is synchronised, or the vae (vanilla fVAE)",
    )
    steps: int | None = setting(
        None,
        "local steps per round, the same at every site: 6 of a site and of paper, 1 noised one of "
        "records (always 1 where the server noises them)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.steps < 1:
            raise StudyError("recipe.steps of at least 1", f"{self.steps}", "correct it")


INFO = RecipeInfo(
    name="dpd_fvae",
    title="Federated VAE with a differentially private decoder, by site or by record",
    paper="Pfitzner & Arnrich 2022, DPD-fVAE (arXiv 2211.11591)",
    summary="Many rounds; sites send clipped decoder updates, or noised gradients of records.",
    kinds=("table", "image", "series"),
    supports=frozenset(
        {("site", "central"), ("site", "local"), ("record", "local"), ("record", "central")}
    ),
    default=("site", "central"),
    options=DpdFVAEOptions,
    rounds=200,
    corrections="The published L-DPD-fVAE protects no record: its encoder sees all rows without "
    'noise. encoder = "private" or "frozen" does; "paper" carries no record-level ε.',
)


@dataclass(frozen=True)
class DpdFVAERecipe(SharedVAE):
    """What the three algorithms have in common: a conditional VAE under these options."""

    options: DpdFVAEOptions

    info: ClassVar[RecipeInfo] = INFO
