"""L-DPD-fVAE (Pfitzner & Arnrich 2022, Algorithm 2) with a claim that holds for records.

Every step takes a secret batch, clips the gradient of each record as a whole and noises the
sum. Under local trust a site does so itself, ``steps`` times a round, and sends its change
(step slot); under central trust it sends the clipped sum of one step and the server noises
the sum over all sites (server slot). Rates and numbers of steps are public and the same at
every site, so neither tells how many rows a site has.

Two encoders are honest. ``private``: encoder and decoder gradients under one joint clip and
noise; both are shared, since what is noised may be seen. ``frozen``: one encoder for all
sites that never saw a private row without noise, trained on warm-start samples or public
rows, its latents normalised by class so that the prior fits; only the decoder is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.planning import Terms
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site, clipping
from understudy.nets import layers
from understudy.nets.autoencoder import (
    DECODER,
    ENCODER,
    Autoencoder,
    decode,
    encode,
    init,
    reconstruction,
)
from understudy.nets.layers import Params
from understudy.privacy.clip import Bounded
from understudy.recipes import shared_vae, vae, warm
from understudy.recipes.by_record import LEAST_SPREAD, SINGLE, batch_rate, refuse_epochs
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.public import Examples
from understudy.recipes.shared_vae import SharedVAE
from understudy.recipes.vae_options import DpdFVAEOptions
from understudy.rng import Streams
from understudy.study import Study
from understudy.training import optim
from understudy.training.dpsgd import (
    RecordBatch,
    RecordLoss,
    check_separable,
    clipped_gradients,
    pieces,
)
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam, Optimiser, Sgd

__all__ = ["RecordDpdFVAE", "record_level"]


@dataclass(frozen=True)
class RecordDpdFVAE(SharedVAE[DpdFVAEOptions]):
    """See the module's paragraph."""

    info = CATALOGUE["dpd_fvae"]

    def __post_init__(self) -> None:
        _check_separable(self)

    @cached_property
    def spec(self) -> Autoencoder:
        return _nets(self.schema, self.options)

    @property
    def shared(self) -> str:
        """Prefix of the parameters that are trained, noised and shared."""
        return _noised(self.options)

    @property
    def frozen(self) -> bool:
        """Whether the encoder was fixed before any private row was seen."""
        return self.options.encoder == "frozen"

    def pretrained(self, rows: Examples, rng: Streams) -> State:
        """Both nets, or the decoder alone behind an encoder that stays as it is."""
        params = warm.fit(self.spec, rows, self.options, rng=rng)
        if not self.frozen:
            return self.start(params)
        fixed = self._normalised(params, *rows, rng)
        return {**self.start(self._refit(params, fixed, rows, rng)), **fixed}

    @torch.no_grad()
    def _normalised(self, params: Params, x: Tensor, y: Tensor, rng: Streams) -> State:
        """The frozen encoder, and where its latents lie for each class: the public rule."""
        mean, spread = encode(self.spec, params, x[None], y[None])
        draw = torch.randn(mean.shape, generator=rng.torch("latents"))
        z = (mean + torch.exp(spread / 2) * draw)[0]
        inside = [z[y == k] if bool((y == k).any()) else z for k in range(self.schema.n_classes)]
        return {
            "encoder": self.kept(params),
            "centre": torch.stack([own.mean(0) for own in inside]),
            "scale": torch.stack([own.std(0).clamp(min=1e-3) for own in inside]),
        }

    def _refit(self, params: Params, frozen: State, rows: Examples, rng: Streams) -> Params:
        """Let the decoder learn the normalised latents, on the same rows."""
        plan = warm.steps_on(rows[1], self.options.warm_steps, rng=rng.child("refit"))

        def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
            draw = batch.normal(self.spec.latent)
            records = RecordBatch(batch.x, batch.y, batch.weight, draw)
            return (batch.weight * self._frozen_losses(params, records, frozen)).sum(1)

        decoder = {name: params[name] for name in vae.shapes(self.spec, DECODER)}
        return train(decoder, loss, rows, plan, Adam(1e-3), rng=rng.draws("refit"))[0]

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """One clipped sum for the server to noise, or steps that are noised here."""
        sent = self._sent(task)
        start = sent["shared"].expand(len(site), -1)
        if self.part.where != "step":
            return {"shared": self._clipped_sum(sent, start, site)}, {}
        moved = {"shared": start.clone()}
        move = optim.stepper(self._optimiser, moved, optim.start(self._optimiser, moved))
        for _ in range(self.part.mechanism.steps):
            bounded = self._clipped_sum(sent, moved["shared"], site)
            move([(site.step("shared", bounded) / self.batch).float()])
        return {"shared": moved["shared"] - start}, {}

    def _sent(self, task: Task) -> State:
        """What the server sent, in its public shapes: only sites with rows look at all of it."""
        shapes = {"shared": self.part.shape}
        if self.frozen:
            latents = (self.schema.n_classes, self.spec.latent)
            shapes |= {"encoder": (vae.size(self.spec, ENCODER),)}
            shapes |= {"centre": latents, "scale": latents}
        return {name: task.array(name, shape) for name, shape in shapes.items()}

    def _clipped_sum(self, sent: Mapping[str, Tensor], flat: Tensor, site: Site) -> Bounded:
        """Σ over a secret batch of each site's clipped record gradients ``[C, P]``."""
        data, members = site.data, site.sample("shared")
        noise = site.normals(members, self.spec.latent)
        batch = pieces(data.x, data.y, members, len(site), noise)
        params = vae.unpack(self.spec, flat, self.shared)
        bound = clipping(self.part).bound
        return clipped_gradients(self._loss(sent), params, batch, bound, only=self.shared)

    def _loss(self, sent: Mapping[str, Tensor]) -> RecordLoss:
        """One number per record, which no other record moves."""

        def frozen(params: Mapping[str, Tensor], r: RecordBatch) -> Tensor:
            return self._frozen_losses(params, r, sent)

        return frozen if self.frozen else self.record_losses

    def _frozen_losses(
        self, params: Mapping[str, Tensor], records: RecordBatch, frozen: Mapping[str, Tensor]
    ) -> Tensor:
        """Reconstruction from latents that no private row has shaped."""
        with torch.no_grad():
            encoder = vae.unpack(self.spec, frozen["encoder"][None], ENCODER)
            whole = {n: p.expand(len(records.x), *p.shape[1:]) for n, p in encoder.items()}
            mean, spread = encode(self.spec, whole, records.x, records.y)
            z = mean + torch.exp(spread / 2) * records.noise
            z = (z - frozen["centre"][records.y]) / frozen["scale"][records.y]
        return reconstruction(self.spec, decode(self.spec, params, z, records.y), records.x)

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """θ ← θ + server optimiser, on the mean change or minus the mean gradient."""
        mean = total["shared"]
        if self.part.where != "step":
            mean = -mean / (self.batch * self.plan.sites)
        return {**state, **self.server.step(state, mean)}

    @property
    def _optimiser(self) -> Optimiser:
        """Of a site; it sees only noised gradients."""
        if self.training.optimiser == "adam":
            return Adam(self.training.rate or 1e-3)
        return Sgd(self.training.rate or 1.0)


