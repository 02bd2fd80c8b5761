"""What ``[recipe]`` of a study may set, recipe by recipe; read without loading any net."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from understudy.errors import StudyError
from understudy.settings import Settings, setting

__all__ = [
    "LEAST_TOP",
    "DpFedAvgGANOptions",
    "DpFedWAEOptions",
    "FedGPOptions",
    "FedMarginalsOptions",
    "FedMomentsOptions",
    "FedSTDGOptions",
    "GANOptions",
    "PrivBayesOptions",
    "SelectionOptions",
    "SignDSOptions",
    "VertiGANOptions",
    "WAEOptions",
]

LEAST_TOP = 8  # coordinates: a smaller top set tells little of a small model
_MOST_TOP = 0.4  # a part's changes must have room beside as many places of silence


@dataclass(frozen=True)
class GANOptions(Settings):
    """The part of ``[recipe]`` that every GAN recipe has."""

    latent: int = setting(32, "dimensions of the generator's noise", least=1)
    widths: tuple[int, ...] = setting((128,), "hidden layers of the generator", least=1)
    critic_widths: tuple[int, ...] = setting((128,), "hidden layers of the critic", least=1)
    loss: Literal["wasserstein", "gan"] = setting(
        "wasserstein", "the critic's distance: Wasserstein, or the GAN of Goodfellow et al."
    )
    penalty: float = setting(1.0, "weight of the critic's gradient penalty; 0: none", least=0)
    cosines: int = setting(
        14, "lowest frequencies per image side that the nets see; 0: pixels", least=0
    )
    critic_steps: int = setting(4, "steps of the critic before each of the generator", least=1)
    average: float = setting(
        0.2, "share of the last rounds whose generators are averaged", least=0, most=1
    )


@dataclass(frozen=True)
class FedGPOptions(GANOptions):
    """``[recipe]`` of a FedGP study."""

    steps: int = setting(
        5, "steps of the generator per round, the same at every site (if no epochs)", least=1
    )


@dataclass(frozen=True)
class DpFedAvgGANOptions(GANOptions):
    """``[recipe]`` of a DP-FedAvg-GAN study."""

    classes: Literal["joint", "separate"] = setting(
        "joint", "one conditional GAN, or one per class as in the thesis"
    )
    generator_steps: int = setting(10, "steps of the generator per round, at the server", least=1)
    server_rate: float = setting(1.0, "how far the server moves the critic", above=0)


@dataclass(frozen=True)
class VertiGANOptions(Settings):
    """``[recipe]`` of a VertiGAN study."""

    latent: int = setting(32, "dimensions of the generator's noise", least=1)
    widths: tuple[int, ...] = setting((64, 64), "the generator's common layers", least=1)
    hidden: int = setting(64, "hidden layer of each party's branch", least=1)
    critic_width: int = setting(
        0, "hidden layer of a party's critic; 0: half of what it sees, as in the thesis", least=0
    )
    penalty: float = setting(1.0, "weight of the critics' gradient penalty", least=0)
    bins: int = setting(10, "bins that a number of a table is cut into", least=2)
    steps: int = setting(2, "E: noised steps of each critic per round", least=1)
    critic_rate: float = setting(
        5e-3, "learning rate of the critics; training.rate is the generator's", above=0
    )
    shared: bool = setting(
        False,
        "one noise behind all parties' columns, as published: relates them, but by accident, since "
        "no critic sees two parties; with joint always",
    )
    top: float = setting(
        1.0,
        "share of the generator's gradient that a party sends, its largest numbers: 0.25 halves "
        "the bytes",
        above=0,
        most=1,
    )
    average: float = setting(
        0.2, "share of the last rounds whose generators are averaged", least=0, most=1
    )
    joint: float = setting(
        0.0,
        "share of ε for fedmoments' sums, from which a critic of whole rows at the server learns "
        "what goes together across parties; 0.6 is what was measured, 0 none, as published",
        least=0,
        below=1,
    )


@dataclass(frozen=True)
class FedMomentsOptions(Settings):
    """``[recipe]`` of a fedmoments study."""

    coefficients: int = setting(150, "cosine coefficients kept of an image or series", least=1)
    spread: float = setting(
        2.0,
        "variance of drawn images, relative to the estimate: wider teaches students better",
        above=0,
    )
    contrast: float = setting(
        0.0,
        "contrast of drawn images: 8, say, is nearly black and white; 0 cuts values off",
        least=0,
    )
    bounds: bool = setting(
        False,
        "tables: spend a tenth of the budget on a first sum that finds which part of far too wide "
        "bounds a number uses",
    )


@dataclass(frozen=True)
class FedMarginalsOptions(Settings):
    """``[recipe]`` of a fedmarginals study."""

    tables: float = setting(
        0.3,
        "share of ε kept for the tables of pairs; fedmoments' sums, which come first, get the rest",
        above=0,
        below=1,
    )


@dataclass(frozen=True)
class PrivBayesOptions(Settings):
    """``[recipe]`` of a PrivBayes study."""

    degree: int = setting(1, "parents of a column, at most", least=1, most=2)
    network: tuple[str, ...] = setting(
        (),
        'a network that is public knowledge, in lines "column < parent, parent", the label as a '
        "parent by its name; by default it is grown by a noisy sum of all pairs",
    )


@dataclass(frozen=True)
class SelectionOptions(Settings):
    """The part of ``[recipe]`` that every recipe of choices has."""

    top: float = setting(
        0.1,
        f"share of all coordinates in the top set; of few, {LEAST_TOP} or a third at least",
        above=0,
        below=1,
    )
    outputs: int = setting(0, "coordinates that a site sends; 0: as many as keep `share`", least=0)
    share: float = setting(
        0.8, "with outputs = 0: expected share of them from the top set", above=0, below=1
    )
    subset: float = setting(
        1.0, "share of coordinates a site draws to choose among (SubMDS)", above=0, most=1
    )
    global_rate: float = setting(1.0, "γ: how far the server goes where all votes agree", above=0)
    decay: Literal["cosine", "none"] = setting("cosine", "how γ falls over the rounds")
    average: float = setting(
        0.2, "share of the last rounds whose models are averaged", least=0, most=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.top < self.subset:
            below = f"recipe.top below recipe.subset = {self.subset:g}"
            raise StudyError(below, f"{self.top:g}", "correct one of them")


@dataclass(frozen=True)
class SignDSOptions(SelectionOptions):
    """``[recipe]`` of a SignDS-FL study."""

    model: Literal["logistic", "nn", "lenet"] = setting(
        "logistic", "the classifier: logistic, nn (one hidden layer) or lenet"
    )
    hidden: int = setting(96, "width of the hidden layer of nn", least=1)
    global_rate: float = setting(8.0, "γ: how far the server goes where all votes agree", above=0)
    view: Literal["strokes", "pixels"] = setting(
        "strokes", "what logistic and nn see of an image: strokes, or pixels as published"
    )


@dataclass(frozen=True)
class WAEOptions(SelectionOptions):
    """The part of ``[recipe]`` that every WAE recipe has."""

    top: float = setting(
        0.05, "ξ: share of all coordinates that make up the top set", above=0, below=1
    )
    latent: int = setting(16, "dimensions of the latent space", least=1)
    penalty: float = setting(1.0, "λ: weight of the MMD between latents and prior", least=0)
    pretrain: Literal["none", "uniform", "public"] = setting(
        "none", "pre-train on no rows, on uniform rows of the public schema, or on public rows"
    )
    public: str = setting("", 'with pretrain = "public": the file of public rows')
    pretrain_steps: int = setting(2000, "training steps on auxiliary rows", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.pretrain == "public") != bool(self.public):
            raise StudyError(
                'recipe.public exactly where pretrain = "public"',
                f"pretrain = {self.pretrain!r}, public = {self.public!r}",
                "name a file of public rows, or remove both",
            )


@dataclass(frozen=True)
class DpFedWAEOptions(WAEOptions):
    """``[recipe]`` of a DP-Fed-WAE study."""

    global_rate: float = setting(
        1.0, "γ: how far the server goes where ten votes agree; not by parts, where all do", above=0
    )
    average: float = setting(
        0.3, "share of the last rounds whose models are averaged", least=0, most=1
    )
    teach: Literal["parts", "paper"] = setting(
        "parts", "tables by parts (margins, label head, net), or the whole net at once as published"
    )
    margins: float = setting(
        0.1, "share of the rounds that teach how often each value occurs", least=0, below=1
    )
    head: float = setting(
        0.5, "share of the rounds that teach the label, given the rest", least=0, below=1
    )
    net: Literal["dense", "conv"] = setting("dense", "dense, or convolutions for images")
    widths: tuple[int, ...] | None = setting(
        None,
        "hidden layers of the encoder, mirrored; none by default by parts, else one of 64",
        least=1,
    )
    bins: int = setting(10, "bins that a number of a table is cut into", least=2)
    drawn: bool = setting(
        True, "draw each value by its probability instead of taking the most likely"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teach == "parts" and self.top > _MOST_TOP:
            raise StudyError(
                f"recipe.top of at most {_MOST_TOP:g} where parts are taught in turn",
                f"{self.top:g}",
                'lower it, or set teach = "paper"',
            )
        if self.margins + self.head >= 1:
            raise StudyError(
                "recipe.margins and head together below 1",
                f"{self.margins:g} and {self.head:g}",
                "leave some rounds for the net",
            )


@dataclass(frozen=True)
class FedSTDGOptions(WAEOptions):
    """``[recipe]`` of a FedSTDG study."""

    subset: float = setting(
        0.1, "ϱ: share of coordinates a site draws to choose among", above=0, most=1
    )
    global_rate: float = setting(
        8.0, "γ: how far the server goes where all votes agree and tell", above=0
    )
    penalty: float = setting(0.1, "λ: weight of the MMD between latents and prior", least=0)
    pretrain: Literal["none", "uniform", "public"] = setting(
        "uniform",
        "start from no rows, from smooth series anywhere between the bounds, or from public rows",
    )
    pretrain_steps: int = setting(1000, "training steps on auxiliary rows", least=1)
    hidden: int = setting(
        0, "units of the LSTM layers; 0: one per channel, but at least 12", least=0
    )
    adaptive: Literal["none", "pooled", "paper"] = setting(
        "none", "whether sites send a bit that lowers γ: none, pooled and debiased, or as published"
    )
    bit: float = setting(0.1, "with adaptive: share of ε that the bit costs", above=0, below=1)
    fall: float = setting(0.7, "with adaptive: r, the factor by which γ falls", above=0, below=1)
    patience: int = setting(20, "with adaptive: rounds of bits that a fall of γ takes", least=1)
