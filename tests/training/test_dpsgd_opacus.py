"""DP-SGD beside Opacus: equal clipped sums, equal ε."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.nets import autoencoder
from understudy.nets.autoencoder import Autoencoder
from understudy.nets.layers import Conv, ConvTranspose, Dense, Layer, Net
from understudy.privacy.account import Event, cost
from understudy.training.dpsgd import ROUNDING, RecordBatch, clipped_gradients, pieces

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    opacus = pytest.importorskip("opacus")
    from opacus.accountants import PRVAccountant, RDPAccountant
    from opacus.grad_sample import GradSampleModule

SPECS = {
    "dense": Autoencoder(784, latent=16, labels=10, widths=(128,)),
    "conv": Autoencoder(784, latent=8, labels=10, net="conv", shape=(28, 28)),
}
BATCH = 6


def module(layer: Layer) -> nn.Module:
    """A layer with parameters, as torch has it."""
    if isinstance(layer, Dense):
        return nn.Linear(layer.inputs, layer.outputs)
    assert isinstance(layer, Conv | ConvTranspose)
    terms = (layer.inputs, layer.outputs, 3, layer.stride, 1)
    if isinstance(layer, Conv):
        return nn.Conv2d(*terms)
    return nn.ConvTranspose2d(*terms, output_padding=layer.stride - 1)


class Twin(nn.Module):
    """A VAE of modules."""

    def __init__(self, spec: Autoencoder) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = nn.ModuleList(module(one) for one in spec.encoder if one.shapes)
        self.decoder = nn.ModuleList(module(one) for one in spec.decoder if one.shapes)

    def forward(self, x: Tensor, y: Tensor, draw: Tensor) -> Tensor:
        """Losses of records."""
        label = functional.one_hot(y, 10).float()
        conv = self.spec.net == "conv"
        start = x.reshape(-1, 1, 28, 28) if conv else torch.cat((x, label), dim=1)
        mean, spread = _run(self.spec.encoder, self.encoder, start).chunk(2, dim=1)
        spread = 8 * torch.tanh(spread / 8)
        z = torch.cat((mean + torch.exp(spread / 2) * draw, label), dim=1)
        logits = _run(self.spec.decoder, self.decoder, z).flatten(1)
        fit = functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        return fit + 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1)


def _run(net: Net, modules: nn.ModuleList, x: Tensor) -> Tensor:
    for layer, own in zip([one for one in net if one.shapes], modules, strict=True):
        if isinstance(layer, Dense):
            x = x.flatten(1)
        elif x.dim() == 2:
            x = x.reshape(-1, 32, 7, 7)
        x = own(x)
        x = torch.relu(x) if layer.activation == "relu" else x
    return x


def opacus_sum(spec: Autoencoder, start: dict[str, Tensor], rows: tuple, bound: float) -> Tensor:
    """Clipped and summed from the per-record gradients of Opacus's hooks."""
    net = Twin(spec)
    with torch.no_grad():
        for own, value in zip(net.parameters(), start.values(), strict=True):
            own.copy_(value.T if value.ndim == 2 else value)
    GradSampleModule(net, loss_reduction="sum")(*rows).sum().backward()
    grads = [p.grad_sample for p in net.parameters()]
    flat = [(g.transpose(1, 2) if g.dim() == 3 else g).flatten(1) for g in grads]
    whole = torch.cat(flat, dim=1).double()
    return (whole * (bound / whole.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("bound", [1.0, 1e6], ids=["clipped", "unclipped"])
@pytest.mark.filterwarnings("ignore")
def test_clipped_sums_equal_those_of_opacus(name: str, bound: float) -> None:
    spec, rng = SPECS[name], torch.Generator().manual_seed(0)
    start = autoencoder.init(spec, rng=rng)
    x, y = torch.rand(BATCH, 784, generator=rng), torch.arange(BATCH)
    draw = torch.randn(BATCH, spec.latent, generator=rng)
    members = torch.stack((torch.zeros(BATCH, dtype=torch.long), torch.arange(BATCH)), 1)

    def loss(params, batch: RecordBatch) -> Tensor:
        return autoencoder.record_losses(spec, params, batch.x, batch.y, batch.noise)

    parts = pieces(x, y, members, 1, draw[members[:, 1]])
    params = {n: p.unsqueeze(0) for n, p in start.items()}
    ours = clipped_gradients(loss, params, parts, bound).value[0]
    theirs = opacus_sum(spec, start, (x, y, draw), bound * (1 - ROUNDING))
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_epsilon_equals_that_of_opacus() -> None:
    noise, rate, steps, delta = 1.2, 1 / 6, 500, 1e-5
    ours = cost([Event((noise,), rate, steps)], delta)
    rdp, prv = RDPAccountant(), PRVAccountant()
    for accountant in (rdp, prv):
        accountant.history = [(noise, rate, steps)]
    assert ours.epsilon_rdp == pytest.approx(rdp.get_epsilon(delta), rel=0.01)
    assert ours.epsilon == pytest.approx(prv.get_epsilon(delta), rel=0.02)
    assert ours.epsilon < ours.epsilon_rdp
