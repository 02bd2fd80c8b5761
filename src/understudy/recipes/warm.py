"""Pre-training on rows that cost nothing more: samples of a first phase, or public rows.

A *warm start* is fedmoments with a share of the study's ε. Its samples pre-train the nets, its
class shares are the ones that are released, and its generator is released beside the decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import StudyError
from understudy.federation.recipe import Recipe, State
from understudy.nets import layers
from understudy.nets.autoencoder import Autoencoder, init, vae_loss
from understudy.nets.layers import Params
from understudy.recipes import fedmoments, vae
from understudy.recipes.options import FedMomentsOptions
from understudy.recipes.public import Examples
from understudy.recipes.vae_options import NetOptions
from understudy.release.generator import Generator
from understudy.rng import Streams
from understudy.study import Cohort, Study
from understudy.training import batches
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam

__all__ = ["balance", "fit", "keep", "mix", "rows", "share", "start", "steps_on"]

_ROWS = 20_000
_SHARE = 0.3  # of ε, for tables: without it their classes are no better than guessed
_KEPT = "warm/"  # prefix, in the state, of the warm start's own generator


def share(study: Study, own: NetOptions) -> float:
    """The share of ε that the warm start takes: as the study says, or for tables by default."""
    if own.warm_start is not None:
        return own.warm_start
    wanted = study.schema.kind == "table" and not own.public and study.privacy.epsilon
    return _SHARE if wanted else 0.0


def start(study: Study, own: NetOptions) -> Recipe | None:
    """fedmoments for its share of the study's ε, in the study's unit and trust, or None."""
    taken = share(study, own)
    if not taken:
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
    epsilon = study.privacy.epsilon * taken
    privacy = replace(study.privacy, unit=unit, trust=trust, epsilon=epsilon, clip=None)
    moments = FedMomentsOptions(own.warm_coefficients, own.warm_spread, own.warm_contrast)
    return fedmoments.build(replace(study, privacy=privacy, cohort=Cohort(), rounds=None), moments)


def keep(made: Generator) -> State:
    """The warm start's generator as named tensors, to be released beside the decoder."""
    plain = json.dumps(made.to_dict()).encode()
    told = torch.tensor(list(plain), dtype=torch.uint8)
    return {_KEPT + "told": told, **{_KEPT + n: a for n, a in made.arrays.items()}}


def mix(decoder: Generator, state: State, own: NetOptions) -> Generator:
    """The released generator: after a warm start, a mixture of both phases'."""
    if (warm := _kept(state)) is None or not own.warm_share:
        return decoder
    return decoder.mixed(warm, own.warm_share)


def balance(state: State, schema: Schema) -> tuple[float, ...]:
    """The class shares to release: declared, or learnt by the warm start, or equal."""
    warm = _kept(state)
    return vae.balance(schema) if warm is None or schema.balance else warm.balance


def _kept(state: State) -> Generator | None:
    if _KEPT + "told" not in state:
        return None
    arrays = {n.removeprefix(_KEPT): a for n, a in state.items() if n.startswith(_KEPT)}
    return Generator.from_dict(json.loads(bytes(arrays.pop("told").tolist())), arrays)


def rows(made: Generator, schema: Schema, *, rng: Streams) -> Examples:
    """Samples of the warm start's generator, in the proportions to be released."""
    shares = np.array(schema.balance or made.balance)
    labels = rng.numpy("warm labels").choice(len(shares), _ROWS, p=shares / shares.sum())
    return made.sample(labels, rng=rng.child("warm rows")), torch.from_numpy(labels)


def steps_on(y: Tensor, steps: int, *, members: int = 1, rng: Streams) -> batches.Batches:
    """Batches of rows with these labels, for one member, or by class for one member each."""
    order = torch.argsort(y, stable=True)
    counts = torch.bincount(y, minlength=members) if members > 1 else torch.tensor([len(y)])
    rows = batches.Holdings(order.numpy(), (counts.cumsum(0) - counts).numpy(), counts.numpy())
    return batches.steps(rows, steps, 64, rng=rng.draws("batches"))


def fit(
    spec: Autoencoder, rows: Examples, own: NetOptions, *, members: int = 1, rng: Streams
) -> Params:
    """Train ``members`` VAEs ``[members, …]`` on rows; of several, each on those of its class."""
    params = layers.stack(init(spec, rng=rng.torch("net")), members)
    plan = steps_on(rows[1], own.warm_steps, members=members, rng=rng)

    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        terms = (batch.x, batch.y, batch.weight)
        return vae_loss(spec, params, *terms, beta=own.beta, draw=batch.normal(spec.latent))

    return train(params, loss, rows, plan, Adam(1e-3), rng=rng.draws("losses"))[0]
