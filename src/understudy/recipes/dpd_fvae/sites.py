"""C-DPD-fVAE (Pfitzner & Arnrich 2022, Algorithm 1): whole sites are protected.

Each site trains its VAE, keeps the encoder and its Adam state, starts the decoder's optimiser
anew, and sends the decoder's change, clipped as a whole. With ``share = "vae"`` everything is
synchronised: the paper's vanilla fVAE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.phases import then
from understudy.federation.recipe import Recipe, RecipeInfo, State, Task, make_plan
from understudy.federation.slots import Private
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder, init, vae_loss
from understudy.nets.layers import Params
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import vae
from understudy.recipes.dpd_fvae.options import INFO, DpdFVAEOptions
from understudy.release.generator import Generator
from understudy.rng import Draws, Streams
from understudy.study import Study, Training
from understudy.training import batches, optim
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam, Optimiser, Sgd
from understudy.training.server import ServerOptimiser

__all__ = ["ClientDpdFVAE", "client_level"]


@dataclass(frozen=True)
class ClientDpdFVAE:
    """C-DPD-fVAE, Algorithm 1."""

    schema: Schema
    plan: PrivacyPlan
    options: DpdFVAEOptions
    training: Training
    base: Path

    info: ClassVar[RecipeInfo] = INFO

    @cached_property
    def spec(self) -> Autoencoder:
        """Both nets."""
        return vae.autoencoder(self.schema, self.options)

    @property
    def shared(self) -> str:
        """Prefix of the parameters that are synchronised."""
        return _shared(self.options)

    @property
    def server(self) -> ServerOptimiser:
        """What the server does with the noised mean."""
        return vae.server_optimiser("shared", self.options, self.plan.rounds)

    def init(self, *, rng: Streams) -> State:
        """A public start, pre-trained where there are public rows."""
        if (rows := vae.public_rows(self.base, self.options, self.schema)) is not None:
            return self._start(vae.fit_vae(self.spec, rows, self.options, rng=rng))
        params = layers.stack(init(self.spec, rng=rng.torch("net")), 1)
        return self.server.start(vae.pack(self.spec, params, self.shared)[0])

    def begin(self, made: Generator, *, rng: Streams) -> State:
        """After a warm start: nets that were trained on its samples."""
        rows = vae.warm_rows(made, self.schema, rng=rng)
        start = self._start(vae.fit_vae(self.spec, rows, self.options, rng=rng))
        return {**start, **vae.keep_warm(made)}

    def _start(self, params: Params) -> State:
        encoder = vae.pack(self.spec, params, ENCODER)[0]
        return {
            **self.server.start(vae.pack(self.spec, params, self.shared)[0]),
            **({"encoder": encoder} if self.shared else {}),
        }

    def memory(self) -> State:
        """The encoder and its optimiser's state; whether it has been trained here."""
        if not self.shared:
            return {}
        start = init(self.spec, rng=Streams.from_seed(0).torch("encoder"))
        encoder = vae.pack(self.spec, layers.stack(start, 1), ENCODER)[0]
        kept = {slot: torch.zeros_like(encoder) for slot in optim.slots(self.optimiser)}
        kept |= {optim.STEPS: torch.zeros(1)} if optim.STEPS in kept else {}
        return {"encoder": encoder, "trained": torch.zeros(1), **kept}

    def task(self, state: State, round: int) -> Task:
        """What is synchronised; after pre-training, an encoder to begin with."""
        return Task({name: state[name] for name in ("shared", "encoder") if name in state})

    def local(
        self, task: Task, memory: State, data: Shards, private: Private, *, rng: Draws
    ) -> tuple[dict[str, Tensor], State]:
        """Train the whole VAE on the site's rows; send the change of what is shared."""
        spec, start = self.spec, task.arrays["shared"].expand(len(data), -1)
        own = vae.unpack(spec, vae.own_encoder(task, memory), ENCODER) if memory else {}
        params = {**own, **vae.unpack(spec, start, self.shared)}
        state = self._optimiser_state(params, memory)
        trained, kept = train(
            params, self._loss, data.x, data.y, self._batches(data, rng), self.optimiser, state,
            rng=rng,
        )  # fmt: skip
        change = vae.pack(spec, trained, self.shared) - start
        return {"shared": change}, self._remembered(trained, kept, memory)

    def _optimiser_state(self, params: Params, memory: State) -> Params:
        """A fresh start for what is shared; the encoder's moments and count go on."""
        state = optim.start(self.optimiser, params)
        for slot in optim.slots(self.optimiser) if memory else ():
            held = memory[slot]
            names = vae.shapes(self.spec, ENCODER)
            own = (
                dict.fromkeys(names, held[:, 0])
                if slot == optim.STEPS
                else vae.unpack(self.spec, held, ENCODER)
            )
            state |= {f"{slot}.{name}": own[name] for name in names}
        return state

    def _remembered(self, params: Params, state: Params, memory: State) -> State:
        """Encoder, optimiser state, and that the site has trained."""
        if not memory:
            return {}
        kept = {"encoder": vae.pack(self.spec, params, ENCODER)}
        names = list(vae.shapes(self.spec, ENCODER))
        for slot in optim.slots(self.optimiser):
            own = {name: state[f"{slot}.{name}"] for name in names}
            count = own[names[0]].reshape(-1, 1)
            kept[slot] = count if slot == optim.STEPS else vae.pack(self.spec, own, ENCODER)
        return {**kept, "trained": torch.ones_like(memory["trained"])}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + server optimiser on the noised mean."""
        return {**state, **self.server.step(state, total["shared"])}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The average of the last decoders: post-processing, so free."""
        params = vae.unpack(self.spec, self.server.released(state)[None], self.shared)
        decoder = vae.pack(self.spec, params, DECODER)
        made = vae.decoder_release(self.schema, self.options, self.spec, decoder)
        return vae.mix_warm(made, state, self.options)

    @property
    def optimiser(self) -> Optimiser:
        """The sites' own."""
        rate = self.training.rate or 1e-3
        return Sgd(rate) if self.training.optimiser == "sgd" else Adam(rate)

    def _batches(self, data: Shards, rng: Draws) -> batches.Batches:
        rows, draw = batches.Holdings.of(data), rng.child("batches")
        size = self.training.batch or 32
        if self.training.epochs:
            return batches.epochs(rows, self.training.epochs, size, rng=draw)
        return batches.steps(rows, self.options.steps or 6, size, rng=draw)

    def _loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        rows, draw = (batch.x, batch.y, batch.weight), batch.normal(self.spec.latent)
        return vae_loss(self.spec, params, *rows, beta=self.options.beta, draw=draw)


def _shared(own: DpdFVAEOptions) -> str:
    return DECODER if own.share == "decoder" else ""


def client_level(study: Study, own: DpdFVAEOptions) -> Recipe:
    """Algorithm 1 for a study, with its warm start."""
    first = vae.warm_start(study, own)
    shape = (vae.size(vae.autoencoder(study.schema, own), _shared(own)),)
    terms = dict(bound=0.2, before=vae.plan_of(first), notes=vae.public_notes(study, own))
    plan = make_plan(study, INFO, {"shared": shape}, **terms)
    recipe = ClientDpdFVAE(study.schema, plan, own, study.training, study.base)
    return recipe if first is None else then(first, recipe)
