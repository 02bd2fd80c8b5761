"""A forger who rewrites plan, claims, ledger and hashes is found by building the plan again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.toys import TOYS, plain, records, rows, series_schema, study
from release.test_verify import load, rehash
from understudy.errors import ReleaseError, StudyError
from understudy.privacy.ledger import _seal
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import RECIPES, build
from understudy.release.bundle import Release
from understudy.release.rebuild import agreed, difference
from understudy.release.verify import verify
from understudy.simulation import run
from understudy.study import Study, agreement_hash

NETS = {"widths": [4], "decoder_widths": [4], "latent": 2, "warm_steps": 5}


def three_sites() -> list:
    return [records(6, seed=i + 1, kind=plain()) for i in range(3)]


def warm(**privacy: Any) -> Study:
    """Two phases: a warm start, then training."""
    terms = {"unit": "site", "trust": "central", "epsilon": 3.0, **privacy}
    own = {**NETS, "warm_start": 0.4}
    return study("dpd_fvae", 3, schema=plain(), study={"rounds": 2}, privacy=terms, recipe=own)


@pytest.fixture(scope="module")
def warmed() -> Release:
    return run(warm(), three_sites(), seed=0, rows=5)


def ledger_of(release: Release) -> str:
    """An unbroken ledger that charges every round of a release's plan."""
    plan = release.plan
    body = {"study": release.study, "schema": release.schema.hash, "plan": plan.to_dict()}
    bodies = [("open", body)]
    for round in range(plan.length):
        receipts = [asdict(receipt) for receipt in plan.receipts(round, release.source)]
        bodies += [("charge", {"receipts": receipts})] if receipts else []
    previous, lines = "0" * 64, []
    for kind, each in bodies:
        sealed = _seal(previous, kind, each)
        previous = sealed["hash"]
        lines.append(json.dumps(sealed, sort_keys=True, ensure_ascii=False) + "\n")
    return "".join(lines)


def forged(release: Release, folder: Path, plan: PrivacyPlan, **changes: Any) -> Path:
    """The release with another plan; ledger, claims, card and hashes follow from it."""
    other = replace(release, plan=plan, **changes)
    return replace(other, ledger=ledger_of(other)).save(folder)


def noise(plan: PrivacyPlan, factor: float = 2.0) -> PrivacyPlan:
    """More noise than there was, and so a smaller ε."""
    return plan.with_noise(plan.own.parts[0].mechanism.noise * factor)  # type: ignore[attr-defined]


def bound(plan: PrivacyPlan) -> PrivacyPlan:
    (part, *rest) = plan.own.parts
    looser = replace(part, mechanism=replace(part.mechanism, bound=9.0))
    return plan.with_own(parts=(looser, *rest))


def local(plan: PrivacyPlan) -> PrivacyPlan:
    phases = [
        replace(p, parts=tuple(replace(part, where="client") for part in p.parts))
        for p in plan.phases
    ]
    return replace(plan, trust="local", phases=tuple(phases))


def shapes(plan: PrivacyPlan) -> PrivacyPlan:
    return plan.with_own(parts=tuple(replace(p, shape=(7,)) for p in plan.own.parts))


