"""Every recipe, every unit and trust it supports, on neighbouring data."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from contracts.harness import (
    EACH,
    LOOKS,
    SMALL,
    VALUES,
    cases,
    check_noise,
    check_order,
    check_replay,
    check_stack,
    kind_of,
    neighbours,
    seeing_study,
    small_recipe,
    small_shards,
    traced,
    with_rows,
)
from contracts.toys import SIDES, schema
from understudy.privacy.claim import claims
from understudy.recipes import build


@pytest.mark.parametrize("name, unit, trust", cases())
def test_one_unit_moves_what_is_noised_by_no_more_than_declared(
    tmp_path: Path, name: str, unit: str, trust: str
) -> None:
    recipe = small_recipe(name, unit, trust)
    used = []
    kind = kind_of(name)
    for i, neighbour in enumerate(neighbours(unit, trust, kind)):
        folder = tmp_path / str(i)
        folder.mkdir()
        used.append(check_replay(recipe, folder, neighbour))
    assert max(used) > 0.05, "no neighbour moved anything: the test shows nothing"


@pytest.mark.parametrize("name, unit, trust", cases())
def test_noise_has_the_promised_size_in_its_slot(name: str, unit: str, trust: str) -> None:
    check_noise(small_recipe(name, unit, trust).plan)


@pytest.mark.parametrize("name, unit, trust", cases())
def test_every_round_is_charged_before_its_noise(
    tmp_path: Path, name: str, unit: str, trust: str
) -> None:
    check_order(small_recipe(name, unit, trust), tmp_path)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_one_vae_per_class_is_bounded_as_a_whole(tmp_path: Path, trust: str) -> None:
    own = {**SMALL["fedvae"], "classes": "separate"}
    recipe = small_recipe("fedvae", "site", trust, recipe=own)
    assert recipe.plan.own.parts[0].mechanism.blocks == 2
    for i, neighbour in enumerate(neighbours("site", trust)[::4]):
        (tmp_path / str(i)).mkdir()
        check_replay(recipe, tmp_path / str(i), neighbour)


# fedmoments has two forms on tables: `cases` covers two sums where a row or person is protected,
# one sum where a site is.

FORMS = {
    "one sum, records, central": ("record", "central", {"schema": schema(records=20)}, 1),
    "one sum, persons, local": ("person", "local", {"schema": schema(records=20)}, 1),
    "two sums, sites, central": ("site", "central", {"privacy": {"noise": 0.01}}, 2),
    "two sums, sites, local": ("site", "local", {"privacy": {"noise": 0.01}}, 2),
}


@pytest.mark.parametrize("unit, trust, terms, sums", FORMS.values(), ids=FORMS)
def test_both_forms_of_fedmoments_are_bounded_for_every_unit(
    tmp_path: Path, unit: str, trust: str, terms: dict, sums: int
) -> None:
    recipe = small_recipe("fedmoments", unit, trust, **terms)
    assert len(recipe.plan.phases) == sums
    used = []
    for i, neighbour in enumerate(neighbours(unit, trust)[::2]):
        (tmp_path / str(i)).mkdir()
        used.append(check_replay(recipe, tmp_path / str(i), neighbour))
    assert max(used) > 0.05, "no neighbour moved anything: the test shows nothing"


# Sites of a simulation are trained in one stack: neither the rows of one nor their number may
# reach another (test_chunks.py looks at the number).


@pytest.mark.parametrize("value", ["ones", "wild", "nan"])
@pytest.mark.parametrize("name, unit, trust", cases())
def test_sites_in_one_stack_do_not_see_each_other(
    tmp_path: Path, name: str, unit: str, trust: str, value: str
) -> None:
    check_stack(small_recipe(name, unit, trust), tmp_path, VALUES[value])


def test_every_part_that_dp_fed_wae_teaches_is_replayed(tmp_path: Path) -> None:
    recipe = small_recipe("dp_fed_wae", "site", "local")
    turns = [recipe.turn(round) for round in range(recipe.plan.length)]
    data = small_shards()
    other = with_rows(data, list(range(EACH, 2 * EACH)), 1.0, 1)
    one, two = (traced(recipe, tmp_path / n, d).choices for n, d in (("a", data), ("b", other)))
    pairs = zip(one, two, strict=True)
    moved = {turns[key[2]] for (key, a, _), (_, b, _) in pairs if not torch.equal(a, b)}
    assert moved == set(turns) == {"margins", "head", "encoder", "decoder"}


# SignDS on images: its fixed layers see even images, wild ones and those that are no numbers.


@pytest.mark.parametrize("look", LOOKS)
def test_images_move_nothing_but_their_own_site_s_choices(tmp_path: Path, look: str) -> None:
    recipe, used = build(seeing_study(look)), []
    assert recipe.spec.strokes == ("strokes" in look) != recipe.spec.standardised
    for i, neighbour in enumerate(neighbours("site", "local", "image")):
        (tmp_path / str(i)).mkdir()
        used.append(check_replay(recipe, tmp_path / str(i), neighbour))
    assert all(used), "a neighbour moved nothing: the test shows nothing"


# Even images have no strokes; a dot's are stronger than those of any other.
PICTURES = {**VALUES, "dot": torch.arange(math.prod(SIDES)) < 3}


@pytest.mark.parametrize("value", PICTURES)
@pytest.mark.parametrize("look", LOOKS)
def test_images_of_sites_in_one_stack_do_not_see_each_other(
    tmp_path: Path, look: str, value: str
) -> None:
    check_stack(build(seeing_study(look)), tmp_path, PICTURES[value])


# DPD-fVAE: what the honest encoders keep and the published one does not.

BATCHES = {"training": {"rate": 0.3, "batch": 60}}  # each record by a coin flip, rate 0.45
WARM = {"warm_start": 0.4, "warm_steps": 3}
EPSILON = {"noise": None, "epsilon": 3.0}


def dpd(unit: str, trust: str, **own: object):
    tables = {"privacy": EPSILON} if "warm_start" in own else {}
    terms = BATCHES if unit == "record" else {}
    recipe = {**SMALL["dpd_fvae"], **own}
    return small_recipe("dpd_fvae", unit, trust, recipe=recipe, **terms, **tables)


HONEST = {
    "private batches, local": ("record", "local", {}),
    "private batches, central": ("record", "central", {}),
    "private, warm start, local": ("record", "local", WARM),
    "private, warm start, central": ("record", "central", WARM),
    "frozen, local": ("record", "local", {"encoder": "frozen", **WARM}),
    "frozen, central": ("record", "central", {"encoder": "frozen", **WARM}),
    "sites, warm start, central": ("site", "central", WARM),
    "sites, warm start, local": ("site", "local", WARM),
    "vanilla fVAE": ("site", "central", {"share": "vae"}),
}


@pytest.mark.parametrize(
    "unit, trust, own",
    [
        pytest.param(*terms, id=name, marks=[pytest.mark.slow] if terms[2] else [])
        for name, terms in HONEST.items()
    ],
)
def test_dpd_fvae_moves_what_is_noised_by_no_more_than_declared(
    tmp_path: Path, unit: str, trust: str, own: dict
) -> None:
    recipe, used = dpd(unit, trust, **own), []
    for i, neighbour in enumerate(neighbours(unit, trust)[::3]):
        (tmp_path / str(i)).mkdir()
        used.append(check_replay(recipe, tmp_path / str(i), neighbour))
    assert max(used) > 0.05, "no neighbour moved anything: the test shows nothing"


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_fedvae_with_a_warm_start_is_bounded_in_both_phases(tmp_path: Path, trust: str) -> None:
    tables = {"privacy": EPSILON, "recipe": {**SMALL["fedvae"], **WARM}}
    recipe = small_recipe("fedvae", "site", trust, **tables)
    for i, neighbour in enumerate(neighbours("site", trust)[::4]):
        (tmp_path / str(i)).mkdir()
        check_replay(recipe, tmp_path / str(i), neighbour)


def test_the_published_encoder_breaks_the_record_level_sensitivity(tmp_path: Path) -> None:
    """Why encoder = "paper" carries no ε: one record moves the others' clipped gradients."""
    own = {**SMALL["dpd_fvae"], "encoder": "paper", "steps": 4}
    tables = {"recipe": own, "training": {"rate": 0.3, "batch": 12}, "study": {"rounds": 3}}
    recipe = small_recipe("dpd_fvae", "record", "local", **tables)
    bound = recipe.plan.own.parts[0].mechanism.bound
    one_record = bound / 12
    data = small_shards()
    other = with_rows(data, [2 * EACH - 1], 1.0, 1)
    queries = [
        [value for _, value, _ in traced(recipe, tmp_path / name, rows).queries]
        for name, rows in (("one", data), ("two", other))
    ]
    moved = [float((a - b).norm()) for a, b in zip(*queries, strict=True)]
    most = max(moved[len(moved) // 2 :])
    assert most > 2 * one_record * 12 / EACH, "the published form would pass: is it the same?"
    assert most <= 2 * bound, "and yet no site moves it further than the site-level bound"
    assert recipe.plan.unit == "site" and claims(recipe.plan, "os")[0].epsilon is None
