"""Nets in their stacked form and as a plain PyTorch loop over clients: library of `speed.py`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from rivals_speed import PlainWae, plain_mmd
from torch import Tensor, nn
from torch.nn import functional

from understudy.nets import autoencoder, layers
from understudy.nets.autoencoder import DECODER, Autoencoder
from understudy.rng import Streams
from understudy.training import batches, loop
from understudy.training.batches import Batches, Holdings
from understudy.training.optim import Adam, Sgd

WAE = Autoencoder(features=124, latent=16, widths=(64,), variational=False)
CONV = Autoencoder(features=784, latent=8, labels=10, net="conv", shape=(28, 28))
SERIES = Autoencoder(
    features=120, latent=20, widths=(32,), net="recurrent", shape=(24, 5), variational=False,
    loss="mse",
)  # fmt: skip

# --- the WAE ---------------------------------------------------------------------------


@cache
def wae_work(cohort: int) -> tuple[layers.Params, Tensor, Batches, Tensor]:
    """Weights, rows, batches and priors of so many clients."""
    rng = Streams.from_seed(0)
    start = autoencoder.init(WAE, rng=rng.torch("weights"))
    data = (torch.rand(2 * cohort, 124, generator=rng.torch("rows")) < 0.2).float()
    rows = Holdings(None, np.arange(0, 2 * cohort, 2), np.full(cohort, 2))
    plan = batches.epochs(rows, 10, 2, rng=rng.sites("batches", 0, range(cohort)))
    return start, data, plan, torch.randn(10, cohort, 2, 16, generator=rng.torch("prior"))


def stacked(start: layers.Params, data: Tensor, plan: Batches, prior: Tensor) -> Tensor:
    """Ours: all clients at once."""

    def loss(params: Any, batch: loop.Batch) -> Tensor:
        z, _ = autoencoder.encode(WAE, params, batch.x, batch.y)
        logits = autoencoder.decode(WAE, params, z, batch.y)
        fit = (batch.weight * autoencoder.reconstruction(WAE, logits, batch.x)).sum(1)
        return fit + autoencoder.mmd(z, prior[batch.step, batch.members])

    labels = torch.zeros(len(data), dtype=torch.long)
    own = Streams.from_seed(0).sites("losses", 0, range(plan.index.shape[1]))
    params = layers.stack(start, plan.index.shape[1])
    done, _ = loop.train(params, loss, (data, labels), plan, Adam(1e-3), rng=own)
    return torch.cat([p.flatten(1) for p in done.values()], dim=1)


def wae_clients(clients: int) -> None:
    """A plain loop over so many."""
    one_by_one(*wae_work(clients), clients)


def wae_stack(clients: int) -> None:
    """Ours, all of so many at once."""
    stacked(*wae_work(clients))


def one_by_one(
    start: layers.Params, data: Tensor, plan: Batches, prior: Tensor, clients: int
) -> Tensor:
    """A loop over the first ``clients``."""
    return torch.stack([_one_client(start, data, plan, prior, c) for c in range(clients)])


def _one_client(
    start: layers.Params, data: Tensor, plan: Batches, prior: Tensor, client: int
) -> Tensor:
    net = PlainWae()
    load(net, start)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(10):
        optimiser.zero_grad()
        net.loss(data[plan.index[step, client]], prior[step, client]).backward()
        optimiser.step()
    return _weights(net)


def load(net: nn.Module, start: layers.Params) -> None:
    """Our weights, into modules."""
    with torch.no_grad():
        for twin, value in zip(net.parameters(), start.values(), strict=True):
            twin.copy_(value.T if value.ndim == 2 else value)


def _weights(net: nn.Module) -> Tensor:
    flat = [(p.T if p.ndim == 2 else p).reshape(-1) for p in net.parameters()]
    return torch.cat(flat).detach()


# --- the conv VAE ----------------------------------------------------------------------


@cache
def conv_work(clients: int) -> tuple[layers.Params, Tensor, Tensor, Batches, Tensor]:
    """Weights, images, labels, batches and noise of so many clients."""
    rng, each = Streams.from_seed(0), 120
    start = autoencoder.init(CONV, rng=rng.torch("weights"))
    x = torch.rand(clients * each, 784, generator=rng.torch("rows"))
    rows = Holdings(None, np.arange(0, clients * each, each), np.full(clients, each))
    plan = batches.epochs(rows, 1, 32, rng=rng.sites("batches", 0, range(clients)))
    noise = torch.randn(len(plan.index), clients, 32, 8, generator=rng.torch("noise"))
    return start, x, torch.arange(clients * each) % 10, plan, noise


def conv_clients(clients: int) -> None:
    """A plain loop over so many."""
    conv_one_by_one(*conv_work(clients), clients)


def conv_stack(clients: int) -> None:
    """Ours, all of so many at once."""
    conv_stacked(*conv_work(clients))


def _conv_loss(params: Any, x: Tensor, y: Tensor, weight: Tensor, draw: Tensor) -> Tensor:
    mean, spread = autoencoder.encode(CONV, params, x, y)
    logits = autoencoder.decode(CONV, params, mean + torch.exp(spread / 2) * draw, y)
    record = autoencoder.reconstruction(CONV, logits, x) + autoencoder.divergence(mean, spread)
    return (weight * record).sum(1)


def conv_stacked(
    start: layers.Params, x: Tensor, y: Tensor, plan: Batches, noise: Tensor
) -> Tensor:
    """Ours."""

    def loss(params: Any, batch: loop.Batch) -> Tensor:
        draw = noise[batch.step, batch.members]
        return _conv_loss(params, batch.x, batch.y, batch.weight, draw)

    own = Streams.from_seed(0).sites("losses", 0, range(plan.index.shape[1]))
    params = layers.stack(start, plan.index.shape[1])
    done, _ = loop.train(params, loss, (x, y), plan, Sgd(1e-3), rng=own)
    return layers.flatten(CONV.decoder, done, DECODER)


class PlainConv(nn.Module):
    """The thesis's conv VAE as modules of one client."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 32), (32, 64), (64, 64))
        convs = [m for a, b in sizes for m in (nn.Conv2d(a, b, 3, 2, 1), nn.ReLU())]
        self.encoder = nn.Sequential(*convs, nn.Flatten(), nn.Linear(1024, 16))
        self.first = nn.Linear(18, 1568)
        shapes = ((32, 32, 1), (32, 64, 1), (64, 64, 2), (64, 32, 2))
        ups = [
            m for a, b, s in shapes for m in (nn.ConvTranspose2d(a, b, 3, s, 1, s - 1), nn.ReLU())
        ]
        self.decoder = nn.Sequential(*ups, nn.ConvTranspose2d(32, 1, 3, 1, 1))

    def forward(self, x: Tensor, y: Tensor, draw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and log-variances."""
        mean, spread = self.encoder(x.reshape(-1, 1, 28, 28)).chunk(2, dim=-1)
        spread = 8 * torch.tanh(spread / 8)
        z = torch.cat((mean + torch.exp(spread / 2) * draw, functional.one_hot(y, 10)), dim=1)
        return self.decoder(self.first(z).relu().reshape(-1, 32, 7, 7)).flatten(1), mean, spread


def conv_one_by_one(
    start: layers.Params, x: Tensor, y: Tensor, plan: Batches, noise: Tensor, clients: int
) -> Tensor:
    """A loop over the first ``clients``."""
    out = []
    for c in range(clients):
        net = PlainConv()
        load(net, start)
        optimiser = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(int(plan.steps[c])):
            index, weight = plan.index[step, c], plan.weight[step, c]
            optimiser.zero_grad()
            logits, mean, spread = net(x[index], y[index], noise[step, c])
            fit = functional.binary_cross_entropy_with_logits(logits, x[index], reduction="none")
            kl = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1)
            (weight * (fit.sum(1) + kl)).sum().backward()
            optimiser.step()
        whole = [p.T if p.ndim == 2 else p for p in net.parameters()]
        out.append(torch.cat([p.reshape(-1) for p in whole[8:]]).detach())
    return torch.stack(out)


# --- the recurrent WAE -----------------------------------------------------------------


@cache
def series_work(clients: int) -> tuple[layers.Params, Tensor, Batches, Tensor]:
    """Weights, series, batches and priors of so many clients."""
    rng = Streams.from_seed(0)
    start = autoencoder.init(SERIES, rng=rng.torch("weights"))
    x = torch.rand(10 * clients, 120, generator=rng.torch("rows"))
    rows = Holdings(None, np.arange(0, 10 * clients, 10), np.full(clients, 10))
    plan = batches.epochs(rows, 5, 10, rng=rng.sites("batches", 0, range(clients)))
    return start, x, plan, torch.randn(5, clients, 10, 20, generator=rng.torch("prior"))


def series_stacked(start: layers.Params, x: Tensor, plan: Batches, prior: Tensor) -> Tensor:
    """Ours: all clients at once."""

    def loss(params: Any, batch: loop.Batch) -> Tensor:
        rows, drawn = (batch.x, batch.y, batch.weight), prior[batch.step, batch.members]
        return autoencoder.wae_loss(SERIES, params, *rows, prior=drawn)

    own = Streams.from_seed(0).sites("losses", 0, range(plan.index.shape[1]))
    params, labels = layers.stack(start, plan.index.shape[1]), torch.zeros(len(x)).long()
    done, _ = loop.train(params, loss, (x, labels), plan, Adam(1e-3), rng=own)
    return torch.cat([done["decoder.2.weight"].flatten(1), done["decoder.2.bias"]], dim=1)


class PlainSeries(nn.Module):
    """The recurrent WAE as modules of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.latent = nn.LSTM(5, 32, batch_first=True), nn.Linear(768, 20)
        self.first, self.out = nn.Linear(20, 32), nn.LSTM(32, 32, batch_first=True)
        self.last = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and latents."""
        z = self.latent(self.into(x.view(-1, 24, 5))[0].flatten(1))
        repeated = self.first(z).relu().unsqueeze(1).expand(-1, 24, -1).contiguous()
        return self.last(self.out(repeated)[0]).flatten(1), z


def _load_series(net: PlainSeries, start: layers.Params) -> None:
    """Our gates are output, input, forget, cell; torch's input, forget, cell, output."""
    pairs = {"encoder.1": net.into, "encoder.3": net.latent, "decoder.0": net.first}
    pairs |= {"decoder.1": net.out, "decoder.2": net.last}
    with torch.no_grad():
        for prefix, module in pairs.items():
            own = {n: start[f"{prefix}.{n}"] for n in ("weight", "recurrent", "bias")
                   if f"{prefix}.{n}" in start}  # fmt: skip
            if isinstance(module, nn.LSTM):
                own = {n: value.roll(-32, dims=-1) for n, value in own.items()}
                module.weight_hh_l0.copy_(own["recurrent"].T)
                module.bias_hh_l0.zero_().requires_grad_(False)
            ending = "_ih_l0" if isinstance(module, nn.LSTM) else ""
            getattr(module, "weight" + ending).copy_(own["weight"].T)
            getattr(module, "bias" + ending).copy_(own["bias"])


def series_one_by_one(
    start: layers.Params, x: Tensor, plan: Batches, prior: Tensor, clients: int
) -> Tensor:
    """A loop over the first ``clients``."""
    out = []
    for c in range(clients):
        net = PlainSeries()
        _load_series(net, start)
        trained = [p for p in net.parameters() if p.requires_grad]
        optimiser = torch.optim.Adam(trained, lr=1e-3)
        for step in range(5):
            rows = x[plan.index[step, c]]
            optimiser.zero_grad()
            logits, z = net(rows)
            fit = (logits.sigmoid() - rows).square().mean()
            (fit + plain_mmd(z, prior[step, c])).backward()
            optimiser.step()
        out.append(torch.cat([net.last.weight.T.reshape(-1), net.last.bias]).detach())
    return torch.stack(out)


def series_clients(clients: int) -> None:
    """A plain loop over so many."""
    series_one_by_one(*series_work(clients), clients)


def series_stack(clients: int) -> None:
    """Ours, all of so many at once."""
    series_stacked(*series_work(clients))
