"""The stacked LSTM against torch's own, client by client."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from understudy.errors import PrivacyError
from understudy.nets import layers
from understudy.nets.layers import Dense, Reshape
from understudy.nets.pergrad import RecordGradients
from understudy.nets.recurrent import DensePerStep, Lstm

CLIENTS, ROWS, STEPS = 3, 4, 5


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_stack(net: layers.Net, clients: int = CLIENTS) -> layers.Params:
    """Each client with its own weights, in double, none of them at a special value."""
    each = [layers.init(net, rng=generator(c)) for c in range(clients)]
    stacked = {name: torch.stack([p[name] for p in each]).double() for name in each[0]}
    noise = generator(99)
    return {
        name: (p + 0.1 * torch.randn(p.shape, generator=noise)).requires_grad_()
        for name, p in stacked.items()
    }


def twin(lstm: Lstm, params: layers.Params, client: int) -> nn.LSTM:
    """torch's LSTM with a client's weights; its gates are input, forget, cell, output."""
    net = nn.LSTM(lstm.inputs, lstm.outputs, batch_first=True).double()
    with torch.no_grad():
        for own, theirs in (("weight", net.weight_ih_l0), ("recurrent", net.weight_hh_l0)):
            theirs.copy_(reordered(params[f"0.{own}"][client]).T)
        net.bias_ih_l0.copy_(reordered(params["0.bias"][client]))
        net.bias_hh_l0.zero_()
    return net


def reordered(gates: torch.Tensor) -> torch.Tensor:
    output, enter, forget, cell = gates.chunk(4, dim=-1)
    return torch.cat((enter, forget, cell, output), dim=-1)


@pytest.mark.parametrize("repeat", [0, STEPS], ids=["sequences", "repeated"])
@pytest.mark.parametrize("steps", [1, STEPS])
def test_outputs_and_gradients_are_those_of_torch(repeat, steps):
    repeat = steps if repeat else 0
    lstm = Lstm(2, 3, repeat)
    params = random_stack((lstm,))
    shape = (CLIENTS, ROWS, 2) if repeat else (CLIENTS, ROWS, steps, 2)
    x = torch.randn(shape, generator=generator(7), dtype=torch.float64, requires_grad=True)
    aim = torch.randn(CLIENTS, ROWS, steps, 3, generator=generator(8), dtype=torch.float64)
    out = layers.apply((lstm,), params, x)
    grads = torch.autograd.grad((out * aim).sum(), [x, *params.values()])
    for c in range(CLIENTS):
        net, own = twin(lstm, params, c), x[c].detach().requires_grad_()
        sequence = own.unsqueeze(1).expand(-1, steps, -1) if repeat else own
        expected, _ = net(sequence)
        torch.testing.assert_close(out[c], expected)
        (expected * aim[c]).sum().backward()
        torch.testing.assert_close(grads[0][c], own.grad)
        torch.testing.assert_close(reordered(grads[1][c]).T, net.weight_ih_l0.grad)
        torch.testing.assert_close(reordered(grads[2][c]).T, net.weight_hh_l0.grad)
        torch.testing.assert_close(reordered(grads[3][c]), net.bias_ih_l0.grad)


@pytest.mark.parametrize("repeat", [0, STEPS], ids=["sequences", "repeated"])
def test_gradients_agree_with_finite_differences(repeat):
    lstm = Lstm(2, 3, repeat)
    params = random_stack((lstm,), 2)
    shape = (2, 2, 2) if repeat else (2, 2, 3, 2)
    x = torch.randn(shape, generator=generator(1), dtype=torch.float64, requires_grad=True)

    def run(x, *values):
        return lstm(dict(zip(lstm.shapes, values, strict=True)), x)

    assert torch.autograd.gradcheck(run, (x, *params.values()))


def test_going_back_twice_gives_the_same_gradients():
    lstm = Lstm(2, 3)
    params = random_stack((lstm,))
    x = torch.randn(CLIENTS, ROWS, STEPS, 2, generator=generator(), dtype=torch.float64)
    total = layers.apply((lstm,), params, x).square().sum()
    once = torch.autograd.grad(total, list(params.values()), retain_graph=True)
    again = torch.autograd.grad(total, list(params.values()))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def test_clients_and_records_do_not_meet():
    net = (Lstm(2, 3), DensePerStep(3, 2))
    params = random_stack(net)
    x = torch.randn(CLIENTS, ROWS, STEPS, 2, generator=generator(), dtype=torch.float64)
    other = x.clone()
    other[1, 2] += 1.0
    changed = (layers.apply(net, params, x) != layers.apply(net, params, other)).flatten(2).any(2)
    assert changed.nonzero().tolist() == [[1, 2]]


def test_a_step_does_not_see_later_ones():
    net = (Lstm(2, 3),)
    params = random_stack(net)
    x = torch.randn(CLIENTS, ROWS, STEPS, 2, generator=generator(), dtype=torch.float64)
    other = x.clone()
    other[:, :, 3] += 1.0
    changed = (layers.apply(net, params, x) != layers.apply(net, params, other)).flatten(3)
    assert changed.any(-1).any(1).any(0).tolist() == [False] * 3 + [True] * 2


def test_dense_per_step_is_one_dense_layer_at_every_step():
    net = (DensePerStep(3, 2, "tanh"),)
    params = random_stack(net)
    x = torch.randn(CLIENTS, ROWS, STEPS, 3, generator=generator(), dtype=torch.float64)
    for step in range(STEPS):
        alone = layers.apply((Dense(3, 2, "tanh"),), params, x[:, :, step])
        torch.testing.assert_close(layers.apply(net, params, x)[:, :, step], alone)


def test_forget_gates_start_open_and_recurrent_weights_orthogonal():
    params = layers.init((Lstm(5, 4),), rng=generator())
    assert params["0.bias"].tolist() == [0.0] * 8 + [1.0] * 4 + [0.0] * 4
    gram = params["0.recurrent"] @ params["0.recurrent"].T
    torch.testing.assert_close(gram, torch.eye(4))
    assert params["0.weight"].abs().max() <= (6 / 21) ** 0.5
    again = layers.init((Lstm(5, 4),), rng=generator())
    assert all(torch.equal(params[name], again[name]) for name in params)


@pytest.mark.parametrize("net", [(Lstm(2, 3),), (DensePerStep(2, 3),)], ids=["lstm", "per step"])
def test_there_is_no_rule_for_single_records(net):
    params = layers.Tapped(random_stack(net))
    x = torch.randn(CLIENTS, ROWS, STEPS, 2, generator=generator(), dtype=torch.float64)
    total = layers.apply((*net, Reshape((STEPS * 3,))), params, x).sum()
    with pytest.raises(PrivacyError, match=type(net[0]).__name__):
        RecordGradients.of(total, params.taps)