def _nets(schema: Schema, own: DpdFVAEOptions) -> Autoencoder:
    """No column is fitted so closely that rounding would decide where a gradient points."""
    return vae.autoencoder(schema, own, least_spread=LEAST_SPREAD)


def _noised(own: DpdFVAEOptions) -> str:
    return DECODER if own.encoder == "frozen" else ""


def record_level(study: Study, own: DpdFVAEOptions) -> Recipe:
    """Algorithm 2 for a study, with its warm start."""
    check(study, own)
    size = vae.size(_nets(study.schema, own), _noised(own))
    local = study.privacy.trust == "local"
    terms = Terms(
        bound=1.0,
        where="step" if local else None,
        steps=(own.steps or 1) if local else 1,
        combine="mean" if local else "sum",
        batch_rate=batch_rate(study),
    )
    part = {"shared": (size,)}
    return shared_vae.build(RecordDpdFVAE, study, own, part, terms, notes=(SINGLE,))


def check(study: Study, own: DpdFVAEOptions) -> None:
    """Refuse options that have no meaning where records are protected."""
    if own.share == "vae":
        raise StudyError(
            'recipe.share = "vae" where sites are protected',
            f"unit {study.privacy.unit}",
            "leave it out: at record level all that is noised is shared",
        )
    if own.encoder == "frozen" and not (warm.share(study, own) or own.public):
        raise StudyError(
            "recipe.warm_start or recipe.public, which a frozen encoder is trained on",
            "neither",
            'set warm_start = 0.3, say, or encoder = "private"',
        )
    refuse_epochs(study)


def _check_separable(recipe: RecordDpdFVAE) -> None:
    """Refuse a loss that couples records: try it on made-up ones."""
    spec, rng = recipe.spec, Streams.from_seed(0)
    params = layers.stack(init(spec, rng=rng.torch("net")), 1)
    x = torch.rand(1, 3, spec.features, generator=rng.torch("x"))
    draw = torch.randn(1, 3, spec.latent, generator=rng.torch("draw"))
    probe = RecordBatch(x, torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3), draw)
    frozen = {
        "encoder": vae.pack(spec, params, ENCODER)[0],
        "centre": torch.zeros(recipe.schema.n_classes, spec.latent),
        "scale": torch.ones(recipe.schema.n_classes, spec.latent),
    }
    check_separable(recipe._loss(frozen), params, probe)
