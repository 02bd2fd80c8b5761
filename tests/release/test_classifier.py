from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.nn import functional

from understudy.data.schema import Column, Schema
from understudy.errors import ReleaseError, UnderstudyError
from understudy.nets import layers
from understudy.nets.classifier import ClassifierNet
from understudy.release import classifier
from understudy.release.classifier import KINDS, Classifier

NETS = {
    "linear": ClassifierNet(5, 3),
    "mlp": ClassifierNet(5, 3, "mlp", widths=(7, 4)),
    "lenet": ClassifierNet(16 * 20 * 3, 3, "lenet", shape=(16, 20, 3)),
}


def made(kind: str) -> Classifier:
    """A classifier with random parameters, biases too."""
    rng = torch.Generator().manual_seed(0)
    return Classifier.of(NETS[kind], torch.randn(layers.size(NETS[kind].net), generator=rng) / 4)


def rows(n: int, width: int = 5) -> torch.Tensor:
    return torch.rand(n, width, generator=torch.Generator().manual_seed(9))


def test_every_kind_is_tested() -> None:
    assert NETS.keys() == set(KINDS)


def test_linear_is_softmax_regression() -> None:
    model, x = made("linear"), rows(6)
    scores = x @ model.arrays["0.weight"] + model.arrays["0.bias"]
    torch.testing.assert_close(model.probabilities(x), scores.softmax(1))


def test_mlp_is_dense_layers_with_relu_between() -> None:
    model, x = made("mlp"), rows(6)
    h = x
    for i in (0, 1):
        h = torch.relu(h @ model.arrays[f"{i}.weight"] + model.arrays[f"{i}.bias"])
    scores = h @ model.arrays["2.weight"] + model.arrays["2.bias"]
    torch.testing.assert_close(model.probabilities(x), scores.softmax(1))


def test_lenet_is_two_pooled_convolutions_and_three_dense_layers() -> None:
    model = made("lenet")
    weights = list(model.arrays.values())
    x = rows(6, 960)
    h = x.reshape(6, 16, 20, 3).permute(0, 3, 1, 2)
    for i in (0, 2):
        h = functional.max_pool2d(functional.conv2d(h, weights[i], weights[i + 1]), 2).relu()
    h = h.flatten(1)
    for i in (4, 6):
        h = torch.relu(h @ weights[i] + weights[i + 1])
    expected = (h @ weights[8] + weights[9]).softmax(1)
    torch.testing.assert_close(model.probabilities(x), expected, rtol=1e-4, atol=1e-5)
    assert [tuple(w.shape) for w in weights[:3:2]] == [(6, 3, 5, 5), (16, 6, 5, 5)]


def test_flat_parameters_are_taken_in_their_order_and_copied() -> None:
    flat = torch.arange(18.0)
    model = Classifier.of(NETS["linear"], flat)
    assert torch.equal(model.arrays["0.weight"], torch.arange(15.0).reshape(5, 3))
    assert torch.equal(model.arrays["0.bias"], torch.arange(15.0, 18.0))
    flat.zero_()
    assert float(model.arrays["0.bias"][0]) == 15.0


@pytest.mark.parametrize("kind", NETS)
def test_probabilities_add_up_whatever_the_chunk(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(kind)
    x = rows(23, model.net.features)
    whole = model.probabilities(x)
    assert whole.shape == (23, 3) and bool((whole >= 0).all())
    torch.testing.assert_close(whole.sum(1), torch.ones(23))
    sizes: list[int] = []
    logits = classifier.logits

    def watched(net: Any, params: Any, part: torch.Tensor) -> torch.Tensor:
        sizes.append(part.shape[1])
        return logits(net, params, part)

    monkeypatch.setattr(classifier, "logits", watched)
    for rows_at_once, values in ((10, 1 << 20), (4096, 10 * model.net.features), (4096, 1)):
        monkeypatch.setattr(classifier, "_ROWS", rows_at_once)
        monkeypatch.setattr(classifier, "_VALUES", values)
        sizes.clear()
        torch.testing.assert_close(model.probabilities(x), whole)
        assert max(sizes) == (1 if values == 1 else 10), "more rows at once than allowed"


@pytest.mark.parametrize("kind", NETS)
def test_no_rows_give_no_answers(kind: str) -> None:
    model = made(kind)
    assert model.probabilities(rows(0, model.net.features)).shape == (0, 3)


@pytest.mark.parametrize("shape", [(4, 4), (4, 6), (5,), (2, 4, 5)])
def test_rows_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ReleaseError, match="5 encoded features"):
        made("linear").probabilities(torch.zeros(shape))