FORGED: dict[str, tuple[Callable[[PrivacyPlan], PrivacyPlan], str]] = {
    "noise": (noise, "noise"),
    "a last digit of noise": (lambda p: noise(p, 1 + 1e-15), "noise"),
    "fewer rounds": (lambda p: p.with_own(rounds=1), "rounds"),
    "more rounds": (lambda p: p.with_own(rounds=9), "rounds"),
    "rate": (lambda p: p.with_own(rate=0.1), "rate"),
    "trust": (local, "trust"),
    "bound": (bound, "bound"),
    "delta": (lambda p: replace(p, delta=1e-3), "delta"),
    "shapes": (shapes, "shape"),
    "notes": (lambda p: replace(p, notes=()), "notes"),
    "unproven": (lambda p: replace(p, unproven="nothing"), "unproven"),
    "a phase dropped": (lambda p: replace(p, phases=p.phases[1:]), "phases"),
    "a phase twice": (lambda p: replace(p, phases=(p.phases[0], *p.phases)), "phases"),
    "another first phase": (
        lambda p: replace(p, phases=(noise(replace(p, phases=p.phases[:1])).own, p.own)),
        "noise",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_plan_is_refused_where_its_recipe_is_known(
    warmed: Release, tmp_path: Path, what: str
) -> None:
    forge, place = FORGED[what]
    path = forged(warmed, tmp_path / "r", forge(warmed.plan))
    (note,) = verify(path).notes
    assert "was not checked" in note, "all else fits, so only the recipe can tell"
    with pytest.raises(ReleaseError, match=rf"another .*{place}"):
        verify(path, RECIPES)


def test_a_plan_for_another_unit_is_refused(tmp_path: Path) -> None:
    asked = study("fedmoments", 3, schema=plain(), privacy={"unit": "site", "noise": 5.0})
    release = run(asked, three_sites(), seed=0, rows=5)
    person = build(replace(asked, privacy=replace(asked.privacy, unit="record"))).plan
    path = forged(release, tmp_path / "r", person)
    assert verify(path).release.plan.unit == "record"
    with pytest.raises(ReleaseError, match="another"):
        verify(path, RECIPES)


def test_the_untouched_release_of_two_phases_is_built_again(
    warmed: Release, tmp_path: Path
) -> None:
    verdict = verify(forged(warmed, tmp_path / "r", warmed.plan), RECIPES)
    assert verdict.notes == () and len(verdict.release.plan.phases) == 2
    assert f"the plan is the one that study {warmed.study[:12]} leads to" in verdict.checks
    assert warm().hash == warmed.study


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 1},
        {"sites": 4},
        {"split": None},
        {"split": {"name": "kmeans", "alone": False}},
        {"privacy": {"unit": "site", "trust": "central", "epsilon": 2.0}},
        {"privacy": {"unit": "site", "trust": "central", "epsilon": 3.0, "clip": 2.0}},
        {"options": {**NETS, "warm_start": 0.3}},
        {"options": {**NETS, "warm_start": 0.4, "latent": 3}},
        {"options": {**NETS, "warm_start": 0.4, "public": "a file"}},
        {"options": {**NETS, "unheard": 1}},
        {"options": {**NETS, "latent": "many"}},
        {"cohort": {"rate": 0.5}},
    ],
    ids=str,
)
def test_an_agreement_that_leads_to_another_plan_is_refused(
    warmed: Release, tmp_path: Path, change: dict
) -> None:
    """The forger makes study hash and ledger fit the new agreement."""
    agreement = {**warmed.agreement, **change}
    try:
        path = forged(warmed, tmp_path / "r", warmed.plan, agreement=agreement)
    except ReleaseError:
        pytest.fail("the forger could not even write it")
    with pytest.raises(ReleaseError):
        verify(path, RECIPES)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 1},
        {"sites": 0},
        {"sites": "3"},
        {"sites": True},
        {"rounds": 2.5},
        {"privacy": {"hidden": 1}},
        {"privacy": 3},
        {"options": 3},
        {"options": None},
        {"split": 3},
        {"split": {}},
        {"split": {"name": "uniform", "alone": 1}},
        {"split": {"name": "uniform", "alone": False, "column": "ill"}},
        {"split": {"name": "uniform", "alone": False, "path": "rows.csv"}},
        {"split": {"name": "column", "alone": False, "column": "unheard"}},
        {"training": {"epochs": 0}},
        {"training": []},
        {"cohort": None},
    ],
    ids=str,
)
def test_an_agreement_holds_nothing_but_an_agreement(
    folder: Path, made: Release, change: dict
) -> None:
    """Whatever the recipe is, and with hashes that fit."""
    agreement = {**made.agreement, **change}
    with pytest.raises(StudyError):
        agreed(agreement, made.schema)
    other = replace(made, agreement=agreement)
    replace(other, ledger=ledger_of(other)).save(folder.with_name("forged"))
    with pytest.raises(ReleaseError):
        verify(folder.with_name("forged"))


@pytest.mark.parametrize("key", ["name", "schema", "recipe", "rounds", "split", "privacy"])
def test_an_agreement_without_one_of_its_parts_is_refused(
    folder: Path, made: Release, key: str
) -> None:
    def change(manifest: dict) -> None:
        del manifest["agreement"][key]
        manifest["study"] = agreement_hash(manifest["agreement"])

    rehash(folder, change)
    with pytest.raises(ReleaseError):
        verify(folder)


