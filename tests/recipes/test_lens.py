"""The lens of SignDS-FL: what it spreads, what it leaves alone, and that it earns its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from understudy.data.schema import Column, Schema
from understudy.data.table import Records
from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.stacked import ClassifierNet
from understudy.recipes import build
from understudy.recipes.lens import Lens, gaussian
from understudy.recipes.signds import SignDS
from understudy.run import run
from understudy.study import Study

SIDE = 8
IMAGES = Schema("image", "i", 1200, classes=("a", "b", "c"), shape=(SIDE, SIDE))
CHANNEL = (Column("v", "numeric", 0.0, 1.0),)
COLOURED = Schema("image", "i", 100, classes=("a", "b"), shape=(6, 5, 3))


def study(schema: Schema = IMAGES, **tables: Any) -> Study:
    data = {
        "study": {"name": "t", "recipe": "signds", "rounds": 30},
        "privacy": {"epsilon_per_update": 2.0},
        "cohort": {"size": 20},
        "simulation": {"data": "-", "sites": 60},
        **tables,
    }
    return Study.parse(data, schema=schema)


def lens(schema: Schema = IMAGES, **own: Any) -> Lens:
    recipe = build(study(schema, recipe={"model": "nn", "hidden": 4, **own}))
    assert isinstance(recipe, SignDS)
    return recipe.lens


def vote(found: Lens, name: str, place: tuple[int, ...]) -> torch.Tensor:
    """One vote, for one parameter of the net."""
    zeros = {n: torch.zeros(1, *shape) for n, shape in layers.shapes(found.net).items()}
    zeros[name][(0, *place)] = 1.0
    return layers.flatten(found.net, zeros)


def first(found: Lens, flat: torch.Tensor) -> torch.Tensor:
    """The first layer as ``[H, W, colours, units]``."""
    weight = layers.unflatten(found.net, flat)["0.weight"][0]
    return weight.reshape(*(*found.image, 1)[:3], -1)


@pytest.mark.parametrize("own", [{"smooth": 0.0, "balance": 0.0}, {"model": "lenet", "balance": 0}])
def test_as_published_nothing_is_changed(own: dict[str, Any]) -> None:
    large = Schema("image", "i", 100, classes=("a", "b"), shape=(28, 28))
    found = lens(large, **own)
    flat = torch.randn(1, layers.size(found.net))
    assert torch.equal(found.ranked(flat), flat) and torch.equal(found.read(flat), flat)


def test_without_privacy_the_update_is_sent_as_it_is() -> None:
    recipe = build(study(privacy={"trust": "none"}))
    flat = torch.randn(2, layers.size(recipe.spec.net))
    assert torch.equal(recipe.lens.ranked(flat), flat)
    assert torch.equal(recipe.lens.read(flat[:1]), flat[:1])


def test_a_vote_speaks_for_nearby_pixels_of_its_unit_and_colour() -> None:
    found = lens(COLOURED, balance=0.0)
    pixel = (2 * 5 + 3) * 3 + 1  # row 2, column 3, the second colour
    told = first(found, found.read(vote(found, "0.weight", (pixel, 2))))
    assert told[..., [0, 1, 3]].abs().max() == 0
    rest = told[0, 0, 0, 2]  # far away, or of another colour: only the unit's mean is damped
    assert rest < 0 and torch.allclose(told[:, :, [0, 2], 2], rest.expand(6, 5, 2))
    bell = told[:, :, 1, 2] - rest
    assert bell.argmax() == 2 * 5 + 3
    assert bell[1, 3] == pytest.approx(float(bell[3, 3])) and bell[2, 2] > bell[2, 1] > bell[2, 0]
    assert bell[2, 2] / bell[2, 3] == pytest.approx(np.exp(-0.5), rel=1e-4)


def test_a_row_of_pixels_does_not_run_on_into_the_next() -> None:
    found = lens(smooth=0.5, balance=0.0)
    told = first(found, found.read(vote(found, "0.weight", (3 * SIDE + SIDE - 1, 0))))[:, :, 0, 0]
    assert told[3, SIDE - 1] > 0.5 and told[4, SIDE - 1] > 0.05
    assert told[4, 0] == pytest.approx(float(told[0, 0]))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_a_vote_is_as_long_as_before_at_borders_too(sigma: float) -> None:
    bells = gaussian(SIDE, sigma)
    assert torch.allclose(bells.norm(dim=0), torch.ones(SIDE))
    assert bells[0].argmax() == 0 and bells[-1].argmax() == SIDE - 1


def test_a_narrow_bell_is_the_vote_itself() -> None:
    assert torch.allclose(gaussian(SIDE, 0.05), torch.eye(SIDE), atol=1e-6)


def test_brightness_is_damped_at_both_ends_and_patterns_are_not() -> None:
    found = lens(balance=0.0)
    flat = {n: torch.zeros(1, *shape) for n, shape in layers.shapes(found.net).items()}
    flat["0.weight"] += 1.0
    bright = layers.flatten(found.net, flat)
    assert first(found, found.ranked(bright)).mean() == pytest.approx(0.1)
    pattern = torch.linspace(-1, 1, SIDE * SIDE)[None, :, None].expand(1, -1, 4)
    flat["0.weight"] = pattern
    same = layers.flatten(found.net, flat)
    assert torch.allclose(found.ranked(same), same, atol=1e-6)


def test_small_layers_are_asked_more_and_count_less() -> None:
    found = Lens(ClassifierNet(6, 3, "mlp", (4,)).net, balance=0.5)
    ones = torch.ones(1, layers.size(found.net))
    asked = layers.unflatten(found.net, found.ranked(ones))
    largest = 6 * 4
    for name, shape in layers.shapes(found.net).items():
        assert asked[name].flatten()[0] == pytest.approx((largest / np.prod(shape)) ** 0.5)
    assert torch.allclose(found.read(found.ranked(ones)), ones)


def test_series_have_no_pixels() -> None:
    found = lens(Schema("series", "s", 100, classes=("a", "b"), shape=(5, 1), columns=CHANNEL))
    assert found.image == () and found.smooth == 1.0
    told = layers.unflatten(found.net, found.read(vote(found, "0.weight", (2, 1))))
    assert int((told["0.weight"] != 0).sum()) == 1


@pytest.mark.parametrize("name, most", [("smooth", 100), ("balance", 4)])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 101.0])
def test_what_is_no_width_or_power_is_refused(name: str, most: int, value: float) -> None:
    with pytest.raises(StudyError, match=f"recipe.{name} from 0 to {most}"):
        build(study(recipe={name: value}))


def test_the_largest_balance_leaves_numbers_finite() -> None:
    """Found too large in a round, it would have been charged for nothing."""
    large = Schema("image", "i", 100, classes=("a", "b"), shape=(64, 64, 3))
    found = lens(large, balance=4.0, hidden=64)
    flat = vote(found, "1.bias", (1,))
    assert float(found.ranked(flat).sum()) > 1e20
    assert torch.isfinite(found.ranked(1e6 * flat)).all() and float(found.read(flat).sum()) > 0


def images(n: int, seed: int) -> Records:
    """A wide bright spot whose place says the class, under strong noise and any brightness."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    at = np.array([[1, 1], [1, 6], [6, 3]])[y]
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), -1)
    spot = np.exp(-((grid - at[:, None, None]) ** 2).sum(-1) / 8)
    light = rng.uniform(0, 0.4, (n, 1, 1)) + 0.15 * rng.normal(size=(n, SIDE, SIDE))
    grey = np.clip(0.15 * spot + light + 0.2, 0, 1)
    return Records(images=np.rint(grey * 255).astype(np.uint8), labels=np.array(list("abc"))[y])


def test_a_federation_with_few_votes_learns_more_through_the_lens() -> None:
    """600 votes for 195 coordinates; the same votes read as published teach less."""
    sites, held = [images(10, seed) for seed in range(60)], images(1000, 999)
    scores = {}
    for smooth in (0.0, 1.0):
        own = {"model": "logistic", "global_rate": 8.0, "smooth": smooth, "balance": 0.0}
        found = []
        for seed in range(3):
            release = run(study(recipe=own), sites, seed=seed, rows=0)
            guess = release.predict(held)["predicted"].astype(str).to_numpy()
            found.append((guess == held.labels).mean())
        scores[smooth] = np.mean(found)
    assert scores[1.0] > scores[0.0] + 0.05, scores
