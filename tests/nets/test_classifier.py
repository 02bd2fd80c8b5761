"""The classifiers a federation trains: sizes, losses, and what they refuse."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from understudy.errors import ReleaseError, StudyError
from understudy.nets import classifier, layers
from understudy.nets.classifier import ClassifierNet

SPECS = {
    "linear": ClassifierNet(6, 3),
    "mlp": ClassifierNet(6, 3, "mlp", widths=(5,)),
    "lenet": ClassifierNet(16 * 17 * 2, 3, "lenet", shape=(16, 17, 2)),
    "standardised": ClassifierNet(272, 3, "lenet", shape=(16, 17), standardised=True),
    "strokes": ClassifierNet(60, 3, "mlp", (5,), (6, 5, 2), strokes=True),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def params_of(spec: ClassifierNet, clients: int = 3) -> layers.Params:
    each = [classifier.init(spec, rng=generator(c)) for c in range(clients)]
    return {name: torch.stack([p[name] for p in each]) for name in each[0]}


@pytest.mark.parametrize(
    "spec, count",
    [
        (ClassifierNet(123, 2), 248),
        (ClassifierNet(256, 10), 2570),
        (ClassifierNet(784, 10, "mlp"), 76_330),
        (ClassifierNet(784, 47, "mlp"), 79_919),
        (ClassifierNet(784, 10, "lenet", shape=(28, 28)), 44_426),
        (ClassifierNet(784, 47, "lenet", shape=(28, 28)), 47_571),
    ],
)
def test_sizes_are_those_of_the_thesis(spec, count):
    assert layers.size(spec.net) == count


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_loss_is_the_mean_cross_entropy_of_each_client(spec):
    params = params_of(spec)
    x = torch.rand(3, 4, spec.features, generator=generator(9))
    y = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0], [1, 0, 0, 0]])
    weight = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0], [1.0, 0, 0, 0]])
    found = classifier.cross_entropy_loss(spec, params, x, y, weight)
    for c, n in enumerate((4, 2, 1)):
        own = {name: p[c : c + 1] for name, p in params.items()}
        scores = classifier.logits(spec, own, x[c : c + 1, :n])[0]
        torch.testing.assert_close(found[c], nn.functional.cross_entropy(scores, y[c, :n]))


@pytest.mark.parametrize("name, blind", [("standardised", True), ("strokes", True), ("mlp", False)])
def test_brightness_is_no_news_to_nets_that_see_images_without_it(name, blind):
    spec = SPECS[name]
    params, x = params_of(spec, 1), torch.rand(1, 4, spec.features, generator=generator(1))
    brighter = classifier.logits(spec, params, 0.2 + x)
    assert torch.allclose(brighter, classifier.logits(spec, params, x), atol=1e-4) == blind


@pytest.mark.parametrize(
    "features, own",
    [
        (30, {}),
        (30, {"shape": (30,)}),
        (30, {"shape": (6, 6)}),
        (10**40, {"shape": (10**20, 10**20)}),
        (1, {"shape": (1, 1)}),  # one cell says nothing once it has lost its mean
        (12, {"shape": (2, 2, 3)}),
        (30, {"shape": (6, 5), "standardised": True}),
        (256, {"shape": (16, 16), "kind": "lenet"}),
    ],
)
def test_strokes_where_they_cannot_be_seen_are_refused(features, own):
    with pytest.raises(StudyError, match="strokes"):
        ClassifierNet(features, 3, strokes=True, **own)


def test_nets_that_see_strokes_start_small():
    own = {"shape": (6, 5), "strokes": True}
    weight = classifier.init(ClassifierNet(30, 3, **own), rng=generator())["1.weight"]
    usual = layers.init(ClassifierNet(30, 3, **own).net, rng=generator())["1.weight"]
    torch.testing.assert_close(weight, usual / 4)


def test_lenet_is_lenet():
    spec = SPECS["lenet"]
    params = params_of(spec, 1)
    weights = [params[n][0] for n in params if n.endswith("weight")]
    twin = nn.Sequential(
        nn.Conv2d(2, 6, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2),
        nn.ReLU(), nn.Flatten(), nn.Linear(16, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 3),
    )  # fmt: skip
    learners = [module for module in twin if hasattr(module, "weight")]
    with torch.no_grad():
        for module, weight in zip(learners, weights, strict=True):
            module.weight.copy_(weight.T if weight.ndim == 2 else weight)
            module.bias.zero_()
    x = torch.rand(1, 4, spec.features, generator=generator(9))
    images = x[0].view(4, 16, 17, 2).permute(0, 3, 1, 2)
    torch.testing.assert_close(classifier.logits(spec, params, x)[0], twin(images))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("scale", [0.0, 1e20, float("inf"), float("nan")])
def test_the_loss_is_finite_whatever_the_parameters(spec, scale):
    params = {n: p * scale for n, p in params_of(spec).items()}
    x, y = torch.ones(3, 2, spec.features), torch.zeros(3, 2, dtype=torch.long)
    found = classifier.cross_entropy_loss(spec, params, x, y, torch.full((3, 2), 0.5))
    assert found.isfinite().all()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_description_survives_json(spec):
    assert ClassifierNet.from_config(json.loads(json.dumps(spec.to_config()))) == spec


def test_an_unknown_description_is_refused():
    with pytest.raises(ReleaseError, match="description of a classifier"):
        ClassifierNet.from_config({"features": 3, "classes": 2, "import": "os"})


@pytest.mark.parametrize(
    "features, shape, found", [(6, (), "a table"), (64, (8, 8), "shape"), (9, (16, 16), "9 for")]
)
def test_lenet_refuses_what_is_no_image_of_its_size(features, shape, found):
    with pytest.raises(StudyError, match=found):
        ClassifierNet(features, 2, "lenet", shape=shape)


def test_the_sampled_loss_has_the_gradient_of_cross_entropy_on_average() -> None:
    """And each draw of it is in whole numbers at the scores."""
    spec = ClassifierNet(3, 4)
    params = layers.stack(classifier.init(spec, rng=torch.Generator().manual_seed(1)), 1)
    x = torch.rand(1, 1, 3, generator=torch.Generator().manual_seed(2))
    y, weight = torch.tensor([[2]]), torch.ones(1, 1)
    noise, n = torch.Generator().manual_seed(3), 20_000

    def bias_gradient(loss: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss.sum(), bias)[0][0]

    moving = {name: value.clone().requires_grad_() for name, value in params.items()}
    exact = bias_gradient(
        classifier.cross_entropy_loss(spec, moving, x, y, weight), moving["0.bias"]
    )
    rows = (x.expand(1, n, 3), y.expand(1, n), weight.expand(1, n) / n)
    draw = torch.rand(1, n, generator=noise)
    drawn = bias_gradient(classifier.sampled_loss(spec, moving, *rows, draw=draw), moving["0.bias"])
    assert torch.allclose(exact, drawn, atol=4 * 0.5 / n**0.5)
    one = bias_gradient(
        classifier.sampled_loss(spec, moving, x, y, weight, draw=draw[:, :1]), moving["0.bias"]
    )
    assert set(one.tolist()) <= {-1.0, 0.0, 1.0}
