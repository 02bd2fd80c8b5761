"""What the recipes that train VAEs have in common: options, public nets, warm start, release."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from understudy.data.encode import blocks, encode
from understudy.data.schema import Schema
from understudy.data.table import read
from understudy.errors import StudyError
from understudy.federation.recipe import State, Task
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder, init, vae_loss
from understudy.nets.layers import Params
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes.fedmoments import FedMoments
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Cohort, Study, setting
from understudy.training import batches
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam
from understudy.training.server import ServerOptimiser

__all__ = [
    "PUBLIC_NOTE",
    "VAEOptions",
    "autoencoder",
    "balance",
    "decoder_release",
    "fit_vae",
    "keep_warm",
    "mix_warm",
    "own_encoder",
    "pack",
    "plan_of",
    "public_notes",
    "public_rows",
    "server_optimiser",
    "shapes",
    "size",
    "steps_on",
    "unpack",
    "warm_rows",
    "warm_start",
]


@dataclass(frozen=True)
class VAEOptions:
    """The part of ``[recipe]`` that every VAE recipe has."""

    net: Literal["dense", "conv"] = setting("dense", "dense, or the paper's convolutions")
    norm: Literal["none", "group", "batch"] = setting(
        "none", "none or group, in convolutional nets; batch is refused: it mixes records"
    )
    latent: int = setting(16, "dimensions of the latent space")
    widths: tuple[int, ...] = setting((128,), "hidden layers of the encoder")
    decoder_widths: tuple[int, ...] = setting((128,), "hidden layers of the shared decoder")
    cosines: int | None = setting(
        None, "lowest frequencies that dense nets see: 12 per image side, 64 of a series; 0: all"
    )
    beta: float = setting(1.0, "weight of the KL term")
    server: Literal["adam", "sgd"] = setting("adam", "server optimiser on the noised mean")
    server_rate: float = setting(0.016, "its rate at the start; falls along a cosine")
    momentum: float = setting(0.9, "its momentum")
    average: float = setting(0.2, "share of the last rounds whose decoders are averaged")
    sharpness: float = setting(2.0, "contrast of released images: the logits are multiplied by it")
    warm_start: float = setting(
        0.0, "share of ε for a first round of fedmoments whose samples pre-train the nets; 0: none"
    )
    warm_coefficients: int = setting(150, "fedmoments' coefficients in a warm start")
    warm_spread: float = setting(2.0, "variance of the warm start's images (fedmoments' spread)")
    warm_contrast: float = setting(8.0, "contrast of the warm start's images; 0 cuts them off")
    warm_share: float = setting(
        0.5, "share of the released rows that the warm start draws; the decoder draws the rest"
    )
    warm_steps: int = setting(2000, "training steps on warm-start samples or public rows")
    public: str = setting("", "a file of rows that are public: the nets are pre-trained on them")

    def __post_init__(self) -> None:
        if self.norm == "batch":
            raise StudyError(
                'recipe.norm "none" or "group"',
                '"batch": BatchNorm lets the records of a batch see each other, so no record '
                "could be clipped alone, and its running statistics would leave without noise",
                'set norm = "group"',
            )
        if self.norm == "group" and self.net == "dense":
            raise StudyError(
                'recipe.norm = "group" with net = "conv"', "a dense net", "leave one of them out"
            )
        if self.warm_start and self.public:
            raise StudyError(
                "one of recipe.warm_start and recipe.public", "both", "leave one of them out"
            )
        if not 0 <= self.warm_start < 1:
            raise StudyError(
                "recipe.warm_start from 0 to below 1", f"{self.warm_start}", "e.g. 0.3"
            )
        if not 0 <= self.warm_share <= 1:
            raise StudyError("recipe.warm_share from 0 to 1", f"{self.warm_share}", "e.g. 0.5")
        self._check_numbers()

    def _check_numbers(self) -> None:
        """What would only fail, or mean nothing, once a round has been charged."""
        counts = (self.latent, *self.widths, *self.decoder_widths)
        counts += (self.warm_coefficients, self.warm_steps)
        if min(counts) < 1 or (self.cosines or 0) < 0:
            raise StudyError(
                "recipe.latent, widths, decoder_widths, warm_coefficients and warm_steps of at "
                "least 1, and cosines of at least 0",
                "a smaller number",
                "correct it",
            )
        if not (np.isfinite(self.beta) and self.beta >= 0):
            raise StudyError("recipe.beta of 0 or more", f"{self.beta}", "correct it")
        for name in ("server_rate", "sharpness"):
            if not 0 < getattr(self, name) < np.inf:
                found = f"{getattr(self, name)}"
                raise StudyError(f"recipe.{name} above 0 and finite", found, "correct it")
        if not (0 <= self.momentum < 1 and 0 <= self.average <= 1):
            raise StudyError(
                "recipe.momentum from 0 to below 1 and recipe.average from 0 to 1",
                f"{self.momentum} and {self.average}",
                "correct them",
            )


def autoencoder(
    schema: Schema, own: VAEOptions, *, joint: bool = True, least_spread: float = -9.0
) -> Autoencoder:
    """The public nets for a schema: fewer shared parameters mean less noise in all."""
    return Autoencoder(
        least_spread=least_spread,
        features=schema.width,
        latent=own.latent,
        labels=schema.n_classes if joint else 0,
        product=joint and own.net == "dense",
        widths=own.widths,
        decoder_widths=own.decoder_widths,
        net=own.net,
        norm="group" if own.norm == "group" else "none",
        shape=schema.shape,
        cosines=_frequencies(schema, own) if own.net == "dense" else (),
        loss="bce" if schema.kind == "image" else "gaussian",
        numeric=_numbers(schema),
    )


def _frequencies(schema: Schema, own: VAEOptions) -> tuple[int, ...]:
    """Kept per axis of an image or along a series; colours and channels are kept whole."""
    sides = {"image": 2, "series": 1, "table": 0}[schema.kind]
    kept = {"image": 12, "series": 64, "table": 0}[schema.kind]
    kept = kept if own.cosines is None else own.cosines
    if not (kept and sides):
        return ()
    return (*(min(kept, n) for n in schema.shape[:sides]), *schema.shape[sides:])


def _numbers(schema: Schema) -> tuple[int, ...]:
    """The features that hold a number rather than a probability."""
    if schema.kind == "image":
        return ()
    wanted = ("numeric", "integer", "date", "series")
    return tuple(i for b in blocks(schema) if b.kind in wanted for i in range(b.start, b.stop))


def shapes(spec: Autoencoder, only: str = "") -> dict[str, tuple[int, ...]]:
    """Parameters of both nets, or of those under ``only``, in the order they are sent."""
    both = {
        **layers.shapes(spec.encoder, ENCODER),
        **layers.shapes(spec.decoder, DECODER),
    }
    return {name: shape for name, shape in both.items() if name.startswith(only)}


def pack(spec: Autoencoder, params: Mapping[str, Tensor], only: str = "") -> Tensor:
    """One vector per member, ``[members, P]``."""
    return layers.concatenated(params, shapes(spec, only))


def unpack(spec: Autoencoder, flat: Tensor, only: str = "") -> Params:
    """The inverse of `pack`: named views ``[members, …]``."""
    return layers.separated(flat, shapes(spec, only))


def size(spec: Autoencoder, only: str = "") -> int:
    """How many parameters these are."""
    return sum(math.prod(shape) for shape in shapes(spec, only).values())


def own_encoder(task: Task, memory: State) -> Tensor:
    """The sites' encoders ``[C, …]``; before a site's first round, what pre-training gave."""
    if "encoder" not in task.arrays:
        return memory["encoder"]
    known = memory["trained"].bool().reshape(-1, *[1] * (memory["encoder"].dim() - 1))
    return torch.where(known, memory["encoder"], task.arrays["encoder"])


def balance(schema: Schema) -> tuple[float, ...]:
    """The class proportions to draw: the declared ones, or equal."""
    return tuple(schema.balance or (1 / schema.n_classes,) * schema.n_classes)


def server_optimiser(name: str, own: VAEOptions, rounds: int) -> ServerOptimiser:
    """The server's optimiser as the options ask."""
    return ServerOptimiser(name, rounds, own.server, own.server_rate, own.momentum, own.average)


