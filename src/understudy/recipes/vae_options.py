"""What ``[recipe]`` of a study may set for VAEs; see `options` for the other recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from understudy.errors import StudyError
from understudy.settings import Settings, setting

__all__ = ["DpdFVAEOptions", "FedVAEOptions", "NetOptions", "SGDEOptions", "VAEOptions"]

ServerRule = tuple[Literal["adam", "sgd"], float, float, float, Literal["cosine", "none"]]


@dataclass(frozen=True)
class NetOptions(Settings):
    """The part of ``[recipe]`` that every VAE recipe has: its nets, and what they begin with."""

    net: Literal["dense", "conv"] = setting("dense", "dense, or the paper's convolutions")
    norm: Literal["none", "group", "batch"] = setting(
        "none", "none or group, in convolutional nets; batch is refused: it mixes records"
    )
    latent: int = setting(16, "dimensions of the latent space", least=1)
    widths: tuple[int, ...] = setting((128,), "hidden layers of the encoder", least=1)
    decoder_widths: tuple[int, ...] = setting(
        (128,), "hidden layers of the shared decoder", least=1
    )
    cosines: int | None = setting(
        None,
        "lowest frequencies that dense nets see: 12 per image side, 64 of a series; 0: all",
        least=0,
    )
    beta: float = setting(1.0, "weight of the KL term", least=0)
    sharpness: float = setting(
        2.0, "contrast of released images: the logits are multiplied by it", above=0
    )
    warm_start: float | None = setting(
        None,
        "share of ε for fedmoments, whose samples pre-train the nets and whose class shares are "
        "released; by default 0.3 for tables where ε is given; 0: none",
        least=0,
        below=1,
    )
    warm_coefficients: int = setting(150, "fedmoments' coefficients in a warm start", least=1)
    warm_spread: float = setting(2.0, "variance of the warm start's images (fedmoments' spread)")
    warm_contrast: float = setting(
        8.0, "contrast of the warm start's images (fedmoments' contrast)"
    )
    warm_share: float = setting(
        0.5,
        "share of the released rows that the warm start draws; the decoder draws the rest",
        least=0,
        most=1,
    )
    warm_steps: int = setting(2000, "training steps on warm-start samples or public rows", least=1)
    public: str = setting("", "a file of rows that are public: the nets are pre-trained on them")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "batch":
            raise StudyError(
                'recipe.norm "none" or "group"',
                '"batch": BatchNorm lets the records of a batch see each other, so no record '
                "could be clipped alone, and its running statistics would leave without noise",
                'set norm = "group"',
            )
        if self.norm == "group" and self.net == "dense":
            raise StudyError(
                'recipe.norm = "group" with net = "conv"', "a dense net", "remove one of them"
            )
        if self.warm_start and self.public:
            raise StudyError(
                "one of recipe.warm_start and recipe.public", "both", "remove one of them"
            )

    @property
    def rule(self) -> ServerRule:
        """What the server does with the noised mean: it takes it as it is."""
        return "sgd", 1.0, 0.0, 0.0, "none"


@dataclass(frozen=True)
class VAEOptions(NetOptions):
    """The same with a server that has an optimiser of its own."""

    server: Literal["adam", "sgd"] = setting("adam", "server optimiser on the noised mean")
    server_rate: float = setting(0.016, "its learning rate (at the start)", above=0)
    momentum: float = setting(0.9, "its momentum", least=0, below=1)
    decay: Literal["cosine", "none"] = setting("cosine", "how its rate falls over the rounds")
    average: float = setting(
        0.2, "share of the last rounds whose decoders are averaged", least=0, most=1
    )

    @property
    def rule(self) -> ServerRule:
        """The optimiser, its rate and momentum, how many rounds it averages, how its rate falls."""
        return self.server, self.server_rate, self.momentum, self.average, self.decay


@dataclass(frozen=True)
class FedVAEOptions(VAEOptions):
    """``[recipe]`` of a FedVAE study."""

    classes: Literal["joint", "separate"] = setting(
        "joint", "one conditional VAE, or one per class"
    )
    steps: int = setting(6, "local steps per round, the same at every site (if no epochs)")


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
        "local steps per round, the same at every site; by default 6, or 1 where records are "
        "protected (6 for paper; always 1 under central trust)",
        least=1,
    )


@dataclass(frozen=True)
class SGDEOptions(NetOptions):
    """``[recipe]`` of an SGDE study."""

    latent: int = setting(8, "dimensions of the latent space", least=1)
    widths: tuple[int, ...] = setting((64, 32), "hidden layers of the encoders", least=1)
    decoder_widths: tuple[int, ...] = setting((64, 128), "hidden layers of the decoders", least=1)
    steps: int = setting(100, "noised steps of each VAE per round, the same at every site", least=1)
    average: float = setting(
        0.2, "share of the last steps whose VAEs are averaged", least=0, most=1
    )
