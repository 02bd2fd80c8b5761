"""FedGP and DP-FedAvg-GAN: what travels, what stays, what is claimed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from recipes.at_site import at_site, first_memory
from release import classes
from understudy.data.encode import Encoded
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.errors import PrivacyError
from understudy.nets.gan import CRITIC, GENERATOR
from understudy.privacy.claim import claims
from understudy.recipes import RECIPES, build
from understudy.rng import Streams
from understudy.simulation import run
from understudy.study import Study

NETS = {"widths": [6], "critic_widths": [5], "latent": 2, "critic_steps": 2}
IMAGE = Schema("image", "stripes", 60, classes=("a", "b", "c"), shape=(8, 8))
TABLE = Schema(
    "table",
    "mixed",
    60,
    (
        Column("age", "integer", 0, 100),
        Column("town", "categorical", categories=("x", "y", "z"), missing=True),
        Column("smokes", "boolean"),
        Column("ill", "boolean"),
    ),
    label="ill",
)


def recipe(name: str, schema: Schema = TABLE, **tables: Any) -> Any:
    data = {
        "study": {"name": "t", "recipe": name, "rounds": 4},
        "simulation": {"data": "-", "sites": 4},
        **tables,
        "recipe": {**NETS, **tables.get("recipe", {})},
    }
    return build(Study.parse(data, schema=schema))


NOISED = {"privacy": {"trust": "central", "noise": 1.0}}


def shards(schema: Schema, sites: int = 4, each: int = 6) -> Shards:
    rng = np.random.default_rng(0)
    x = rng.random((sites * each, schema.width), dtype=np.float32)
    y = rng.integers(0, schema.n_classes, sites * each)
    parts = [np.arange(i * each, (i + 1) * each) for i in range(sites)]
    return Shards.pack(Encoded(x, y, None), parts)


def test_fedgp_says_in_plain_words_that_nothing_is_protected() -> None:
    plan = recipe("fedgp").plan
    (claim,) = claims(plan, "os")
    assert plan.trust == "none" and claim.epsilon is None and "no protection" in claim.words
    assert not plan.receipts(0, "os"), "nothing is charged where nothing is promised"


def test_fedgp_takes_noise_with_a_trust_and_refuses_it_without() -> None:
    found = claims(recipe("fedgp", **NOISED).plan, "os")
    assert found[0].epsilon is not None and found[0].unit == "site"
    with pytest.raises(PrivacyError, match="trust"):
        recipe("fedgp", privacy={"noise": 1.0})


def test_fedgp_averages_generators_under_masks_where_trust_is_distributed() -> None:
    """Of real keys, shares and masks; the plain sum of a run without privacy says what it is."""
    tables = {"study": {"name": "t", "recipe": "fedgp", "rounds": 2}, "recipe": NETS}
    held = [classes.squares(6, seed) for seed in range(4)]
    for privacy in ({"trust": "distributed", "noise": 1.0}, {}):
        way = {"data": "-", "sites": 4, "masks": "checked" if privacy else "off"}
        whole = {**tables, "simulation": way, "privacy": privacy}
        asked = Study.parse(whole, schema=classes.SQUARES)
        made = run(asked, held, seed=0, rows=5)
        hidden = "only sums under masks are seen" in made.claims[0].trust
        assert hidden == bool(privacy) != ("not private" in made.claims[0].words)
    note = RECIPES["fedgp"].info.corrections
    assert "the server sees each generator" in note


def test_fedgp_clips_nothing_unless_something_is_promised() -> None:
    assert recipe("fedgp").plan.own.parts[0].mechanism.bound >= 1e9
    assert recipe("fedgp", **NOISED).plan.own.parts[0].mechanism.bound == 1.0


@pytest.mark.parametrize("schema", [TABLE, IMAGE], ids=["table", "image"])
def test_fedgp_keeps_critics_and_their_optimiser_at_the_sites(schema: Schema) -> None:
    made = recipe("fedgp", schema)
    state, data = made.init(rng=Streams.from_seed(0)), shards(schema)
    task = made.task(state, 0)
    assert set(task.arrays) == {"generator"}
    update, kept = made.local(task, at_site(made, data))
    assert set(update) == {"generator"} and update["generator"].abs().sum() > 0
    before = first_memory(made, 4)
    assert kept.keys() == before.keys() and not any(GENERATOR in name for name in kept)
    assert any(not torch.equal(kept[n], before[n]) for n in kept if n.startswith(CRITIC))
    steps = [value for name, value in kept.items() if name.startswith("steps.")]
    assert steps and all((value == 10).all() for value in steps)  # 5 turns of 2
    again, later = made.local(task, at_site(made, data, kept, round=1))
    assert all((v == 20).all() for n, v in later.items() if n.startswith("steps."))
    assert not torch.equal(again["generator"], update["generator"])


def test_a_site_without_rows_keeps_its_critic_and_moves_nothing() -> None:
    made = recipe("fedgp")
    data = shards(TABLE)
    empty = Shards(data.x, data.y, data.starts, data.counts * torch.tensor([0, 1, 1, 1]))
    update, kept = made.local(
        made.task(made.init(rng=Streams.from_seed(0)), 0), at_site(made, empty)
    )
    before = first_memory(made, 4)
    assert not update["generator"][0].any()
    assert all(torch.equal(kept[n][0], before[n][0]) for n in kept)


@pytest.mark.parametrize("name, tables", [("fedgp", {}), ("dp_fedavg_gan", NOISED)])
@pytest.mark.parametrize("schema", [TABLE, IMAGE], ids=["table", "image"])
def test_released_rows_are_labelled_and_of_the_schema(
    name: str, tables: dict, schema: Schema
) -> None:
    made = recipe(name, schema, **tables)
    found = made.finish(made.init(rng=Streams.from_seed(0)), rng=Streams.from_seed(1))
    assert found.fits(schema) and found.conditional
    x = found.sample(np.arange(20) % schema.n_classes, rng=Streams.from_seed(2))
    assert x.shape == (20, schema.width) and x.min() >= 0 and x.max() <= 1
    if schema is TABLE:
        assert torch.equal(x[:, 1:5].sum(1), torch.ones(20))
        assert set(x[:, 1:].unique().tolist()) <= {0.0, 1.0}


def test_an_altered_description_does_not_fit() -> None:
    made = recipe("fedgp")
    found = made.finish(made.init(rng=Streams.from_seed(0)), rng=Streams.from_seed(1))
    longer = type(found)(found.kind, found.arrays, {**found.config, "more": 1}, found.balance)
    short = {"generator": found.arrays["generator"][:, :-1]}
    shorter = type(found)(found.kind, short, found.config, found.balance)
    assert not longer.fits(TABLE) and not shorter.fits(TABLE)


def test_dp_fedavg_gan_shares_the_critic_and_trains_the_generator_at_the_server() -> None:
    made = recipe("dp_fedavg_gan", **NOISED)
    state = made.init(rng=Streams.from_seed(0))
    update, kept = made.local(made.task(state, 0), at_site(made, shards(TABLE)))
    assert set(update) == {"critic"} and not kept and update["critic"].abs().sum() > 0
    total = {"critic": update["critic"].mean(0)}
    after = made.step(state, total, rng=Streams.from_seed(1))
    assert torch.allclose(after["critic"], state["critic"] + total["critic"])
    assert any(not torch.equal(after[n], state[n]) for n in state if n.startswith(GENERATOR))
    assert after.keys() == state.keys()


def test_one_gan_per_class_is_one_event() -> None:
    made = recipe("dp_fedavg_gan", IMAGE, recipe={"classes": "separate"}, **NOISED)
    assert made.members == 3 and made.plan.own.parts[0].mechanism.blocks == 3
    assert len(made.plan.promise()) == 1
    state = made.init(rng=Streams.from_seed(0))
    data = shards(IMAGE)
    data.y[:6] = 1  # the first site has one class only
    update, _ = made.local(made.task(state, 0), at_site(made, data))
    moved = update["critic"][0].abs().sum(1)
    assert moved[1] > 0 and not moved[[0, 2]].any()
    after = made.step(state, {"critic": update["critic"].mean(0)}, rng=Streams.from_seed(1))
    found = made.finish(after, rng=Streams.from_seed(1))
    assert found.fits(IMAGE) and len(found.arrays["generator"]) == 3
