"""Kernels found in made-up pictures."""

from __future__ import annotations

import pytest
import torch

from understudy.nets import kernels, layers
from understudy.nets.layers import Conv, Params
from understudy.nets.pictures import made_up
from understudy.nets.stacked import ClassifierNet

SHAPES = [(16, 17), (20, 16, 3)]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def lenet(shape: tuple[int, ...]) -> ClassifierNet:
    features = shape[0] * shape[1] * (shape[2] if len(shape) == 3 else 1)
    return ClassifierNet(features, 3, "lenet", shape=shape, contrast=True)


def found(shape: tuple[int, ...], seed: int = 1) -> Params:
    return kernels.found(lenet(shape).net, shape, rng=generator(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_convolution_gets_kernels_and_nothing_else_does(shape: tuple[int, ...]) -> None:
    net = lenet(shape).net
    places = [place for place, layer in enumerate(net) if isinstance(layer, Conv)]
    params = found(shape)
    assert {name.split(".")[0] for name in params} == {str(place) for place in places}
    for name, value in params.items():
        assert value.shape == (1, *layers.shapes(net)[name]) and value.dtype == torch.float32
        assert torch.isfinite(value).all()


def test_a_net_without_convolutions_draws_nothing() -> None:
    rng = generator(0)
    net = ClassifierNet(72, 3, "mlp", shape=(9, 8), strokes=True).net
    assert kernels.found(net, (9, 8), rng=rng) == {}
    assert torch.equal(torch.rand(3, generator=rng), torch.rand(3, generator=generator(0)))


@pytest.mark.parametrize("shape", SHAPES)
def test_dark_and_light_are_seen_alike_by_the_first_convolution(shape: tuple[int, ...]) -> None:
    weight = next(iter(found(shape).values()))[0]
    assert torch.equal(weight[3:], -weight[:3])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nth", [0, 1])
def test_answers_have_mean_0_and_spread_1_and_tell_different_things(
    shape: tuple[int, ...], nth: int
) -> None:
    net, params = lenet(shape).net, found(shape)
    place = [place for place, layer in enumerate(net) if isinstance(layer, Conv)][nth]
    pictures = made_up(600, shape, rng=generator(7))[None]
    seen = layers.apply(net[:place], params, pictures)
    own = {name: params[f"{place}.{name}"] for name in ("weight", "bias")}
    answers = net[place](own, seen)[0].movedim(1, -1).flatten(0, -2)
    answers = answers[:, :3] if nth == 0 else answers
    assert answers.mean(0).abs().max() < 0.15
    assert 0.8 < answers.std(0).min() and answers.std(0).max() < 1.2
    correlation = torch.corrcoef(answers.T) - torch.eye(answers.shape[1])
    assert correlation.abs().max() < 0.2


def test_the_same_stream_finds_the_same_kernels_and_another_nearly_the_same_space() -> None:
    one, again, other = found((16, 17)), found((16, 17)), found((16, 17), seed=2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    first, second = (next(iter(params.values()))[0, :3].flatten(1) for params in (one, other))
    assert not torch.equal(first, second)
    spans = [torch.linalg.qr(side.T)[0] for side in (first, second)]
    assert torch.linalg.svdvals(spans[0].T @ spans[1]).min() > 0.9


def test_large_pictures_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    original = kernels.made_up

    def counted(count: int, shape: tuple[int, ...], *, rng: torch.Generator) -> torch.Tensor:
        counts.append(count)
        return original(count, shape, rng=rng)

    monkeypatch.setattr(kernels, "made_up", counted)
    found((16, 17))
    found((80, 64))
    monkeypatch.setattr(kernels, "_PIXELS", 1)
    found((16, 17))
    assert counts == [1024, (1 << 20) // (80 * 64), 64]
