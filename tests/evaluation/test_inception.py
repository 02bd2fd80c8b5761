import math
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from understudy.data.schema import Schema
from understudy.errors import UnderstudyError
from understudy.evaluation.compare import evaluate
from understudy.evaluation.inception import (
    Inception,
    expected_shapes,
    inception_features,
    load_inception,
)

GREY = Schema("image", "grey", 9, classes=("a", "b"), shape=(6, 5))
COLOUR = Schema("image", "colour", 9, classes=("a", "b"), shape=(6, 5, 3))


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """Random weights that keep the size of what goes through."""
    rng = torch.Generator().manual_seed(0)
    found = {name: torch.empty(shape) for name, shape in expected_shapes().items()}
    for name, value in found.items():
        if name.endswith("conv.weight"):
            value.normal_(0, math.sqrt(2 / math.prod(value.shape[1:])), generator=rng)
        else:
            value.uniform_(0.5, 1.5, generator=rng)
    return found


def saved(weights: Mapping[str, torch.Tensor], folder: Path) -> Path:
    path = folder / "fid.safetensors"
    safetensors.torch.save_file(dict(weights), path)
    return path


@pytest.fixture(scope="module")
def network(weights, tmp_path_factory) -> Inception:
    counted = {**weights, "Mixed_5b.branch1x1.bn.num_batches_tracked": torch.tensor(7)}
    return load_inception(saved(counted, tmp_path_factory.mktemp("inception")))


def features(network: Inception, schema: Schema, x: np.ndarray) -> np.ndarray:
    return inception_features(network, schema, x, tick=lambda done, total: None, chunk=2)


def test_network_has_the_size_and_the_names_of_the_public_file() -> None:
    shapes = expected_shapes()
    assert len(shapes) == 2 + 5 * 94
    learnt = sum(math.prod(s) for n, s in shapes.items() if "running" not in n)
    # What torchvision counts, less the auxiliary classifier, plus eight more classes.
    assert learnt == 27_161_264 - 3_326_696 + 8 * 2049
    assert shapes["Mixed_6c.branch7x7dbl_3.conv.weight"] == (160, 160, 1, 7)
    assert shapes["Mixed_7c.branch3x3dbl_3b.conv.weight"] == (384, 384, 3, 1)
    assert shapes["Mixed_7b.branch_pool.conv.weight"] == (192, 1280, 1, 1)


@pytest.mark.slow
def test_grey_images_are_the_colour_images_of_three_equal_channels(network) -> None:
    x = np.random.default_rng(0).random((3, 30)).astype(np.float32)
    grey = features(network, GREY, x)
    assert grey.shape == (3, 2048) and np.isfinite(grey).all()
    assert len(np.unique(grey, axis=0)) == 3
    colour = features(network, COLOUR, np.repeat(x, 3, axis=1))
    np.testing.assert_allclose(colour, grey, rtol=1e-3, atol=1e-3)


def test_a_layer_is_convolution_batch_norm_and_relu(network, weights) -> None:
    name = "Conv2d_1a_3x3"
    norm = [weights[f"{name}.bn.{p}"] for p in ("running_mean", "running_var", "weight", "bias")]
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    h = torch.conv2d(x, weights[f"{name}.conv.weight"], stride=2)
    expected = torch.nn.functional.batch_norm(h, *norm, eps=1e-3).relu()
    weight, bias = network.layers[name]
    torch.testing.assert_close(
        torch.conv2d(x, weight, bias, stride=2).relu(), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Conv2d_1a_3x3.conv.weight": None}, "1 tensors are missing"),
        ({"AuxLogits.fc.weight": torch.zeros(2)}, "unknown, such as AuxLogits"),
        ({"fc.weight": torch.zeros(1000, 2048)}, "another shape, such as fc.weight"),
        ({"fc.bias": torch.full((1008,), float("nan"))}, "not finite"),
    ],
    ids=["missing", "extra", "shape", "finite"],
)
def test_other_weights_are_refused(weights, tmp_path, change, said) -> None:
    changed = {n: v for n, v in {**weights, **change}.items() if v is not None}
    with pytest.raises(UnderstudyError, match=said):
        load_inception(saved(changed, tmp_path))


class Bomb:
    """Says that it was run, if it is ever unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a pickle was loaded",)


def test_pickles_and_absent_files_are_refused(tmp_path) -> None:
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Bomb()))
    torch.save({"fc.bias": Bomb()}, tmp_path / "torch.pth")
    for name in ("plain.pth", "torch.pth"):
        with pytest.raises(UnderstudyError, match="not a safetensors file"):
            load_inception(tmp_path / name)
    with pytest.raises(UnderstudyError, match="No such file"):
        load_inception(tmp_path / "absent.safetensors")


def test_fid_of_a_table_is_refused_before_any_work(table_release, table_records, tmp_path) -> None:
    with pytest.raises(UnderstudyError, match="images, for an FID"):
        evaluate(table_release, table_records, tmp_path / "out", inception="weights.safetensors")
    assert not (tmp_path / "out").exists()
