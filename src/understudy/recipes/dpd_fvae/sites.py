"""C-DPD-fVAE (Pfitzner & Arnrich 2022, Algorithm 1): whole sites are protected.

Each site trains its VAE, keeps the encoder and its Adam state, restarts the decoder's
optimiser, and sends the decoder's change, clipped as a whole. With ``share = "vae"`` everything is
synchronised: the paper's vanilla fVAE.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from understudy.federation.planning import Terms
from understudy.federation.recipe import Recipe, State, Task, Update
from understudy.federation.site import Site
from understudy.nets.autoencoder import DECODER, ENCODER
from understudy.nets.layers import Params
from understudy.recipes import shared_vae, vae
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.fedavg import Local
from understudy.recipes.shared_vae import SharedVAE, own_encoder
from understudy.recipes.vae_options import DpdFVAEOptions
from understudy.study import Study
from understudy.training import optim

__all__ = ["ClientDpdFVAE", "client_level"]

_STEPS = 6


@dataclass(frozen=True)
class ClientDpdFVAE(SharedVAE[DpdFVAEOptions]):
    """C-DPD-fVAE, Algorithm 1."""

    info = CATALOGUE["dpd_fvae"]

    @property
    def shared(self) -> str:
        """Prefix of the parameters that are synchronised."""
        return _shared(self.options)

    @property
    def how(self) -> Local:
        return Local(self.training, self.options.steps or _STEPS)

    def memory(self, site: str) -> State:
        """The encoder and its optimiser's state; whether it has been trained here."""
        if not self.shared:
            return {}
        encoder = self.first_encoder()
        kept = {slot: torch.zeros_like(encoder) for slot in optim.slots(self.how.optimiser)}
        kept |= {optim.STEPS: torch.zeros(1)} if optim.STEPS in kept else {}
        return {"encoder": encoder, "trained": torch.zeros(1), **kept}

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Train the whole VAE on the site's rows; send the change of what is shared."""
        spec, memory = self.spec, site.memory
        start = task.array("shared", self.part.shape).expand(len(site), -1)
        own = vae.unpack(spec, own_encoder(task, memory), ENCODER) if memory else {}
        params = {**own, **vae.unpack(spec, start, self.shared)}
        state = self._optimiser_state(params, memory)
        trained, kept = self.how.train(params, self.loss, site.data, state, rng=site.rng)
        change = vae.pack(spec, trained, self.shared) - start
        return {"shared": change}, self._remembered(trained, kept, memory)

    def _optimiser_state(self, params: Params, memory: State) -> Params:
        """A fresh start for what is shared; the encoder's moments and count go on."""
        state = optim.start(self.how.optimiser, params)
        for slot in optim.slots(self.how.optimiser) if memory else ():
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
        for slot in optim.slots(self.how.optimiser):
            own = {name: state[f"{slot}.{name}"] for name in names}
            count = own[names[0]].reshape(-1, 1)
            kept[slot] = count if slot == optim.STEPS else vae.pack(self.spec, own, ENCODER)
        return {**kept, "trained": torch.ones_like(memory["trained"])}


def _shared(own: DpdFVAEOptions) -> str:
    return DECODER if own.share == "decoder" else ""


def client_level(study: Study, own: DpdFVAEOptions) -> Recipe:
    """Algorithm 1 for a study, with its warm start."""
    size = vae.size(vae.autoencoder(study.schema, own), _shared(own))
    return shared_vae.build(ClientDpdFVAE, study, own, {"shared": (size,)}, Terms(bound=0.2))
