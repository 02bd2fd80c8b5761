"""SignDS-FL: what a site sends, what the server makes of it, what is learnt and refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.encode import encode
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import Records, from_frame
from understudy.errors import PrivacyError, StudyError, WireError
from understudy.federation.recipe import State, Task
from understudy.federation.site import Sites
from understudy.federation.slots import Private, seal
from understudy.nets import kernels, layers, stacked
from understudy.nets.stacked import ClassifierNet
from understudy.privacy.claim import claims, headline
from understudy.privacy.clip import Sealed
from understudy.privacy.select import Selection
from understudy.recipes import build, signds
from understudy.recipes.dp_fed_wae import DpFedWAE
from understudy.recipes.signds import SignDS
from understudy.release.classifier import Classifier
from understudy.rng import Streams
from understudy.run import run
from understudy.study import Study
from understudy.training.loop import train

COLUMNS = tuple(Column(f"v{i}", "numeric", 0.0, 1.0) for i in range(6))
TABLE = Schema("table", "t", 4000, (*COLUMNS, Column("y", "boolean")), label="y")
IMAGE = Schema("image", "i", 100, classes=tuple("0123456789"), shape=(28, 28))


def study(schema: Schema = TABLE, sites: int = 60, **tables: Any) -> Study:
    data = {
        "study": {"name": "t", "recipe": "signds", "rounds": 12, **tables.pop("study", {})},
        "privacy": {"epsilon_per_update": 4.0},
        "cohort": {"size": 20},
        "simulation": {"data": "-", "sites": sites},
        **tables,
    }
    return Study.parse(data, schema=schema)


def rows(n: int, seed: int):
    rng = np.random.default_rng(seed)
    x = rng.random((n, 6))
    frame = pd.DataFrame(x, columns=[c.name for c in COLUMNS])
    return from_frame(frame.assign(y=x[:, 0] + x[:, 1] > x[:, 2] + x[:, 3]), TABLE)


PUBLISHED = {"view": "pixels", "contrast": False, "directions": 0.0, "balance": 0.0}


@pytest.mark.parametrize(("model", "size"), [("logistic", 7850), ("nn", 76_330), ("lenet", 44_426)])
def test_the_nets_have_the_sizes_of_table_3_2(model: str, size: int) -> None:
    recipe = build(study(IMAGE, recipe={"model": model, **PUBLISHED}))
    assert isinstance(recipe, SignDS) and layers.size(recipe.spec.net) == size
    rule = recipe.plan.parts[0].rule
    assert isinstance(rule, Selection) and (rule.size, rule.top) == (size, round(0.1 * size))
    assert recipe.plan.parts[0].bytes == 8


SEEN = {
    "strokes by default": ({}, 16 * 7**2),
    "strokes": ({"view": "strokes"}, 16 * 7**2),
    "waves": ({"view": "waves"}, 14**2),
    "pixels": ({"view": "pixels"}, 28**2),
}


@pytest.mark.parametrize("view", SEEN)
@pytest.mark.parametrize(("model", "hidden"), [("logistic", 0), ("nn", 96)])
def test_dense_nets_see_strokes_half_of_the_frequencies_or_pixels(
    view: str, model: str, hidden: int
) -> None:
    own, inputs = SEEN[view]
    recipe = build(study(IMAGE, recipe={"model": model, **own}))
    assert isinstance(recipe, SignDS) and recipe.spec.contrast
    size = (inputs + 1) * (hidden or 10) + (hidden and (hidden + 1) * 10)
    assert layers.size(recipe.spec.net) == size
    taught = round(0.1 * inputs) if recipe.spec.strokes else inputs
    assert recipe.plan.parts[0].shape == (size + (taught - inputs) * (hidden or 10),)


@pytest.mark.parametrize(("rounds", "share"), [(392, 0.1), (393, 0.4)])
def test_votes_that_outnumber_the_weights_are_cast_in_more_directions(
    rounds: int, share: float
) -> None:
    recipe = build(study(IMAGE, study={"rounds": rounds}))
    assert recipe.options.directions == share and layers.size(recipe.spec.net) == 7850
    assert recipe.plan.parts[0].shape == (round(share * 784) * 10 + 10,)
    assert recipe.plan.rounds * recipe.plan.cohort == rounds * 20


def test_directions_are_drawn_sent_and_kept_and_the_release_is_a_plain_net() -> None:
    recipe = build(study(IMAGE, recipe={"model": "logistic", "directions": 0.4}))
    state = recipe.init(rng=Streams.from_seed(0))
    assert state["basis"].shape == (784, 314) and state["centre"].shape == (784,)
    sent = recipe.task(state, 0).arrays
    assert set(sent) == {"model", "basis", "centre"}
    votes = torch.zeros(recipe.plan.parts[0].shape)
    votes[0] = 1.0
    moved = recipe.step(state, {"update": votes}, rng=Streams.from_seed(0))
    for name in ("basis", "centre"):
        assert torch.equal(moved[name], state[name]), "the next round needs them too"
    weight = layers.unflatten(recipe.spec.net, moved["model"] - state["model"])
    change = next(iter(weight.values()))[0]
    assert torch.allclose(change[:, 0], 8.0 * state["basis"][:, 0], rtol=1e-3, atol=1e-5)
    assert not change[:, 1:].any()
    release = recipe.finish(moved, rng=Streams.from_seed(0))
    assert {tuple(a.shape) for a in release.arrays.values()} == {(784, 10), (10,)}


@pytest.mark.parametrize(
    "tables",
    [
        {"recipe": {"directions": 0}},
        {"recipe": {"view": "pixels"}},
        {"recipe": {"model": "lenet", "directions": 0}},
        {"privacy": {"trust": "none", "unit": "site"}},
        {"privacy": {"trust": "none", "unit": "site"}, "recipe": {"model": "lenet"}},
    ],
)
def test_without_directions_or_votes_the_update_is_the_net_s(tables: dict[str, Any]) -> None:
    recipe, rng = build(study(IMAGE, **tables)), Streams.from_seed(0)
    assert recipe.plan.parts[0].shape == (layers.size(recipe.spec.net),)
    state = recipe.init(rng=rng)
    assert set(recipe.task(state, 0).arrays) == {"model"}
    fresh = layers.stack(stacked.init(recipe.spec, rng=rng.torch("net")), 1)
    assert torch.equal(state["model"], layers.flatten(recipe.spec.net, fresh)), "kernels, too"


def test_series_have_no_made_up_pictures() -> None:
    columns = tuple(Column(f"c{i}", "numeric", low=0.0, high=1.0) for i in range(16))
    series = Schema("series", "s", 100, columns, classes=("a", "b"), shape=(24, 16))
    recipe = build(study(series, recipe={"model": "lenet"}))
    assert recipe.directions is None and recipe.about.endswith("kernels taught, too")
    with pytest.raises(StudyError, match='directions with model = "lenet", kind = "series"'):
        build(study(series, recipe={"model": "lenet", "directions": 0.4}))


def test_lenet_sees_pixels() -> None:
    spec = build(study(IMAGE, recipe={"model": "lenet"})).spec
    assert spec.contrast and not spec.strokes and not spec.cosines


@pytest.mark.parametrize(("rounds", "kept"), [(2221, 102), (2222, 256)])
def test_lenet_is_taught_behind_kernels_found_in_made_up_pictures(rounds: int, kept: int) -> None:
    recipe = build(study(IMAGE, study={"rounds": rounds}, recipe={"model": "lenet"}))
    assert recipe.plan.parts[0].shape == ((kept + 1) * 120 + 121 * 84 + 85 * 10,)
    assert recipe.plan.rounds * recipe.plan.cohort == rounds * 20, "44,426 weights"
    state = recipe.init(rng=Streams.from_seed(0))
    assert state["basis"].shape == (256, kept) and state["centre"].shape == (256,)
    params, rng = layers.unflatten(recipe.spec.net, state["model"]), Streams.from_seed(0)
    found = kernels.found(recipe.spec.net, (28, 28), rng=rng.torch("kernels"))
    assert len(found) == 4 and all(torch.equal(params[name], found[name]) for name in found)
    drawn = recipe.directions.draw((28, 28), found, rng=rng.torch("pictures"))
    assert all(torch.equal(state[name], drawn[name]) for name in drawn), "of what they answer"
    said = "lenet on pixels, 44,426 weights, kernels found in made-up pictures"
    assert recipe.about == f"{said}, the first dense layer taught in {kept} of 256 directions"


def test_sites_and_votes_leave_lenet_s_kernels_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = {"epochs": 2, "rate": 1.0}
    recipe, rng = (
        build(study(IMAGE, recipe={"model": "lenet"}, training=terms)),
        Streams.from_seed(0),
    )
    trained = []

    def noted(*args: Any, **options: Any) -> tuple[Any, Any]:
        trained.append(train(*args, **options))
        return trained[-1]

    monkeypatch.setattr(signds, "train", noted)
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
    data = encode(IMAGE, Records(images=images, labels=np.array(list("012345"))))
    state = recipe.init(rng=rng)
    own = rng.sites("local", 0, range(2))
    private = Private(recipe.plan, 0, own)
    shards = Shards.pack(data, [np.arange(3), np.arange(3, 6)])
    update, _ = recipe.local(recipe.task(state, 0), {}, shards, private, rng=own)
    assert update["update"].shape == (2, *recipe.plan.parts[0].shape)
    start = layers.unflatten(recipe.spec.net, state["model"])
    for name, value in trained[0][0].items():
        assert torch.equal(value, start[name].expand_as(value)) != name.startswith(
            recipe.directions.only
        ), name
    moved = recipe.step(state, {"update": update["update"].mean(0)}, rng=rng)
    change = layers.unflatten(recipe.spec.net, moved["model"] - state["model"])
    for name, value in change.items():
        assert bool(value.any()) == name.startswith(recipe.directions.only), name
    release = recipe.finish(moved, rng=rng)
    assert {n: tuple(a.shape) for n, a in release.arrays.items()} == layers.shapes(recipe.spec.net)


def test_images_with_too_many_inputs_for_directions_are_taught_weight_by_weight() -> None:
    large = Schema("image", "i", 100, classes=("a", "b"), shape=(68, 68))
    recipe = build(study(large, recipe={"model": "lenet"}))
    assert recipe.directions is None and recipe.options.directions == 0.0
    assert recipe.about.endswith("weights, kernels taught, too")
    said = r"at most 3,000 inputs.*found 3,136 for images of 68×68"
    with pytest.raises(StudyError, match=said):
        build(study(large, recipe={"model": "lenet", "directions": 0.4}))
    smaller = Schema("image", "i", 100, classes=("a", "b"), shape=(67, 67))
    assert build(study(smaller, recipe={"model": "lenet"})).directions.inputs == 2704


def test_all_colours_are_seen_and_a_few_frequencies_at_least() -> None:
    coloured = Schema("image", "i", 100, classes=("a", "b"), shape=(12, 3, 3))

    def spec(**own: object) -> ClassifierNet:
        return build(study(coloured, recipe=own)).spec

    assert spec(view="waves").cosines == (6, 3, 3)
    assert spec(view="waves", detail=0.01).cosines == (4, 3, 3)
    assert spec(view="waves", detail=1).cosines == (12, 3, 3)
    assert layers.size(spec().net) == (16 * 3 * 6 * 2 + 1) * 2


def test_tables_are_seen_as_they_are() -> None:
    spec = build(study()).spec
    assert (spec.shape, spec.contrast, spec.cosines, spec.strokes) == ((), False, (), False)


@pytest.mark.parametrize("view", ["strokes", "waves", "pixels"])
def test_no_detail_is_refused_because_pixels_are_a_view(view: str) -> None:
    said = r'recipe.detail above 0.*leave it out.*view = "pixels"'
    with pytest.raises(StudyError, match=said):
        build(study(IMAGE, recipe={"detail": 0, "view": view}))


@pytest.mark.parametrize(
    ("schema", "own", "idle"),
    [
        (TABLE, {"detail": 0.3}, 'detail with model = "logistic", kind = "table"'),
        (TABLE, {"contrast": True, "detail": 1.0}, "contrast, detail with"),
        (IMAGE, {"model": "lenet", "detail": 0.5}, 'detail with model = "lenet"'),
        (IMAGE, {"model": "lenet", "view": "strokes"}, 'view with model = "lenet"'),
        (IMAGE, {"detail": 0.3}, 'detail with model = "logistic", view = "strokes"'),
        (IMAGE, {"directions": 0.4, "view": "waves"}, 'directions with model = "logistic", view'),
        (TABLE, {"directions": 0.4}, "directions with"),
        (TABLE, {"model": "nn", "directions": 0.4}, 'directions with model = "nn"'),
        (TABLE, {"view": "waves"}, 'view with model = "logistic", kind = "table"'),
        (IMAGE, {"model": "wae", "contrast": True, "balance": 0.5}, "contrast, balance with"),
        (IMAGE, {"hidden": 50}, 'hidden with model = "logistic"'),
        (IMAGE, {"model": "lenet", "hidden": 50}, 'hidden with model = "lenet"'),
        (TABLE, {"model": "nn", "latent": 8}, 'latent with model = "nn"'),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    schema: Schema, own: dict[str, Any], idle: str
) -> None:
    with pytest.raises(StudyError, match=idle):
        build(study(schema, recipe=own))
    off = {"contrast": False, "view": "pixels", "balance": 0.0, "directions": 0.0}
    off["model"] = own.get("model", "nn")
    build(study(schema, recipe={name: off[name] for name in own if name in off}))


@pytest.mark.parametrize("model", ["logistic", "lenet"])
def test_directions_without_votes_are_refused(model: str) -> None:
    free = {"trust": "none", "unit": "site"}
    said = r'directions with .*where votes are cast.* and trust = "none"'
    with pytest.raises(StudyError, match=said):
        build(study(IMAGE, privacy=free, recipe={"model": model, "directions": 0.4}))
    off = build(study(IMAGE, privacy=free, recipe={"model": model, "directions": 0.0}))
    assert off.directions is None


def test_trust_that_is_left_out_is_not_blamed() -> None:
    with pytest.raises(StudyError, match="directions with") as caught:
        build(study(IMAGE, recipe={"view": "waves", "directions": 0.4}))
    assert "trust" not in str(caught.value)


def test_an_ignored_option_is_told_what_it_needs_and_no_other() -> None:
    said = r'recipe\.detail with view = "waves" of logistic or nn on images;'
    with pytest.raises(StudyError, match=said) as caught:
        build(study(IMAGE, recipe={"detail": 0.3}))
    assert "balance" not in str(caught.value)


@pytest.mark.parametrize("name", ["hidden", "latent"])
def test_a_width_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(StudyError, match=f"recipe.{name} of at least 1.*0"):
        build(study(recipe={name: 0}))


def test_votes_for_small_layers_count_less() -> None:
    recipe = build(study(recipe={"model": "nn", "hidden": 4, "balance": 0.5}))
    worth = layers.unflatten(recipe.spec.net, recipe.worth[None])
    for name, shape in layers.shapes(recipe.spec.net).items():
        assert worth[name].flatten()[0] == pytest.approx((np.prod(shape) / (6 * 4)) ** 0.5)
    state = recipe.init(rng=Streams.from_seed(0))
    votes = torch.ones(recipe.plan.parts[0].shape)
    moved = recipe.step(state, {"update": votes}, rng=Streams.from_seed(0))["model"]
    change = (moved - state["model"])[0]
    assert torch.allclose(change / change[0], recipe.worth, atol=1e-5)


def test_the_largest_balance_leaves_numbers_finite() -> None:
    large = Schema("image", "i", 100, classes=("a", "b"), shape=(64, 64, 3))
    worth = build(study(large, recipe={"model": "nn", "balance": 4.0})).worth
    assert torch.isfinite(worth).all() and worth.min() > 0


@pytest.mark.parametrize(
    "name, allowed",
    [
        ("detail", "above 0 and at most 1"),
        ("balance", "from 0 to 4"),
        ("directions", "from 0 to 1"),
    ],
)
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 101.0])
def test_what_is_no_share_or_power_is_refused(name: str, allowed: str, value: float) -> None:
    with pytest.raises(StudyError, match=f"recipe.{name} {allowed}"):
        build(study(recipe={name: value}))


def test_a_generator_is_dp_fed_wae_under_these_options() -> None:
    recipe = build(study(recipe={"model": "wae", "hidden": 5, "latent": 3, "top": 0.2}))
    assert isinstance(recipe, DpFedWAE)
    assert (recipe.options.widths, recipe.options.latent, recipe.options.top) == ((5,), 3, 0.2)
    assert recipe.options.teach == "paper", "SignDS-FL knows no parts"


def test_a_generator_of_series_is_another_recipe() -> None:
    series = Schema("series", "s", 100, COLUMNS[:2], shape=(24, 2))
    with pytest.raises(StudyError, match=r"found series.*fedstdg"):
        build(study(series, recipe={"model": "wae"}))


def test_votes_move_the_model_by_the_rate() -> None:
    own = {"global_rate": 0.5, "decay": "none", "average": 0.0, "balance": 0.0}
    recipe = build(study(recipe=own))
    state = recipe.init(rng=Streams.from_seed(0))
    votes = torch.zeros(recipe.plan.parts[0].shape)
    votes[3], votes[5] = 0.25, -1.0
    moved = recipe.step(state, {"update": votes}, rng=Streams.from_seed(0))["model"]
    change = (moved - state["model"])[0]
    assert change[[3, 5]].tolist() == pytest.approx([0.125, -0.5])
    assert int((change != 0).sum()) == 2


def test_a_classifier_learns_from_choices_alone() -> None:
    """A rule that a line can tell apart, 20 of 400 sites a round, one answer per site."""
    asked = study(
        sites=400,
        study={"rounds": 20},
        privacy={"epsilon": 4.0},
        recipe={"global_rate": 1.0, "outputs": 1},
    )
    release = run(asked, [rows(10, seed=i) for i in range(400)], seed=0, rows=0)
    assert isinstance(release.model, Classifier)
    held = rows(500, seed=999)
    guess = release.predict(held)["predicted"].astype(str).str.lower().to_numpy()
    truth = held.frame["y"].astype(str).str.lower().to_numpy()
    assert (guess == truth).mean() > 0.75
    assert release.claims[0].epsilon == pytest.approx(4.0)
    assert "in its one update" in release.claims[0].words


def test_epsilon_of_a_life_is_shared_by_its_updates() -> None:
    plan = build(study(study={"rounds": 12}, privacy={"epsilon": 8.0})).plan
    assert plan.participations == 4 and plan.update_epsilon == pytest.approx(2.0)


def test_without_privacy_updates_are_averaged_as_they_are() -> None:
    recipe = build(study(privacy={"trust": "none"}))
    state = recipe.init(rng=Streams.from_seed(0))
    mean = torch.randn(recipe.plan.parts[0].shape)
    moved = recipe.step(state, {"update": mean}, rng=Streams.from_seed(0))["model"]
    assert torch.allclose(moved, state["model"] + mean)


def test_a_site_makes_one_plain_step_unless_told_otherwise() -> None:
    """Twice the rate is then exactly twice the update, which neither Adam nor two steps give."""
    encoded = encode(TABLE, rows(40, seed=1))
    shards, found = Shards.pack(encoded, np.array_split(np.arange(40), 4)), []
    for rate in (0.5, 1.0):
        recipe = build(study(training={"rate": rate}))
        rng = Streams.from_seed(0)
        own = rng.sites("local", 0, range(4))
        private = Private(recipe.plan, 0, own.child("unused"))
        task = recipe.task(recipe.init(rng=rng), 0)
        update, _ = recipe.local(task, {}, shards, private, rng=own)
        found.append(update["update"])
    assert found[0].abs().max() > 0 and torch.allclose(found[1], 2 * found[0], atol=1e-6)


MODELS = {
    "nan": lambda model: model * torch.nan,
    "infinite": lambda model: torch.full_like(model, torch.inf),
    "overflowing": lambda model: 1e30 * model,
    "at the limit": lambda model: torch.full_like(model, 3e38).copysign(model),
    "zero": torch.zeros_like,
}


@pytest.mark.parametrize("sent", MODELS)
@pytest.mark.parametrize(
    ("model", "view"),
    [("logistic", "strokes"), ("nn", "strokes"), ("nn", "waves"), ("lenet", "pixels")],
)
def test_no_model_makes_a_site_fail_for_having_images(model: str, view: str, sent: str) -> None:
    """The server is an adversary: a site that fails where an empty one answers tells on itself."""
    schema = Schema("image", "i", 100, classes=("a", "b"), shape=(16, 17))
    terms = {"rate": 3.0, "epochs": 3, "batch": 2}
    own = {"model": model, "view": view, **({"hidden": 4} if model == "nn" else {})}
    own |= {"directions": 0.1} if view == "strokes" or model == "lenet" else {}
    recipe = build(study(schema, recipe=own, training=terms))
    images = np.random.default_rng(0).integers(0, 256, (6, 16, 17), np.uint8)
    images[:3] = np.array([0, 255, 77])[:, None, None]  # even ones
    data = encode(schema, Records(images=images, labels=np.array(list("ababab"))))
    arrays = recipe.task(recipe.init(rng=Streams.from_seed(0)), 0).arrays
    for rows in (0, 1, 3, 6):
        rng = Streams.from_seed(0)
        source = rng.draws("noise")
        private = Private(recipe.plan, 0, source)
        shards = Shards.pack(data, [np.arange(rows)])
        for hostile in ([*arrays], *([name] for name in arrays)):
            task = Task(arrays | {name: MODELS[sent](arrays[name]) for name in hostile})
            update, _ = recipe.local(task, {}, shards, private, rng=rng.draws("local"))
            message = seal(recipe.plan, update, private, source).parts["update"]
            assert message.shape == (1, 2) and message.dtype == torch.int32


ODD = {
    "missing": lambda arrays, name: {n: a for n, a in arrays.items() if n != name},
    "double": lambda arrays, name: arrays | {name: arrays[name].double()},
    "complex": lambda arrays, name: arrays | {name: arrays[name].to(torch.complex64)},
    "short": lambda arrays, name: arrays | {name: arrays[name][: len(arrays[name]) // 2]},
    "scalar": lambda arrays, name: arrays | {name: arrays[name].sum()},
    "narrow": lambda arrays, name: arrays | {name: arrays[name][..., :1]},
    "deep": lambda arrays, name: arrays | {name: arrays[name].unsqueeze(-1)},
}


@pytest.mark.parametrize(
    ("own", "name"),
    [
        *(({"model": m}, name) for m in ("logistic", "lenet") for name in ("centre", "basis")),
        *(({"model": m, "directions": d}, "model") for m in ("nn", "lenet") for d in (0.0, 0.4)),
    ],
)
@pytest.mark.parametrize("odd", ODD)
def test_odd_arrays_are_refused_by_every_site_alike(own: Any, odd: str, name: str) -> None:
    recipe, rng = build(study(IMAGE, recipe=own)), Streams.from_seed(0)
    images = np.zeros((6, 28, 28), np.uint8)
    data = encode(IMAGE, Records(images=images, labels=np.array(list("012345"))))
    arrays = recipe.task(recipe.init(rng=rng), 0).arrays
    own, said = rng.draws("local"), set()
    private = Private(recipe.plan, 0, own)
    for rows in (0, 1, 6):
        with pytest.raises(WireError, match=f"a task's {name}: 32-bit") as caught:
            shards = Shards.pack(data, [np.arange(rows)])
            recipe.local(Task(ODD[odd](arrays, name)), {}, shards, private, rng=own)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize("model", ["logistic", "lenet"])
@pytest.mark.parametrize("directions", [None, 0.0, 0.4])
@pytest.mark.parametrize(
    ("price", "rounds", "each", "life"),
    [({"epsilon_per_update": 2.0}, 12, 2.0, 8.0), ({"epsilon": 7.3}, 37, 7.3 / 13, 7.3)],
)
def test_directions_cost_what_the_study_says(
    model: str,
    directions: float | None,
    price: dict[str, float],
    rounds: int,
    each: float,
    life: float,
) -> None:
    own = {"model": model} | ({} if directions is None else {"directions": directions})
    plan = build(study(IMAGE, study={"rounds": rounds}, privacy=price, recipe=own)).plan
    assert plan.update_epsilon == pytest.approx(each, rel=1e-12)
    assert headline(claims(plan, "os")) == pytest.approx(life, rel=1e-9)


def test_updates_that_no_site_may_make_do_not_count_for_directions() -> None:
    often = {"study": {"rounds": 200}, "privacy": {"epsilon": 8.0}, "sites": 200}
    assert build(study(IMAGE, **often, cohort={"rate": 0.5})).options.directions == 0.4
    few = build(study(IMAGE, **often, cohort={"rate": 0.5, "joins": 2}))
    assert few.options.directions == 0.1


def test_images_too_long_for_waves_are_refused_before_any_site_has_them() -> None:
    long = Schema("image", "i", 100, classes=("a", "b"), shape=(2**20, 2))
    with pytest.raises(StudyError, match="values × frequencies"):
        build(study(long, recipe={"view": "waves"}))
    assert build(study(long)).spec.strokes


REFUSED = {
    "a top set of everything": (dict(recipe={"top": 1.0}), StudyError),
    "a top set beyond the subset": (dict(recipe={"top": 0.3, "subset": 0.2}), StudyError),
    "more outputs than the top set": (dict(recipe={"top": 0.1, "outputs": 9}), PrivacyError),
    "more outputs than coordinates": (dict(recipe={"outputs": 10_000}), PrivacyError),
    "negative outputs": (dict(recipe={"outputs": -1}), StudyError),
    "no epsilon": (dict(privacy={}), StudyError),
    "an epsilon of 0": (dict(privacy={"epsilon_per_update": 0.0}), StudyError),
    "noise": (dict(privacy={"noise": 1.0}), StudyError),
    "a clip": (dict(privacy={"epsilon": 1.0, "clip": 1.0}), StudyError),
    "two prices": (dict(privacy={"epsilon": 1.0, "epsilon_per_update": 1.0}), StudyError),
    "central trust": (dict(privacy={"epsilon": 1.0, "trust": "central"}), PrivacyError),
    "records": (dict(privacy={"epsilon": 1.0, "unit": "record"}), PrivacyError),
    "more calls than joins": (dict(cohort={"size": 20, "joins": 3}), StudyError),
    "a cohort beyond the sites": (dict(cohort={"size": 61}), PrivacyError),
    "a rate that is not finite": (dict(recipe={"global_rate": float("inf")}), StudyError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_spent(case: str) -> None:
    tables, error = REFUSED[case]
    with pytest.raises(error):
        build(study(**tables))


def test_a_classifier_needs_classes() -> None:
    single = Schema("table", "t", 100, COLUMNS)
    with pytest.raises(StudyError, match=r"two classes.*label column"):
        build(study(single))
    with pytest.raises(StudyError, match=r"two classes.*list the classes"):
        build(study(Schema("image", "i", 100, shape=(8, 8))))


def test_joins_that_cover_the_calls_are_accepted() -> None:
    assert build(study(cohort={"size": 20, "joins": 4})).plan.participations == 4


def test_without_rounds_and_cohorts_every_site_is_called_once() -> None:
    plan = build(study(study={"rounds": None}, cohort={}, sites=15_000)).plan
    assert (plan.size, plan.rounds, plan.participations) == (30, 500, 1)
    few = build(study(study={"rounds": None}, cohort={"size": 7}, sites=60)).plan
    assert (few.size, few.rounds, few.participations) == (7, 8, 1)


@pytest.mark.parametrize(
    "sites, size, rounds", [(1500, 20, 75), (59, 29, 2), (39, 39, 1), (7, 7, 1)]
)
def test_few_sites_are_called_in_few_rounds_of_enough_votes(
    sites: int, size: int, rounds: int
) -> None:
    plan = build(study(study={"rounds": None}, cohort={}, sites=sites)).plan
    assert (plan.size, plan.rounds, plan.participations) == (size, rounds, 1)


def test_a_site_sends_as_many_coordinates_as_its_epsilon_can_vouch_for() -> None:
    sent = []
    for epsilon in (0.5, 8.0, 16.0):
        rule = build(study(IMAGE, privacy={"epsilon_per_update": epsilon})).plan.parts[0].rule
        assert rule.output == 1 or rule.law.share >= 0.8
        sent.append(rule.output)
    assert sent[0] == 1 and sent == sorted(set(sent))


def test_a_small_model_has_a_top_set_worth_the_name() -> None:
    plan = build(study()).plan  # 14 coordinates
    assert plan.parts[0].rule.top == 4


def spots(n: int, seed: int) -> Records:
    """A wide bright spot whose place says the class, under strong noise and any brightness."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    at = np.array([[1, 1], [1, 6], [6, 3]])[y]
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), -1)
    spot = np.exp(-((grid - at[:, None, None]) ** 2).sum(-1) / 8)
    light = rng.uniform(0, 0.4, (n, 1, 1)) + 0.1 * rng.normal(size=(n, 8, 8))
    grey = np.clip(0.1 * spot + light + 0.2, 0, 1)
    return Records(images=np.rint(grey * 255).astype(np.uint8), labels=np.array(list("abc"))[y])


