"""The nets of DP-Fed-WAE (Table 4.3)."""

from __future__ import annotations

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.nets.autoencoder import Autoencoder
from understudy.recipes.options import DpFedWAEOptions

__all__ = ["image_net", "table_net"]


def table_net(layout: OneHot, own: DpFedWAEOptions, hidden: tuple[int, ...]) -> Autoencoder:
    """Table 4.3's net for a table: relu, one latent layer, mirrored; yes-or-no features."""
    widths = hidden if own.widths is None else own.widths
    return Autoencoder(
        features=layout.width,
        latent=own.latent,
        labels=0,
        widths=widths,
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
