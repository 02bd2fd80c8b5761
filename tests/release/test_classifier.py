from __future__ import annotations

from typing import Any

import pytest
import torch

from understudy.errors import ReleaseError
from understudy.nets import layers
from understudy.nets.layers import Dense
from understudy.release import classifier
from understudy.release.classifier import KINDS, Classifier

SIZES: dict[str, Any] = {"width": 5, "classes": 3}
CONFIGS: dict[str, dict[str, Any]] = {
    "linear": SIZES,
    "mlp": {**SIZES, "widths": [7, 4]},
}


def made(kind: str, config: dict[str, Any] | None = None, seed: int = 0) -> Classifier:
    """A classifier with random parameters, biases too."""
    config = CONFIGS[kind] if config is None else config
    rng = torch.Generator().manual_seed(seed)
    named = layers.shapes(KINDS[kind].build(config))
    return Classifier(kind, {n: torch.randn(s, generator=rng) for n, s in named.items()}, config)


def rows(n: int, width: int = 5) -> torch.Tensor:
    return torch.rand(n, width, generator=torch.Generator().manual_seed(9))


def test_every_kind_is_tested() -> None:
    assert CONFIGS.keys() == KINDS.keys()


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


def test_mlp_may_have_no_hidden_layer() -> None:
    model = made("mlp", {**SIZES, "widths": []})
    assert model.net == (Dense(5, 3, "linear"),)


@pytest.mark.parametrize("kind", CONFIGS)
def test_probabilities_add_up_whatever_the_chunk(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(kind)
    x = rows(23, model.config["width"])
    whole = model.probabilities(x)
    assert whole.shape == (23, 3) and bool((whole >= 0).all())
    torch.testing.assert_close(whole.sum(1), torch.ones(23))
    sizes: list[int] = []
    apply = layers.apply

    def watched(net: Any, params: Any, part: torch.Tensor) -> torch.Tensor:
        sizes.append(part.shape[1])
        return apply(net, params, part)

    monkeypatch.setattr(layers, "apply", watched)
    for rows_at_once, values in ((10, 1 << 20), (4096, 10 * model.config["width"]), (4096, 1)):
        monkeypatch.setattr(classifier, "_ROWS", rows_at_once)
        monkeypatch.setattr(classifier, "_VALUES", values)
        sizes.clear()
        torch.testing.assert_close(model.probabilities(x), whole)
        assert max(sizes) == (1 if values == 1 else 10), "more rows at once than allowed"


@pytest.mark.parametrize("kind", CONFIGS)
def test_no_rows_give_no_answers(kind: str) -> None:
    model = made(kind)
    assert model.probabilities(rows(0, model.config["width"])).shape == (0, 3)


@pytest.mark.parametrize("shape", [(4, 4), (4, 6), (5,), (2, 4, 5)])
def test_rows_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ReleaseError, match="5 encoded features"):
        made("linear").probabilities(torch.zeros(shape))


def test_only_known_kinds_can_be_made() -> None:
    arrays = made("linear").arrays
    for kind in ("pickle", "os.system", "", None, "gaussian"):
        with pytest.raises(ReleaseError, match="kind"):
            Classifier(kind, arrays, SIZES)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(kind: str, bad: float) -> None:
    good = made(kind)
    for name, value in good.arrays.items():
        with pytest.raises(ReleaseError, match="finite"):
            Classifier(kind, {**good.arrays, name: torch.full_like(value, bad)}, good.config)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_other_kinds_of_numbers_are_refused(dtype: torch.dtype) -> None:
    arrays = {name: value.to(dtype) for name, value in made("linear").arrays.items()}
    with pytest.raises(ReleaseError, match="32-bit"):
        Classifier("linear", arrays, SIZES)


def test_numbers_too_large_to_compute_with_are_refused() -> None:
    arrays = {name: torch.full_like(v, 3e38) for name, v in made("linear").arrays.items()}
    with pytest.raises(ReleaseError, match="finite probabilities"):
        Classifier("linear", arrays, SIZES).probabilities(torch.ones(1, 5))


@pytest.mark.parametrize("kind", CONFIGS)
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


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(
    "change",
    [
        {"width": 0},
        {"width": -5},
        {"width": "5"},
        {"width": 5.0},
        {"width": None},
        {"classes": 1},
        {"classes": True},
        {"classes": [3]},
        {"more": 1},
    ],
)
def test_a_description_of_no_net_is_refused(kind: str, change: dict[str, Any]) -> None:
    good = made(kind)
    with pytest.raises(ReleaseError, match="sizes"):
        Classifier(kind, good.arrays, {**good.config, **change})


@pytest.mark.parametrize("widths", [[0], [-1], ["a"], [2.0], 7, None, [True], [[7]]])
def test_widths_that_are_none_are_refused(widths: object) -> None:
    with pytest.raises(ReleaseError, match="sizes"):
        Classifier("mlp", made("mlp").arrays, {**SIZES, "widths": widths})


@pytest.mark.parametrize("config", [{}, None, [], "x", {"width": 5}, {"classes": 3}])
def test_a_config_that_is_none_is_refused(config: Any) -> None:
    for kind in CONFIGS:
        with pytest.raises(ReleaseError, match="sizes"):
            Classifier(kind, made(kind).arrays, config)


def test_a_net_larger_than_its_arrays_takes_no_memory() -> None:
    with pytest.raises(ReleaseError, match="parameters"):
        Classifier("mlp", made("mlp").arrays, {**SIZES, "widths": [2**40, 2**40]})


def test_a_description_survives_the_manifest() -> None:
    for kind in CONFIGS:
        model = made(kind)
        again = Classifier.from_dict(model.to_dict(), model.arrays)
        assert again.to_dict() == {"kind": kind, "config": model.config}
