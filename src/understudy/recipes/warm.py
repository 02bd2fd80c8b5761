"""Pre-training on rows that cost nothing more: samples of a first phase, or public rows.

A *warm start* is a first round of fedmoments that takes its share of the study's ε. Its samples
pre-train the nets, and its generator is released beside the decoder that follows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.recipe import State
from understudy.nets import layers
from understudy.nets.autoencoder import Autoencoder, init, vae_loss
from understudy.nets.layers import Params
from understudy.recipes import fedmoments
from understudy.recipes.fedmoments import FedMoments
from understudy.recipes.options import FedMomentsOptions, VAEOptions
from understudy.recipes.public import Examples
from understudy.recipes.vae import balance
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Cohort, Study
from understudy.training import batches
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam

__all__ = ["fit", "keep", "mix", "rows", "start", "steps_on"]

_ROWS = 20_000
_KEPT = "warm/"  # prefix, in the state, of the warm start's own generator


def start(study: Study, own: VAEOptions) -> FedMoments | None:
    """fedmoments for its share of the study's ε, in the study's unit and trust, or None."""
    if not own.warm_start:
        return None
    if study.privacy.epsilon is None:
        raise StudyError(
            "privacy.epsilon where recipe.warm_start takes a share of it",
            "none",
            "give epsilon instead of noise, or leave the warm start out",
        )
    unit, trust = study.privacy.unit or "site", study.privacy.trust or "central"  # as all VAEs here
    if trust == "distributed" and study.cohort.size is not None:
        raise StudyError(
            "every site in every round where a warm start's noise is added in shares",
            "cohort.size",
            "remove cohort.size, or the warm start: both phases need one t and one c",
        )
    share = study.privacy.epsilon * own.warm_start
    privacy = replace(study.privacy, unit=unit, trust=trust, epsilon=share, clip=None)
    moments = FedMomentsOptions(own.warm_coefficients, own.warm_spread, own.warm_contrast)
    return fedmoments.build(replace(study, privacy=privacy, cohort=Cohort(), rounds=None), moments)


def keep(made: Generator) -> State:
    """The warm start's generator as named tensors, to be released beside the decoder."""
    plain = json.dumps({"kind": made.kind, "config": made.config}).encode()
    told = torch.tensor(list(plain), dtype=torch.uint8)
    return {_KEPT + "told": told, **{_KEPT + n: a for n, a in made.arrays.items()}}


def mix(decoder: Generator, state: State, own: VAEOptions) -> Generator:
    """The released generator: after a warm start, a mixture of both phases'."""
    if _KEPT + "told" not in state or not own.warm_share:
        return decoder
    arrays = {n.removeprefix(_KEPT): a for n, a in state.items() if n.startswith(_KEPT)}
    told = json.loads(bytes(arrays.pop("told").tolist()))
    warm = Generator(told["kind"], arrays, told["config"], decoder.balance)
    return decoder.mixed(warm, own.warm_share)


def rows(made: Generator, schema: Schema, *, rng: Streams) -> Examples:
    """Samples of the warm start's generator, in the proportions to be released."""
    labels = rng.numpy("warm labels").choice(schema.n_classes, _ROWS, p=balance(schema))
    return made.sample(labels, rng=rng.child("warm rows")), torch.from_numpy(labels)


def steps_on(y: Tensor, steps: int, *, members: int = 1, rng: Streams) -> batches.Batches:
    """Batches of rows with these labels, for one member, or by class for one member each."""
    order = torch.argsort(y, stable=True)
    counts = torch.bincount(y, minlength=members) if members > 1 else torch.tensor([len(y)])
    rows = batches.Holdings(order.numpy(), (counts.cumsum(0) - counts).numpy(), counts.numpy())
    return batches.steps(rows, steps, 64, rng=rng.draws("batches"))


def fit(
    spec: Autoencoder, rows: Examples, own: VAEOptions, *, members: int = 1, rng: Streams
) -> Params:
    """Train ``members`` VAEs ``[members, …]`` on rows; of several, each on those of its class."""
    params = layers.stack(init(spec, rng=rng.torch("net")), members)
    plan = steps_on(rows[1], own.warm_steps, members=members, rng=rng)

    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        terms = (batch.x, batch.y, batch.weight)
        return vae_loss(spec, params, *terms, beta=own.beta, draw=batch.normal(spec.latent))

    return train(params, loss, rows, plan, Adam(1e-3), rng=rng.draws("losses"))[0]
