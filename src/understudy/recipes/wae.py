"""What the recipes that train Wasserstein autoencoders have in common.

The whole autoencoder is shared. Nets may be pre-trained on auxiliary rows that cost nothing:
uniform rows drawn from the public schema, or rows that the study declares public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from understudy.data.encode import encode
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.data.table import read
from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.autoencoder import Autoencoder, init, wae_loss
from understudy.recipes import selection, vae
from understudy.recipes.selection import SelectionOptions
from understudy.rng import Streams
from understudy.study import Study, Training, setting
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam

__all__ = ["WAEOptions", "auxiliary_notes", "local_update", "pretrained"]

Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class WAEOptions(SelectionOptions):
    """The part of ``[recipe]`` that every WAE recipe has."""

    latent: int = setting(16, "dimensions of the latent space")
    penalty: float = setting(1.0, "λ: weight of the MMD between latents and prior")
    pretrain: Literal["none", "uniform", "public"] = setting(
        "none", "pre-train on no rows, on uniform rows of the public schema, or on public rows"
    )
    public: str = setting("", 'with pretrain = "public": the file of public rows')
    pretrain_steps: int = setting(2000, "training steps on auxiliary rows")

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.latent, self.pretrain_steps) < 1 or not 0 <= self.penalty < float("inf"):
            raise StudyError(
                "recipe.latent and pretrain_steps of at least 1, and a penalty of 0 or more",
                f"{self.latent}, {self.pretrain_steps}, {self.penalty}",
                "correct it",
            )
        if (self.pretrain == "public") != bool(self.public):
            raise StudyError(
                'recipe.public exactly where pretrain = "public"',
                f"pretrain = {self.pretrain!r}, public = {self.public!r}",
                "name a file of public rows, or leave both out",
            )


def auxiliary_notes(study: Study, own: WAEOptions) -> tuple[str, ...]:
    """What a claim says of public rows; reads them, so that none is missed once ε is spent."""
    if own.pretrain != "public":
        return ()
    vae.refuse_private(study, own.public)
    public_rows(study.base, own, study.schema)
    return (vae.PUBLIC_NOTE,)


def public_rows(base: Path, own: WAEOptions, schema: Schema) -> Rows:
    """The rows that the study declares public."""
    rows = encode(schema, read(base / own.public, schema))
    if not len(rows):
        raise StudyError("public rows to pre-train on", "none in recipe.public", "correct it")
    return torch.from_numpy(rows.x), torch.from_numpy(rows.y)


def pretrained(
    spec: Autoencoder,
    own: WAEOptions,
    uniform: Callable[[], Rows],
    public: Callable[[], Rows],
    *,
    rng: Streams,
) -> Tensor:
    """The model ``[1, P]`` before the first round."""
    params = layers.stack(init(spec, rng=rng.torch("net")), 1)
    if own.pretrain != "none":
        x, y = uniform() if own.pretrain == "uniform" else public()
        plan = vae.steps_on(y, own.pretrain_steps, rng=rng)
        params, _ = train(params, _loss(spec, own), x, y, plan, Adam(1e-3), rng=rng)
    return vae.pack(spec, params)


def local_update(
    spec: Autoencoder,
    own: WAEOptions,
    training: Training,
    model: Tensor,
    data: Shards,
    *,
    rng: Streams,
) -> Tensor:
    """What E epochs on a site's rows change in the whole autoencoder: ``[C, P]``."""
    start = model.expand(len(data), -1)
    plan = selection.local_batches(data, training, rng=rng)
    how = selection.optimiser(training)
    params = vae.unpack(spec, start)
    trained, _ = train(params, _loss(spec, own), data.x, data.y, plan, how, rng=rng)
    return vae.pack(spec, trained) - start


def _loss(spec: Autoencoder, own: WAEOptions) -> Callable[[Mapping[str, Tensor], Batch], Tensor]:
    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        prior = torch.randn(*batch.y.shape, spec.latent, generator=batch.noise)
        rows = (batch.x, batch.y, batch.weight)
        return wae_loss(spec, params, *rows, penalty=own.penalty, prior=prior)

    return loss
