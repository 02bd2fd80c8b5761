"""FedSTDG: synthetic time series under local privacy (Jiang 2023 ch. 5).

The model is a recurrent Wasserstein autoencoder. A site sends a sign and as many coordinates as
keep the wanted share of the top set, chosen within a random subset (SubMDS). In the thesis it also
sends one randomised bit that says whether its update was small against the global rate (MagRR);
when the bits say so, the server lowers the rate. Both are pure: one update costs
ε = ε_coordinates + ε_bit. By default there is no bit and the rate falls along a cosine: the bit
costs a tenth of ε and gains nothing. ``adaptive = "paper"`` is the rule as published.

Corrections to the thesis: its ε is per update, the claim adds up all updates of a site. The rule
"a majority of bits for 50 rounds in a row" almost never fires at small ε; with
``adaptive = "pooled"`` the debiased bits of some rounds are pooled.

Additions, none of which costs privacy: the net is no larger than the channels need, since votes
are spread over its parameters; it starts from smooth series that anyone can draw who knows the
bounds; local training is one SGD step, since of an update only its order is sent; and the server
weighs votes by how much of them is not chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.recipe import State, Task, Update
from understudy.federation.site import Site
from understudy.nets import layers
from understudy.nets.autoencoder import Autoencoder, decode, encode, init, reconstruction
from understudy.privacy.respond import Response, debiased, is_small
from understudy.privacy.select import Selection
from understudy.recipes import public, selection, vae, warm
from understudy.recipes.catalogue import CATALOGUE
from understudy.recipes.options import FedSTDGOptions
from understudy.recipes.wae import SharedWAE
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Study
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam
from understudy.training.server import ServerOptimiser

__all__ = ["FedSTDG", "build"]

_UNIFORM_ROWS = 5_000
_FACTOR_WEIGHT = 0.1  # of finding the factors, beside making the series
_WIDE = 2.0  # how far the mixed levels of uniform series spread, in logits


@dataclass(frozen=True)
class FedSTDG(SharedWAE[FedSTDGOptions]):
    """See the module's paragraph; the methods follow Algorithms 6–8."""

    info = CATALOGUE["fedstdg"]

    @cached_property
    def spec(self) -> Autoencoder:
        return _spec(self.schema, self.options)

    @property
    def adapts(self) -> bool:
        """Whether sites send the bit."""
        return len(self.plan.own.parts) > 1

    @property
    def server(self) -> ServerOptimiser:
        """θ ← θ + mean vote; γ is in the state where it adapts."""
        return replace(super().server, rate=1.0, decay="none") if self.adapts else super().server

    def init(self, *, rng: Streams) -> State:
        """A fresh autoencoder, pre-trained where asked for, and γ."""
        rate = torch.tensor([self.options.global_rate])
        return {**super().init(rng=rng), "rate": rate, "bits": torch.zeros(2)}

    def first_model(self, rng: Streams) -> Tensor:
        """Uniform series have a start of their own: the factors behind them are known."""
        if self.options.pretrain == "uniform":
            return _smooth(self.spec, self.options.pretrain_steps, rng=rng)
        return super().first_model(rng)

    def task(self, state: State, round: int) -> Task:
        """The whole autoencoder; with bits, the size below which an update counts as small."""
        if not self.adapts:
            return super().task(state, round)
        return Task({"model": state["model"]}, {"level": self.options.fall * float(state["rate"])})

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """Train on the site's series; the engine chooses coordinates and answers by the bit."""
        model = task.array("model", (1, vae.size(self.spec)))
        change = self.change(model, self.rows(site.data), rng=site.rng)
        if not self.adapts:
            return {"update": change}, {}
        return {"update": change, "small": is_small(change, float(task.values["level"]))}, {}

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Lower γ if the bits ask for it, then θ ← θ + γ·mean vote."""
        votes = self._telling * total["update"][None]
        if not self.adapts:
            return {**state, **self.server.step(state, votes)}
        rate, bits = self._adapted(state, total["small"])
        moved = self.server.step(state, rate * votes)
        return {**state, **moved, "rate": rate, "bits": bits}

    @property
    def _telling(self) -> float:
        """The share of a vote that is not chance: the noisier the votes, the shorter the way."""
        rule = self.plan.own.part("update").mechanism
        return rule.telling if isinstance(rule, Selection) else 1.0

    def _adapted(self, state: State, mean: Tensor) -> tuple[Tensor, Tensor]:
        """γ and what is remembered of the bits: rounds counted, and their sum."""
        own, rule = self.options, self.plan.own.part("small").mechanism
        assert isinstance(rule, Response)
        if own.adaptive == "paper":
            count = float(state["bits"][0] + 1) if float(mean) >= 0.5 else 0.0
            falls, bits = count >= own.patience, torch.tensor([count, 0.0])
        else:
            bits = state["bits"] + torch.stack((torch.ones(()), debiased(mean, rule)))
            full = float(bits[0]) >= own.patience
            falls, bits = full and float(bits[1] / bits[0]) >= 0.5, bits * (not full)
        if not falls:
            return state["rate"], bits
        return own.fall * state["rate"], torch.zeros(2)

    def finish(self, state: State, *, rng: Streams) -> Generator:
        decoder = self.decoder(self.server.released(state))
        return vae.decoder_release(self.schema, self.spec, decoder, vae.balance(self.schema))


def build(study: Study, own: FedSTDGOptions) -> FedSTDG:
    """The recipe of a study: coordinates and, where γ adapts, one bit."""
    _refuse_idle(study, own)
    size, notes = vae.size(_spec(study.schema, own)), public.notes(study, own)
    bit = 0.0 if own.adaptive == "none" else own.bit
    plan = selection.selection_plan(study, FedSTDG.info, size, own, notes=notes, bit=bit)
    return FedSTDG(study.schema, plan, own, study.training, study.base)


def _refuse_idle(study: Study, own: FedSTDGOptions) -> None:
    """Options of the bit where there is none: they would be ignored."""
    given = sorted({"bit", "fall", "patience"} & set(study.options))
    if given and own.adaptive == "none":
        raise StudyError(
            'recipe.adaptive = "pooled" or "paper" for bit, fall and patience',
            f'{", ".join(given)} with adaptive = "none"',
            "set adaptive, or remove these options",
        )


def _spec(schema: Schema, own: FedSTDGOptions) -> Autoencoder:
    """Figure 5.2: LSTM over the steps, a dense latent, and the mirror of both."""
    return Autoencoder(
        features=schema.width,
        latent=own.latent,
        labels=schema.n_classes if schema.n_classes > 1 else 0,
        widths=(own.hidden or max(12, schema.shape[1]),),
        net="recurrent",
        shape=schema.shape,
        variational=False,
        loss="mse",
    )


def _smooth(spec: Autoencoder, steps: int, *, rng: Streams) -> Tensor:
    """A model ``[1, P]`` that knows series anyone can draw who knows the bounds, and no other.

    They are smooth and go anywhere between the bounds: channels mix as many normal factors as
    there are latents, wide enough that they do not simply follow each other. The factors are
    known, so the decoder learns to make series from them and the encoder to find them again.
    """
    x, z = _series(spec, rng.torch("uniform"))
    y = torch.randint(max(spec.labels, 1), (len(x),), generator=rng.torch("labels"))

    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        series, factors = batch.x.split((spec.features, spec.latent), dim=-1)
        made = reconstruction(spec, decode(spec, params, factors, batch.y), series) / spec.features
        found = (encode(spec, params, series, batch.y)[0] - factors).square().mean(-1)
        return (batch.weight * (made + _FACTOR_WEIGHT * found)).sum(1)

    params = layers.stack(init(spec, rng=rng.torch("net")), 1)
    plan = warm.steps_on(y, steps, rng=rng)
    rows = torch.cat((x, z), 1), y
    params, _ = train(params, loss, rows, plan, Adam(3e-3), rng=rng.draws("losses"))
    return vae.pack(spec, params)


def _series(spec: Autoencoder, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Series ``[n, steps·channels]`` and the factors ``[n, latent]`` that they are made of."""
    steps, channels = spec.shape
    factors = torch.randn(_UNIFORM_ROWS, spec.latent, generator=source)
    level, drift = torch.randn(2, spec.latent, channels, generator=source) / spec.latent**0.5
    along = torch.linspace(-0.5, 0.5, steps)[None, :, None]
    mixed = _WIDE * (factors @ level)[:, None] + along * (factors @ drift)[:, None]
    return torch.sigmoid(mixed).flatten(1), factors
