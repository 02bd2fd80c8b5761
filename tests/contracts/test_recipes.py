"""What holds for every recipe: the table of what it supports, bad input, the wire, a release."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from contracts.harness import (
    EVERY,
    HOLDING_ROWS,
    LOOKS,
    cases,
    check_release,
    chooses,
    kind_of,
    seeing_study,
    small_recipe,
    small_shards,
    small_study,
)
from contracts.toys import (
    MAKERS,
    SIDES,
    engine,
    image_records,
    records,
    rows,
    series_records,
)
from understudy.data.records import Records
from understudy.errors import PrivacyError, StudyError
from understudy.privacy.claim import Claim
from understudy.privacy.select import Selection
from understudy.privacy.terms import Trust, Unit
from understudy.recipes import RECIPES, build, infos
from understudy.release.bundle import Release
from understudy.release.verify import verify
from understudy.settings import read
from understudy.simulation import run, run_apart

pytestmark = pytest.mark.usefixtures("toys")
TRUSTS = [t for t in get_args(Trust) if t != "none"]


def empty(kind: str) -> Records:
    return rows(1, 1, kind)[0].take(np.array([], np.int64))


def of_one_class(kind: str) -> Records:
    if kind == "series":
        found = series_records(5, seed=4)
        return replace(found, labels=np.full(5, "no"))
    found = records(5, seed=4)
    return Records(frame=found.frame.assign(ill="no"), person=found.person)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_is(name: str) -> None:
    info = infos()[name]
    assert info.name == name and info.title and info.summary and info.paper
    assert info.default in info.supports | info.parties or info.default[1] == "none"
    assert set(info.kinds) <= {"table", "image", "series"} and info.rounds >= 1
    assert callable(RECIPES[name].build) and dataclasses.is_dataclass(info.options)
    for field in dataclasses.fields(info.options):
        assert field.metadata.get("help"), f"[recipe] {field.name} is not explained"
    assert read(info.options, {}, "recipe") == info.options()


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("unit", get_args(Unit))
@pytest.mark.parametrize("name", HOLDING_ROWS)
def test_the_table_of_units_and_trusts_holds(name: str, unit: str, trust: str) -> None:
    supported = (unit, trust) in EVERY[name].info.supports
    if supported:
        plan = small_recipe(name, unit, trust).plan
        assert (plan.unit, plan.trust) == (unit, trust)
    else:
        with pytest.raises(PrivacyError, match=r"supports|none"):
            small_recipe(name, unit, trust)


@pytest.mark.parametrize("name", [name for name in HOLDING_ROWS if name in RECIPES])
def test_an_unknown_option_is_refused(name: str) -> None:
    unit, trust = RECIPES[name].info.default
    with pytest.raises(StudyError, match=r"unknown key recipe\.depht"):
        build(small_study(name, unit, trust, recipe={"depht": 3}))


def promised(release: Release) -> list[Claim]:
    """The claims, but for what they say of masks: whether there were any is the run's to tell."""
    return [replace(claim, trust="", caveats=()) for claim in release.claims]


@pytest.mark.parametrize("name, unit, trust", cases(public=True))
def test_a_run_over_the_wire_ends_in_a_release_that_verifies(
    tmp_path: Path, name: str, unit: str, trust: str
) -> None:
    check_release(name, unit, trust, tmp_path)


@pytest.mark.parametrize("look", LOOKS)
def test_a_run_on_images_ends_in_a_classifier_that_verifies(tmp_path: Path, look: str) -> None:
    """One site has even images only, and one has none."""
    black = replace(image_records(4), images=np.zeros((4, *SIDES), np.uint8))
    data = [image_records(4, seed=1), black, empty("image")]
    run_apart(seeing_study(look), data, out=tmp_path / "release")
    release = verify(tmp_path / "release").release
    assert release.model.net == build(seeing_study(look)).spec
    assert np.isfinite(release.predict(black).filter(like="yes").to_numpy(float)).all()