@pytest.mark.parametrize("view", ["strokes", "waves"])
def test_few_votes_teach_more_about_strokes_and_waves_than_about_pixels(view: str) -> None:
    """600 votes of ε = 2 for 51 weights; the same number of votes for 195 teach less."""
    schema = Schema("image", "i", 600, classes=("a", "b", "c"), shape=(8, 8))
    sites, held = [spots(10, seed) for seed in range(60)], spots(1000, 999)
    tables = {"study": {"rounds": 30}, "privacy": {"epsilon_per_update": 2.0}}
    scores = []
    for own in (PUBLISHED, {"view": view}):
        asked = study(schema, **tables, recipe={"global_rate": 8.0, **own})
        found = [run(asked, sites, seed=seed, rows=0).predict(held) for seed in range(3)]
        guesses = [said["predicted"].astype(str).to_numpy() for said in found]
        scores.append(np.mean([(guess == held.labels).mean() for guess in guesses]))
    assert scores[1] > scores[0] + 0.05, scores


@pytest.mark.parametrize("cohort", [{"rate": 0.5, "joins": 2}, {"size": 20}])
def test_no_site_answers_more_often_than_its_life_allows(monkeypatch, cohort) -> None:
    """Answers are counted where they leave a site, not where the plan says how many there are."""
    answered: Counter[int] = Counter()
    answer = Sites.answer

    def counted(sites: Sites, task: Task, round: int, clients: np.ndarray) -> Sealed:
        answered.update(clients.tolist())
        return answer(sites, task, round, clients)

    monkeypatch.setattr(Sites, "answer", counted)
    found = run(study(cohort=cohort), [rows(3, seed=i) for i in range(60)], seed=0)
    life = found.plan.participations
    assert max(answered.values()) == life == (2 if "joins" in cohort else 4)
    assert headline(found.claims) == pytest.approx(4.0 * life)


