"""What both forms of DP-Fed-WAE have in common, and their nets (Table 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.federation.info import RecipeInfo
from understudy.nets.autoencoder import Autoencoder
from understudy.recipes.catalogue import DP_FED_WAE
from understudy.recipes.options import DpFedWAEOptions
from understudy.recipes.wae import SharedWAE

__all__ = ["DpFedWAERecipe", "image_net", "table_net"]


@dataclass(frozen=True)
class DpFedWAERecipe(SharedWAE):
    """What both forms have in common: a Wasserstein autoencoder under these options."""

    options: DpFedWAEOptions

    info: ClassVar[RecipeInfo] = DP_FED_WAE


def table_net(layout: OneHot, own: DpFedWAEOptions, hidden: tuple[int, ...]) -> Autoencoder:
    """Table 4.3's net for a table: relu, one latent layer, mirrored; yes-or-no features."""
    return Autoencoder(
        features=layout.width,
        latent=own.latent,
        widths=hidden if own.widths is None else own.widths,
        net=own.net,
        variational=False,
        loss="bce",
    )


def image_net(schema: Schema, own: DpFedWAEOptions, hidden: tuple[int, ...]) -> Autoencoder:
    """The same for images: the label is given to the decoder; squared error."""
    return Autoencoder(
        features=schema.width,
        latent=own.latent,
        labels=schema.n_classes if schema.n_classes > 1 else 0,
        widths=hidden if own.widths is None else own.widths,
        net=own.net,
        shape=schema.shape,
        variational=False,
        loss="mse",
    )