def test_only_known_kinds_can_be_made() -> None:
    good = made("linear")
    for kind in ("pickle", "os.system", "", None, "gaussian"):
        with pytest.raises(ReleaseError, match="kind"):
            Classifier(kind, good.arrays, good.config)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(kind: str, bad: float) -> None:
    good = made(kind)
    for name, value in good.arrays.items():
        with pytest.raises(ReleaseError, match="finite"):
            Classifier(kind, {**good.arrays, name: torch.full_like(value, bad)}, good.config)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_other_kinds_of_numbers_are_refused(dtype: torch.dtype) -> None:
    good = made("linear")
    arrays = {name: value.to(dtype) for name, value in good.arrays.items()}
    with pytest.raises(ReleaseError, match="32-bit"):
        Classifier("linear", arrays, good.config)


def test_numbers_too_large_to_compute_with_are_refused() -> None:
    model = Classifier.of(NETS["linear"], torch.full((18,), 3e38))
    with pytest.raises(ReleaseError, match="finite probabilities"):
        model.probabilities(torch.ones(1, 5))


@pytest.mark.parametrize("kind", NETS)
def test_arrays_that_do_not_fit_the_description_are_refused(kind: str) -> None:
    good = made(kind)
    first = next(iter(good.arrays))
    for arrays in (
        {},
        {name: value for name, value in good.arrays.items() if name != first},
        {**good.arrays, "more": torch.zeros(1)},
        {**good.arrays, first: good.arrays[first].unsqueeze(0)},
        {**good.arrays, first: good.arrays[first][1:]},
    ):
        with pytest.raises(ReleaseError, match="parameters"):
            Classifier(kind, arrays, good.config)


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize(
    "change",
    [
        {"features": 0},
        {"features": -5},
        {"features": "5"},
        {"features": 5.0},
        {"features": None},
        {"classes": 1},
        {"classes": True},
        {"classes": [3]},
        {"shape": [0, 5]},
        {"shape": None},
        {"shape": "16"},
    ],
)
def test_a_description_of_no_net_is_refused(kind: str, change: dict[str, Any]) -> None:
    good = made(kind)
    with pytest.raises(ReleaseError, match="sizes"):
        Classifier(kind, good.arrays, {**good.config, **change})


@pytest.mark.parametrize("widths", [[0], [-1], ["a"], [2.0], 7, None, [True], [[7]]])
def test_widths_that_are_none_are_refused(widths: object) -> None:
    good = made("mlp")
    with pytest.raises(ReleaseError, match="sizes"):
        Classifier("mlp", good.arrays, {**good.config, "widths": widths})


STROKES = ClassifierNet(30, 3, shape=(6, 5), strokes=True)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": []},
        {"shape": {}},
        {"shape": [6, 5.0]},
        {"shape": [5, 5]},
        {"shape": [10, 3]},
        {"shape": [-6, -5]},
        {"shape": "65"},
        {"shape": None},
        {"standardised": 1},
        {"standardised": None},
        {"standardised": True},
        {"strokes": 1},
        {"strokes": None},
        {"strokes": False},
    ],
)
def test_strokes_of_another_image_are_refused(change: dict[str, Any]) -> None:
    good = Classifier.of(STROKES, torch.randn(layers.size(STROKES.net)))
    said = good.probabilities(rows(4, 30))
    assert torch.allclose(said, good.probabilities(rows(4, 30) + 0.5), atol=1e-4)
    with pytest.raises(UnderstudyError):
        Classifier("linear", good.arrays, {**good.config, **change})


