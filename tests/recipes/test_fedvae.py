"""FedVAE, four variants: what travels, what stays, what the server does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from recipes.at_site import at_site, first_memory
from understudy.data.encode import Encoded
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.errors import StudyError
from understudy.nets import layers
from understudy.recipes import build
from understudy.recipes.fedvae import FedVAE
from understudy.rng import Streams
from understudy.study import Study

NETS = {"widths": [6], "decoder_widths": [5], "latent": 2, "steps": 3}
IMAGE = Schema("image", "stripes", 60, classes=("a", "b", "c"), shape=(8, 8))
SERIES = Schema(
    "series", "waves", 60, (Column("v", "numeric", -1.0, 1.0),), classes=("a", "b"), shape=(20, 1)
)
TABLE = Schema(
    "table",
    "mixed",
    60,
    (
        Column("age", "integer", 0, 100),
        Column("town", "categorical", categories=("x", "y", "z")),
        Column("ill", "boolean"),
    ),
    label="ill",
)


def recipe(schema: Schema, *, rounds: int = 4, sites: int = 4, **tables: Any) -> FedVAE:
    own = {**NETS, **tables.pop("recipe", {})}
    privacy = {"unit": "site", "trust": "central", "noise": 1.0, **tables.pop("privacy", {})}
    data = {
        "study": {"name": "t", "recipe": "fedvae", "rounds": rounds},
        "simulation": {"data": "-", "sites": sites},
        "privacy": privacy,
        "recipe": own,
        **tables,
    }
    return build(Study.parse(data, schema=schema))


def shards(schema: Schema, labels: list[list[int]]) -> Shards:
    """Sites with these labels and random rows."""
    counts = [len(site) for site in labels]
    x = np.random.default_rng(0).random((sum(counts), schema.width), dtype=np.float32)
    y = np.array([label for site in labels for label in site], np.int64)
    ends = np.cumsum(counts)
    parts = [np.arange(end - n, end) for n, end in zip(counts, ends, strict=True)]
    return Shards.pack(Encoded(x, y, None), parts)


def local(built: FedVAE, data: Shards, seed: int = 0):
    state = built.init(rng=Streams.from_seed(seed))
    return built.local(built.task(state, 0), at_site(built, data, seed=seed))


SCHEMAS = {"image": IMAGE, "series": SERIES, "table": TABLE}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("classes", ["joint", "separate"])
def test_only_decoders_travel_and_encoders_stay(schema, classes):
    built = recipe(schema, recipe={"classes": classes})
    update, memory = local(built, shards(schema, [[0, 1, 0], [1, 0]]))
    members = schema.n_classes if classes == "separate" else 1
    assert set(update) == {"decoder"}
    assert update["decoder"].shape == (2, *built.plan.own.parts[0].shape)
    assert built.plan.own.parts[0].shape == (members, layers.size(built.spec.decoder))
    assert memory["encoder"].shape == (2, members, layers.size(built.spec.encoder))
    assert not torch.equal(memory["encoder"][0], built.memory("site-1")["encoder"])
    assert set(built.task(built.init(rng=Streams.from_seed(0)), 0).arrays) == {"decoder"}


def test_separate_decoders_are_clipped_in_blocks_and_make_one_event():
    part = recipe(IMAGE, recipe={"classes": "separate"}).plan.own.parts[0]
    assert part.mechanism.blocks == 3
    assert len(recipe(IMAGE, recipe={"classes": "separate"}).plan.promise()) == 1


def test_a_class_a_site_lacks_sends_zeros():
    built = recipe(IMAGE, recipe={"classes": "separate"})
    update, memory = local(built, shards(IMAGE, [[0, 0, 2], [1]]))
    sent = update["decoder"].abs().sum(-1) > 0
    assert sent.tolist() == [[True, False, True], [False, True, False]]
    assert torch.equal(memory["encoder"][0, 1], built.memory("site-1")["encoder"][1])


def test_each_record_trains_the_vae_of_its_class_only():
    built = recipe(IMAGE, recipe={"classes": "separate"})
    one, _ = local(built, shards(IMAGE, [[0, 0, 1]]))
    data = shards(IMAGE, [[0, 0, 1]])
    data.x[2] = 1 - data.x[2]  # the only record of class 1
    two, _ = local(built, data)
    assert torch.equal(one["decoder"][0, 0], two["decoder"][0, 0])
    assert not torch.equal(one["decoder"][0, 1], two["decoder"][0, 1])


def test_a_site_without_rows_takes_no_step():
    update, memory = local(recipe(TABLE), shards(TABLE, [[], [0, 1]]))
    assert not update["decoder"][0].any()
    assert torch.equal(memory["encoder"][0], recipe(TABLE).memory("site-1")["encoder"])


def test_the_same_number_of_steps_at_every_site():
    built = recipe(TABLE)
    rows = built._rows(shards(TABLE, [[0] * 30, [1]]))
    plan = built.how.draw(rows, rng=Streams.from_seed(0).sites("local", 0, range(2)))
    assert plan.steps.tolist() == [3, 3]


def test_epochs_may_be_asked_for():
    built = recipe(TABLE, training={"epochs": 2, "batch": 4})
    rows = built._rows(shards(TABLE, [[0] * 8, [1]]))
    plan = built.how.draw(rows, rng=Streams.from_seed(0).sites("local", 0, range(2)))
    assert plan.steps.tolist() == [4, 2]


def test_plain_server_steps_are_those_of_the_thesis():
    built = recipe(TABLE, recipe={"server": "sgd", "server_rate": 1.0, "momentum": 0.0})
    state = built.init(rng=Streams.from_seed(0))
    mean = torch.full_like(state["decoder"], 0.01)
    after = built.step(state, {"decoder": mean}, rng=Streams.from_seed(0))
    torch.testing.assert_close(after["decoder"], state["decoder"] + mean)


def test_the_published_server_step_keeps_its_rate_in_all_rounds():
    """θ ← θ + mean, round after round, and the last decoder is what is released."""
    own = {"server": "sgd", "server_rate": 1.0, "momentum": 0.0, "decay": "none", "average": 0.0}
    built, rng = recipe(TABLE, recipe=own), Streams.from_seed(0)
    start = state = built.init(rng=rng)
    means = [torch.randn_like(state["decoder"]) for _ in range(built.plan.own.rounds)]
    for mean in means:
        state = built.step(state, {"decoder": mean}, rng=rng)
    torch.testing.assert_close(state["decoder"], start["decoder"] + sum(means))
    released = built.finish(state, rng=rng).arrays["decoder"]
    assert len(means) > 1 and torch.equal(released, state["decoder"])


def test_the_released_decoder_is_the_average_of_the_last_rounds():
    built = recipe(TABLE, rounds=4, recipe={"average": 0.5})
    state, seen = built.init(rng=Streams.from_seed(0)), []
    for round in range(4):
        mean = torch.full_like(state["decoder"], 0.01 * (round + 1))
        state = built.step(state, {"decoder": mean}, rng=Streams.from_seed(0))
        seen.append(state["decoder"])
    released = built.finish(state, rng=Streams.from_seed(0)).arrays["decoder"]
    torch.testing.assert_close(released, (seen[2] + seen[3]) / 2)


def test_without_averaging_the_last_decoder_is_released():
    built = recipe(TABLE, rounds=1, recipe={"average": 0.0})
    state = built.init(rng=Streams.from_seed(0))
    state = built.step(state, {"decoder": state["decoder"]}, rng=Streams.from_seed(0))
    released = built.finish(state, rng=Streams.from_seed(0))
    assert torch.equal(released.arrays["decoder"], state["decoder"])


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("classes", ["joint", "separate"])
def test_the_generator_draws_encoded_rows_of_every_class(schema, classes):
    built = recipe(schema, recipe={"classes": classes})
    generator = built.finish(built.init(rng=Streams.from_seed(0)), rng=Streams.from_seed(0))
    labels = np.arange(40) % schema.n_classes
    x = generator.sample(labels, rng=Streams.from_seed(1))
    assert x.shape == (40, schema.width)
    assert 0 <= x.min() <= x.max() <= 1


def test_numbers_are_gaussian_and_categories_are_probabilities():
    spec = recipe(TABLE).spec
    assert spec.numeric == (0,)
    assert recipe(SERIES).spec.cosines == (20, 1)
    assert recipe(IMAGE).spec.loss == "bce"


def test_frequencies_can_be_chosen_or_left_out():
    assert recipe(IMAGE).spec.cosines == (8, 8)
    assert recipe(IMAGE, recipe={"cosines": 3}).spec.cosines == (3, 3)
    assert recipe(IMAGE, recipe={"cosines": 0}).spec.cosines == ()
    assert recipe(IMAGE, recipe={"net": "conv"}).spec.cosines == ()


def test_convolutions_are_refused_for_tables():
    with pytest.raises(StudyError, match="divide by 4"):
        recipe(TABLE, recipe={"net": "conv"})


def test_the_conv_variant_trains():
    built = recipe(IMAGE, recipe={"net": "conv"})
    update, _ = local(built, shards(IMAGE, [[0, 1], [2]]))
    assert update["decoder"].isfinite().all()
    assert update["decoder"].abs().sum() > 0


@pytest.mark.parametrize("rate", [1e3, 1e30])
def test_updates_stay_finite_at_absurd_rates(rate):
    built = recipe(TABLE, training={"rate": rate})
    update, memory = local(built, shards(TABLE, [[0, 1, 1], [0]]))
    assert update["decoder"].isfinite().all()
    assert memory["encoder"].isfinite().all()


@pytest.mark.slow
def test_training_brings_the_samples_of_each_class_to_its_rows():
    """Dark, grey and bright: after training, so are their samples."""
    built = recipe(
        IMAGE, rounds=150, privacy={"noise": 0.01}, recipe={"decoder_widths": [16], "steps": 5}
    )
    x = np.concatenate([np.full((20, 64), level, np.float32) for level in (0.1, 0.5, 0.9)])
    x += np.random.default_rng(0).uniform(-0.05, 0.05, x.shape).astype(np.float32)
    y = np.repeat(np.arange(3), 20)
    parts = [np.arange(i, 60, 4) for i in range(4)]
    data, rng = Shards.pack(Encoded(x, y, None), parts), Streams.from_seed(0)
    state = built.init(rng=rng)
    memory = first_memory(built, 4)
    for round in range(150):
        site = at_site(built, data, memory, round=round)
        update, memory = built.local(built.task(state, round), site)
        state = built.step(state, {"decoder": update["decoder"].mean(0)}, rng=rng)
    drawn = built.finish(state, rng=rng).sample(np.repeat(np.arange(3), 50), rng=rng)
    means = [float(drawn[k * 50 : (k + 1) * 50].mean()) for k in range(3)]
    assert means[0] < 0.3 < means[1] < 0.7 < means[2]