def test_an_edited_agreement_does_not_fit_the_study_hash(folder: Path) -> None:
    rehash(folder, lambda manifest: manifest["agreement"]["privacy"].update(noise=9.0))
    for look in (verify, Release.load):
        with pytest.raises(ReleaseError, match="the agreement that the study hash names"):
            look(folder)


@pytest.mark.parametrize("value", [None, 3, [], {}, "x", [["name", "toy"]]])
def test_what_is_no_agreement_is_refused(folder: Path, value: object) -> None:
    rehash(folder, lambda m: m.update(agreement=value, study=agreement_hash(value)))  # type: ignore[arg-type]
    for look in (verify, Release.load):
        with pytest.raises(ReleaseError):
            look(folder)


def test_an_older_release_is_sent_to_the_version_that_made_it(folder: Path) -> None:
    def older(manifest: dict) -> None:
        del manifest["agreement"]
        manifest["format"] = 3

    rehash(folder, older)
    with pytest.raises(ReleaseError, match=r"format 4; found 3.*version of Understudy that made"):
        verify(folder)


def test_a_recipe_of_ones_own_verifies_with_a_remark(folder: Path, made: Release) -> None:
    (note,) = verify(folder, RECIPES).notes
    assert "'toy-mean' is not known here" in note and "was not checked" in note
    verdict = verify(folder, {**RECIPES, "toy-mean": TOYS["toy-mean"]})
    assert verdict.notes == () and any(made.study[:12] in check for check in verdict.checks)


def test_a_recipe_that_cannot_be_built_here_is_refused_in_words(folder: Path) -> None:
    class Broken:
        info = TOYS["toy-mean"].info

        def build(self, study: Study) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ReleaseError, match="toy-mean has a plan for; found ZeroDivisionError"):
        verify(folder, {"toy-mean": Broken()})


def test_a_plan_of_other_versions_agrees_closely_or_is_refused(
    warmed: Release, tmp_path: Path
) -> None:
    other = {**warmed.versions, "processor": "abacus"}
    near = forged(warmed, tmp_path / "near", noise(warmed.plan, 1 + 1e-12), versions=other)
    (note,) = [n for n in verify(near, RECIPES).notes if "plan" in n]
    assert "agrees within 1e-09" in note and "abacus" in note
    for name in ("noise", "fewer rounds", "a phase dropped"):
        far = forged(warmed, tmp_path / name, FORGED[name][0](warmed.plan), versions=other)
        with pytest.raises(ReleaseError, match="the plan that dpd_fvae makes"):
            verify(far, RECIPES)


def test_another_version_of_understudy_is_named(warmed: Release, tmp_path: Path) -> None:
    other = {**warmed.versions, "understudy": "0.0.9"}
    far = forged(warmed, tmp_path / "far", noise(warmed.plan), versions=other)
    with pytest.raises(ReleaseError, match=r"verify it with Understudy 0\.0\.9"):
        verify(far, RECIPES)


# What is published.


def asked(**tables: Any) -> Study:
    return study("dpd_fvae", 4, schema=plain(), privacy={"noise": 1.0}, **tables)


def test_nothing_of_a_site_is_published(tmp_path: Path) -> None:
    sites = [
        {"name": f"secret-{i}", "data": f"secret/{i}.csv", "epsilon": 0.123, "ledger": f"secret{i}"}
        for i in range(2)
    ]
    tables = {
        "study": {"name": "s", "recipe": "fedvae", "schema": "secret/schema.toml"},
        "privacy": {"noise": 1.0},
        "recipe": {"public": "secret/public.csv"},
        "site": sites,
    }
    own = Study.parse(tables, base=tmp_path, schema=plain())
    text = json.dumps(own.agreement())
    assert "secret" not in text and "0.123" not in text and str(tmp_path) not in text
    assert own.agreement()["options"] == {"public": "a file"}
    assert agreed(own.agreement(), plain()).n_sites == 2


def test_of_a_simulation_the_split_is_published_and_no_path() -> None:
    cut = {"data": "secret.csv", "sites": 4, "split": "column", "column": "hidden"}
    assert asked(simulation=cut).agreement()["split"] == {"name": "column", "alone": False}
    listed = asked(simulation={**cut, "column": "ill", "only": 2}).agreement()
    assert listed["split"] == {"name": "column", "alone": True, "column": "ill"}
    assert "secret" not in json.dumps(listed)


def test_a_resumed_run_needs_the_same_public_rows() -> None:
    one, two = (asked(recipe={"public": name}) for name in ("a.csv", "b.csv"))
    assert one.hash == two.hash and one.inputs != two.inputs