def test_a_resumed_run_keeps_kernels_and_directions(tmp_path: Path) -> None:
    """They are drawn once: votes of both halves are about the same directions."""
    begun: list[State] = []
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28)).astype(np.uint8)
    whole = Records(images=images, labels=np.arange(60).astype(str).astype("<U1"))
    sites = [whole.take(np.array([i])) for i in range(60)]
    asked = study(IMAGE, recipe={"model": "lenet", "directions": 0.2})

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SignDS, "finish", _kept(begun, SignDS.finish))
        with pytest.raises(KeyboardInterrupt):
            run(asked, sites, out=tmp_path / "out", seed=0, progress=stop)
        patch.setattr(SignDS, "init", None)  # whoever resumes draws none
        run(asked, sites, out=tmp_path / "out", seed=0, resume=True)
    drawn = build(asked).init(rng=Streams.from_seed(0).child("init"))
    for name in ("centre", "basis"):
        assert torch.equal(begun[0][name], drawn[name])
    recipe = build(asked)
    fixed = layers.size(recipe.spec.net[: recipe.directions.first])
    assert torch.equal(begun[0]["model"][:, :fixed], drawn["model"][:, :fixed])
    assert not torch.equal(begun[0]["model"], drawn["model"])


def _kept(states: list[State], finish: Any) -> Any:
    def kept(recipe: SignDS, state: State, *, rng: Streams) -> Classifier:
        states.append(state)
        return finish(recipe, state, rng=rng)

    return kept
