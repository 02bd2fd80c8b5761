"""Layers of a stack must equal the same layers of each client alone."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from understudy.nets import fixed, layers
from understudy.nets.fixed import Cosines, Standardise, Strokes
from understudy.nets.layers import Conv, ConvTranspose, Dense, MaxPool, Reshape


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_stack(net: layers.Net, clients: int) -> layers.Params:
    each = [layers.init(net, rng=generator(c)) for c in range(clients)]
    return {name: torch.stack([p[name] for p in each]) for name in each[0]}


NETS = {
    "dense": ((Dense(5, 4), Dense(4, 3, "linear")), (5,)),
    "conv": ((Conv(2, 3, 2), Reshape((3 * 4,)), Dense(12, 2, "tanh")), (2, 4, 4)),
    "patches": ((Conv(2, 3, kernel=3, padding=0), Conv(3, 2, kernel=2, padding=0)), (2, 6, 5)),
    "pooled": ((Conv(2, 3, kernel=3, padding=0), MaxPool("relu")), (2, 7, 6)),
    "conv_transpose": ((ConvTranspose(3, 2, 2, "sigmoid"),), (3, 2, 2)),
    "cosines": ((Dense(5, 6), Cosines((4, 5), (2, 3))), (5,)),
}


@pytest.mark.parametrize("net, shape", NETS.values(), ids=NETS)
def test_a_stack_computes_what_each_client_computes_alone(net, shape):
    params = random_stack(net, 3)
    x = torch.randn(3, 7, *shape, generator=generator())
    stacked = layers.apply(net, params, x)
    for c in range(3):
        alone = layers.apply(net, {n: p[c : c + 1] for n, p in params.items()}, x[c : c + 1])
        torch.testing.assert_close(stacked[c : c + 1], alone)


def test_dense_is_a_linear_layer_and_its_activation():
    net = (Dense(5, 4, "relu"),)
    params = random_stack(net, 1)
    x = torch.randn(1, 6, 5, generator=generator())
    twin = nn.Linear(5, 4)
    with torch.no_grad():
        twin.weight.copy_(params["0.weight"][0].T)
        twin.bias.copy_(params["0.bias"][0])
    torch.testing.assert_close(layers.apply(net, params, x)[0], twin(x[0]).relu())


@pytest.mark.parametrize("kernel, inputs", [(5, 1), (5, 6), (2, 3)])
def test_a_product_of_patches_is_a_convolution_with_its_gradients(kernel, inputs):
    layer = Conv(inputs, 4, kernel=kernel, padding=0)
    assert layer.by_patches
    params = {n: p.double().requires_grad_() for n, p in random_stack((layer,), 3).items()}
    x = torch.randn(3, 2, inputs, 8, 7, generator=generator(), dtype=torch.float64)
    x.requires_grad_()
    ours = layer({n[2:]: p for n, p in params.items()}, x)
    weight, bias = params["0.weight"], params["0.bias"]
    reference = torch.stack([nn.functional.conv2d(x[c], weight[c], bias[c]) for c in range(3)])
    torch.testing.assert_close(ours, reference)
    aim = torch.randn(ours.shape, generator=generator(1), dtype=torch.float64)
    leaves = [x, weight, bias]
    both = [torch.autograd.grad((o * aim).sum(), leaves) for o in (ours, reference)]
    for got, wanted in zip(*both, strict=True):
        torch.testing.assert_close(got, wanted)


def test_only_small_convolutions_without_padding_run_as_patches():
    assert not Conv(1, 4).by_patches
    assert not Conv(1, 4, 2, padding=0).by_patches
    assert not Conv(64, 64, padding=0).by_patches


@pytest.mark.parametrize("sides", [(6, 8), (7, 6), (6, 7), (5, 5)])
@pytest.mark.parametrize("levels", [1000, 2], ids=["distinct", "ties"])
def test_max_pool_takes_the_largest_and_sends_the_gradient_there(sides, levels):
    x = torch.randint(levels, (2, 3, 4, *sides), generator=generator()).float().requires_grad_()
    ours = MaxPool()({}, x)
    reference = nn.functional.max_pool2d(x.flatten(0, 1), 2).unflatten(0, (2, 3))
    torch.testing.assert_close(ours, reference)
    one, two = (torch.autograd.grad(o.square().sum(), x)[0] for o in (ours, reference))
    if levels > 2:
        torch.testing.assert_close(one, two)
    high, wide = (side // 2 for side in sides)  # of equal values any one may get the gradient
    squares = [g[..., : 2 * high, : 2 * wide].unflatten(-1, (wide, 2)).sum(-1) for g in (one, two)]
    squares = [g.unflatten(-2, (high, 2)).sum(-2) for g in squares]
    torch.testing.assert_close(*squares)
    assert (one != 0).sum() == (two != 0).sum()


@pytest.mark.parametrize("stride, size", [(1, 8), (2, 4)])
def test_convolutions_divide_the_sides_by_their_stride(stride, size):
    net = (Conv(1, 2, stride),)
    out = layers.apply(net, random_stack(net, 1), torch.zeros(1, 3, 1, 8, 8))
    assert out.shape == (1, 3, 2, size, size)


@pytest.mark.parametrize("stride, size", [(1, 7), (2, 14)])
def test_transposed_convolutions_multiply_the_sides_by_their_stride(stride, size):
    net = (ConvTranspose(2, 1, stride),)
    out = layers.apply(net, random_stack(net, 1), torch.zeros(1, 3, 2, 7, 7))
    assert out.shape == (1, 3, 1, size, size)


def test_cosines_of_all_frequencies_are_invertible():
    x = torch.randn(2, 3, 20, generator=generator())
    there = Cosines((4, 5), (4, 5), analyse=True)({}, x)
    torch.testing.assert_close(Cosines((4, 5), (4, 5))({}, there), x)


def test_cosines_keep_the_axes_of_an_uneven_grid_apart():
    rows = torch.zeros(1, 1, 4, 6)
    rows[..., 1, :] = 1.0  # constant along the second axis
    grid = Cosines((4, 6), (4, 6), analyse=True)({}, rows.flatten(2)).reshape(4, 6)
    assert grid[:, 1:].abs().max() < 1e-6
    assert grid[1, 0].abs() > 0.1


def test_low_frequencies_give_back_a_smooth_image():
    ramp = torch.linspace(0, 1, 28)
    image = (ramp[:, None] * ramp[None, :]).reshape(1, 1, -1)
    low = Cosines((28, 28), (8, 8), analyse=True)({}, image)
    back = Cosines((28, 28), (8, 8))({}, low)
    assert (back - image).abs().mean() < 0.02


def test_standardised_images_know_neither_brightness_nor_light():
    x = torch.rand(2, 3, 20, generator=generator())
    seen = Standardise()({}, x)
    torch.testing.assert_close(seen.mean(-1), torch.zeros(2, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(Standardise()({}, x + 0.5), seen, atol=1e-5, rtol=1e-4)
    faint = Standardise()({}, 0.5 * x).std(-1) / seen.std(-1)
    assert 0.8 < faint.min() and faint.max() < 1
    assert torch.equal(Standardise()({}, torch.full((1, 1, 20), 0.25)), torch.zeros(1, 1, 20))


@pytest.mark.parametrize("shape", [(28, 28), (16, 16), (9, 30), (1, 1), (3, 2), (12, 7, 3)])
def test_strokes_are_pooled_answers_of_cosine_kernels(shape):
    """By torch's own convolution and pooling, one kernel, sign and colour after the other."""
    x = torch.randn(2, 2, math.prod(shape), generator=generator())
    height, width, colours = (*shape, 1)[:3]
    images = Standardise()({}, x).view(4, height, width, colours)
    waves = fixed._cosine_matrix(5, 5)
    lowest = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2)]
    grid = [min(7, -(-side // 2)) for side in (height, width)]
    expected = []
    for colour, sign, (a, b) in itertools.product(range(colours), (1, -1), lowest):
        kernel = sign * torch.outer(waves[a], waves[b])[None, None]
        sides = (2, 2 + width % 2, 2, 2 + height % 2)
        image = functional.pad(images[:, None, :, :, colour], sides)
        answer = functional.max_pool2d(functional.conv2d(image, kernel), 2).relu()
        cells = functional.adaptive_avg_pool2d(answer, grid).flatten(1)
        cells = cells / (cells.square().mean(1, keepdim=True).sqrt() + 0.1)
        expected.append(cells - cells.mean(1, keepdim=True))
    layer = Strokes(shape)
    assert layer.outputs == 16 * colours * math.prod(grid)
    found = layer({}, x)
    torch.testing.assert_close(found.view(4, -1), torch.cat(expected, 1), atol=1e-5, rtol=1e-4)


def test_a_stroke_is_seen_where_it_is_and_its_negative_apart():
    image = torch.zeros(2, 28, 28)
    image[0, 4:10, 6:8], image[1, 4:10, 6:8] = 1.0, -1.0
    light, dark = Strokes((28, 28))({}, image.view(1, 2, -1)).view(2, 2, 8, 7, 7)
    for maps in (light, dark):
        rows, columns = zip(*(divmod(int(m.argmax()), 7) for m in maps[0]), strict=True)
        assert set(rows) <= {0, 1, 2} and set(columns) <= {1, 2}, "where 4 to 10, 6 to 8 is near"
    torch.testing.assert_close(light[0], dark[1])
    torch.testing.assert_close(light[1], dark[0])


def test_strokes_of_an_even_image_are_none_and_of_no_image_neither():
    seen = Strokes((8, 8))({}, torch.full((1, 2, 64), 0.75))
    assert torch.equal(seen, torch.zeros(1, 2, 256))
    assert Strokes((8, 8))({}, torch.zeros(3, 0, 64)).shape == (3, 0, 256)


def test_strokes_of_many_images_are_those_of_few(monkeypatch):
    x = torch.rand(3, 5, 64, generator=generator())
    whole = Strokes((8, 8))({}, x)
    monkeypatch.setattr(fixed, "_AT_ONCE", 8 * 64 * 4)
    torch.testing.assert_close(Strokes((8, 8))({}, x), whole)


@pytest.mark.parametrize("other", [0.0, 1e6, -1e6, float("inf"), float("nan")])
@pytest.mark.parametrize(
    "layer",
    [Standardise(), Cosines((4, 5), (3, 2), True), Strokes((4, 5)), Strokes((2, 5, 2))],
    ids=type,
)
def test_fixed_layers_see_every_record_by_itself(layer, other):
    x = torch.rand(2, 3, 20, generator=generator())
    changed = x.clone()
    changed[1, 1] = other
    before, after = layer({}, x), layer({}, changed)
    assert not torch.equal(before[1, 1], after[1, 1])
    before[1, 1] = after[1, 1] = 0.0
    assert torch.equal(before, after)


def test_flatten_and_unflatten_are_inverse():
    net = NETS["conv"][0]
    params = random_stack(net, 3)
    flat = layers.flatten(net, params)
    assert flat.shape == (3, layers.size(net))
    back = layers.unflatten(net, flat)
    assert all(torch.equal(back[n], params[n]) for n in params)


def test_parameter_names_carry_the_prefix():
    assert set(layers.shapes((Dense(2, 3),), "decoder.")) == {"decoder.0.weight", "decoder.0.bias"}


def test_stack_gives_every_client_the_same_parameters():
    params = layers.init((Dense(2, 3),), rng=generator())
    stacked = layers.stack(params, 4)
    assert all(torch.equal(stacked[n][c], params[n]) for n in params for c in range(4))


def test_init_is_repeatable_and_bounded():
    one, two = (layers.init((Dense(50, 50),), rng=generator(3)) for _ in range(2))
    assert torch.equal(one["0.weight"], two["0.weight"])
    assert one["0.weight"].abs().max() <= (6 / 100) ** 0.5
    assert not one["0.bias"].any()
