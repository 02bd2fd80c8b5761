"""What a client learns is the same in any company, to the last bit, whatever its net."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.nets import autoencoder, classifier, layers
from understudy.nets.autoencoder import Autoencoder
from understudy.nets.classifier import ClassifierNet
from understudy.rng import Streams
from understudy.training import batches, dpsgd
from understudy.training.batches import Holdings
from understudy.training.loop import Batch, Loss, train
from understudy.training.optim import Adam, Optimiser, Sgd

COUNTS = np.array([4, 1, 2, 0, 17, 3, 2, 1, 5])  # rows of a site
ROWS = Holdings(None, COUNTS.cumsum() - COUNTS, COUNTS)
PIXELS = {"shape": (16, 17, 3)}
NETS: dict[str, Autoencoder | ClassifierNet] = {
    "wae": Autoencoder(124, latent=16, widths=(64,), variational=False),
    "odd widths": Autoencoder(
        13, latent=3, labels=3, product=True, widths=(33, 17), loss="gaussian", numeric=(0, 1, 7)
    ),
    "a single latent": Autoencoder(7, latent=1, widths=(5,)),
    "swish": Autoencoder(21, latent=5, widths=(19,), activation="swish", loss="mse"),
    "cosines": Autoencoder(
        63, latent=8, widths=(33,), shape=(21, 3), cosines=(9, 3), loss="gaussian"
    ),
    "series": Autoencoder(
        45, latent=6, widths=(12,), net="recurrent", shape=(9, 5), variational=False, loss="mse"
    ),
    "a single channel": Autoencoder(
        9, latent=3, widths=(7,), net="recurrent", shape=(9, 1), variational=False, loss="mse"
    ),
    "a single step": Autoencoder(
        3, latent=3, widths=(7,), net="recurrent", shape=(1, 3), variational=False, loss="mse"
    ),
    "linear": ClassifierNet(123, 2),
    "mlp": ClassifierNet(256, 10, "mlp"),
    "lenet": ClassifierNet(816, 3, "lenet", standardised=True, **PIXELS),
    "strokes": ClassifierNet(816, 3, "linear", strokes=True, **PIXELS),
    "conv": Autoencoder(16, latent=2, labels=3, net="conv", shape=(4, 4), norm="group"),
}


def loss_of(spec: Autoencoder | ClassifierNet) -> Loss:
    def loss(params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        rows = (batch.x, batch.y, batch.weight)
        if isinstance(spec, ClassifierNet):
            return classifier.cross_entropy_loss(spec, params, *rows)
        drawn = batch.normal(spec.latent)
        if spec.variational:
            return autoencoder.vae_loss(spec, params, *rows, draw=drawn)
        return autoencoder.wae_loss(spec, params, *rows, prior=drawn)

    return loss


def start_of(spec: Autoencoder | ClassifierNet) -> layers.Params:
    rng = torch.Generator().manual_seed(1)
    if isinstance(spec, ClassifierNet):
        return classifier.init(spec, rng=rng)
    return autoencoder.init(spec, rng=rng)


def data_of(spec: Autoencoder | ClassifierNet) -> tuple[Tensor, Tensor]:
    rng, rows = torch.Generator().manual_seed(2), int(COUNTS.sum())
    classes = spec.classes if isinstance(spec, ClassifierNet) else max(spec.labels, 1)
    x = torch.rand(rows, spec.features, generator=rng)
    return x, torch.randint(classes, (rows,), generator=rng)


def trained(name: str, sites: np.ndarray, optimiser: Optimiser, whole_epochs: bool) -> Tensor:
    """The parameters ``[C, P]`` of these sites, trained in one stack."""
    spec, rng = NETS[name], Streams.from_seed(3).sites("local", 0, sites)
    rows, source = Holdings(None, ROWS.starts[sites], ROWS.counts[sites]), rng.child("batches")
    plan = (
        batches.epochs(rows, 2, 16, rng=source)
        if whole_epochs
        else batches.steps(rows, 3, 5, rng=source)
    )
    params = layers.stack(start_of(spec), len(sites))
    done, _ = train(params, loss_of(spec), data_of(spec), plan, optimiser, rng=rng)
    return layers.concatenated(done, done)


def check_company(made: Callable[[np.ndarray], Tensor]) -> None:
    everyone = np.arange(len(COUNTS))
    whole = made(everyone)
    assert (whole != whole[3]).any(1).sum() == len(COUNTS) - 1, "only the empty site does not move"
    for size in (1, 2, 7):
        cut = [made(everyone[start : start + size]) for start in everyone[::size]]
        assert torch.equal(torch.cat(cut), whole), f"stacks of {size}"


@pytest.mark.parametrize(
    "optimiser, whole_epochs", [(Adam(1e-2), True), (Sgd(0.1), False)], ids=["adam", "sgd"]
)
@pytest.mark.parametrize("name", NETS)
def test_stacks_of_any_size_train_alike(
    name: str, optimiser: Optimiser, whole_epochs: bool
) -> None:
    check_company(lambda sites: trained(name, sites, optimiser, whole_epochs))


@pytest.mark.parametrize("name", ["wae", "odd widths", "lenet"])
def test_threads_change_nothing(name: str) -> None:
    everyone = np.arange(len(COUNTS))
    one = trained(name, everyone, Adam(1e-2), True)
    torch.set_num_threads(2)
    try:
        assert torch.equal(trained(name, everyone, Adam(1e-2), True), one)
        assert torch.equal(trained(name, everyone[4:5], Adam(1e-2), True), one[4:5])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["odd widths", "a single latent", "cosines", "conv"])
def test_clipped_gradients_are_the_same_in_any_company(name: str, monkeypatch) -> None:
    spec = NETS[name]
    assert isinstance(spec, Autoencoder)
    monkeypatch.setattr(dpsgd, "_PIECE_BYTES", 4 * 12 * spec.features * 8)  # 8 records
    x, y = data_of(spec)
    noise = torch.randn(len(x), spec.latent, generator=torch.Generator().manual_seed(4))
    params = start_of(spec)

    def loss(params: Mapping[str, Tensor], batch: dpsgd.RecordBatch) -> Tensor:
        return autoencoder.record_losses(spec, params, batch.x, batch.y, batch.noise)

    def summed(sites: np.ndarray) -> Tensor:
        rows = [np.arange(ROWS.starts[s], ROWS.starts[s] + COUNTS[s]) for s in sites]
        site = np.repeat(np.arange(len(sites)), COUNTS[sites])
        drawn = torch.from_numpy(np.stack((site, np.concatenate(rows)), 1))
        parts = dpsgd.pieces(x, y, drawn, len(sites), noise[drawn[:, 1]])
        stack = layers.stack(params, len(sites))
        return dpsgd.clipped_gradients(loss, stack, parts, 0.5).value

    check_company(summed)
