"""The stacked loop against a plain loop over clients, and its promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from understudy.nets import autoencoder, classifier, layers
from understudy.nets.autoencoder import Autoencoder
from understudy.nets.classifier import ClassifierNet
from understudy.nets.stacked import equal_chunks
from understudy.rng import Draws, Streams
from understudy.training import batches, loop, optim
from understudy.training.batches import Batches, Holdings
from understudy.training.optim import Adam, Sgd

COUNTS = np.array([5, 0, 9, 1, 4])
ROWS = Holdings(None, COUNTS.cumsum() - COUNTS, COUNTS)
DENSE = Autoencoder(6, 2, widths=(5,), variational=False)
CONV = Autoencoder(16, 2, net="conv", shape=(4, 4), variational=False)
SERIES = Autoencoder(
    6, 2, widths=(4,), net="recurrent", shape=(3, 2), loss="mse", variational=False
)  # fmt: skip


def draws(name: str = "test", sites: int = len(COUNTS)) -> Draws:
    return Streams.from_seed(0).sites(name, 0, range(sites))


def data(spec: Autoencoder) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.rand(int(COUNTS.sum()), spec.features, generator=rng), torch.zeros(
        int(COUNTS.sum()), dtype=torch.long
    )


def start(spec: Autoencoder, clients: int = len(COUNTS)) -> layers.Params:
    return layers.stack(autoencoder.init(spec, rng=torch.Generator().manual_seed(1)), clients)


def plain_loss(spec: Autoencoder):
    def loss(params, batch):
        z, _ = autoencoder.encode(spec, params, batch.x, batch.y)
        logits = autoencoder.decode(spec, params, z, batch.y)
        return (batch.weight * autoencoder.reconstruction(spec, logits, batch.x)).sum(1)

    return loss


def plan(number: int = 3) -> Batches:
    return batches.epochs(ROWS, number, 2, rng=draws())


def one_by_one(spec: Autoencoder, chosen: Batches, rate: float) -> layers.Params:
    """The plain way: for every client its own torch optimiser and its own graph."""
    x, y = data(spec)
    results = []
    for c in range(len(COUNTS)):
        own = {n: p[c : c + 1].clone().requires_grad_() for n, p in start(spec).items()}
        reference = torch.optim.Adam(own.values(), lr=rate)
        for step in range(int(chosen.steps[c])):
            index = chosen.index[step, c : c + 1]
            batch = loop.Batch(
                x[index], y[index], chosen.weight[step, c : c + 1],
                torch.tensor([c]), step, None,
            )  # fmt: skip
            reference.zero_grad()
            plain_loss(spec)(own, batch).sum().backward()
            reference.step()
        results.append({n: p.detach() for n, p in own.items()})
    return {n: torch.cat([r[n] for r in results]) for n in results[0]}


def fit(spec: Autoencoder, chosen: Batches, optimiser=None, **options):
    x, y = data(spec)
    chosen_optimiser = optimiser or Adam(1e-2)
    loss = options.pop("loss", plain_loss(spec))
    params = options.pop("params", start(spec))
    rng = options.pop("rng", draws())
    return loop.train(params, loss, (x, y), chosen, chosen_optimiser, rng=rng, **options)


@pytest.mark.parametrize("spec", [DENSE, CONV, SERIES], ids=["dense", "conv", "series"])
def test_a_stack_of_ragged_clients_trains_like_a_loop_over_them(spec):
    expected, (trained, _) = one_by_one(spec, plan(), 1e-2), fit(spec, plan())
    for name in expected:
        torch.testing.assert_close(trained[name], expected[name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_chunks_do_not_change_the_result(chunk, monkeypatch):
    whole = fit(DENSE, plan())[0]
    monkeypatch.setattr(loop, "chunk_size", lambda params: chunk)
    cut = fit(DENSE, plan())[0]
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


@pytest.mark.parametrize("spec", [DENSE, SERIES], ids=["dense", "series"])
def test_gathering_rows_step_by_step_does_not_change_the_result(spec, monkeypatch):
    at_once = fit(spec, plan())[0]
    monkeypatch.setattr(loop, "GATHER_BYTES", 0)
    assert all(torch.equal(at_once[n], p) for n, p in fit(spec, plan())[0].items())


def test_a_wae_of_ragged_clients_trains_like_each_client_alone():
    """Padding must not leak into the penalty, which sees all rows of a client together."""
    chosen = batches.epochs(ROWS, 1, 9, rng=draws())
    drawn = torch.randn(1, len(COUNTS), 9, 2, generator=torch.Generator().manual_seed(2))

    def loss(params, batch):
        prior = drawn[batch.step, batch.members, : batch.x.shape[1]]
        return autoencoder.wae_loss(SERIES, params, batch.x, batch.y, batch.weight, prior=prior)

    together, _ = fit(SERIES, chosen, loss=loss)
    x, y = data(SERIES)
    for c in np.flatnonzero(COUNTS):
        n = int(COUNTS[c])
        own = {name: p[c : c + 1].clone().requires_grad_() for name, p in start(SERIES).items()}
        index = chosen.index[0, c : c + 1, :n]
        weight = torch.full((1, n), 1 / n)
        total = autoencoder.wae_loss(
            SERIES, own, x[index], y[index], weight, prior=drawn[0, c : c + 1, :n]
        )  # fmt: skip
        reference = torch.optim.Adam(own.values(), lr=1e-2)
        total.sum().backward()
        reference.step()
        for name, p in own.items():
            torch.testing.assert_close(together[name][c : c + 1], p.detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "clients, most, size", [(0, 4, 1), (4, 4, 4), (50, 35, 25), (250, 57, 42), (9, 1, 1)]
)
def test_chunks_are_equal_and_even_in_number(clients, most, size):
    assert equal_chunks(clients, most, loop.LEAST_CLIENTS, 2) == size
    chunks = -(-clients // size)
    assert size <= max(1, most)
    assert chunks <= 1 or chunks % 2 == 0 or size == 1


def test_threads_do_not_change_the_result(monkeypatch):
    monkeypatch.setattr(loop, "chunk_size", lambda params: 2)
    loss = vae_loss_of(Autoencoder(6, 2, widths=(5,)))
    spec, before = Autoencoder(6, 2, widths=(5,)), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(fit(spec, plan(), loss=loss, params=start(spec))[0])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0][n], results[1][n]) for n in results[0])


def test_a_client_without_steps_does_not_move_nor_does_its_optimiser():
    moving = start(DENSE)
    state = {n: s + 0.5 for n, s in optim.start(Adam(), moving).items()}
    trained, after = fit(DENSE, plan(), Adam(1e-2), state=state)
    assert all(torch.equal(trained[n][1], moving[n][1]) for n in moving)
    assert all(torch.equal(after[n][1], state[n][1]) for n in state)
    counts = [after[name].tolist() for name in after if name.startswith("steps.")]
    assert len(counts) == len(moving)
    assert all(count == [9.5, 0.5, 15.5, 3.5, 6.5] for count in counts)


def test_kept_optimiser_state_continues_where_it_stopped():
    both = plan(2)
    rows = data(DENSE)
    longer = both.take(torch.tensor([0]))
    half = len(longer.index) // 2
    pieces = [
        Batches(longer.index[s], longer.weight[s], torch.tensor([half]), longer.widths)
        for s in (slice(0, half), slice(half, None))
    ]
    options = dict(rng=draws(sites=1))
    first = start(DENSE, 1)
    whole, _ = loop.train(first, plain_loss(DENSE), rows, longer, Adam(1e-2), **options)
    params, state = first, optim.start(Adam(), first)
    for piece in pieces:
        params, state = loop.train(
            params, plain_loss(DENSE), rows, piece, Adam(1e-2), state, **options
        )
    for name in whole:
        torch.testing.assert_close(params[name], whole[name])


def test_what_came_in_is_not_written_to():
    params = {n: p.clone() for n, p in start(DENSE).items()}
    before = {n: p.clone() for n, p in params.items()}
    fit(DENSE, plan(), params=params)
    assert all(torch.equal(params[n], before[n]) for n in params)


def vae_loss_of(spec: Autoencoder):
    def loss(params, batch):
        rows = (batch.x, batch.y, batch.weight)
        return autoencoder.vae_loss(spec, params, *rows, draw=batch.normal(spec.latent))

    return loss


@pytest.mark.parametrize("optimiser", [Sgd(1e6), Sgd(1e30), Adam(1e20)])
def test_training_stays_finite_at_absurd_rates(optimiser):
    spec = Autoencoder(6, 2, widths=(5,))
    trained, _ = fit(spec, plan(6), optimiser, loss=vae_loss_of(spec), params=start(spec))
    assert all(p.isfinite().all() for p in trained.values())


def test_one_broken_client_does_not_touch_the_others():
    spoiled = {n: p.clone() for n, p in start(DENSE).items()}
    spoiled["decoder.0.weight"][2] = float("nan")
    trained, _ = fit(DENSE, plan(), params=spoiled)
    healthy, _ = fit(DENSE, plan())
    for name in healthy:
        others = torch.tensor([0, 1, 3, 4])
        torch.testing.assert_close(trained[name][others], healthy[name][others])
        assert torch.equal(trained[name][2].nan_to_num(7.0), spoiled[name][2].nan_to_num(7.0))


def test_a_layer_used_twice_in_a_step_gets_both_gradients():
    net = (layers.Dense(3, 3, "linear"),)
    params = layers.stack(layers.init(net, rng=torch.Generator().manual_seed(0)), 2)
    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(1))

    def loss(own, batch):
        return layers.apply(net, own, layers.apply(net, own, batch.x)).square().sum((1, 2))

    once = torch.ones(2, dtype=torch.long)
    both = Batches(torch.tensor([[[0], [1]]]), torch.ones(1, 2, 1), once, once)
    trained, _ = loop.train(params, loss, (x, torch.zeros(2)), both, Sgd(0.1), rng=draws(sites=2))
    leaf = {n: p.clone().requires_grad_() for n, p in params.items()}
    total = layers.apply(net, leaf, layers.apply(net, leaf, x[:, None])).square().sum()
    grads = dict(zip(leaf, torch.autograd.grad(total, list(leaf.values())), strict=True))
    for name in params:
        torch.testing.assert_close(trained[name], params[name] - 0.1 * grads[name])


def test_convolutions_run_one_client_at_a_time_unless_they_are_small():
    assert loop.chunk_size(start(CONV)) == 1
    lenet = ClassifierNet(784, 10, "lenet", shape=(28, 28))
    small = layers.stack(classifier.init(lenet, rng=torch.Generator()), 20)
    assert loop.chunk_size(small) == loop.PATCH_CLIENTS
    assert loop.chunk_size(start(DENSE), limit=10**6) > 1
    assert loop.chunk_size(start(DENSE), limit=1) == 1


def test_chunks_of_small_convolutions_stay_small():
    spec = ClassifierNet(256, 3, "lenet", shape=(16, 16))
    clients, widths = 60, []
    params = layers.stack(classifier.init(spec, rng=torch.Generator().manual_seed(0)), clients)

    def loss(params, batch):
        widths.append(len(batch.x))
        return classifier.cross_entropy_loss(spec, params, batch.x, batch.y, batch.weight)

    index = torch.arange(clients)[None, :, None]
    once = torch.ones(clients, dtype=torch.long)
    batches = Batches(index, torch.ones(1, clients, 1), once, once)
    rows = torch.rand(clients, 256), torch.arange(clients) % 3
    loop.train(params, loss, rows, batches, Sgd(0.1), rng=draws(sites=clients))
    assert sum(widths) == clients and max(widths) <= loop.PATCH_CLIENTS


def drawn_by(counts: list[int], sites: list[int]) -> dict[int, list]:
    """The normals and uniform numbers that each site's loss saw, by site."""
    held = np.array(counts)
    own = Streams.from_seed(0).sites("test", 0, sites)
    chosen = batches.epochs(Holdings(None, held.cumsum() - held, held), 3, 4, rng=own)
    seen: dict[int, list] = {site: [] for site in sites}

    def loss(params, batch):
        normal, uniform = batch.normal(2), batch.uniform()
        assert torch.equal(normal, batch.normal(2)), "asked twice at one step"
        for c, member in enumerate(batch.members.tolist()):
            real = batch.weight[c] > 0
            assert not normal[c, ~real].any() and not uniform[c, ~real].any()
            seen[sites[member]].append((normal[c, real], uniform[c, real]))
        return params["w"].sum(1)

    params = {"w": torch.zeros(len(sites), 1)}
    rows = torch.zeros(max(1, sum(counts)), 1), torch.zeros(max(1, sum(counts)))
    loop.train(params, loss, rows, chosen, Sgd(0.1), rng=own)
    return seen


@pytest.mark.parametrize("gather", [0, loop.GATHER_BYTES])
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_what_a_loss_draws_depends_on_its_own_site_alone(chunk, gather, monkeypatch):
    """Not on chunks, nor on how many rows another has, nor on how far ahead is drawn."""
    whole = drawn_by([5, 2, 9, 0], [3, 1, 4, 2])
    monkeypatch.setattr(loop, "GATHER_BYTES", gather)
    monkeypatch.setattr(loop, "chunk_size", lambda params: chunk)
    for other in (drawn_by([5, 2, 9, 0], [3, 1, 4, 2]), drawn_by([2, 5], [1, 3])):
        for site, drawn in other.items():
            pairs = zip(drawn, whole[site], strict=True)
            assert all(
                torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True)
            )
    every = torch.cat([normal.flatten() for steps in whole.values() for normal, _ in steps])
    assert len(every.unique()) == len(every) == 2 * 3 * (5 + 2 + 9)
