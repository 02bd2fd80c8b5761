"""What both forms of DP-Fed-WAE have in common, and their nets (Table 4.3)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.nets.autoencoder import Autoencoder
from understudy.recipes import vae
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.options import DpFedWAEOptions
from understudy.recipes.public import Examples
from understudy.recipes.wae import UNIFORM_ROWS, SharedWAE
from understudy.release.generator import Generator
from understudy.rng import Streams

__all__ = ["DpFedWAERecipe", "nets"]


@dataclass(frozen=True)
class DpFedWAERecipe(SharedWAE[DpFedWAEOptions]):
    """A Wasserstein autoencoder under these options; a table's rows are yes-or-no features."""

    info = CATALOGUE["dp_fed_wae"]

    @property
    @abstractmethod
    def layout(self) -> OneHot | None:
        """How a table's rows become yes-or-no features; None for images."""

    def seen(self, x: Tensor, y: Tensor) -> Examples:
        return (x, y) if self.layout is None else (self.layout.encode(x, y), y)

    def uniform(self, rng: Streams) -> Examples:
        """Rows anyone can draw who knows the schema."""
        if self.layout is None:
            return super().uniform(rng)
        return self.layout.uniform(UNIFORM_ROWS, rng=rng.torch("uniform"))

    def release(self, net: Tensor) -> Generator:
        """The decoder of an autoencoder ``[1, P]``."""
        decoder = self.decoder(net)
        if self.layout is None:
            return vae.decoder_release(self.schema, self.spec, decoder, vae.balance(self.schema))
        config: dict[str, Any] = {"net": self.spec.to_config(), "width": self.schema.width}
        config |= {"layout": self.layout.to_config(), "drawn": self.options.drawn}
        return Generator("onehot", {"decoder": decoder}, config, vae.balance(self.schema))


def nets(
    schema: Schema, layout: OneHot | None, own: DpFedWAEOptions, hidden: tuple[int, ...]
) -> Autoencoder:
    """Table 4.3's nets: relu, one latent layer, mirrored.

    A table's features are yes or no; for images the decoder is given the label, and the error is
    squared.
    """
    labels = schema.n_classes if layout is None and schema.n_classes > 1 else 0
    return Autoencoder(
        features=layout.width if layout else schema.width,
        latent=own.latent,
        labels=labels,
        widths=hidden if own.widths is None else own.widths,
        net=own.net,
        shape=() if layout else schema.shape,
        variational=False,
        loss="bce" if layout else "mse",
    )
