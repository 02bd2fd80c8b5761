"""What the recipes that train Wasserstein autoencoders have in common.

The whole autoencoder is shared. Nets may be pre-trained on auxiliary rows that cost nothing:
uniform rows drawn from the public schema, or rows that the study declares public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.autoencoder import Autoencoder, init, wae_loss
from understudy.recipes import selection, vae
from understudy.recipes.selection import SelectionOptions
from understudy.rng import Draws, Streams
from understudy.study import Training, setting
from understudy.training.loop import Batch, train
from understudy.training.optim import Adam

__all__ = ["WAEOptions", "local_update", "pretrained"]

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


def pretrained(
    spec: Autoencoder,
    own: WAEOptions,
    uniform: Callable[[], Rows],
    public: Callable[[], Rows | None],
    *,
    rng: Streams,
) -> Tensor:
    """The model ``[1, P]`` before the first round."""
    params = layers.stack(init(spec, rng=rng.torch("net")), 1)
    if own.pretrain != "none":
        rows = uniform() if own.pretrain == "uniform" else public()
        assert rows is not None  # the options name a file
        x, y = rows
        plan = vae.steps_on(y, own.pretrain_steps, rng=rng)
        params, _ = train(params, _loss(spec, own), x, y, plan, Adam(1e-3), rng=rng.draws("losses"))
    return vae.pack(spec, params)


def local_update(
    spec: Autoencoder,
    own: WAEOptions,
    training: Training,
    model: Tensor,
    data: Shards,
    *,
    rng: Draws,
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
        prior = batch.normal(spec.latent)
        rows = (batch.x, batch.y, batch.weight)
        return wae_loss(spec, params, *rows, penalty=own.penalty, prior=prior)

    return loss
