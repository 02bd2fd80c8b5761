"""Made-up pictures, and the directions in which a dense layer is taught."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.nets import kernels, layers
from understudy.nets.directions import Directions
from understudy.nets.layers import Params
from understudy.nets.pictures import made_up
from understudy.nets.stacked import ClassifierNet, cross_entropy_loss, init

SHAPE = (9, 8)
SPEC = ClassifierNet(72, 3, "mlp", widths=(4,), shape=SHAPE, contrast=True, strokes=True)
INPUTS = 16 * 5 * 4
LENET = ClassifierNet(18 * 17, 3, "lenet", shape=(18, 17), contrast=True)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(kept: int, spec: ClassifierNet = SPEC) -> tuple[Directions, Params]:
    directions = Directions(spec.net, kept)
    found = kernels.found(spec.net, spec.shape, rng=generator(0))
    return directions, directions.draw(spec.shape, found, rng=generator(1))


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    colours=st.sampled_from([(), (1,), (3,)]),
    seed=st.integers(0, 5),
)
def test_pictures_have_values_from_0_to_1(
    shape: tuple[int, ...], colours: tuple[int, ...], seed: int
) -> None:
    found = made_up(7, shape + colours, rng=generator(seed))
    assert found.shape == (7, math.prod(shape + colours))
    assert torch.isfinite(found).all() and found.min() >= 0 and found.max() <= 1


def test_pictures_are_smooth_and_various() -> None:
    pictures = made_up(200, (28, 28), rng=generator(0)).view(200, 28, 28)
    step = (pictures[:, 1:] - pictures[:, :-1]).square().mean()
    assert step < 0.25 * pictures.var(), "neighbours go together"
    assert pictures.std(0).mean() > 0.1, "no picture is like the others"
    mirrored = (pictures - pictures.flip(2)).abs().amax((1, 2)) < 1e-4
    assert 0.1 < mirrored.float().mean() < 0.4, "outlines of mirrored blobs are mirrored"


def test_the_same_stream_draws_the_same_directions() -> None:
    (_, one), (_, two) = drawn(20), drawn(20)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_directions_have_the_shapes_that_the_plan_is_made_for() -> None:
    directions, arrays = drawn(20)
    assert arrays["basis"].shape == (INPUTS, 20) and arrays["centre"].shape == (INPUTS,)
    assert directions.size == 20 * 4 + 4 + 4 * 3 + 3
    change = torch.randn(5, layers.size(SPEC.net), generator=generator(2))
    assert directions.taught(change, arrays).shape == (5, directions.size)


def test_what_is_seen_has_about_one_strength_in_every_direction() -> None:
    """In loud directions: faint ones are raised less, and none beyond the others."""
    directions, arrays = drawn(INPUTS)
    pictures = made_up(4000, SHAPE, rng=generator(7))[None]
    rows = layers.apply(SPEC.net[: directions.first], {}, pictures)
    seen = (rows[0] - arrays["centre"]) @ arrays["basis"]
    spread = seen.std(0)
    assert seen.mean(0).abs().max() < 0.15
    assert spread.max() < 1.2 and (spread[:20] > 0.8).all()
    correlation = torch.corrcoef(seen[:, :20].T) - torch.eye(20)
    assert correlation.abs().max() < 0.2


@pytest.mark.parametrize(
    ("spec", "kept"), [(SPEC, 1), (SPEC, 30), (SPEC, INPUTS), (LENET, 5), (LENET, 16)]
)
def test_a_gradient_in_directions_is_that_of_the_loss_along_them(
    spec: ClassifierNet, kept: int
) -> None:
    """By autograd through the step itself: what sites say is about what the server does."""
    directions, arrays = drawn(kept, spec)
    found = kernels.found(spec.net, spec.shape, rng=generator(0))
    params = layers.stack(init(spec, rng=generator(3)), 1) | found
    start = layers.flatten(spec.net, params).double()
    arrays = {name: value.double() for name, value in arrays.items()}
    x = made_up(6, spec.shape, rng=generator(4))[None]
    seen = layers.apply(spec.net[: directions.first], found, x).double()
    y, weight = torch.arange(6)[None] % 3, torch.full((1, 6), 1 / 6).double()

    def loss(flat: torch.Tensor) -> torch.Tensor:
        params = layers.unflatten(spec.net, flat)
        rest = spec.net[directions.first :]
        shifted = {
            f"{int(name.split('.')[0]) - directions.first}.{name.split('.')[1]}": value
            for name, value in params.items()
            if name.startswith(directions.only)
        }
        scores = layers.apply(rest, shifted, seen)
        chosen = torch.log_softmax(scores, -1).gather(-1, y[..., None])[..., 0]
        return -(weight * chosen).sum()

    step = torch.zeros(1, directions.size, dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(loss(start + directions.moved(step, arrays)), step)
    flat = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(flat), flat)
    assert torch.allclose(directions.taught(gradient, arrays), wanted, atol=1e-9)
    assert float(wanted.abs().max()) > 1e-4


def test_kernels_are_not_taught() -> None:
    directions, arrays = drawn(10, LENET)
    flat = 16 * 1 * 1
    assert directions.inputs == flat
    assert directions.size == (10 + 1) * 120 + 121 * 84 + 85 * 3
    change = torch.randn(2, layers.size(LENET.net), generator=generator(2))
    told = directions.taught(change, arrays)
    kernel = layers.size(LENET.net[: directions.first])
    louder = torch.cat((change[:, :kernel] * 5, change[:, kernel:]), dim=1)
    assert torch.equal(told, directions.taught(louder, arrays)), (
        "what is said of kernels is not sent"
    )
    moved = layers.unflatten(LENET.net, directions.moved(torch.ones(1, directions.size), arrays))
    for name, value in moved.items():
        assert bool(value.any()) == name.startswith(directions.only), name


def test_a_step_in_directions_moves_the_layer_and_nothing_else() -> None:
    directions, arrays = drawn(10)
    step = torch.zeros(1, directions.size)
    step[0, 7] = 1.0  # direction 1, output 3
    moved = layers.unflatten(SPEC.net, directions.moved(step, arrays))
    first = f"{directions.first}."
    for name, value in moved.items():
        assert bool(value.any()) == name.startswith(first), name
    weight = moved[f"{first}weight"][0]
    assert torch.equal(weight[:, 3], arrays["basis"][:, 1]) and not weight[:, :3].any()
    centre = arrays["centre"] @ weight + moved[f"{first}bias"][0]
    assert centre.abs().max() < 1e-4, "the mean picture is answered as before"


def test_a_cohort_in_directions_is_each_site_by_itself() -> None:
    directions, arrays = drawn(15)
    change = torch.randn(3, layers.size(SPEC.net), generator=generator(5))
    apart = torch.cat([directions.taught(one[None], arrays) for one in change])
    assert torch.allclose(directions.taught(change, arrays), apart, atol=1e-5)


def test_large_pictures_are_fewer_and_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from understudy.nets import directions as module

    counts: list[int] = []
    original = module.made_up

    def counted(count: int, shape: tuple[int, ...], *, rng: torch.Generator) -> torch.Tensor:
        counts.append(count)
        return original(count, shape, rng=rng)

    monkeypatch.setattr(module, "made_up", counted)
    monkeypatch.setattr(module, "_AT_ONCE", 72 * 3000)
    drawn(5)
    assert counts == [3000, 3000, 2192]
    counts.clear()
    monkeypatch.setattr(module, "_PIXELS", 72 * 500)
    drawn(5)
    assert counts == [500]


def test_a_net_in_directions_still_learns() -> None:
    """Steps along minus the gradient, in directions, lower the loss."""
    directions, arrays = drawn(100)
    flat = layers.flatten(SPEC.net, layers.stack(init(SPEC, rng=generator(3)), 1))
    x = made_up(60, SHAPE, rng=generator(6))[None]
    y = (x.mean(-1) > x.mean()).long()
    weight, losses = torch.full((1, 60), 1 / 60), []
    for _ in range(60):
        flat = flat.detach().requires_grad_()
        loss = cross_entropy_loss(SPEC, layers.unflatten(SPEC.net, flat), x, y, weight).sum()
        (gradient,) = torch.autograd.grad(loss, flat)
        losses.append(float(loss.detach()))
        flat = flat - 0.3 * directions.moved(directions.taught(gradient, arrays), arrays)
    assert losses[-1] < 0.6 * losses[0]
