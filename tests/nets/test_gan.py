from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from understudy.errors import StudyError
from understudy.nets import layers
from understudy.nets.branches import BranchedNet
from understudy.nets.gan import CRITIC, GENERATOR, Critic, GeneratorNet, heads
from understudy.nets.layers import Tapped
from understudy.nets.pergrad import RecordGradients

CLIENTS, RECORDS, FEATURES = 2, 4, 7


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def case(critic: Critic) -> tuple[layers.Params, tuple[Tensor, ...]]:
    """Critics with biases, and for each record a real row, a made-up one, a class, a mix."""
    rng = seeded()
    named = layers.shapes(critic.net, CRITIC)
    params = {n: 0.5 * torch.randn(CLIENTS, *s, generator=rng) for n, s in named.items()}
    rows = [critic.seen(torch.rand(CLIENTS, RECORDS, FEATURES, generator=rng)) for _ in "ab"]
    y = torch.randint(0, 2, (CLIENTS, RECORDS), generator=rng)
    return params, (*rows, y, torch.rand(CLIENTS, RECORDS, generator=rng))


def by_double_backward(
    critic: Critic, params: Mapping[str, Tensor], real: Tensor, fake: Tensor, y: int, mix: Tensor
) -> Tensor:
    """The loss of one record of one client, its penalty by autograd through autograd."""

    def score(x: Tensor) -> Tensor:
        for i in range(len(critic.net)):
            x = x @ params[f"{CRITIC}{i}.weight"] + params[f"{CRITIC}{i}.bias"]
            x = torch.nn.functional.leaky_relu(x, 0.2) if i < len(critic.net) - 1 else x
        return x[y]

    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(score(between), between, create_graph=True)
    penalty = critic.penalty * (slope.norm() - 1).square()
    if critic.loss == "wasserstein":
        return score(fake) - score(real) + penalty
    softplus = torch.nn.functional.softplus
    return softplus(-score(real)) + softplus(score(fake)) + penalty


@pytest.mark.parametrize("loss", ["wasserstein", "gan"])
@pytest.mark.parametrize("widths", [(5,), (5, 4)])
def test_each_record_s_gradient_has_its_penalty_in_it(loss: str, widths: tuple[int, ...]) -> None:
    critic = Critic(FEATURES, 2, widths, loss)  # type: ignore[arg-type]
    params, (real, fake, y, mix) = case(critic)
    tapped = Tapped(params)
    losses = critic.losses(tapped, real, fake, y, mix)
    found = RecordGradients.of(losses.sum(), tapped.taps)
    weight = torch.rand(CLIENTS, RECORDS, generator=seeded(1))
    norms, sums = found.square_norms(), found.weighted_sum(weight)
    for c in range(CLIENTS):
        total = {n: torch.zeros(p.shape[1:]) for n, p in params.items()}
        for b in range(RECORDS):
            own = {n: p[c].clone().requires_grad_() for n, p in params.items()}
            terms = (real[c, b], fake[c, b], int(y[c, b]), mix[c, b])
            wanted = by_double_backward(critic, own, *terms)
            assert float(losses[c, b].detach()) == pytest.approx(float(wanted.detach()), abs=1e-4)
            slopes = dict(zip(own, torch.autograd.grad(wanted, own.values()), strict=True))
            square = sum(float(s.double().square().sum()) for s in slopes.values())
            assert float(norms[c, b]) == pytest.approx(square, rel=1e-4)
            total = {n: total[n] + weight[c, b] * slopes[n] for n in total}
        for n, value in total.items():
            assert torch.allclose(sums[n][c], value.double(), rtol=1e-4, atol=1e-4), n


