"""SGDE's generators (Lomurno et al. 2021, §III and IV.E): a β-VAE per class, trained by DP-Adam.

A member of an exchange trains alone, in a study with one site and one round, and pushes the
decoders that come out. Every step takes a secret batch, clips the gradient of each record as a
whole and noises the sums of all classes: encoders and decoders are both under the noise.
Decoders are released, and classes are drawn in equal shares. Several sites that run it in one study
start every round from the mean of their VAEs.

Correction: the paper gives each class an ε of its own, with batches of n_c records. Here a record's
gradient lies in the block of its class, so all classes side by side are one noised value with
the sensitivity of one record, and nothing is added up. That needs public classes, one public rate
and number of steps, and every class noised in every step, with rows or without: B/n_c would tell
n_c, a missing generator an empty class. It holds for a record that is added or removed; one that
is replaced may leave one class and enter another, and moves no more than two records. A person's
rows may lie in several classes: they are bounded together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.federation.planning import Terms, unit_and_trust
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site, clipping
from understudy.nets.autoencoder import Autoencoder
from understudy.privacy.clip import Bounded
from understudy.recipes import shared_vae, vae
from understudy.recipes.by_record import LEAST_SPREAD, SINGLE, batch_rate, refuse_epochs
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.shared_vae import SharedVAE
from understudy.recipes.vae_options import SGDEOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study
from understudy.training import optim
from understudy.training.dpsgd import clipped_gradients, of_sites, pieces
from understudy.training.optim import Adam, Optimiser, Sgd

__all__ = ["SGDE", "build"]

_CLASSES = (
    "one VAE per class under one clip and one noise: a row moves the VAE of its class alone, so "
    "classes are not added up; the list of classes, the rate of batches and the number of steps "
    "are public, and a class without rows is noised like any other"
)


@dataclass(frozen=True)
class SGDE(SharedVAE[SGDEOptions]):
    """See the module's paragraph."""

    info = CATALOGUE["sgde"]

    @cached_property
    def spec(self) -> Autoencoder:
        return _nets(self.schema, self.options)

    @property
    def shared(self) -> str:
        """Encoders are noised as decoders are: what is sent is the whole VAE."""
        return ""

    @property
    def members(self) -> int:
        """A VAE per class of the schema."""
        return self.schema.n_classes

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Noised steps of all classes at once; the change to the mean of the last ones."""
        mechanism = clipping(self.part)
        start = task.array("vaes", self.part.shape).expand(len(site), -1, -1)
        moved, late = {"vaes": start.clone()}, torch.zeros_like(start)
        move = optim.stepper(self._optimiser, moved, optim.start(self._optimiser, moved))
        averaged = max(1, round(self.options.average * mechanism.steps))
        for step in range(mechanism.steps):
            noised = site.step("vaes", self._clipped_sum(moved["vaes"], site))
            move([(noised / self.batch).float()])
            if step >= mechanism.steps - averaged:
                late += moved["vaes"]
        return {"vaes": late / averaged - start}, {}

    def _clipped_sum(self, flat: Tensor, site: Site) -> Bounded:
        """Σ over a secret batch of clipped record gradients, by class: ``[C, K, P]``.

        Guarantee: a record is in one block, so it moves all of them together by its bound.
        """
        members, classes = site.sample("vaes"), self.members
        noise = site.normals(members, self.spec.latent)
        row = members[:, 1]
        member = members[:, 0] * classes + site.data.y[row]  # its VAE, in the stack of all
        order = torch.argsort(member, stable=True)
        drawn = torch.stack((member, row), dim=1)[order]
        batch = pieces(site.data.x, site.data.y, drawn, len(site) * classes, noise[order])
        mechanism = clipping(self.part)
        params, bound = vae.unpack(self.spec, flat.flatten(0, 1)), mechanism.bound / mechanism.rows
        total = clipped_gradients(self.record_losses, params, batch, bound)
        return of_sites(total, classes, mechanism.rows, self.plan.unit)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        """The decoders; every class is drawn as often as the others."""
        equal = (1 / self.members,) * self.members
        return replace(super().finish(state, rng=rng), balance=equal)

    @property
    def _optimiser(self) -> Optimiser:
        """DP-Adam: it sees only noised gradients."""
        rate = self.training.rate or 1e-2
        return Sgd(rate) if self.training.optimiser == "sgd" else Adam(rate)


def _nets(schema: Schema, own: SGDEOptions) -> Autoencoder:
    """Table II: LeakyReLU for tables, Swish for images."""
    nets = vae.autoencoder(schema, own, joint=False, least_spread=LEAST_SPREAD)
    return replace(nets, activation="swish" if schema.kind == "image" else "leaky")


def build(study: Study, own: SGDEOptions) -> Recipe:
    """The recipe of a study, with its warm start."""
    refuse_epochs(study)
    unit, trust = unit_and_trust(study, SGDE.info)
    study = replace(study, privacy=replace(study.privacy, unit=unit, trust=trust))
    terms = Terms(bound=1.0, where="step", steps=own.steps, batch_rate=batch_rate(study))
    part = {"vaes": (study.schema.n_classes, vae.size(_nets(study.schema, own)))}
    return shared_vae.build(SGDE, study, own, part, terms, notes=(_CLASSES, SINGLE))
