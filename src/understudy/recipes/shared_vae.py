"""A VAE of which sites share the decoder, or all of it: the server's side of FedVAE and DPD-fVAE.

The server holds the shared part, starts it at random or from pre-training, moves it by the noised
mean of the sites' changes and releases the average of the last decoders. What a site trains, keeps
and sends is the recipe's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from understudy.federation.phases import then
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import Recipe, State, Task
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder, init, record_losses, vae_loss
from understudy.nets.layers import Params
from understudy.recipes import public, vae, warm
from understudy.recipes.fedavg import Trained
from understudy.recipes.public import Examples
from understudy.recipes.vae_options import NetOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study
from understudy.training.dpsgd import RecordBatch
from understudy.training.loop import Batch
from understudy.training.server import ServerOptimiser

__all__ = ["SharedVAE", "build", "own_encoder"]

Options = TypeVar("Options", bound=NetOptions)
_BEGUN = ("encoder", "centre", "scale")  # an encoder, and where its latents lie if it is frozen


@dataclass(frozen=True)
class SharedVAE(Trained[Options]):
    """The plan's only part is what is shared; its name is also the name in the server's state."""

    @property
    def shared(self) -> str:
        """Prefix of the parameters that are synchronised."""
        return DECODER

    @property
    def members(self) -> int:
        """VAEs per site."""
        return 1

    @cached_property
    def spec(self) -> Autoencoder:
        return vae.autoencoder(self.schema, self.options)

    @property
    def server(self) -> ServerOptimiser:
        """What the server does with the noised mean."""
        phase = self.plan.own
        return ServerOptimiser(phase.parts[0].name, phase.rounds, *self.options.rule)

    def init(self, *, rng: Streams) -> State:
        """A public start, the same for all members; pre-trained where there are public rows."""
        if (rows := public.rows(self.base, self.options, self.schema)) is not None:
            return self.pretrained(rows, rng)
        return self.start(layers.stack(init(self.spec, rng=rng.torch("net")), self.members))

    def begin(self, made: Generator, *, rng: Streams) -> State:
        """After a warm start: nets that were trained on its samples."""
        rows = warm.rows(made, self.schema, rng=rng)
        return {**self.pretrained(rows, rng), **warm.keep(made)}

    def pretrained(self, rows: Examples, rng: Streams) -> State:
        """The state after training on rows that cost nothing; sites begin with this encoder."""
        params = warm.fit(self.spec, rows, self.options, members=self.members, rng=rng)
        encoder = {"encoder": self.kept(params)} if self.shared else {}
        return {**self.start(params), **encoder}

    def start(self, params: Params) -> State:
        """The server's state before the first round."""
        packed = vae.pack(self.spec, params, self.shared)
        return self.server.start(packed.reshape(self.part.shape))

    def kept(self, params: Params) -> Tensor:
        """The encoders of one site, shaped as the part is."""
        packed = vae.pack(self.spec, params, ENCODER)
        return packed.reshape(*self.part.shape[:-1], -1)

    def first_encoder(self) -> Tensor:
        """What a site keeps before its first round: drawn from a public seed."""
        params = init(self.spec, rng=Streams.from_seed(0).torch("encoder"))
        return self.kept(layers.stack(params, self.members))

    def task(self, state: State, round: int) -> Task:
        """What is shared; after pre-training also what sites begin with, or keep as it is."""
        return Task({name: state[name] for name in (self.part.name, *_BEGUN) if name in state})

    def loss(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The VAE's, for each member ``[C]``."""
        rows = (batch.x, batch.y, batch.weight)
        draw = batch.normal(self.spec.latent)
        return vae_loss(self.spec, params, *rows, beta=self.options.beta, draw=draw)

    def record_losses(self, params: Mapping[str, Tensor], records: RecordBatch) -> Tensor:
        """One number per record, which no other record moves."""
        terms = (records.x, records.y, records.noise)
        return record_losses(self.spec, params, *terms, beta=self.options.beta)

    @property
    def batch(self) -> float:
        """Records that a member's batch is expected to hold, classes alike: by public numbers."""
        rate = self.part.mechanism.rate or 1.0
        return rate * self.schema.records / self.plan.sites / self.members

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + optimiser(noised mean); remember the average of the last rounds."""
        return {**state, **self.server.step(state, total[self.server.name])}

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The average of the last decoders: post-processing, so free."""
        packed = self.server.released(state).reshape(self.members, -1)
        decoder = vae.pack(self.spec, vae.unpack(self.spec, packed, self.shared), DECODER)
        sharpness = self.options.sharpness if self.schema.kind == "image" else 1.0
        shares = warm.balance(state, self.schema)
        made = vae.decoder_release(self.schema, self.spec, decoder, shares, sharpness)
        return warm.mix(made, state, self.options)


def build(
    kind: type[SharedVAE[Any]],
    study: Study,
    own: NetOptions,
    part: Mapping[str, tuple[int, ...]],
    terms: Terms,
    *,
    notes: tuple[str, ...] = (),
) -> Recipe:
    """The recipe of a study that shares this ``part``, after its warm start if it has one."""
    first, said = warm.start(study, own), (*notes, *public.notes(study, own))
    before = None if first is None else first.plan
    plan = noised_plan(study, kind.info, part, terms, before=before, notes=said)
    recipe: Any = kind(study.schema, plan, own, study.training, study.base)
    return recipe if first is None else then(first, recipe)


def own_encoder(task: Task, memory: State) -> Tensor:
    """The sites' encoders ``[C, …]``; before a site's first round, what pre-training gave."""
    own = memory["encoder"]
    if "encoder" not in task.arrays:
        return own
    known = memory["trained"].bool().reshape(-1, *[1] * (own.dim() - 1))
    return torch.where(known, own, task.array("encoder", tuple(own.shape[1:])))