CUTS: dict[str, dict[str, Any]] = {
    "uniform": {"sites": 4},
    "one of several": {"sites": 4, "only": 3},
    "pooled": {"split": "pooled"},
    "kmeans": {"sites": 4, "split": "kmeans"},
    "column": {"sites": 4, "split": "column", "column": "ill"},
    "dirichlet": {"sites": 4, "split": "dirichlet", "alpha": 0.1},
}


@pytest.mark.parametrize("cut", CUTS)
def test_the_plan_does_not_need_the_files_of_a_simulation(cut: str) -> None:
    tables = {"simulation": {"data": "nowhere.csv", **CUTS[cut]}}
    terms = {"unit": "record", "trust": "central", "noise": 1.0}
    if cut == "one of several":
        terms["unit"] = "site"
    own = study("fedmoments", 4, schema=plain(), privacy=terms, **tables)
    same(own)


def same(own: Study) -> None:
    stored = json.loads(json.dumps(own.agreement()))
    again = agreed(stored, own.schema)
    assert again.hash == own.hash and again.agreement() == own.agreement()
    assert build(again).plan == build(own).plan


def test_overlapping_windows_are_mentioned_again() -> None:
    shifted = replace(series_schema(), layout="recording", time="t", stride=1, classes=())
    cut = {"data": "-", "sites": 4, "split": "uniform"}
    own = study("fedvae", 4, schema=shifted, privacy={"noise": 1.0}, simulation=cut)
    assert any("windows overlap" in note for note in build(own).plan.notes)
    same(own)


def test_public_rows_are_mentioned_again_without_their_file(tmp_path: Path) -> None:
    frame = records(5, kind=plain()).frame
    assert frame is not None
    frame.to_csv(tmp_path / "public.csv", index=False)
    own = asked(base=tmp_path, recipe={**NETS, "public": "public.csv"})
    assert any("declares public" in note for note in build(own).plan.notes)
    same(own)


@pytest.mark.parametrize(
    "recipe, privacy, own",
    [
        ("dpd_fvae", {"unit": "record", "trust": "central", "epsilon": 3}, {"warm_start": 0}),
        ("signds", {"epsilon": 7.0}, {}),
        ("fedmoments", {"unit": "record", "epsilon": 1.0}, {}),
    ],
)
def test_the_noise_that_was_solved_for_is_found_again(
    recipe: str, privacy: dict, own: dict
) -> None:
    same(study(recipe, 40, schema=plain(), study={"rounds": 2}, privacy=privacy, recipe=own))


def test_what_nobody_could_read_back_is_refused_before_anything_is_spent(toys: None) -> None:
    odd = study("toy-mean", 4, privacy={"noise": 1.0})
    odd = replace(odd, training=replace(odd.training, batch=np.int64(3)))
    with pytest.raises(StudyError, match=r"training\.batch"):
        run(odd, rows(4))


@pytest.mark.parametrize(
    "a, b, place",
    [
        ({"a": [1, 2.0]}, {"a": [1, 2.0]}, ""),
        ({"a": [1, 2]}, {"a": [1, 2.0]}, ""),
        ({"a": [1, 2.0]}, {"a": [1, 2.1]}, "a.1"),
        ({"a": 1}, {"a": 1, "b": 2}, "value"),
        ({"a": [1]}, {"a": [1, 2]}, "a"),
        ({"a": True}, {"a": 1}, "a"),
        ({"a": None}, {"a": 0}, "a"),
        ({"a": 1.0}, {"a": "1.0"}, "a"),
    ],
)
def test_where_two_plans_differ(a: dict, b: dict, place: str) -> None:
    assert difference(a, b) == place


def test_a_tolerance_is_for_fractions_alone() -> None:
    assert not difference({"z": 1.0}, {"z": 1.0 + 1e-12}, 1e-9)
    assert difference({"z": 1.0}, {"z": 1.0 + 1e-6}, 1e-9) == "z"
    assert difference({"rounds": 10**12}, {"rounds": 10**12 + 1}, 1e-3) == "rounds"


def test_the_manifest_holds_the_agreement(folder: Path, made: Release) -> None:
    manifest = load(folder, "release.json")
    assert manifest["agreement"] == made.agreement
    assert manifest["study"] == agreement_hash(made.agreement)