def test_plain_training_sees_the_same_gradient_as_the_records() -> None:
    critic = Critic(FEATURES, 2, (5,))
    params, terms = case(critic)
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    plain = torch.autograd.grad(critic.losses(leaves, *terms).sum(), leaves.values())
    tapped = Tapped(params)
    found = RecordGradients.of(critic.losses(tapped, *terms).sum(), tapped.taps)
    sums = found.weighted_sum(torch.ones(CLIENTS, RECORDS))
    for (n, wanted), grad in zip(
        sums.items(), (dict(zip(leaves, plain, strict=True))[n] for n in sums), strict=True
    ):
        assert torch.allclose(wanted, grad.double(), rtol=1e-4, atol=1e-4), n


def test_one_record_moves_no_other_s_loss() -> None:
    critic = Critic(FEATURES, 2, (5,))
    params, (real, fake, y, mix) = case(critic)
    changed = real.clone()
    changed[:, 0] = 9.0
    before, after = (critic.losses(params, x, fake, y, mix) for x in (real, changed))
    assert torch.equal(before[:, 1:], after[:, 1:]) and not torch.equal(before[:, 0], after[:, 0])


def test_heads_are_chances_that_add_up_within_a_block() -> None:
    logits = torch.randn(2, 3, 6, generator=seeded())
    found = heads(logits, (1, 3, 2))
    assert torch.allclose(found[..., 1:4].sum(-1), torch.ones(2, 3))
    assert torch.allclose(found[..., 4:].sum(-1), torch.ones(2, 3))
    assert torch.allclose(found[..., 0], torch.sigmoid(logits[..., 0]))


def test_settled_rows_are_drawn_by_their_chances() -> None:
    spec = GeneratorNet(5, latent=2, blocks=(1, 3, 1), flags=(4,))
    chances = torch.tensor([[0.4, 0.2, 0.5, 0.3, 0.9]]).repeat(4000, 1)
    found = spec.settled(chances, seeded())
    assert torch.equal(found[:, 0], chances[:, 0])
    assert set(found[:, 1:].unique().tolist()) == {0.0, 1.0}
    assert torch.equal(found[:, 1:4].sum(1), torch.ones(4000))
    assert torch.allclose(found[:, 1:].mean(0), chances[0, 1:], atol=0.04)


def test_a_generator_s_class_has_a_first_layer_of_its_own() -> None:
    spec = GeneratorNet(4, latent=3, labels=2, widths=(5,))
    params = layers.stack(layers.init(spec.net, GENERATOR, rng=seeded()), 1)
    z, y = torch.randn(1, 6, 3, generator=seeded()), torch.tensor([[0, 1, 0, 1, 0, 1]])
    before = spec.rows(params, z, y)
    first = params[f"{GENERATOR}0.weight"].clone()
    first[:, 1::2] += 1  # latent by latent, what class 1 sees
    after = spec.rows({**params, f"{GENERATOR}0.weight": first}, z, y)
    assert torch.equal(before[:, ::2], after[:, ::2])
    assert not torch.isclose(before[:, 1::2], after[:, 1::2]).all()


def test_blocks_must_cover_the_features() -> None:
    with pytest.raises(StudyError, match="blocks"):
        GeneratorNet(5, blocks=(2, 2))


def test_a_branch_is_moved_by_its_own_party_alone() -> None:
    spec = BranchedNet(3, (4, 4), 5, (3, 2), (1, 2, 2))
    params = layers.stack(spec.init(rng=seeded()), 1)
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    z = torch.randn(1, 6, 3, generator=seeded())
    grads = torch.autograd.grad(
        spec.rows(leaves, z, 0).square().sum(), leaves.values(), allow_unused=True
    )
    moved = {n for n, g in zip(leaves, grads, strict=True) if g is not None}
    assert moved == set(spec.shapes(0)) and spec.joint(params, z).shape == (1, 6, 5)


@pytest.mark.parametrize("groups", [(1, 2, 1), (2, 3)])
def test_groups_must_fill_each_branch(groups: tuple[int, ...]) -> None:
    with pytest.raises(StudyError, match="groups"):
        BranchedNet(3, (4,), 5, (3, 2), groups)
