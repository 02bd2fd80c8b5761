"""DPD-fVAE: what travels, what stays, what is noised, and what each level may claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from recipes.at_site import at_site, first_memory
from understudy.data.encode import Encoded
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import from_frame, write
from understudy.errors import BudgetError, DataError, PrivacyError, StudyError
from understudy.federation.site import Site
from understudy.nets.autoencoder import DECODER, ENCODER, decode, encode, vae_loss
from understudy.privacy.claim import claims
from understudy.privacy.clip import Bounded
from understudy.privacy.ledger import Ledger, read_entries, receipts_in
from understudy.recipes import build, public, vae
from understudy.recipes.dpd_fvae import records as record_form
from understudy.recipes.shared_vae import own_encoder
from understudy.release.card import write_card
from understudy.release.verify import verify
from understudy.rng import NoiseSource, Streams
from understudy.simulation import run, run_apart
from understudy.study import Study
from understudy.training import batches
from understudy.training.dpsgd import RecordBatch

SITES, N = 4, 60  # a site's public share is 15 records
NETS = {"widths": [6], "decoder_widths": [5], "latent": 2, "steps": 3, "warm_steps": 20}
IMAGE = Schema("image", "stripes", N, classes=("a", "b", "c"), shape=(8, 8))
SERIES = Schema(
    "series", "waves", N, (Column("v", "numeric", -1.0, 1.0),), classes=("a", "b"), shape=(12, 1)
)
TABLE = Schema(
    "table",
    "mixed",
    N,
    (
        Column("age", "integer", 0, 100),
        Column("town", "categorical", categories=("x", "y", "z")),
        Column("ill", "categorical", categories=("no", "yes")),
    ),
    label="ill",
)
SCHEMAS = {"table": TABLE, "image": IMAGE, "series": SERIES}
RECORD = {"unit": "record", "trust": "local", "noise": 1.0}
CENTRAL = {"unit": "record", "trust": "central", "noise": 1.0}
SITE = {"unit": "site", "trust": "central", "noise": 1.0}


def study(schema: Schema = TABLE, *, rounds: int = 2, base: Path = Path(), **tables: Any) -> Study:
    data = {
        "study": {"name": "t", "recipe": "dpd_fvae", "rounds": rounds},
        "privacy": tables.pop("privacy", SITE),
        "recipe": {**NETS, **tables.pop("recipe", {})},
        **({} if "site" in tables else {"simulation": {"data": "-", "sites": SITES}}),
        **tables,
    }
    return Study.parse(data, schema=schema, base=base)


def recipe(schema: Schema = TABLE, **tables: Any) -> Any:
    return build(study(schema, **tables))


def shards(schema: Schema, counts: list[int], seed: int = 0) -> Shards:
    """Sites with so many random rows."""
    draw, total = np.random.default_rng(seed), sum(counts)
    x = draw.random((total, schema.width), dtype=np.float32)
    y = draw.integers(0, schema.n_classes, total)
    parts = [np.arange(end - n, end) for n, end in zip(counts, np.cumsum(counts), strict=True)]
    return Shards.pack(Encoded(x, y, None), parts)


def records(schema: Schema, n: int, seed: int = 0) -> Records:
    """Random rows as a user holds them."""
    draw = np.random.default_rng(seed)
    if schema.kind == "table":
        town = draw.choice(["x", "y", "z"], n)
        columns = {"age": draw.integers(0, 101, n), "town": town}
        return from_frame(pd.DataFrame({**columns, "ill": draw.choice(["no", "yes"], n)}), schema)
    labels = draw.choice(list(schema.classes), n).astype(str)
    if schema.kind == "image":
        return Records(images=draw.integers(0, 256, (n, *schema.shape), np.uint8), labels=labels)
    return Records(series=draw.uniform(-1, 1, (n, *schema.shape)), labels=labels)


def sites(schema: Schema, counts: tuple[int, ...] = (5, 4, 3, 5)) -> list[Records]:
    return [records(schema, n, seed=i) for i, n in enumerate(counts)]


def local(built: Any, data: Shards, memory: dict | None = None, state: dict | None = None) -> tuple:
    """(update, memory, the sites) of one round."""
    state = built.init(rng=Streams.from_seed(0)) if state is None else state
    site = at_site(built, data, memory)
    return *built.local(built.task(state, 0), site), site


# Site level: what travels and what stays.


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("trust", ["central", "local"])
def test_only_the_decoder_travels_and_the_encoder_stays(schema: Schema, trust: str) -> None:
    built = recipe(schema, privacy={**SITE, "trust": trust})
    update, memory, _ = local(built, shards(schema, [3, 2]))
    part = built.plan.own.parts[0]
    assert part.shape == (vae.size(built.spec, DECODER),)
    assert part.where == {"central": "server", "local": "client"}[trust]
    assert {n: v.shape for n, v in update.items()} == {"shared": (2, *part.shape)}
    assert memory["encoder"].shape == (2, vae.size(built.spec, ENCODER))
    assert not torch.equal(memory["encoder"][0], built.memory("site-1")["encoder"])
    assert set(built.task(built.init(rng=Streams.from_seed(0)), 0).arrays) == {"shared"}


def reference(built: Any, data: Shards, decoders: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Plain PyTorch at one site: the encoder's Adam lives on, the decoder's is made anew."""
    spec = built.spec
    start = vae.unpack(spec, built.memory("site-1")["encoder"][None], ENCODER)
    encoder = {n: p.clone().requires_grad_() for n, p in start.items()}
    kept = torch.optim.Adam(encoder.values(), lr=1e-3)
    for round, flat in enumerate(decoders):
        rng = at_site(built, data, round=round).rng
        unpacked = vae.unpack(spec, flat[None], DECODER)
        decoder = {n: p.clone().requires_grad_() for n, p in unpacked.items()}
        fresh = torch.optim.Adam(decoder.values(), lr=1e-3)
        plan = built.how.draw(batches.Holdings.of(data), rng=rng)
        drawn = rng.child("loss", spec.latent)
        for index, weight in zip(plan.index, plan.weight, strict=True):
            kept.zero_grad(), fresh.zero_grad()
            rows = (data.x[index], data.y[index], weight)
            draw = torch.from_numpy(drawn.normal((index.shape[1], spec.latent))).float()
            vae_loss(spec, {**encoder, **decoder}, *rows, draw=draw).sum().backward()
            kept.step(), fresh.step()
    ends = vae.pack(spec, encoder, ENCODER), vae.pack(spec, decoder, DECODER)
    return ends[0].detach()[0], ends[1].detach()[0]


