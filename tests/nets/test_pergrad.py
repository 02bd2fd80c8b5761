from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.nets import layers
from understudy.nets.layers import (
    Conv,
    ConvTranspose,
    Dense,
    GroupNorm,
    MaxPool,
    Net,
    Reshape,
    Tapped,
)
from understudy.nets.pergrad import RecordGradients

CLIENTS, RECORDS = 3, 4
NETS: dict[str, Net] = {
    "dense": (Dense(36, 5), Dense(5, 4, "tanh"), Dense(4, 2, "linear")),
    "conv": (Reshape((1, 6, 6)), Conv(1, 3), Conv(3, 4, 2, "linear")),
    "pooled patches": (
        Reshape((1, 6, 6)), Conv(1, 3, 1, "linear", kernel=3, padding=0), MaxPool("tanh"),
    ),
    "wide kernel": (Reshape((4, 3, 3)), Conv(4, 2, 2, "tanh", kernel=5, padding=2)),
    "odd sides": (Reshape((4, 3, 3)), Conv(4, 2, 2), Conv(2, 3)),
    "transposed": (
        Reshape((4, 3, 3)), ConvTranspose(4, 3), ConvTranspose(3, 2, 2, "swish"),
        ConvTranspose(2, 1, 1, "linear"),
    ),
    "normalised": (Reshape((4, 3, 3)), GroupNorm(4, 2), Conv(4, 6), GroupNorm(6, 3, "linear")),
}  # fmt: skip


@dataclass(frozen=True)
class BatchNorm:
    """A layer that mixes the records of a batch."""

    channels: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"scale": (self.channels,)}

    def __call__(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return (x - x.mean(1, keepdim=True)) * (1 + params["scale"].unsqueeze(1))


def stacked(net: Net) -> tuple[layers.Params, Tensor]:
    """Clients with parameters of their own, biases too, and their records."""
    rng = torch.Generator().manual_seed(1)
    params = {
        name: 0.3 * torch.randn(CLIENTS, *shape, generator=rng)
        for name, shape in layers.shapes(net).items()
    }
    return params, torch.randn(CLIENTS, RECORDS, 36, generator=rng)


def losses(net: Net, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return layers.apply(net, params, x).flatten(2).square().sum(2)


def found(net: Net, params: layers.Params, x: Tensor) -> RecordGradients:
    tapped = Tapped(params)
    return RecordGradients.of(losses(net, tapped, x).sum(), tapped.taps)


def one_by_one(net: Net, params: layers.Params, x: Tensor) -> dict[str, Tensor]:
    """Plain autograd, record after record: ``[C, B, …]``."""
    rows = [[_single(net, params, x, c, b) for b in range(RECORDS)] for c in range(CLIENTS)]
    return {n: torch.stack([torch.stack([r[n] for r in row]) for row in rows]) for n in params}


def _single(net: Net, params: layers.Params, x: Tensor, c: int, b: int) -> dict[str, Tensor]:
    own = {n: p[c : c + 1].clone().requires_grad_() for n, p in params.items()}
    total = losses(net, own, x[c : c + 1, b : b + 1]).sum()
    return {n: g[0] for n, g in zip(own, torch.autograd.grad(total, own.values()), strict=True)}


@pytest.mark.parametrize("name", NETS)
def test_norms_are_those_of_each_records_own_gradient(name: str) -> None:
    net = NETS[name]
    params, x = stacked(net)
    plain = one_by_one(net, params, x)
    wanted = sum(g.flatten(2).double().square().sum(2) for g in plain.values())
    assert torch.allclose(found(net, params, x).square_norms(), wanted, rtol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_weighted_sums_are_those_of_each_records_own_gradient(name: str) -> None:
    net = NETS[name]
    params, x = stacked(net)
    weight = torch.rand(CLIENTS, RECORDS, generator=torch.Generator().manual_seed(2))
    sums = found(net, params, x).weighted_sum(weight)
    plain = one_by_one(net, params, x)
    assert set(sums) == set(params)
    for n, grads in plain.items():
        wanted = torch.einsum("cb,cb...->c...", weight, grads).double()
        assert sums[n].shape == params[n].shape
        assert torch.allclose(sums[n], wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max())), n


@pytest.mark.parametrize("name", NETS)
def test_records_left_out_add_nothing_even_if_not_finite(name: str) -> None:
    net = NETS[name]
    params, x = stacked(net)
    gone = torch.zeros(CLIENTS, RECORDS, dtype=torch.bool)
    gone[1, 2] = True
    weight = (~gone).double()
    spoiled = torch.where(gone.unsqueeze(2), torch.nan, x)
    sums = found(net, params, spoiled).without(gone).weighted_sum(weight)
    for n, wanted in found(net, params, x).weighted_sum(weight).items():
        assert torch.allclose(sums[n], wanted, rtol=1e-4, atol=1e-5), n


def test_only_the_layers_asked_for_are_found() -> None:
    net = NETS["dense"]
    params, x = stacked(net)
    tapped = Tapped(params, "1.")
    sums = RecordGradients.of(losses(net, tapped, x).sum(), tapped.taps).weighted_sum(
        torch.ones(CLIENTS, RECORDS)
    )
    assert set(sums) == {"1.weight", "1.bias"}


def test_factors_beyond_the_range_of_their_squares_are_still_measured() -> None:
    net: Net = (Dense(1, 1, "linear"),)
    params = {"0.weight": torch.zeros(1, 1, 1), "0.bias": torch.zeros(1, 1)}
    tapped = Tapped(params)
    x = torch.full((1, 1, 1), 1e25)
    total = (1e-25 * layers.apply(net, tapped, x)).sum()
    norm = RecordGradients.of(total, tapped.taps).square_norms().sqrt()
    assert float(norm) == pytest.approx(1.0, rel=1e-4)


def test_a_layer_without_a_rule_is_refused() -> None:
    net: Net = (Dense(36, 4), BatchNorm(4))
    params, x = stacked(net)
    with pytest.raises(PrivacyError, match="BatchNorm"):
        found(net, params, x)


def test_a_dense_layer_used_twice_counts_both_uses() -> None:
    net: Net = (Dense(36, 36, "tanh"),)
    params, x = stacked(net)
    tapped = Tapped(params)
    twice = layers.apply(net, tapped, layers.apply(net, tapped, x))
    norms = RecordGradients.of(twice.square().sum(), tapped.taps).square_norms()
    for c in range(CLIENTS):
        for b in range(RECORDS):
            own = {n: p[c : c + 1].clone().requires_grad_() for n, p in params.items()}
            out = layers.apply(net, own, layers.apply(net, own, x[c : c + 1, b : b + 1]))
            plain = torch.autograd.grad(out.square().sum(), own.values())
            wanted = sum(float(g.double().square().sum()) for g in plain)
            assert float(norms[c, b]) == pytest.approx(wanted, rel=1e-4)


def test_a_convolution_used_twice_is_refused() -> None:
    net: Net = (Conv(1, 1),)
    params, x = stacked(net)
    tapped, images = Tapped(params), x.reshape(CLIENTS, RECORDS, 1, 6, 6)
    twice = layers.apply(net, tapped, layers.apply(net, tapped, images))
    with pytest.raises(PrivacyError, match="twice"):
        RecordGradients.of(twice.sum(), tapped.taps)
