"""What a DP-Fed-WAE study may set, what the recipe supports, and its nets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from understudy.data.onehot import OneHot
from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo
from understudy.nets.autoencoder import Autoencoder
from understudy.recipes.wae import WAEOptions
from understudy.study import setting

__all__ = ["INFO", "DpFedWAEOptions", "image_net", "table_net"]

_MOST_TOP = 0.4  # a part's changes must have room beside as many places of silence


@dataclass(frozen=True)
class DpFedWAEOptions(WAEOptions):
    """``[recipe]`` of a DP-Fed-WAE study."""

    top: float = setting(0.05, "ξ: share of all coordinates that make up the top set")
    global_rate: float = setting(
        1.0, "γ: how far the server goes where ten votes agree; not by parts, where all do"
    )
    average: float = setting(0.3, "share of the last rounds whose models are averaged")
    teach: Literal["parts", "paper"] = setting(
        "parts", "tables by parts (margins, label head, net), or the whole net at once as published"
    )
    margins: float = setting(0.1, "share of the rounds that teach how often each value occurs")
    head: float = setting(0.5, "share of the rounds that teach the label, given the rest")
    net: Literal["dense", "conv"] = setting("dense", "dense, or convolutions for images")
    widths: tuple[int, ...] | None = setting(
        None, "hidden layers of the encoder, mirrored; none by default by parts, else one of 64"
    )
    bins: int = setting(10, "bins that a number of a table is cut into")
    drawn: bool = setting(True, "draw each value by its chance instead of taking the likeliest")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < 2 or min((1, *(self.widths or ()))) < 1:
            raise StudyError(
                "recipe.bins of at least 2 and widths of at least 1",
                f"{self.bins} and {list(self.widths or ())}",
                "correct it",
            )
        if self.teach == "parts" and self.top > _MOST_TOP:
            raise StudyError(
                f"recipe.top of at most {_MOST_TOP:g} where parts are taught in turn",
                f"{self.top:g}",
                'lower it, or set teach = "paper"',
            )
        if min(self.margins, self.head) < 0 or self.margins + self.head >= 1:
            raise StudyError(
                "recipe.margins and head of 0 or more, together below 1",
                f"{self.margins:g} and {self.head:g}",
                "leave some rounds for the net",
            )


INFO = RecipeInfo(
    name="dp_fed_wae",
    title="Wasserstein autoencoder; sites send a sign and a few coordinates",
    paper="Jiang 2023 (thesis), ch. 4, DP-Fed-WAE",
    summary="Many small sites, nobody trusted; each site answers once or a few times.",
    kinds=("table", "image"),
    supports=frozenset({("site", "local")}),
    default=("site", "local"),
    options=DpFedWAEOptions,
    rounds=500,
    corrections="A client's ε adds up over its updates; the unit is the site, not the person.",
)


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
