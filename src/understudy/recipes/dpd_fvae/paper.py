"""L-DPD-fVAE as published (Pfitzner & Arnrich 2022, Algorithm 2): it protects no record.

Decoder gradients are clipped record by record and noised, but they pass through an encoder
that is trained on all the site's rows without noise: one record moves the clipped gradient of
every other. So the claim says "record level not established" and gives no ε for it. What does
hold is a statement about whole sites: a batch of B clipped gradients is at most B·S long, so
noise of z·S is a multiplier of z/B for the site, however small that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.errors import PrivacyError
from understudy.federation.planning import Terms, noised_plan
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site, clipping
from understudy.nets.autoencoder import DECODER, ENCODER
from understudy.privacy.clip import clip
from understudy.recipes import vae
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.dpd_fvae.records import check
from understudy.recipes.shared_vae import SharedVAE
from understudy.recipes.vae_options import DpdFVAEOptions
from understudy.rng import Draws
from understudy.study import Study, Training
from understudy.training import batches
from understudy.training.dpsgd import RecordBatch, clipped_gradients

__all__ = ["PaperDpdFVAE", "paper_level"]

_BATCH, _CLIP = 20, 0.1  # Table 3, MNIST, (10, 1e-5)
UNPROVEN = (
    "record level is not established: the encoder was trained on all rows without noise, and one "
    "record moves the gradients of all others through it"
)


@dataclass(frozen=True)
class PaperDpdFVAE(SharedVAE[DpdFVAEOptions]):
    """See the module's paragraph."""

    info = CATALOGUE["dpd_fvae"]

    def memory(self, site: str) -> State:
        """The encoder, from a public start."""
        return {"encoder": self.first_encoder()}

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Plain steps of the encoder, noised steps of the decoder."""
        data, shape = site.data, self.part.shape
        start = task.array("shared", shape).expand(len(site), -1)
        encoder, decoder = site.memory["encoder"].clone(), start.clone()
        limit, rate = clipping(self.part), self.training.rate or 1e-2
        size, latents = _batch(self.training), site.rng.child("latents")
        held, draws = batches.Holdings.of(data), site.rng.child("batches")
        for index in batches.steps(held, limit.steps, size, rng=draws).index:
            mean, clipped = self._gradients(encoder, decoder, self._batch(data, index, latents))
            encoder = encoder - rate * mean
            noised = site.step("shared", clip(clipped, limit.bound))
            decoder = decoder - rate * (noised / size).float()
        return {"shared": decoder - start}, {"encoder": encoder}

    def _batch(self, data: Shards, index: Tensor, rng: Draws) -> RecordBatch:
        """Drawn rows; those of a site without any count for nothing."""
        x, y = data.x, data.y
        if not len(x):  # nobody in the stack has a row: made-up ones, of weight zero
            x, y = x.new_zeros(1, x.shape[1]), y.new_zeros(1)
        held = (data.counts > 0).float()[:, None].expand(index.shape)
        noise = torch.from_numpy(rng.normal((index.shape[1], self.spec.latent))).float()
        return RecordBatch(x[index], y[index], held, noise)

    def _gradients(
        self, encoder: Tensor, decoder: Tensor, batch: RecordBatch
    ) -> tuple[Tensor, Tensor]:
        """The encoder's mean gradient, and the decoder's sum of clipped record gradients."""
        spec, size = self.spec, batch.x.shape[1]
        free = {n: p.requires_grad_() for n, p in vae.unpack(spec, encoder, ENCODER).items()}
        params = {**free, **vae.unpack(spec, decoder, DECODER)}
        total = (self.record_losses(params, batch) * batch.real).sum() / size
        mean = dict(zip(free, torch.autograd.grad(total, list(free.values())), strict=True))
        bound = clipping(self.part).bound / size
        clipped = clipped_gradients(self.record_losses, params, iter([batch]), bound, only=DECODER)
        return vae.pack(spec, mean, ENCODER), clipped.value


def _batch(training: Training) -> int:
    return training.batch or _BATCH


def paper_level(study: Study, own: DpdFVAEOptions) -> Recipe:
    """Algorithm 2 as published; a study may ask it for noise, but for no record-level ε."""
    if study.privacy.epsilon is not None or own.warm_start or own.public:
        raise PrivacyError(
            'privacy.noise, and no warm start or public rows, with encoder = "paper"',
            "an ε, a warm start or public rows",
            'give noise (the paper: 1.2); for an ε that holds use encoder = "private" or "frozen"',
        )
    unit, trust = study.privacy.unit, study.privacy.trust or PaperDpdFVAE.info.default[1]
    if unit != "record" or trust not in ("local", "none"):
        raise PrivacyError(
            'unit "record" and trust "local" with encoder = "paper": its sites noise every step',
            f"{unit}/{trust}",
            'set privacy.trust = "local"',
        )
    check(study, own)
    batch = _batch(study.training)
    bound = (study.privacy.clip or _CLIP) * batch
    noise = None if study.privacy.noise is None else study.privacy.noise / batch
    whole = replace(study.privacy, unit="site", clip=bound, noise=noise)
    spec = vae.autoencoder(study.schema, own)
    terms = Terms(bound=bound, where="step", steps=own.steps or 6)
    shapes = {"shared": (vae.size(spec, DECODER),)}
    plan = noised_plan(replace(study, privacy=whole), PaperDpdFVAE.info, shapes, terms)
    plan = replace(plan, unproven=UNPROVEN)
    return PaperDpdFVAE(study.schema, plan, own, study.training, study.base)
