"""SignDS-FL: what a site sends, what the server makes of it, what is learnt and refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from recipes.at_site import at_site
from understudy.data.encode import encode
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import Records, from_frame
from understudy.errors import PrivacyError, StudyError, WireError
from understudy.federation.recipe import Task
from understudy.federation.site import seal
from understudy.federation.sites import Sites
from understudy.nets import classifier, layers
from understudy.privacy.claim import claims, headline
from understudy.privacy.clip import Sealed
from understudy.privacy.select import Selection
from understudy.recipes import build
from understudy.recipes.signds import SignDS
from understudy.release.classifier import Classifier
from understudy.rng import Streams
from understudy.simulation import run
from understudy.study import Study

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


@pytest.mark.parametrize(("model", "size"), [("logistic", 7850), ("nn", 76_330), ("lenet", 44_426)])
def test_the_nets_have_the_sizes_of_table_3_2(model: str, size: int) -> None:
    recipe = build(study(IMAGE, recipe={"model": model, "view": "pixels"}))
    assert isinstance(recipe, SignDS) and layers.size(recipe.spec.net) == size
    rule = recipe.plan.own.parts[0].mechanism
    assert isinstance(rule, Selection) and (rule.size, rule.top) == (size, round(0.1 * size))
    assert recipe.plan.own.parts[0].bytes == 8


SEEN = {
    "strokes by default": ({}, 16 * 7**2),
    "strokes": ({"view": "strokes"}, 16 * 7**2),
    "pixels": ({"view": "pixels"}, 28**2),
}


@pytest.mark.parametrize("view", SEEN)
@pytest.mark.parametrize(("model", "hidden"), [("logistic", 0), ("nn", 96)])
def test_dense_nets_see_strokes_or_pixels(view: str, model: str, hidden: int) -> None:
    own, inputs = SEEN[view]
    recipe = build(study(IMAGE, recipe={"model": model, **own}))
    assert isinstance(recipe, SignDS) and recipe.spec.strokes == (view != "pixels")
    size = (inputs + 1) * (hidden or 10) + (hidden and (hidden + 1) * 10)
    assert layers.size(recipe.spec.net) == size
    assert recipe.plan.own.parts[0].shape == (size,)
    seen = "pixels" if view == "pixels" else "strokes"
    assert recipe.about == f"{model} on {seen}, {size:,} weights"


def test_lenet_sees_standardised_pixels_of_images_and_series_as_they_are() -> None:
    recipe = build(study(IMAGE, recipe={"model": "lenet"}))
    assert recipe.spec.standardised and not recipe.spec.strokes
    assert recipe.about == "lenet on pixels, 44,426 weights"
    columns = tuple(Column(f"c{i}", "numeric", low=0.0, high=1.0) for i in range(16))
    series = Schema("series", "s", 100, columns, classes=("a", "b"), shape=(24, 16))
    plain = build(study(series, recipe={"model": "lenet"}))
    assert not plain.spec.standardised and "lenet on encoded values" in plain.about


def test_a_fresh_net_is_sent_and_nothing_else() -> None:
    recipe, rng = build(study(IMAGE)), Streams.from_seed(0)
    state = recipe.init(rng=rng)
    assert set(recipe.task(state, 0).arrays) == {"model"}
    fresh = layers.stack(classifier.init(recipe.spec, rng=rng.torch("net")), 1)
    assert torch.equal(state["model"], layers.flatten(recipe.spec.net, fresh))


def test_all_colours_are_seen() -> None:
    coloured = Schema("image", "i", 100, classes=("a", "b"), shape=(12, 3, 3))
    assert layers.size(build(study(coloured)).spec.net) == (16 * 3 * 6 * 2 + 1) * 2


def test_tables_are_seen_as_they_are() -> None:
    spec = build(study()).spec
    assert (spec.shape, spec.standardised, spec.strokes) == ((), False, False)


@pytest.mark.parametrize(
    ("schema", "own", "idle"),
    [
        (TABLE, {"view": "strokes"}, 'view with model = "logistic", kind = "table"'),
        (IMAGE, {"model": "lenet", "view": "strokes"}, 'view with model = "lenet"'),
        (IMAGE, {"hidden": 50}, 'hidden with model = "logistic"'),
        (IMAGE, {"model": "lenet", "hidden": 50}, 'hidden with model = "lenet"'),
        (TABLE, {"model": "lenet", "hidden": 50, "view": "strokes"}, "hidden and view with"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    schema: Schema, own: dict[str, Any], idle: str
) -> None:
    with pytest.raises(StudyError, match=idle):
        build(study(schema, recipe=own))


def test_a_numeric_label_is_refused() -> None:
    with pytest.raises(StudyError, match="two classes or more for a classifier; found a numeric"):
        build(study(Schema("table", "t", 100, COLUMNS, label="v0")))


def test_pixels_may_always_be_asked_for() -> None:
    for schema, model in ((TABLE, "logistic"), (IMAGE, "nn"), (IMAGE, "lenet")):
        assert not build(study(schema, recipe={"model": model, "view": "pixels"})).spec.strokes


def test_a_width_below_one_is_refused_by_name() -> None:
    with pytest.raises(StudyError, match=r"recipe.hidden at least 1.*0"):
        build(study(recipe={"model": "nn", "hidden": 0}))


@pytest.mark.parametrize("name", ["contrast", "detail", "directions", "balance", "latent"])
def test_options_that_are_gone_are_refused_by_name(name: str) -> None:
    with pytest.raises(StudyError, match=name):
        build(study(IMAGE, recipe={name: 0.5}))


def test_votes_for_small_layers_count_less() -> None:
    recipe = build(study(recipe={"model": "nn", "hidden": 4}))
    worth = layers.unflatten(recipe.spec.net, recipe.worth[None])
    for name, shape in layers.shapes(recipe.spec.net).items():
        assert worth[name].flatten()[0] == pytest.approx((np.prod(shape) / (6 * 4)) ** (1 / 3))
    state = recipe.init(rng=Streams.from_seed(0))
    votes = torch.ones(recipe.plan.own.parts[0].shape)
    moved = recipe.step(state, {"update": votes}, rng=Streams.from_seed(0))["model"]
    change = (moved - state["model"])[0]
    assert torch.allclose(change / change[0], recipe.worth, atol=1e-5)


def test_votes_move_the_model_by_the_rate() -> None:
    own = {"global_rate": 0.5, "decay": "none", "average": 0.0}
    recipe = build(study(recipe=own))
    state = recipe.init(rng=Streams.from_seed(0))
    votes = torch.zeros(recipe.plan.own.parts[0].shape)
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
    assert plan.participations == 4 and plan.own.update_epsilon == pytest.approx(2.0)


def test_without_privacy_updates_are_averaged_as_they_are() -> None:
    recipe = build(study(privacy={"trust": "none"}))
    state = recipe.init(rng=Streams.from_seed(0))
    mean = torch.randn(recipe.plan.own.parts[0].shape)
    moved = recipe.step(state, {"update": mean}, rng=Streams.from_seed(0))["model"]
    assert torch.allclose(moved, state["model"] + mean)


def test_a_site_makes_one_plain_step_unless_told_otherwise() -> None:
    """Twice the rate is then exactly twice the update, which neither Adam nor two steps give."""
    encoded = encode(TABLE, rows(40, seed=1))
    shards, found = Shards.pack(encoded, np.array_split(np.arange(40), 4)), []
    for rate in (0.5, 1.0):
        recipe = build(study(training={"rate": rate}))
        task = recipe.task(recipe.init(rng=Streams.from_seed(0)), 0)
        update, _ = recipe.local(task, at_site(recipe, shards))
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
    [("logistic", "strokes"), ("nn", "strokes"), ("nn", "pixels"), ("lenet", "pixels")],
)
def test_no_model_makes_a_site_fail_for_having_images(model: str, view: str, sent: str) -> None:
    """The server is an adversary: a site that fails where an empty one answers tells on itself."""
    schema = Schema("image", "i", 100, classes=("a", "b"), shape=(16, 17))
    terms = {"rate": 3.0, "epochs": 3, "batch": 2}
    own = {"model": model, "view": view, **({"hidden": 4} if model == "nn" else {})}
    recipe = build(study(schema, recipe=own, training=terms))
    images = np.random.default_rng(0).integers(0, 256, (6, 16, 17), np.uint8)
    images[:3] = np.array([0, 255, 77])[:, None, None]  # even ones
    data = encode(schema, Records(images=images, labels=np.array(list("ababab"))))
    arrays = recipe.task(recipe.init(rng=Streams.from_seed(0)), 0).arrays
    for rows in (0, 1, 3, 6):
        site = at_site(recipe, Shards.pack(data, [np.arange(rows)]))
        update, _ = recipe.local(Task({"model": MODELS[sent](arrays["model"])}), site)
        message = seal(site, update).parts["update"]
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


@pytest.mark.parametrize("model", ["logistic", "nn", "lenet"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_arrays_are_refused_by_every_site_alike(model: str, odd: str) -> None:
    recipe, rng = build(study(IMAGE, recipe={"model": model})), Streams.from_seed(0)
    images = np.zeros((6, 28, 28), np.uint8)
    data = encode(IMAGE, Records(images=images, labels=np.array(list("012345"))))
    arrays = recipe.task(recipe.init(rng=rng), 0).arrays
    said = set()
    for rows in (0, 1, 6):
        with pytest.raises(WireError, match="a task's model: 32-bit") as caught:
            site = at_site(recipe, Shards.pack(data, [np.arange(rows)]))
            recipe.local(Task(ODD[odd](arrays, "model")), site)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize("model", ["logistic", "lenet"])
@pytest.mark.parametrize(
    ("price", "rounds", "each", "life"),
    [({"epsilon_per_update": 2.0}, 12, 2.0, 8.0), ({"epsilon": 7.3}, 37, 7.3 / 13, 7.3)],
)
def test_any_net_costs_what_the_study_says(
    model: str, price: dict[str, float], rounds: int, each: float, life: float
) -> None:
    own = {"model": model}
    plan = build(study(IMAGE, study={"rounds": rounds}, privacy=price, recipe=own)).plan
    assert plan.own.update_epsilon == pytest.approx(each, rel=1e-12)
    assert headline(claims(plan, "os")) == pytest.approx(life, rel=1e-9)


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
    assert (plan.own.size, plan.own.rounds, plan.participations) == (30, 500, 1)
    few = build(study(study={"rounds": None}, cohort={"size": 7}, sites=60)).plan
    assert (few.own.size, few.own.rounds, few.participations) == (7, 8, 1)


@pytest.mark.parametrize(
    "sites, size, rounds", [(1500, 20, 75), (59, 29, 2), (39, 39, 1), (7, 7, 1)]
)
def test_few_sites_are_called_in_few_rounds_of_enough_votes(
    sites: int, size: int, rounds: int
) -> None:
    plan = build(study(study={"rounds": None}, cohort={}, sites=sites)).plan
    assert (plan.own.size, plan.own.rounds, plan.participations) == (size, rounds, 1)


def test_a_site_sends_as_many_coordinates_as_its_epsilon_can_vouch_for() -> None:
    sent = []
    for epsilon in (0.5, 8.0, 16.0):
        plan = build(study(IMAGE, privacy={"epsilon_per_update": epsilon})).plan
        rule = plan.own.parts[0].mechanism
        assert rule.output == 1 or rule.law.share >= 0.8
        sent.append(rule.output)
    assert sent[0] == 1 and sent == sorted(set(sent))


def test_a_small_model_has_a_top_set_worth_the_name() -> None:
    plan = build(study()).plan  # 14 coordinates
    assert plan.own.parts[0].mechanism.top == 4


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


def test_few_votes_teach_more_about_strokes_than_about_pixels() -> None:
    """600 votes of ε = 2: brightness and noise hide in pixels what strokes show."""
    schema = Schema("image", "i", 600, classes=("a", "b", "c"), shape=(8, 8))
    sites, held = [spots(10, seed) for seed in range(60)], spots(1000, 999)
    tables = {"study": {"rounds": 30}, "privacy": {"epsilon_per_update": 2.0}}
    scores = []
    for view in ("pixels", "strokes"):
        asked = study(schema, **tables, recipe={"view": view})
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
