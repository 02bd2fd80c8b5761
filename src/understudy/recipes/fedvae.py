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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.phases import Then, then
from understudy.federation.recipe import RecipeInfo, State, Task, make_plan
from understudy.federation.slots import Private
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder, init, vae_loss
from understudy.nets.layers import Params
from understudy.privacy.clip import clip
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import vae
from understudy.recipes.vae import VAEOptions
from understudy.release.generator import Generator
from understudy.rng import Draws, Streams
from understudy.study import Study, Training, options, setting
from understudy.training import batches
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam, Optimiser, Sgd
from understudy.training.server import ServerOptimiser

__all__ = ["FedVAE", "FedVAEOptions"]


@dataclass(frozen=True)
class FedVAEOptions(VAEOptions):
    """``[recipe]`` of a FedVAE study."""

    classes: Literal["joint", "separate"] = setting(
        "joint", "one conditional VAE, or one per class"
    )
    steps: int = setting(6, "local steps per round, the same at every site (if no epochs)")
    weights: Literal["equal", "rows"] = setting(
        "equal", "of sites; rows: one with less than its share of a class counts less"
    )


@dataclass(frozen=True)
class FedVAE:
    """See the module's paragraph; the methods follow Algorithms 4–7."""

    schema: Schema
    plan: PrivacyPlan
    options: FedVAEOptions
    training: Training
    base: Path = Path()  # where the study file lies

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
    def build(cls, study: Study) -> FedVAE | Then:
        """The recipe of a study; K decoders are clipped to S/√K each and make one event."""
        own = options(FedVAEOptions, study.options)
        shape = decoder_shape(study.schema, own)
        first = vae.warm_start(study, own)
        notes = vae.public_notes(study, own)
        terms = dict(bound=0.2, blocks=shape[0], before=vae.plan_of(first), notes=notes)
        plan = make_plan(study, cls.info, {"decoder": shape}, **terms)
        recipe = cls(study.schema, plan, own, study.training, study.base)
        return recipe if first is None else then(first, recipe)

    @cached_property
    def spec(self) -> Autoencoder:
        """Both nets."""
        return autoencoder(self.schema, self.options)

    @property
    def members(self) -> int:
        """VAEs per site."""
        return self.plan.parts[0].shape[0]

    @property
    def server(self) -> ServerOptimiser:
        """What the server does with the noised mean."""
        return vae.server_optimiser("decoder", self.options, self.plan.rounds)

    def init(self, *, rng: Streams) -> State:
        """One public start for all classes, pre-trained where there are public rows."""
        if (rows := vae.public_rows(self.base, self.options, self.schema)) is not None:
            return self._pretrained(rows, rng)
        start = init(self.spec, rng=rng.torch("net"))
        return self._start(layers.stack(start, self.members))

    def begin(self, made: Generator, *, rng: Streams) -> State:
        """After a warm start: nets that were trained on its samples."""
        rows = vae.warm_rows(made, self.schema, rng=rng)
        return {**self._pretrained(rows, rng), **vae.keep_warm(made)}

    def _pretrained(self, rows: tuple[Tensor, Tensor], rng: Streams) -> State:
        params = vae.fit_vae(self.spec, rows, self.options, members=self.members, rng=rng)
        encoder = layers.flatten(self.spec.encoder, params, ENCODER)
        return {**self._start(params), "encoder": encoder}

    def _start(self, params: Params) -> State:
        return self.server.start(layers.flatten(self.spec.decoder, params, DECODER))

    def memory(self) -> State:
        """An encoder per VAE, from a public start; whether it has been trained here."""
        params = init(self.spec, rng=Streams.from_seed(0).torch("encoder"))
        flat = layers.flatten(self.spec.encoder, layers.stack(params, self.members), ENCODER)
        return {"encoder": flat, "trained": torch.zeros(1)}

    def task(self, state: State, round: int) -> Task:
        """Only decoders are sent; after a warm start, an encoder to begin with."""
        return Task({name: state[name] for name in ("decoder", "encoder") if name in state})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Draws
    ) -> tuple[dict[str, Tensor], State]:
        """Train encoder and decoder on the site's rows; send the decoder's change."""
        spec, sites = self.spec, len(data)
        start = task.arrays["decoder"].repeat(sites, 1)
        params = {
            **layers.unflatten(spec.encoder, vae.own_encoder(task, memory).flatten(0, 1), ENCODER),
            **layers.unflatten(spec.decoder, start, DECODER),
        }
        trained, _ = train(
            params, self._loss, data.x, data.y, self._batches(data, rng), self._optimiser, rng=rng
        )
        change = layers.flatten(spec.decoder, trained, DECODER) - start
        kept = layers.flatten(spec.encoder, trained, ENCODER)
        shape = (sites, self.members, -1)
        update = self._weighted(change.reshape(shape), data)
        trained_here = torch.ones_like(memory["trained"])
        return {"decoder": update}, {"encoder": kept.reshape(shape), "trained": trained_here}

    def _weighted(self, change: Tensor, data: Shards) -> Tensor:
        """Clip, then shrink by rows held over the public share: the bound holds all the more."""
        if self.options.weights == "equal":
            return change
        part = self.plan.parts[0]
        held = torch.from_numpy(self._rows(data).counts).reshape(len(data), self.members)
        share = torch.tensor(vae.balance(self.schema)) * self.schema.records / self.plan.sites
        share = share if self.members > 1 else share.sum()
        weight = (held / share).clamp(max=1.0).float()
        return clip(change, part.bound, part.blocks).value * weight.unsqueeze(-1)

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + optimiser(noised mean); remember the average of the last rounds."""
        return {**state, **self.server.step(state, total["decoder"])}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The average of the last decoders: post-processing, so free."""
        decoder = self.server.released(state)
        made = vae.decoder_release(self.schema, self.options, self.spec, decoder)
        return vae.mix_warm(made, state, self.options)

    @property
    def _optimiser(self) -> Optimiser:
        rate = self.training.rate or 1e-3
        return Sgd(rate) if self.training.optimiser == "sgd" else Adam(rate)

    def _rows(self, data: Shards) -> batches.Holdings:
        """One member of the stack per VAE: records go to the VAE of their class."""
        if self.options.classes == "separate":
            return batches.by_class(data, self.members)
        return batches.Holdings.of(data)

    def _batches(self, data: Shards, rng: Draws) -> batches.Batches:
        rows = self._rows(data)
        size, draw = self.training.batch or 32, rng.child("batches")
        if self.training.epochs:
            return batches.epochs(rows, self.training.epochs, size, rng=draw)
        return batches.steps(rows, self.options.steps, size, rng=draw)

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return vae_loss(
            self.spec, params, batch.x, batch.y, batch.weight,
            beta=self.options.beta, draw=batch.normal(self.spec.latent),
        )  # fmt: skip


def decoder_shape(schema: Schema, own: FedVAEOptions) -> tuple[int, int]:
    """(VAEs per site, parameters of one decoder)."""
    members = schema.n_classes if own.classes == "separate" else 1
    return members, layers.size(autoencoder(schema, own).decoder)


def autoencoder(schema: Schema, own: FedVAEOptions) -> Autoencoder:
    """The public nets: conditional, or one pair per class."""
    return vae.autoencoder(schema, own, joint=own.classes == "joint")