def two_rounds(built: Any, data: Shards, decoders: list[Tensor], wipe: tuple[str, ...]) -> tuple:
    memory, update = first_memory(built, 1), {}
    for round, flat in enumerate(decoders):
        for name in wipe if round else ():
            memory = {**memory, name: torch.zeros_like(memory[name])}
        task = built.task(built.server.start(flat), round)
        update, memory = built.local(task, at_site(built, data, memory, round=round))
    return memory, decoders[-1] + update["shared"][0]


def test_the_encoders_adam_goes_on_and_the_decoders_starts_anew() -> None:
    built, data = recipe(), shards(TABLE, [7])
    start = built.init(rng=Streams.from_seed(5))["shared"]
    decoders = [start, start + 0.1]
    memory, decoder = two_rounds(built, data, decoders, wipe=())
    wanted = reference(built, data, decoders)
    torch.testing.assert_close(memory["encoder"][0], wanted[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(decoder, wanted[1], rtol=1e-4, atol=1e-6)
    assert memory["steps"].tolist() == [[6.0]] and memory["trained"].tolist() == [[1.0]]
    for lost in (("steps",), ("mean", "square", "steps")):
        other, _ = two_rounds(built, data, decoders, wipe=lost)
        assert (other["encoder"][0] - wanted[0]).abs().max() > 1e-4, f"without {lost}: no change"


def test_plain_sgd_keeps_the_encoder_only() -> None:
    built = recipe(training={"optimiser": "sgd", "rate": 0.1})
    assert set(built.memory("site-1")) == {"encoder", "trained"}
    update, memory, _ = local(built, shards(TABLE, [3]))
    assert set(memory) == {"encoder", "trained"} and update["shared"].abs().sum() > 0


def test_the_vanilla_fvae_shares_all_and_keeps_nothing() -> None:
    built = recipe(recipe={"share": "vae"})
    update, memory, _ = local(built, shards(TABLE, [3, 2]))
    assert built.memory("site-1") == {} and memory == {}
    assert update["shared"].shape == (2, vae.size(built.spec))
    changed = vae.unpack(built.spec, update["shared"])
    assert all(value.abs().sum() > 0 for value in changed.values()), "some part was not trained"
    released = built.finish(built.init(rng=Streams.from_seed(0)), rng=Streams.from_seed(0))
    assert released.arrays["decoder"].shape == (1, vae.size(built.spec, DECODER))


def test_a_site_without_rows_sends_zeros_and_learns_nothing() -> None:
    built = recipe()
    update, memory, _ = local(built, shards(TABLE, [0, 4]))
    assert not update["shared"][0].any() and update["shared"][1].any()
    assert torch.equal(memory["encoder"][0], built.memory("site-1")["encoder"])
    assert memory["steps"].tolist() == [[0.0], [3.0]]


def test_a_pretrained_encoder_is_taken_once_and_the_sites_own_from_then_on(tmp_path: Path) -> None:
    write(records(TABLE, 30), tmp_path / "public.csv")
    built = recipe(recipe={"public": "public.csv"}, base=tmp_path)
    state = built.init(rng=Streams.from_seed(0))
    task = built.task(state, 0)
    assert set(task.arrays) == {"shared", "encoder"}
    memory = first_memory(built, 2)
    assert torch.equal(own_encoder(task, memory)[0], state["encoder"])
    _, memory, _ = local(built, shards(TABLE, [3, 3]), memory, state)
    assert torch.equal(own_encoder(task, memory), memory["encoder"])
    assert not torch.equal(memory["encoder"][0], state["encoder"])


# Record level: noised steps, public divisors.


@pytest.mark.parametrize("steps", [1, 4])
def test_every_noised_step_has_its_receipt(steps: int) -> None:
    built = recipe(privacy=RECORD, recipe={"steps": steps})
    _, memory, site = local(built, shards(TABLE, [3, 2]))
    assert len(site.receipts) == steps == len(built.plan.receipts(0, "os"))
    assert {r.where for r in site.receipts} == {"step"} and memory == {}
    release = run(study(privacy=RECORD, recipe={"steps": steps}), sites(TABLE))
    assert len(receipts_in(list(read_entries(release.ledger)))) == 2 * steps
    assert release.claims[0].events[0].count == 2 * steps


def test_the_divisor_is_public_whatever_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[Tensor] = []

    def noiseless(self: Site, part: str, bounded: Bounded) -> Tensor:
        sums.append(bounded.value)
        return bounded.value

    monkeypatch.setattr(Site, "step", noiseless)
    built = recipe(privacy=RECORD, recipe={"steps": 1}, training={"rate": 0.5})
    for counts in ([1, 0], [5, 9], [40, 2]):
        update, _, _ = local(built, shards(TABLE, counts))
        expected = -0.5 * sums.pop().float() / (N / SITES)
        torch.testing.assert_close(update["shared"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", None])
def test_a_sites_optimiser_sees_noised_gradients_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, optimiser: str | None
) -> None:
    built = recipe(
        privacy=RECORD, training={"rate": 0.2, **({"optimiser": optimiser} if optimiser else {})}
    )
    draws = Streams.from_seed(9).torch("noised")
    frozen = [torch.randn(2, *built.plan.own.parts[0].shape, generator=draws) for _ in range(3)]
    found = []
    for counts in ([3, 2], [30, 0]):
        queue = iter(frozen)
        monkeypatch.setattr(Site, "step", lambda *_, queue=queue: next(queue).double())
        found.append(local(built, shards(TABLE, counts))[0]["shared"])
    assert torch.equal(found[0], found[1]), "rows reached the update without noise"
    start = built.init(rng=Streams.from_seed(0))["shared"].expand(2, -1).clone()
    place = start.clone().requires_grad_()
    kind = torch.optim.Adam if optimiser == "adam" else torch.optim.SGD
    plain = kind([place], lr=0.2)
    for noised in frozen:
        place.grad = noised / (N / SITES)
        plain.step()
    torch.testing.assert_close(found[0], place.detach() - start, rtol=1e-4, atol=1e-6)


def test_the_batch_rate_follows_from_public_numbers() -> None:
    for batch, rate in ((5, 1 / 3), (15, None), (None, None)):
        training = {} if batch is None else {"batch": batch}
        for privacy in (RECORD, CENTRAL):
            built = recipe(privacy=privacy, training=training)
            planned = built.plan.own.parts[0].mechanism.rate
            assert planned == (rate if rate is None else pytest.approx(rate))
            assert built.batch == pytest.approx(batch or 15)


def test_batches_are_drawn_anew_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    sample = Site.sample

    def noted(self: Site, part: str) -> Tensor:
        members = sample(self, part)
        drawn.append(hash(members.numpy().tobytes()))
        assert len(members) < 200
        return members

    monkeypatch.setattr(Site, "sample", noted)
    local(recipe(privacy=RECORD, training={"batch": 5}), shards(TABLE, [100, 100]))
    assert len(drawn) == 3 == len(set(drawn))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_published_server_step_is_sgd_of_rate_one_with_momentum(momentum: float) -> None:
    own = {"server": "sgd", "server_rate": 1.0, "momentum": momentum}
    built, rng = recipe(recipe={**own, "decay": "none", "average": 0.0}), Streams.from_seed(0)
    state = built.init(rng=rng)
    place, velocity = state["shared"], torch.zeros_like(state["shared"])
    for round in range(built.plan.own.rounds):
        mean = torch.randn(place.shape, generator=rng.torch("mean", round))
        velocity = momentum * velocity + mean
        place = place + velocity
        state = built.step(state, {"shared": mean}, rng=rng)
    torch.testing.assert_close(state["shared"], place)
    assert built.plan.own.rounds > 1
    assert torch.equal(built.finish(state, rng=rng).arrays["decoder"][0], state["shared"])


def test_under_central_trust_one_clipped_sum_is_sent_and_the_server_moves_against_it() -> None:
    own = {"server": "sgd", "server_rate": 1.0, "momentum": 0.0, "steps": 3}
    built = recipe(privacy={**CENTRAL, "clip": 0.5}, recipe=own, training={"batch": 5})
    part = built.plan.own.parts[0]
    assert (part.where, part.combine) == ("server", "sum")
    assert (part.mechanism.bound, part.mechanism.steps) == (0.5, 1)
    assert len(built.plan.receipts(0, "os")) == 1, "charged for steps that nobody takes"
    assert built.plan.promise()[0].count == built.plan.own.rounds
    update, _, site = local(built, shards(TABLE, [3, 2]))
    assert isinstance(update["shared"], Bounded) and not site.receipts
    assert (update["shared"].sensitivity, update["shared"].unit) == (0.5, "record")
    one = local(recipe(privacy={**CENTRAL, "clip": 0.5}), shards(TABLE, [1, 0]))[0]["shared"].value
    assert 0 < one[0].norm() <= 0.5 and not one[1].any()
    rng = Streams.from_seed(0)
    state = built.init(rng=rng)
    total = torch.randn(part.shape, generator=rng.torch("total"))
    after = built.step(state, {"shared": total}, rng=rng)["shared"]
    torch.testing.assert_close(after, state["shared"] - total / (5 * SITES))


# The frozen and the private encoder.


def test_the_private_encoder_is_noised_with_the_decoder() -> None:
    for privacy in (RECORD, CENTRAL):
        built = recipe(privacy=privacy)
        assert built.plan.own.parts[0].shape == (vae.size(built.spec),)
        assert [part.name for part in built.plan.own.parts] == ["shared"], "one joint clip"


def frozen(tmp_path: Path, **tables: Any) -> Any:
    write(records(TABLE, 300), tmp_path / "public.csv")
    own = {"encoder": "frozen", "public": "public.csv", **tables.pop("recipe", {})}
    return recipe(base=tmp_path, privacy=tables.pop("privacy", RECORD), recipe=own, **tables)


def test_a_frozen_encoder_stays_as_it_is_in_every_task(tmp_path: Path) -> None:
    built, rng = frozen(tmp_path, rounds=4), Streams.from_seed(0)
    assert built.plan.own.parts[0].shape == (vae.size(built.spec, DECODER),), "only the decoder"
    state = built.init(rng=rng)
    first, data = built.task(state, 0), shards(TABLE, [5, 4])
    assert set(first.arrays) == {"shared", "encoder", "centre", "scale"}
    for round in range(3):
        update, _ = built.local(built.task(state, round), at_site(built, data, round=round))
        state = built.step(state, {"shared": update["shared"].mean(0)}, rng=rng)
        for name in ("encoder", "centre", "scale"):
            assert torch.equal(built.task(state, round + 1).arrays[name], first.arrays[name])
    assert not torch.equal(state["shared"], first.arrays["shared"])


def test_the_decoder_learns_latents_that_fit_the_prior_by_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = frozen(tmp_path, recipe={"warm_steps": 100})
    frame = records(TABLE, 600).frame.copy()
    frame["age"] = np.where(frame["ill"] == "yes", 90, 10)  # so that latents differ by class
    write(from_frame(frame, TABLE), tmp_path / "public.csv")
    state = built.init(rng=Streams.from_seed(0))
    x, y = public.rows(tmp_path, built.options, TABLE)
    params = vae.unpack(built.spec, state["encoder"][None], ENCODER)
    mean, spread = encode(built.spec, params, x[None], y[None])
    draw = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
    z = mean + torch.exp(spread / 2) * draw
    assert (state["centre"][0] - state["centre"][1]).abs().max() > 0.3, "one rule for all would do"
    seen: list[Tensor] = []

    def noted(spec: Any, params: Any, latents: Tensor, labels: Tensor) -> Tensor:
        seen.append(latents[0])
        return decode(spec, params, latents, labels)

    monkeypatch.setattr(record_form, "decode", noted)
    decoder = vae.unpack(built.spec, state["shared"][None], DECODER)
    rows = RecordBatch(x[None], y[None], torch.ones(1, len(y)), draw)
    losses = built._loss(state)(decoder, rows)
    assert losses.shape == (1, len(y)) and not torch.equal(seen[0], z[0])
    for label in (0, 1):
        own = seen[0][y == label]
        assert own.mean(0).abs().max() < 0.2 and (own.std(0) - 1).abs().max() < 0.15


def test_a_class_without_public_rows_gets_the_rule_of_all(tmp_path: Path) -> None:
    built = frozen(tmp_path)
    frame = records(TABLE, 40).frame
    write(from_frame(frame[frame["ill"] == "no"], TABLE), tmp_path / "public.csv")
    state = built.init(rng=Streams.from_seed(0))
    assert torch.isfinite(state["centre"]).all() and (state["scale"] > 0).all()


def test_public_rows_are_named_on_the_claim(tmp_path: Path) -> None:
    assert public.NOTE in claims(frozen(tmp_path).plan, "os")[0].caveats
    assert public.NOTE not in claims(recipe(privacy=RECORD).plan, "os")[0].caveats


# As published.

PAPER = {"encoder": "paper", "steps": 2}


def test_the_published_form_claims_nothing_for_records_and_something_for_sites() -> None:
    built = recipe(privacy={**RECORD, "noise": 1.2}, recipe=PAPER, training={"batch": 6})
    part = built.plan.own.parts[0]
    assert built.plan.unit == "site" and part.where == "step" and part.mechanism.rate is None
    assert part.mechanism.bound == pytest.approx(0.1 * 6)
    assert part.mechanism.noise == pytest.approx(1.2 / 6)
    said, follows = claims(built.plan, "os")[:2]
    assert (said.unit, said.epsilon) == ("record", None)
    assert "not established" in said.words and "no protection is claimed" in said.words
    assert follows.unit == "site" and follows.epsilon is not None and follows.epsilon > 20
    assert "nominal" in follows.words


def test_the_published_form_trains_the_encoder_without_noise_and_keeps_it() -> None:
    built = recipe(privacy=RECORD, recipe=PAPER)
    update, memory, site = local(built, shards(TABLE, [4, 0]))
    assert update["shared"].shape == (2, vae.size(built.spec, DECODER))
    assert len(site.receipts) == 2
    assert not torch.equal(memory["encoder"][0], built.memory("site-1")["encoder"])
    assert torch.equal(memory["encoder"][1], built.memory("site-1")["encoder"]), "it has no rows"


# The whole way.

WAYS = {
    "site, central": (SITE, {}),
    "site, local": ({**SITE, "trust": "local"}, {}),
    "vanilla": (SITE, {"share": "vae"}),
    "record, local": (RECORD, {}),
    "record, central": (CENTRAL, {}),
    "paper": (RECORD, PAPER),
    "site, open": ({"unit": "site", "trust": "none"}, {}),
    "record, open": ({"unit": "record", "trust": "none"}, {}),
    "paper, open": ({"unit": "record", "trust": "none"}, PAPER),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("privacy, own", WAYS.values(), ids=WAYS)
def test_a_run_ends_in_a_release_that_verifies(
    tmp_path: Path, schema: Schema, privacy: dict, own: dict
) -> None:
    release = run(study(schema, privacy=privacy, recipe=own), sites(schema), out=tmp_path / "out",
                  rows=5)  # fmt: skip
    verify(tmp_path / "out")
    assert release.claims[0].private == ("paper" not in own.values() and "noise" in privacy)
    assert len(release.sample(7, seed=0)) == 7


def test_a_frozen_encoder_after_a_warm_start_runs(tmp_path: Path) -> None:
    own = {"encoder": "frozen", "warm_start": 0.3}
    privacy = {"unit": "record", "trust": "local", "epsilon": 4.0}
    release = run(study(privacy=privacy, recipe=own), sites(TABLE), out=tmp_path / "out", rows=5)
    verify(tmp_path / "out")
    warm, steps = release.claims[0].events
    assert (warm.count, steps.count) == (1, 2 * 3)
    assert release.claims[0].epsilon is not None and 3.8 <= release.claims[0].epsilon <= 4.0


def test_a_frozen_encoder_without_noise_runs_on_public_rows(tmp_path: Path) -> None:
    write(records(IMAGE, 20), tmp_path / "public.npz")
    own = {"encoder": "frozen", "public": "public.npz"}
    asked = study(
        IMAGE, privacy={"unit": "record", "trust": "none"}, recipe=own, base=tmp_path, rounds=1
    )
    assert not run(asked, sites(IMAGE)).claims[0].private


@pytest.mark.parametrize("privacy", [RECORD, CENTRAL], ids=["local", "central"])
def test_convolutions_with_group_norm_run_at_record_level(tmp_path: Path, privacy: dict) -> None:
    own = {"net": "conv", "norm": "group", "steps": 1}
    asked = study(IMAGE, privacy=privacy, recipe=own, rounds=1)
    run(asked, sites(IMAGE, (2, 1, 0, 1)), out=tmp_path / "out", rows=2)
    verify(tmp_path / "out")


@pytest.mark.parametrize("privacy, own", list(WAYS.values())[:6], ids=list(WAYS)[:6])
def test_empty_sites_and_sites_smaller_than_a_batch_run(privacy: dict, own: dict) -> None:
    asked = study(privacy=privacy, recipe=own, training={"batch": 12})
    for counts in ((0, 0, 0, 0), (1, 0, 2, 0)):
        made = run(asked, sites(TABLE, counts), rows=3)
        assert all(torch.isfinite(value).all() for value in made.generator.arrays.values())


@pytest.mark.parametrize("privacy, own", list(WAYS.values())[:6], ids=list(WAYS)[:6])
def test_the_wire_changes_nothing(privacy: dict, own: dict) -> None:
    asked = study(privacy=privacy, recipe=own)
    found = [way(asked, sites(TABLE), seed=3, rows=0).generator for way in (run, run_apart)]
    assert torch.equal(*(generator.arrays["decoder"] for generator in found))


# What is refused, before anything is spent.

EPSILON = {"unit": "record", "trust": "local", "epsilon": 2.0}
WARM = {"warm_start": 0.3}
PUBLIC = {"public": "public.csv"}
REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "batch norm": (StudyError, "BatchNorm", {"recipe": {"norm": "batch"}}),
    "batch norm, sites": (StudyError, "BatchNorm", {"privacy": SITE, "recipe": {"norm": "batch"}}),
    "batch beyond the share": (StudyError, "public share", {"training": {"batch": 31}}),
    "epochs": (StudyError, "epochs", {"training": {"epochs": 1}}),
    "epochs, paper": (StudyError, "epochs", {"training": {"epochs": 1}, "recipe": PAPER}),
    "frozen on nothing": (StudyError, "frozen", {"recipe": {"encoder": "frozen"}}),
    "whole vae": (StudyError, "share", {"recipe": {"share": "vae"}}),
    "whole vae, paper": (StudyError, "share", {"recipe": {"share": "vae", **PAPER}}),
    "warm start of noise": (StudyError, "epsilon", {"recipe": WARM}),
    "warm start and public": (
        StudyError,
        "both",
        {"privacy": EPSILON, "recipe": {**WARM, **PUBLIC}},
    ),
    "warm start of all": (
        StudyError,
        "warm_start",
        {"privacy": EPSILON, "recipe": {"warm_start": 1.0}},
    ),
    "warm start below 0": (
        StudyError,
        "warm_start",
        {"privacy": EPSILON, "recipe": {"warm_start": -0.1}},
    ),
    "no public file": (DataError, "nothing at", {"recipe": {"public": "nowhere.csv"}}),
    "no public file, sites": (
        DataError,
        "nothing at",
        {"privacy": SITE, "recipe": {"public": "nowhere.csv"}},
    ),
    "empty public file": (StudyError, "public rows", {"recipe": {"public": "empty.csv"}}),
    "public file of other columns": (DataError, "town", {"recipe": {"public": "other.csv"}}),
    "paper with an epsilon": (PrivacyError, "noise", {"privacy": EPSILON, "recipe": PAPER}),
    "paper without noise": (
        StudyError,
        "noise",
        {"privacy": {"unit": "record", "trust": "local"}, "recipe": PAPER},
    ),
    "paper under central trust": (PrivacyError, "local", {"privacy": CENTRAL, "recipe": PAPER}),
    "paper under no trust given": (
        PrivacyError,
        "local",
        {"privacy": {"unit": "record", "noise": 1.0}, "recipe": PAPER},
    ),
    "paper for persons": (
        PrivacyError,
        "person",
        {"privacy": {**RECORD, "unit": "person"}, "recipe": PAPER},
    ),
    "persons": (PrivacyError, "supports", {"privacy": {**RECORD, "unit": "person"}}),
    "shares of two sites": (
        StudyError,
        "three sites",
        {"privacy": {**RECORD, "trust": "distributed"}},
    ),
    "cohorts of records, central": (
        PrivacyError,
        "cohort",
        {"privacy": CENTRAL, "cohort": {"rate": 0.5}},
    ),
    "convolutions of a table": (StudyError, "divide by 4", {"recipe": {"net": "conv"}}),
    "no steps": (StudyError, "steps", {"recipe": {"steps": 0}}),
    "steps below 0": (StudyError, "steps", {"privacy": SITE, "recipe": {"steps": -1}}),
    "momentum of 1": (StudyError, "momentum", {"recipe": {"momentum": 1.0}}),
    "no latent": (StudyError, "latent", {"recipe": {"latent": 0}}),
    "no server rate": (StudyError, "server_rate", {"recipe": {"server_rate": 0.0}}),
    "labels outside the schema": (DataError, "site b", {"rows": "strange.csv"}),
}


def folder(tmp_path: Path) -> None:
    """Two sites' rows, public rows that are no use, and rows of an unknown class."""
    for name in "ab":
        write(records(TABLE, 5, seed=ord(name)), tmp_path / f"{name}.csv")
    (tmp_path / "public.csv").write_text("age,town,ill\n30,x,no\n")
    (tmp_path / "empty.csv").write_text("age,town,ill\n")
    (tmp_path / "other.csv").write_text("age,ill\n30,no\n")
    (tmp_path / "strange.csv").write_text("age,town,ill\n30,x,perhaps\n")


def named(tmp_path: Path, schema: Schema = TABLE, ends: str = ".csv", **tables: Any) -> Study:
    """Sites a and b with ledgers of their own."""
    rows = tables.pop("rows", f"b{ends}")
    caps = tables.pop("caps", {})
    entries = [
        {"name": name, "data": data, "ledger": f"{name}.ledger", **caps}
        for name, data in (("a", f"a{ends}"), ("b", rows))
    ]
    return study(schema, base=tmp_path, site=entries, privacy=tables.pop("privacy", RECORD),
                 **tables)  # fmt: skip


def refused(tmp_path: Path, error: type[Exception], match: str, **tables: Any) -> None:
    """The run is refused, and neither an output nor a charge is left behind."""
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(error, match=match) as refusal:
        run(named(tmp_path, **tables), out=tmp_path / "out")
    assert type(refusal.value) is error
    assert "perhaps" not in str(refusal.value), "a record's value was quoted"
    left = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_dir() or p.stat().st_size}
    assert left == before, "something was spent or left behind"


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_and_spends_nothing(tmp_path: Path, case: str) -> None:
    error, match, tables = REFUSED[case]
    folder(tmp_path)
    refused(tmp_path, error, match, **tables)


@pytest.mark.parametrize("wrong", ["public", "rows"])
def test_images_of_another_shape_are_refused_and_spend_nothing(tmp_path: Path, wrong: str) -> None:
    good, bad = (
        records(IMAGE, 3),
        Records(images=np.zeros((3, 6, 8), np.uint8), labels=np.array(list("abc"))),
    )
    for name in "ab":
        write(good, tmp_path / f"{name}.npz")
    write(bad, tmp_path / "bad.npz")
    tables = {"recipe": {"public": "bad.npz"}} if wrong == "public" else {"rows": "bad.npz"}
    refused(tmp_path, DataError, "8", schema=IMAGE, ends=".npz", **tables)


@pytest.mark.parametrize("shape", [(6, 8), (8, 10)])
def test_convolutions_need_sides_that_divide_by_four(shape: tuple[int, int]) -> None:
    uneven = Schema("image", "uneven", N, classes=("a", "b"), shape=shape)
    with pytest.raises(StudyError, match="divide by 4"):
        recipe(uneven, privacy=RECORD, recipe={"net": "conv"})


def test_a_site_whose_budget_is_spent_refuses_the_run(tmp_path: Path) -> None:
    folder(tmp_path)
    spent = run(named(tmp_path)).claims[0].epsilon
    assert spent is not None
    refused(tmp_path, BudgetError, "spent already", caps={"epsilon": 1.01 * spent})
    run(named(tmp_path, caps={"epsilon": 4 * spent}), out=tmp_path / "out")
    with Ledger(tmp_path / "a.ledger") as ledger:
        assert len(ledger.spent()) == 2


@pytest.mark.parametrize("privacy", [SITE, CENTRAL], ids=["site", "record"])
def test_a_cap_below_the_studys_epsilon_refuses_it_where_the_server_noises(
    tmp_path: Path, privacy: dict
) -> None:
    folder(tmp_path)
    refused(tmp_path, BudgetError, "cap", privacy=privacy, caps={"epsilon": 0.01})


def test_public_rows_may_not_be_those_of_a_site(tmp_path: Path) -> None:
    folder(tmp_path)
    with pytest.raises(StudyError, match="own rows"):
        build(named(tmp_path, recipe={"public": "a.csv"}))


@pytest.mark.parametrize("encoder", ["frozen", "paper"])
def test_an_encoder_mode_is_refused_where_sites_are_protected(encoder: str) -> None:
    with pytest.raises(StudyError, match="records are protected"):
        recipe(recipe={"encoder": encoder})


def test_a_card_of_the_published_form_names_its_noise_and_promises_no_record() -> None:
    made = run(study(privacy=RECORD, recipe={"encoder": "paper"}), sites(TABLE), rows=5)
    card = write_card(made.manifest, made.schema, made.claims)
    assert "not established" in card and "Noise: drawn from the operating system" in card


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_after_a_warm_start_the_release_draws_from_both_phases(share: float) -> None:
    privacy = {"unit": "record", "trust": "central", "epsilon": 2.0}
    own = {"encoder": "frozen", "warm_start": 0.5, "warm_share": share}
    made = run(study(IMAGE, privacy=privacy, recipe=own), sites(IMAGE), rows=5).generator
    assert made.kind == ("mixture" if share else "decoder")
    if share:
        assert [p["kind"] for p in made.config["parts"]] == ["decoder", "gaussian"]
        assert [p["share"] for p in made.config["parts"]] == [1 - share, share]
        assert made.config["parts"][1]["config"]["contrast"] == 8.0


def test_records_are_dealt_their_latents_by_the_noise_source() -> None:
    built, rng = recipe(privacy=RECORD), Streams.from_seed(0)
    state, data = built.init(rng=rng), shards(TABLE, [5, 4])

    def first_sum(seed: int) -> Tensor:
        site = at_site(built, data)
        site.secret = NoiseSource.seeded(Streams.from_seed(seed)).sites(0, range(2))
        seen: list[Bounded] = []
        site.step = lambda part, bounded: seen.append(bounded) or bounded.value  # type: ignore
        built.local(built.task(state, 0), site)
        return seen[0].value

    assert not torch.equal(first_sum(1), first_sum(2)), (
        "what the loss draws does not come from the noise source"
    )


def test_group_norm_without_convolutions_is_refused() -> None:
    with pytest.raises(StudyError, match="conv"):
        recipe(recipe={"norm": "group"})


def _unequal(n: int) -> list[Records]:
    """Sites where one row in five is ill."""
    draw = np.random.default_rng(0)
    columns = {"age": draw.integers(0, 101, n), "town": draw.choice(["x", "y", "z"], n)}
    ill = np.where(np.arange(n) % 5 == 0, "yes", "no")
    whole = from_frame(pd.DataFrame({**columns, "ill": ill}), TABLE)
    return [whole.take(np.arange(i, n, SITES)) for i in range(SITES)]


AMPLE = {"unit": "record", "trust": "central", "epsilon": 50.0}


@pytest.mark.slow
def test_a_table_gets_a_warm_start_by_default_and_draws_classes_as_often_as_it_learnt() -> None:
    made = run(study(privacy=AMPLE), _unequal(N), rows=5, seed=0)
    assert len(made.plan.phases) > 1
    assert made.generator.balance[1] == pytest.approx(0.2, abs=0.1)


def test_declared_shares_are_drawn_whatever_the_warm_start_found() -> None:
    declared = replace(TABLE, balance=(0.6, 0.4))
    made = run(study(declared, privacy=AMPLE), _unequal(N), rows=5, seed=0)
    assert made.generator.balance == (0.6, 0.4)


@pytest.mark.parametrize(
    ("schema", "own", "privacy"),
    [(TABLE, {"warm_start": 0.0}, AMPLE), (IMAGE, {}, AMPLE), (TABLE, {}, CENTRAL)],
    ids=["switched off", "images", "noise instead of ε"],
)
def test_there_is_no_warm_start_by_default_where_it_is_not_wanted(
    schema: Schema, own: dict, privacy: dict
) -> None:
    assert len(recipe(schema, privacy=privacy, recipe=own).plan.phases) == 1