def decoder_release(
    schema: Schema, own: VAEOptions, spec: Autoencoder, decoder: Tensor
) -> Generator:
    """A generator of decoders ``[members, P]``."""
    sharpness = own.sharpness if schema.kind == "image" else 1.0
    config: dict[str, Any] = {"net": spec.to_config(), "width": schema.width}
    config["sharpness"] = sharpness
    return Generator("decoder", {"decoder": decoder}, config, balance(schema))


# The warm start.

_WARM_ROWS = 20_000
_KEPT = "warm/"  # prefix, in the state, of the warm start's own generator


def warm_start(study: Study, own: VAEOptions) -> FedMoments | None:
    """fedmoments for its share of the study's ε, in the study's unit and trust, or None."""
    if not own.warm_start:
        return None
    if study.privacy.epsilon is None:
        raise StudyError(
            "privacy.epsilon where recipe.warm_start takes a share of it",
            "none",
            "give epsilon instead of noise, or leave the warm start out",
        )
    unit, trust = study.privacy.unit or "site", study.privacy.trust or "central"  # as all VAEs here
    share = study.privacy.epsilon * own.warm_start
    privacy = replace(study.privacy, unit=unit, trust=trust, epsilon=share, clip=None)
    options: dict[str, Any] = {"coefficients": own.warm_coefficients}
    options |= {"spread": own.warm_spread}
    options |= {"contrast": own.warm_contrast}
    first = replace(study, privacy=privacy, cohort=Cohort(), options=options, rounds=None)
    return FedMoments.build(first)


