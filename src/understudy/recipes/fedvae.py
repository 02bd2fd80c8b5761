"""FedVAE: federated variational autoencoders (Margaritis 2021, §4.4), four variants.

Only decoders travel; encoders never leave their sites. ``classes = "joint"`` trains one
conditional VAE whose decoder sees the label, ``"separate"`` one VAE per class. Trust is
central (the server noises the sum of clipped updates) or local (each site noises its own).
The protected unit is the site.

Corrections to the thesis: cohorts are drawn by coin flips, since its fixed-size draws do
not earn the amplification it accounts for; local noise composes without amplification and
at doubled sensitivity; "secure aggregation + noise at the server" is trusted-server privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.federation.planning import Terms
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site
from understudy.nets import layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder
from understudy.recipes import shared_vae, vae
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.fedavg import Local
from understudy.recipes.shared_vae import SharedVAE, own_encoder
from understudy.recipes.vae_options import FedVAEOptions
from understudy.study import Study
from understudy.training import batches

__all__ = ["FedVAE", "build"]


@dataclass(frozen=True)
class FedVAE(SharedVAE[FedVAEOptions]):
    """See the module's paragraph; the methods follow Algorithms 4–7."""

    info = CATALOGUE["fedvae"]

    @cached_property
    def spec(self) -> Autoencoder:
        return autoencoder(self.schema, self.options)

    @property
    def members(self) -> int:
        return self.part.shape[0]

    @property
    def how(self) -> Local:
        return Local(self.training, self.options.steps)

    def memory(self, site: str) -> State:
        """An encoder per VAE, from a public start; whether it has been trained here."""
        return {"encoder": self.first_encoder(), "trained": torch.zeros(1)}

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Train encoder and decoder on the site's rows; send the decoder's change."""
        spec, data, shape = self.spec, site.data, (len(site), self.members, -1)
        start = task.array("decoder", self.part.shape).repeat(len(site), 1)
        encoders = own_encoder(task, site.memory).flatten(0, 1)
        params = {**vae.unpack(spec, encoders, ENCODER), **vae.unpack(spec, start, DECODER)}
        trained, _ = self.how.train(params, self.loss, data, rows=self._rows(data), rng=site.rng)
        change = (vae.pack(spec, trained, DECODER) - start).reshape(shape)
        kept = vae.pack(spec, trained, ENCODER).reshape(shape)
        done = torch.ones_like(site.memory["trained"])
        return {"decoder": change}, {"encoder": kept, "trained": done}

    def _rows(self, data: Shards) -> batches.Holdings:
        """One member of the stack per VAE: records go to the VAE of their class."""
        if self.options.classes == "separate":
            return batches.by_class(data, self.members)
        return batches.Holdings.of(data)


def build(study: Study, own: FedVAEOptions) -> Recipe:
    """The recipe of a study; K decoders are clipped to S/√K each and make one event."""
    members = study.schema.n_classes if own.classes == "separate" else 1
    size = layers.size(autoencoder(study.schema, own).decoder)
    terms = Terms(bound=0.2, blocks=members)
    return shared_vae.build(FedVAE, study, own, {"decoder": (members, size)}, terms)


def autoencoder(schema: Schema, own: FedVAEOptions) -> Autoencoder:
    """The public nets: conditional, or one pair per class."""
    return vae.autoencoder(schema, own, joint=own.classes == "joint")