def test_strokes_of_turned_images_do_not_fit() -> None:
    good = Classifier.of(STROKES, torch.zeros(layers.size(STROKES.net)))
    assert good.fits(Schema("image", "i", 9, classes=tuple("abc"), shape=(6, 5)))
    assert not good.fits(Schema("image", "i", 9, classes=tuple("abc"), shape=(5, 6)))


@pytest.mark.parametrize("change", [{"widths": ""}, {"widths": {}}, {"shape": ""}])
def test_sizes_are_lists(change: dict[str, Any]) -> None:
    """Nothing but an empty list says that there are none."""
    good = made("mlp")
    with pytest.raises(ReleaseError, match="sizes"):
        Classifier("mlp", good.arrays, {**good.config, **change})


def test_only_images_are_standardised_or_seen_as_strokes() -> None:
    channels = tuple(Column(name, "numeric", 0.0, 1.0) for name in "vw")
    series = Schema("series", "s", 9, channels, shape=(6, 2), classes=tuple("abc"))
    image = Schema("image", "i", 9, classes=tuple("abc"), shape=(6, 2))
    for own in ({}, {"standardised": True}, {"shape": (6, 2), "strokes": True}):
        net = ClassifierNet(12, 3, **own)
        found = Classifier.of(net, torch.zeros(layers.size(net.net)))
        assert found.fits(image) and found.fits(series) == (not own)


def test_strokes_of_images_larger_than_any_take_no_memory() -> None:
    """A description of a few words does not say what is allocated."""
    config = {**Classifier.of(STROKES, torch.zeros(layers.size(STROKES.net))).config}
    arrays = {"1.weight": torch.zeros(16 * 49, 3), "1.bias": torch.zeros(3)}
    config |= {"features": 10**10, "shape": [10**5, 10**5]}
    with pytest.raises(UnderstudyError, match="images larger than 2×2, of at most"):
        Classifier("linear", arrays, config)


@pytest.mark.parametrize("kind", NETS)
def test_a_config_that_is_not_whole_is_refused(kind: str) -> None:
    good = made(kind)
    needed = ("features", "classes", "widths", "shape", "standardised", "strokes")
    short = [{k: v for k, v in good.config.items() if k != name} for name in needed]
    for config in (*short, {}, None, [], "x"):
        with pytest.raises(ReleaseError, match="sizes"):
            Classifier(kind, good.arrays, config)  # type: ignore[arg-type]
    for more in ({"more": 1}, {1: 1}):
        with pytest.raises(ReleaseError, match="description"):
            Classifier(kind, good.arrays, {**good.config, **more})


def test_a_net_larger_than_its_arrays_takes_no_memory() -> None:
    good = made("mlp")
    with pytest.raises(ReleaseError, match="parameters"):
        Classifier("mlp", good.arrays, {**good.config, "widths": [2**40, 2**40]})


@pytest.mark.parametrize("kind", NETS)
def test_a_description_survives_the_manifest(kind: str) -> None:
    model = made(kind)
    described = json.loads(json.dumps(model.to_dict()))
    again = Classifier.from_dict(described, model.arrays)
    assert again.net == model.net == NETS[kind]


def test_it_fits_rows_of_its_own_shape_and_classes() -> None:
    def pictures(*shape: int, classes: str = "abc") -> Schema:
        return Schema("image", "pictures", 9, classes=tuple(classes), shape=shape)

    assert made("lenet").fits(pictures(16, 20, 3))
    for other in (pictures(20, 16, 3), pictures(16, 20, 3, classes="ab"), pictures(16, 20)):
        assert not made("lenet").fits(other)
    flat = Classifier.of(ClassifierNet(960, 3), torch.zeros(3 * 961))
    assert flat.fits(pictures(16, 20, 3)) and not flat.fits(pictures(16, 20))