def plan_of(first: FedMoments | None) -> PrivacyPlan | None:
    """The plan of a warm start, if there is one."""
    return None if first is None else first.plan


def keep_warm(made: Generator) -> State:
    """The warm start's generator as named tensors, to be released beside the decoder."""
    plain = json.dumps({"kind": made.kind, "config": made.config}).encode()
    told = torch.tensor(list(plain), dtype=torch.uint8)
    return {_KEPT + "told": told, **{_KEPT + n: a for n, a in made.arrays.items()}}


def mix_warm(decoder: Generator, state: State, own: VAEOptions) -> Generator:
    """The released generator: after a warm start, a mixture of both phases'."""
    if _KEPT + "told" not in state or not own.warm_share:
        return decoder
    arrays = {n.removeprefix(_KEPT): a for n, a in state.items() if n.startswith(_KEPT)}
    told = json.loads(bytes(arrays.pop("told").tolist()))
    warm = Generator(told["kind"], arrays, told["config"], decoder.balance)
    return decoder.mixed(warm, own.warm_share)


def warm_rows(made: Generator, schema: Schema, *, rng: Streams) -> tuple[Tensor, Tensor]:
    """Samples of the warm start's generator, in the proportions to be released."""
    labels = rng.numpy("warm labels").choice(schema.n_classes, _WARM_ROWS, p=balance(schema))
    return made.sample(labels, rng=rng.child("warm rows")), torch.from_numpy(labels)


PUBLIC_NOTE = "the nets were pre-trained on rows that the study declares public: not protected"


class DeclaresPublic(Protocol):
    """Options that may name a file of public rows."""

    @property
    def public(self) -> str:
        """Its path, or nothing."""


def public_notes(study: Study, own: DeclaresPublic) -> tuple[str, ...]:
    """What a claim says of public rows; reads them, so that none is missed once ε is spent."""
    if not own.public:
        return ()
    _refuse_private(study, own.public)
    public_rows(study.base, own, study.schema)
    return (PUBLIC_NOTE,)


def _refuse_private(study: Study, public: str) -> None:
    """Refuse a file of "public" rows that is a site's own."""
    private = [site.data for site in study.sites]
    private += [study.simulation.data] if study.simulation else []
    if (study.base / public).resolve() in [(study.base / path).resolve() for path in private]:
        raise StudyError(
            "a file of public rows that no site holds",
            "recipe.public names a site's own rows",
            "pre-train on other rows, or leave it out",
        )


def public_rows(base: Path, own: DeclaresPublic, schema: Schema) -> tuple[Tensor, Tensor] | None:
    """The rows that the study (in the folder ``base``) declares public, if any."""
    if not own.public:
        return None
    rows = encode(schema, read(base / own.public, schema))
    if not len(rows):
        raise StudyError("public rows to pre-train on", "none in recipe.public", "correct it")
    return torch.from_numpy(rows.x), torch.from_numpy(rows.y)


def steps_on(y: Tensor, steps: int, *, members: int = 1, rng: Streams) -> batches.Batches:
    """Batches of rows with these labels, for one member, or by class for one member each."""
    order = torch.argsort(y, stable=True)
    counts = torch.bincount(y, minlength=members) if members > 1 else torch.tensor([len(y)])
    rows = batches.Holdings(order.numpy(), (counts.cumsum(0) - counts).numpy(), counts.numpy())
    return batches.steps(rows, steps, 64, rng=rng.draws("batches"))


def fit_vae(
    spec: Autoencoder,
    rows: tuple[Tensor, Tensor],
    own: VAEOptions,
    *,
    members: int = 1,
    rng: Streams,
) -> Params:
    """Train ``members`` VAEs ``[members, …]`` on rows that cost nothing: samples, public rows.

    With several members each sees the rows of its class.
    """
    x, y = rows
    start = layers.stack(init(spec, rng=rng.torch("net")), members)
    plan = steps_on(y, own.warm_steps, members=members, rng=rng)

    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        rows = (batch.x, batch.y, batch.weight)
        return vae_loss(spec, params, *rows, beta=own.beta, draw=batch.normal(spec.latent))

    return train(start, loss, x, y, plan, Adam(1e-3), rng=rng.draws("losses"))[0]