@pytest.mark.parametrize("name, unit, trust", cases(public=True))
def test_the_wire_is_exact(name: str, unit: str, trust: str) -> None:
    asked, data = small_study(name, unit, trust), rows(3, kind=kind_of(name))
    plain, wired = (how(asked, data, seed=1, rows=0) for how in (run, run_apart))
    arrays, others = plain.model.arrays, wired.model.arrays
    assert arrays.keys() == others.keys()
    assert all(torch.equal(arrays[k], others[k]) for k in arrays)
    assert plain.ledger == wired.ledger and promised(plain) == promised(wired)


@pytest.mark.parametrize("name, unit, trust", [c for c in cases() if "distributed" in c.values])
def test_masks_change_nothing_but_what_the_server_sees(name: str, unit: str, trust: str) -> None:
    data = rows(3, kind=kind_of(name))
    terms = {"simulation": {"data": "-", "sites": 3, "masks": "checked"}}
    plain = run(small_study(name, unit, trust), data, seed=1, rows=0)
    masked = run(small_study(name, unit, trust, **terms), data, seed=1, rows=0)
    assert all(
        torch.equal(plain.model.arrays[k], masked.model.arrays[k]) for k in plain.model.arrays
    )
    assert plain.ledger == masked.ledger and promised(plain) == promised(masked)
    assert plain.claims != masked.claims, "a claim says whether there were masks"


@pytest.mark.parametrize("name, unit, trust", cases(public=True))
def test_empty_sites_single_rows_and_single_classes_take_no_special_path(
    name: str, unit: str, trust: str
) -> None:
    kind = kind_of(name)
    few = [empty(kind), rows(1, 1, kind)[0], of_one_class(kind)]
    for data in (few, [empty(kind)] * 3):
        release = run(small_study(name, unit, trust), data, seed=0, rows=0)
        assert all(torch.isfinite(v).all() for v in release.model.arrays.values())
        classifies = release.model.role == "classifier"
        made = release.predict(records(20)) if classifies else release.sample(20, seed=0)
        assert len(made) == 20


@pytest.mark.parametrize("name, unit, trust", cases())
def test_what_leaves_a_site_is_sealed_as_the_trust_says(
    tmp_path: Path, name: str, unit: str, trust: str
) -> None:
    recipe = small_recipe(name, unit, trust)
    made, ledger = engine(recipe, tmp_path, data=small_shards(kind_of(name)))
    ledger.close()
    task = recipe.task(recipe.init(rng=made.streams), 0)
    sealed, _ = made.runtime.sites.answer(task, 0, np.arange(3))
    assert (
        sealed.kind
        == {
            "central": "entrusted",
            "local": "noised",
            "distributed": "share",
        }[trust]
    )
    parts = recipe.plan.at(0).parts
    assert {n: tuple(v.shape) for n, v in sealed.parts.items()} == {
        p.name: (3, 1 + p.mechanism.output) if isinstance(p.mechanism, Selection) else (3, *p.shape)
        for p in parts
    }
    sent = sum(v[0].numel() * v.element_size() for v in sealed.parts.values())
    told = sum(part.bytes for part in parts)
    assert sent == told if chooses(name) else trust == "distributed" or told / 2 <= sent <= told
    assert len(sealed.receipts) == (
        0 if trust == "central" else sum(p.mechanism.steps for p in parts)
    )


@pytest.mark.parametrize("name, unit, trust", cases(public=True))
def test_a_recipe_holds_settings_and_no_state(name: str, unit: str, trust: str) -> None:
    recipe = small_recipe(name, unit, trust)
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.plan = None
    assert not any(isinstance(v, torch.Tensor) for v in vars(recipe).values())
    first, second = recipe.memory("one"), recipe.memory("one")
    assert all(torch.equal(first[k], second[k]) for k in first), "a site starts from a public value"


@pytest.mark.parametrize("kind", ["table", "image", "series"])
@pytest.mark.parametrize("name", [name for name in HOLDING_ROWS if name in RECIPES])
def test_data_of_another_kind_is_refused_before_any_net_is_made(name: str, kind: str) -> None:
    info = RECIPES[name].info
    public, _ = MAKERS[kind]
    asked = small_study(name, *info.default, schema=public())
    if kind in info.kinds:
        assert build(asked).schema.kind == kind
    else:
        with pytest.raises(StudyError, match=f"for {name}"):
            build(asked)
