"""Autoencoders: sizes of the papers, conditioning, and losses that stay finite."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from understudy.errors import ReleaseError, StudyError
from understudy.nets import autoencoder, layers
from understudy.nets.autoencoder import DECODER, ENCODER, Autoencoder


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def params_of(spec: Autoencoder, clients: int = 2) -> layers.Params:
    each = [autoencoder.init(spec, rng=generator(c)) for c in range(clients)]
    return {name: torch.stack([p[name] for p in each]) for name in each[0]}


def loss_of(spec: Autoencoder, params: layers.Params, x: torch.Tensor, seed: int = 0):
    y = torch.zeros(x.shape[:2], dtype=torch.long)
    weight = torch.full(x.shape[:2], 1 / x.shape[1])
    draw = torch.randn(*y.shape, spec.latent, generator=generator(seed))
    return autoencoder.vae_loss(spec, params, x, y, weight, draw=draw)


def test_the_wae_of_the_measurements_has_18188_parameters():
    spec = Autoencoder(124, 16, widths=(64,), variational=False)
    assert layers.size(spec.encoder) + layers.size(spec.decoder) == 18_188


def test_the_conv_net_of_the_thesis_maps_images_to_images():
    spec = Autoencoder(784, 8, labels=10, net="conv", shape=(28, 28))
    params = params_of(spec)
    x, y = torch.rand(2, 3, 784), torch.zeros(2, 3, dtype=torch.long)
    mean, spread = autoencoder.encode(spec, params, x, y)
    assert mean.shape == spread.shape == (2, 3, 8)
    assert autoencoder.decode(spec, params, mean, y).shape == (2, 3, 784)
    assert spec.decoder[0] == layers.Dense(18, 1568)


def test_colour_images_keep_their_channels_last():
    spec = Autoencoder(8 * 8 * 3, 4, net="conv", shape=(8, 8, 3))
    x = torch.rand(2, 3, 192)
    assert loss_of(spec, params_of(spec), x).shape == (2,)


def test_conv_refuses_sides_that_do_not_divide_by_four():
    with pytest.raises(StudyError, match="divide by 4"):
        Autoencoder(30, net="conv", shape=(5, 6))


SPECS = {
    "joint": Autoencoder(6, 2, labels=3, widths=(5,)),
    "product": Autoencoder(6, 2, labels=3, product=True, widths=(5,)),
    "separate": Autoencoder(6, 2, widths=(5, 4)),
    "cosines": Autoencoder(6, 2, labels=2, widths=(5,), shape=(2, 3), cosines=(2, 2)),
    "mse": Autoencoder(6, 2, widths=(5,), loss="mse"),
    "series": Autoencoder(6, 2, widths=(5,), net="recurrent", shape=(3, 2), loss="mse"),
    "labelled series": Autoencoder(6, 2, labels=2, widths=(5,), net="recurrent", shape=(3, 2)),
}
WAES = {name: replace(spec, variational=False) for name, spec in SPECS.items()}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_each_client_has_its_own_loss(spec):
    params = params_of(spec, 2)
    x = torch.rand(2, 4, 6, generator=generator())
    changed = {n: p.clone() for n, p in params.items()}
    changed["decoder.0.weight"][1] += 1.0
    before, after = loss_of(spec, params, x), loss_of(spec, changed, x)
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("spec", [SPECS["joint"], SPECS["product"]])
def test_the_decoder_depends_on_the_label(spec):
    params, z = params_of(spec, 1), torch.randn(1, 1, 2, generator=generator())
    outs = [autoencoder.decode(spec, params, z, torch.tensor([[label]])) for label in (0, 1)]
    assert not torch.allclose(*outs)


def test_with_product_a_class_has_its_own_response_to_the_latent():
    spec = Autoencoder(6, 2, labels=3, product=True, decoder_widths=())
    params = params_of(spec, 1)
    z = torch.tensor([[[1.0, 0.0]]])

    def response(label: int) -> torch.Tensor:
        y = torch.tensor([[label]])
        zero = autoencoder.decode(spec, params, torch.zeros_like(z), y)
        return autoencoder.decode(spec, params, z, y) - zero

    assert not torch.allclose(response(0), response(1))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("scale", [0.0, 1e3, 1e20, float("inf"), float("nan")])
def test_the_loss_is_finite_whatever_the_parameters(spec, scale):
    params = {n: p * scale for n, p in params_of(spec).items()}
    x = torch.tensor([0.0, 1.0, 0.5]).repeat(2, 4, 2)
    assert loss_of(spec, params, x).isfinite().all()


def test_the_cross_entropy_has_the_gradient_of_torch():
    spec, x = SPECS["separate"], torch.rand(2, 3, 6, generator=generator())
    logits = torch.randn(2, 3, 6, generator=generator(1), requires_grad=True)
    ours = autoencoder.reconstruction(spec, logits, x)
    reference = torch.nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="none")
    torch.testing.assert_close(ours, reference.sum(-1))
    both = [torch.autograd.grad(v.sum(), logits, retain_graph=True)[0] for v in (ours, reference)]
    torch.testing.assert_close(*both)


def test_divergence_is_zero_only_at_the_prior():
    zero = torch.zeros(1, 1, 3)
    assert autoencoder.divergence(zero, zero).item() == 0
    assert autoencoder.divergence(zero + 1, zero).item() == pytest.approx(1.5)
    assert autoencoder.divergence(zero, zero - 1).item() > 0


def test_mmd_gradient_agrees_with_finite_differences():
    z = torch.randn(2, 3, 4, dtype=torch.double, generator=generator(), requires_grad=True)
    prior = torch.randn(2, 3, 4, dtype=torch.double, generator=generator(1))
    assert torch.autograd.gradcheck(lambda a: autoencoder.mmd(a, prior), (z,), atol=1e-5)


def test_mmd_is_near_zero_for_the_prior_and_large_far_away():
    near, prior = (torch.randn(1, 400, 2, generator=generator(s)) for s in (0, 1))
    assert autoencoder.mmd(near, prior).abs() < 0.01
    assert autoencoder.mmd(near + 3, prior) > 0.2


def plain_mmd(z: torch.Tensor, prior: torch.Tensor) -> float:
    """Equation 4.4 of the thesis, word for word, for one client."""
    n, kappa = len(z), 2.0 * z.shape[1]

    def total(a, b, own):
        pairs = [(i, j) for i in range(n) for j in range(n) if not own or i != j]
        return sum(kappa / (kappa + float((a[i] - b[j]).square().sum())) for i, j in pairs)

    across = 2 / n**2 * total(prior, z, own=False)
    if n == 1:
        return -across
    return (total(prior, prior, own=True) + total(z, z, own=True)) / (n * (n - 1)) - across


def padded(counts: list[int], most: int) -> torch.Tensor:
    """Weights of clients with so many rows each, the rest of a batch being padding."""
    rows = [[1 / n] * n + [0.0] * (most - n) for n in counts]
    return torch.tensor(rows)


@pytest.mark.parametrize("spec", WAES.values(), ids=WAES)
def test_the_wae_loss_is_that_of_the_thesis_for_each_ragged_client(spec):
    counts = [4, 2, 1]
    params = params_of(spec, 3)
    x, y = torch.rand(3, 4, 6, generator=generator()), torch.zeros(3, 4, dtype=torch.long)
    prior = torch.randn(3, 4, 2, generator=generator(1))
    found = autoencoder.wae_loss(
        spec, params, x, y, padded(counts, 4), penalty=0.7, prior=prior
    )  # fmt: skip
    z, _ = autoencoder.encode(spec, params, x, y)
    errors = autoencoder.reconstruction(spec, autoencoder.decode(spec, params, z, y), x) / 6
    for c, n in enumerate(counts):
        wanted = errors[c, :n].mean() + 0.7 * plain_mmd(z[c, :n], prior[c, :n])
        torch.testing.assert_close(found[c], wanted)


def test_padding_counts_in_neither_term_of_the_wae_loss():
    spec, params = WAES["series"], params_of(WAES["series"], 2)
    x, y = torch.rand(2, 4, 6, generator=generator()), torch.zeros(2, 4, dtype=torch.long)
    prior = torch.randn(2, 4, 2, generator=generator(1))

    def gradients(x, prior):
        own = {n: p.clone().requires_grad_() for n, p in params.items()}
        weight = padded([2, 1], 4)
        total = autoencoder.wae_loss(spec, own, x, y, weight, prior=prior).sum()
        return torch.autograd.grad(total, list(own.values()))

    before = gradients(x, prior)
    x[0, 2:], x[1, 1:], prior[0, 2:], prior[1, 1:] = 0.9, 0.9, 5.0, 5.0
    pairs = list(zip(before, gradients(x, prior), strict=True))
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in pairs)


@pytest.mark.parametrize("spec", WAES.values(), ids=WAES)
@pytest.mark.parametrize("scale", [0.0, 1e3, 1e20, float("inf"), float("nan")])
def test_the_wae_loss_is_finite_whatever_the_parameters(spec, scale):
    params = {n: p * scale for n, p in params_of(spec).items()}
    x, y = torch.tensor([0.0, 1.0, 0.5]).repeat(2, 4, 2), torch.zeros(2, 4, dtype=torch.long)
    prior = torch.randn(2, 4, 2, generator=generator())
    found = autoencoder.wae_loss(spec, params, x, y, padded([4, 1], 4), prior=prior)
    assert found.isfinite().all()


@pytest.mark.parametrize(
    "shape, count",
    [((30, 5), 29_269), ((24, 6), 26_358), ((24, 27), 29_739), ((24, 13), 27_485)],
    ids=["sine", "stock", "energy", "air"],
)
def test_recurrent_nets_have_the_sizes_of_the_thesis(shape, count):
    spec = Autoencoder(
        math.prod(shape), 16, widths=(32,), net="recurrent", shape=shape, variational=False
    )  # fmt: skip
    assert layers.size(spec.encoder) + layers.size(spec.decoder) == count


def test_a_recurrent_encoder_reads_rows_step_by_step():
    spec = WAES["series"]
    params, y = params_of(spec, 1), torch.zeros(1, 1, dtype=torch.long)
    x = torch.rand(1, 1, 6, generator=generator())
    lstm = torch.nn.LSTM(2, 5, batch_first=True)
    order = [list(range(i, i + 5)) for i in (5, 10, 15, 0)]  # torch: input, forget, cell, output
    columns = [i for gate in order for i in gate]
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(params["encoder.1.weight"][0, :, columns].T)
        lstm.weight_hh_l0.copy_(params["encoder.1.recurrent"][0, :, columns].T)
        lstm.bias_ih_l0.copy_(params["encoder.1.bias"][0, columns])
        lstm.bias_hh_l0.zero_()
    outputs, _ = lstm(x[0].view(1, 3, 2))
    wanted = outputs.flatten(1) @ params["encoder.3.weight"][0] + params["encoder.3.bias"][0]
    torch.testing.assert_close(autoencoder.encode(spec, params, x, y)[0][0], wanted)


@pytest.mark.parametrize(
    "terms, found",
    [
        ({"shape": ()}, "a table"),
        ({"shape": (2, 2)}, "6 for the shape"),
        ({"shape": (3, 2), "widths": (5, 5)}, "2 layers"),
        ({"shape": (3, 2), "loss": "gaussian"}, "recurrent"),
    ],
)
def test_recurrent_nets_refuse_what_they_cannot_be(terms, found):
    with pytest.raises(StudyError, match=found):
        Autoencoder(6, 2, net="recurrent", **{"widths": (5,), **terms})


@pytest.mark.parametrize("name", ["cosines", "series"])
def test_a_description_survives_json(name):
    spec = SPECS[name]
    assert Autoencoder.from_config(json.loads(json.dumps(spec.to_config()))) == spec


def test_an_unknown_description_is_refused():
    with pytest.raises(ReleaseError, match="description of a net"):
        Autoencoder.from_config({"features": 3, "import": "os"})


def test_encoder_and_decoder_have_separate_names():
    names = autoencoder.init(SPECS["joint"], rng=generator())
    assert {n.split(".")[0] + "." for n in names} == {ENCODER, DECODER}


MIXED = Autoencoder(5, 2, widths=(6,), loss="gaussian", numeric=(0, 3))


def test_a_gaussian_output_adds_one_spread_per_number():
    assert layers.size(MIXED.decoder) - layers.size(Autoencoder(5, 2, widths=(6,)).decoder) == 14


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e20, float("inf"), float("nan")])
@pytest.mark.parametrize(
    "spec", [MIXED, Autoencoder(5, 2, loss="gaussian", shape=(5,), cosines=(3,))]
)
def test_the_gaussian_loss_is_finite_whatever_the_parameters(spec, scale):
    params = {n: p * scale for n, p in params_of(spec).items()}
    assert loss_of(spec, params, torch.rand(2, 4, 5)).isfinite().all()


def test_the_gaussian_loss_is_the_log_likelihood():
    spec = Autoencoder(
        2, 1, widths=(), decoder_widths=(), loss="gaussian", numeric=(0, 1), gain=1.0
    )
    out = torch.tensor([[[0.1, -0.2, 0.0, 1.0]]])
    spread = 8 * torch.tanh(out[..., 2:] / 8) - 1
    target = torch.distributions.Normal(out[..., :2], spread.exp())
    x = torch.tensor([[[0.4, 0.7]]])
    expected = -target.log_prob(x - 0.5).sum(-1) - math.log(2 * math.pi)
    torch.testing.assert_close(autoencoder.reconstruction(spec, out, x), expected)


@pytest.mark.parametrize("spec", [*SPECS.values(), MIXED])
def test_samples_lie_in_the_unit_cube_and_repeat_with_their_generator(spec):
    params, y = params_of(spec, 1), torch.zeros(1, 50, dtype=torch.long)
    one, two = (autoencoder.sample(spec, params, y, rng=generator(3)) for _ in range(2))
    assert one.shape == (1, 50, spec.features)
    assert torch.equal(one, two)
    assert one.min() >= 0
    assert one.max() <= 1


def test_gaussian_samples_have_the_spread_the_decoder_gives():
    spec = Autoencoder(1, 1, widths=(), decoder_widths=(), loss="gaussian", numeric=(0,), gain=4.0)
    params = {n: torch.zeros_like(p) for n, p in params_of(spec, 1).items()}
    x = autoencoder.sample(spec, params, torch.zeros(1, 20_000, dtype=torch.long), rng=generator())
    assert x.mean() == pytest.approx(0.5, abs=0.01)
    assert x.std() == pytest.approx(math.exp(-1) / 4, rel=0.03)


def test_sharper_samples_are_nearer_to_black_and_white():
    spec, y = SPECS["separate"], torch.zeros(1, 20, dtype=torch.long)
    soft, hard = (
        autoencoder.sample(spec, params_of(spec, 1), y, sharpness=s, rng=generator())
        for s in (1.0, 3.0)
    )
    assert ((hard - 0.5).abs() >= (soft - 0.5).abs()).all()


@pytest.mark.parametrize(
    "terms",
    [
        {"shape": (5,), "cosines": (6,)},
        {"shape": (4,), "cosines": (2,)},
        {"shape": (5,), "cosines": (2, 2)},
    ],
)
def test_cosines_that_do_not_fit_the_grid_are_refused(terms):
    with pytest.raises(StudyError, match="frequencies"):
        Autoencoder(5, **terms)


def test_a_description_of_a_few_words_takes_no_memory_for_its_cosines():
    with pytest.raises(StudyError, match="values × frequencies"):
        Autoencoder(10**6, 2, shape=(10**6, 1), cosines=(10**6, 1))
