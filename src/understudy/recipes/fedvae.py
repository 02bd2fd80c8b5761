"""FedVAE: federated variational autoencoders (Margaritis 2021, §4.4), four variants.

Only decoders travel; every site keeps its encoder for ever. ``classes = "joint"`` trains one
conditional VAE whose decoder sees the label, ``"separate"`` one VAE per class. Trust is
central (the server noises the sum of clipped updates) or local (each site noises its own).
The protected unit is the site.

Corrections to the thesis: cohorts are drawn by coin flips, since its fixed-size draws do
not earn the amplification it accounts for; local noise composes without amplification and
at doubled sensitivity; "secure aggregation + noise at the server" is trusted-server privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from understudy.data.encode import blocks
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.recipe import RecipeInfo, State, Task, make_plan
from understudy.federation.slots import Private
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder, init, vae_loss
from understudy.privacy.clip import clip
from understudy.privacy.plan import PrivacyPlan
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study, Training, options, setting
from understudy.training import batches
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam, Optimiser, Sgd

__all__ = ["FedVAE", "FedVAEOptions"]

_SQUARE_DECAY = 0.99  # of the server's Adam


@dataclass(frozen=True)
class FedVAEOptions:
    """``[recipe]`` of a FedVAE study."""

    classes: Literal["joint", "separate"] = setting(
        "joint", "one conditional VAE, or one per class"
    )
    net: Literal["dense", "conv"] = setting("dense", "dense, or the thesis's convolutions")
    latent: int = setting(16, "dimensions of the latent space")
    widths: tuple[int, ...] = setting((128,), "hidden layers of the encoder")
    decoder_widths: tuple[int, ...] = setting((128,), "hidden layers of the shared decoder")
    cosines: int | None = setting(
        None, "lowest frequencies that dense nets see: 12 per image side, 64 of a series; 0: all"
    )
    steps: int = setting(6, "local steps per round, the same at every site (if no epochs)")
    beta: float = setting(1.0, "weight of the KL term")
    weights: Literal["equal", "rows"] = setting(
        "equal", "of sites; rows: one with less than its share of a class counts less"
    )
    server: Literal["adam", "sgd"] = setting("adam", "server optimiser on the noised mean")
    server_rate: float = setting(0.016, "its rate at the start; falls along a cosine")
    momentum: float = setting(0.9, "its momentum")
    average: float = setting(0.2, "share of the last rounds whose decoders are averaged")
    sharpness: float = setting(2.0, "contrast of released images: the logits are multiplied by it")


@dataclass(frozen=True)
class FedVAE:
    """See the module's paragraph; the methods follow Algorithms 4–7."""

    schema: Schema
    plan: PrivacyPlan
    options: FedVAEOptions
    training: Training

    info: ClassVar[RecipeInfo] = RecipeInfo(
        name="fedvae",
        title="Federated variational autoencoders, joint or separate, central or local",
        paper="Margaritis 2021, Federated learning with differential privacy, §4.4",
        summary="Many rounds; decoders are averaged under noise, encoders stay at the sites.",
        kinds=("table", "image", "series"),
        supports=frozenset({("site", "central"), ("site", "local")}),
        default=("site", "central"),
        options=FedVAEOptions,
        rounds=400,
        corrections="Cohorts are coin flips (fixed-size draws earn no amplification); local noise "
        "composes at doubled sensitivity without amplification.",
    )

    @classmethod
    def build(cls, study: Study) -> FedVAE:
        """The recipe of a study; K decoders are clipped to S/√K each and make one event."""
        own = options(FedVAEOptions, study.options)
        shape = decoder_shape(study.schema, own)
        plan = make_plan(study, cls.info, {"decoder": shape}, bound=0.2, blocks=shape[0])
        return cls(study.schema, plan, own, study.training)

    @property
    def spec(self) -> Autoencoder:
        """Both nets."""
        return autoencoder(self.schema, self.options)

    @property
    def members(self) -> int:
        """VAEs per site."""
        return self.plan.parts[0].shape[0]

    def init(self, *, rng: Streams) -> State:
        """One public start for all classes; velocity and average of the server."""
        params = {n: p[None] for n, p in init(self.spec, rng=rng.torch("net")).items()}
        decoder = layers.flatten(self.spec.decoder, params, DECODER).repeat(self.members, 1)
        zeros = {n: torch.zeros_like(decoder) for n in ("velocity", "square", "average")}
        return {"decoder": decoder, **zeros, "round": torch.zeros(1), "averaged": torch.zeros(1)}

    def memory(self) -> State:
        """An encoder per VAE, from a public start."""
        params = init(self.spec, rng=Streams.from_seed(0).torch("encoder"))
        flat = layers.flatten(self.spec.encoder, {n: p[None] for n, p in params.items()}, ENCODER)
        return {"encoder": flat.repeat(self.members, 1)}

    def task(self, state: State, round: int) -> Task:
        """Only decoders are sent."""
        return Task({"decoder": state["decoder"]})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Streams
    ) -> tuple[dict[str, Tensor], State]:
        """Train encoder and decoder on the site's rows; send the decoder's change."""
        spec, sites = self.spec, len(data)
        start = task.arrays["decoder"].repeat(sites, 1)
        params = {
            **layers.unflatten(spec.encoder, memory["encoder"].flatten(0, 1), ENCODER),
            **layers.unflatten(spec.decoder, start, DECODER),
        }
        trained, _ = train(
            params, self._loss, data.x, data.y, self._batches(data, rng), self._optimiser, rng=rng
        )
        change = layers.flatten(spec.decoder, trained, DECODER) - start
        kept = layers.flatten(spec.encoder, trained, ENCODER)
        shape = (sites, self.members, -1)
        update = self._weighted(change.reshape(shape), data)
        return {"decoder": update}, {"encoder": kept.reshape(shape)}

    def _weighted(self, change: Tensor, data: Shards) -> Tensor:
        """Clip, then shrink by rows held over the public share: the bound holds all the more."""
        if self.options.weights == "equal":
            return change
        part = self.plan.parts[0]
        held = torch.from_numpy(self._rows(data).counts).reshape(len(data), self.members)
        share = torch.tensor(self._balance) * self.schema.records / self.plan.sites
        share = share if self.members > 1 else share.sum()
        weight = (held / share).clamp(max=1.0).float()
        return clip(change, part.bound, part.blocks).value * weight.unsqueeze(-1)

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + optimiser(noised mean); remember the average of the last rounds."""
        own, mean, done = self.options, total["decoder"], float(state["round"]) + 1
        velocity = own.momentum * state["velocity"] + (1 - own.momentum) * mean
        square = _SQUARE_DECAY * state["square"] + (1 - _SQUARE_DECAY) * mean.square()
        move = velocity / (1 - own.momentum**done)
        if own.server == "adam":
            move = move / ((square / (1 - _SQUARE_DECAY**done)).sqrt() + 1e-6)
        decoder = state["decoder"] + own.server_rate * _decay((done - 1) / self.plan.rounds) * move
        late = done > self.plan.rounds * (1 - self.options.average)
        return {
            "decoder": decoder,
            "velocity": velocity,
            "square": square,
            "average": state["average"] + decoder * late,
            "averaged": state["averaged"] + late,
            "round": torch.tensor([done]),
        }

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The average of the last decoders: post-processing, so free."""
        count = float(state["averaged"])
        decoder = state["average"] / count if count else state["decoder"]
        sharpness = self.options.sharpness if self.schema.kind == "image" else 1.0
        config = {
            "net": self.spec.to_config(),
            "width": self.schema.width,
            "sharpness": sharpness,
        }
        return Generator("decoder", {"decoder": decoder}, config, self._balance)

    @property
    def _balance(self) -> tuple[float, ...]:
        classes = self.schema.n_classes
        return tuple(self.schema.balance or (1 / classes,) * classes)

    @property
    def _optimiser(self) -> Optimiser:
        rate = self.training.rate or 1e-3
        return Sgd(rate) if self.training.optimiser == "sgd" else Adam(rate)

    def _rows(self, data: Shards) -> batches.Rows:
        """One member of the stack per VAE: records go to the VAE of their class."""
        if self.options.classes == "separate":
            return batches.by_class(data, self.members)
        return batches.Rows.of(data)

    def _batches(self, data: Shards, rng: Streams) -> batches.Batches:
        rows = self._rows(data)
        size, draw = self.training.batch or 32, rng.numpy("batches")
        if self.training.epochs:
            return batches.epochs(rows, self.training.epochs, size, rng=draw)
        return batches.steps(rows, self.options.steps, size, rng=draw)

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return vae_loss(
            self.spec, params, batch.x, batch.y, batch.weight,
            beta=self.options.beta, noise=batch.noise,
        )  # fmt: skip


def decoder_shape(schema: Schema, own: FedVAEOptions) -> tuple[int, int]:
    """(VAEs per site, parameters of one decoder)."""
    members = schema.n_classes if own.classes == "separate" else 1
    return members, layers.size(autoencoder(schema, own).decoder)


def autoencoder(schema: Schema, own: FedVAEOptions) -> Autoencoder:
    """The public nets for a schema: fewer shared parameters mean less noise in all."""
    joint = own.classes == "joint"
    return Autoencoder(
        features=schema.width,
        latent=own.latent,
        labels=schema.n_classes if joint else 0,
        product=joint and own.net == "dense",
        widths=own.widths,
        decoder_widths=own.decoder_widths,
        net=own.net,
        shape=schema.shape,
        cosines=_frequencies(schema, own) if own.net == "dense" else (),
        loss="bce" if schema.kind == "image" else "gaussian",
        numeric=_numbers(schema),
    )


def _frequencies(schema: Schema, own: FedVAEOptions) -> tuple[int, ...]:
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


def _decay(progress: float) -> float:
    """From 1 to 0.05 along a cosine."""
    return 0.05 + 0.475 * (1 + math.cos(math.pi * progress))
