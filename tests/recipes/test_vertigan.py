"""VertiGAN: parties that hold columns, what is noised, what travels, and what is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.harness import Neighbour, check_noise, check_replay, traced
from contracts.toys import engine
from understudy.data.columns import Columns, records_of
from understudy.data.encode import encode
from understudy.data.pictures import Picture
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import PrivacyError, ReleaseError, StudyError
from understudy.federation.site import Site
from understudy.federation.sites import Sites
from understudy.nets import layers
from understudy.privacy.claim import claims
from understudy.privacy.gaussian import Gaussian, Plain
from understudy.recipes import build, vertigan
from understudy.recipes.vertigan import VertiGAN
from understudy.rng import NoiseSource, Streams
from understudy.simulation import run, run_apart
from understudy.simulation.verification import verify
from understudy.study import Study

SCHEMA = Schema(
    "table",
    "people",
    40,
    (
        Column("age", "numeric", 0.0, 100.0, missing=True),
        Column("town", "categorical", categories=("x", "y", "z")),
        Column("smokes", "boolean"),
        Column("rooms", "integer", 0, 4),
        Column("ill", "categorical", categories=("no", "yes")),
    ),
    label="ill",
)
HELD = (("age", "smokes"), ("town", "rooms", "ill"))
OVERLAP = (("age", "smokes", "town"), ("town", "rooms"), ("smokes", "ill"))
HEAD = {"name": "t", "recipe": "vertigan"}
SMALL = {"widths": [4, 4], "hidden": 4, "latent": 2, "steps": 2, "bins": 3}


def study(held: tuple[tuple[str, ...], ...] = HELD, **tables: Any) -> Study:
    every = [name for columns in held for name in columns]
    parties = [
        {"name": f"party-{i + 1}", "columns": list(columns),
         "shared": [name for name in columns if every.count(name) > 1]}
        for i, columns in enumerate(held)
    ]  # fmt: skip
    own, schema = {**SMALL, **tables.pop("recipe", {})}, tables.pop("schema", SCHEMA)
    data = {
        "study": {"name": "t", "recipe": "vertigan", "rounds": 2},
        "privacy": {"noise": 1.5},
        "training": {"batch": 16, "rate": 0.05},
        "simulation": {"data": "-", "split": "columns"},
        "party": parties,
        "recipe": own,
        **tables,
    }
    return Study.parse(data, schema=schema)


def people(n: int = 24, seed: int = 0) -> Records:
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n).round(1),
            "town": rng.choice(["x", "y", "z"], n, p=[0.7, 0.2, 0.1]),
            "smokes": rng.random(n) < 0.9,
            "rooms": rng.integers(0, 5, n),
            "ill": rng.choice(["no", "yes"], n, p=[0.8, 0.2]),
        }
    )
    return from_frame(frame, SCHEMA)


def columns(asked: Study, whole: Records) -> Columns:
    held = asked.held
    assert held is not None
    parts = [records_of(whole, names) for names in held.columns]
    return Columns.of([encode(held.schema_of(i), part) for i, part in enumerate(parts)])


def cut(data: Columns, **changes: Any) -> Columns:
    """The same parties, each with a changed last row, or without it."""
    return Columns(tuple(_changed(party, **changes) for party in data.parties))


def _changed(party, value: float | None = None):
    x, counts = party.x.clone(), party.counts.clone()
    if value is None:
        counts -= 1
    else:
        x[-1] = value
    return replace(party, x=x, counts=counts)


def site(recipe: VertiGAN, data: Columns, party: int, source: NoiseSource, round: int = 0) -> Site:
    ids, streams = [party], Streams.from_seed(3)
    held = {n: v[None] for n, v in recipe.memory(f"party-{party + 1}").items()}
    return Site(
        (f"party-{party + 1}",), data.take(ids), held, recipe.plan, round,
        streams.sites("local", round, ids), source.sites(round, ids),
        ids=(party,), together=source.together(round),
    )  # fmt: skip


@pytest.mark.parametrize("value", [None, 0.0, 1.0, 1e6, float("nan")])
@pytest.mark.parametrize("top", [1.0, 0.25])
def test_one_person_at_all_parties_moves_each_step_by_no_more_than_its_bound(
    tmp_path: Path, value: float | None, top: float
) -> None:
    """And what travels, the ledger and the server's state depend on noised steps alone."""
    asked = study(recipe={"top": top})
    recipe, data = build(asked), columns(study(), people())
    other = cut(data, value=value)
    factor = 1.0 if value is None else 2.0
    used = check_replay(recipe, tmp_path, Neighbour("n", other, data, factor))
    if value is None:
        assert used > 0.05, "the person was in no batch: the test shows nothing"


def test_a_step_of_all_parties_together_is_the_claim_s_one_event(tmp_path: Path) -> None:
    """Σ over parties of (distance / (z·bound))² ≤ Σ 1/z²: what the joint claim counts."""
    recipe, data = build(study()), columns(study(), people())
    one, two = (
        traced(recipe, tmp_path / name, held).queries
        for name, held in (("one", data), ("two", cut(data)))
    )
    noise = {p.name: p.mechanism.noise for p in recipe.plan.own.parts}
    joint: dict[tuple[int, int], float] = {}
    seen: dict[tuple[str, int], int] = {}
    for (key, a, bound), (_, b, _) in zip(one, two, strict=True):
        step = seen[key[0], key[2]] = seen.get((key[0], key[2]), 0) + 1
        moved = float((a - b).norm()) / (noise[key[0]] * bound)
        joint[key[2], step] = joint.get((key[2], step), 0.0) + moved**2
    (event,) = recipe.plan.promise(amplified=False)
    assert len(joint) == 4 and max(joint.values()) > 0
    assert max(joint.values()) <= event.merged**-2 * (1 + 1e-9)


def test_all_parties_take_the_same_batch_and_it_changes_every_step() -> None:
    recipe, data = build(study()), columns(study(), people())
    for source in (NoiseSource.seeded(Streams.from_seed(1)), NoiseSource.system(bytes(32))):
        both = [site(recipe, data, party, source) for party in (0, 1)]
        drawn = [[s.sample(f"party {i + 1}")[:, 1] for _ in range(3)] for i, s in enumerate(both)]
        assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))
        assert not torch.equal(drawn[0][0], drawn[0][1])
        later = site(recipe, data, 0, source, round=1).sample("party 1")[:, 1]
        assert not torch.equal(later, drawn[0][0])


def test_a_run_hands_all_parties_the_same_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[int, list[list[int]]] = {0: [], 1: []}
    sample = Site.sample

    def noted(self: Site, part: str) -> torch.Tensor:
        found = sample(self, part)
        drawn[self.ids[0]].append(found[:, 1].tolist())
        return found

    monkeypatch.setattr(Site, "sample", noted)
    asked, whole = study(), people()
    run(asked, [records_of(whole, names) for names in asked.held.columns], seed=0, rows=0)
    assert len(drawn[0]) > 1 and drawn[0] == drawn[1]


def test_noise_of_parties_is_their_own() -> None:
    recipe, data = build(study()), columns(study(), people())
    source = NoiseSource.seeded(Streams.from_seed(1))
    found = [site(recipe, data, party, source).secret.normal((50,)) for party in (0, 1)]
    assert abs(np.corrcoef(found[0][0], found[1][0])[0, 1]) < 0.5


def test_every_party_s_steps_have_the_noise_that_is_promised() -> None:
    check_noise(build(study()).plan)


def test_batches_that_parties_would_draw_apart_are_refused() -> None:
    with pytest.raises(PrivacyError, match="secret that the parties share"):
        NoiseSource.system().together(0)


def test_a_shared_secret_gives_fair_coins_that_depend_on_it() -> None:
    one, two = (NoiseSource.system(bytes([i]) * 32).together(0).coins(20_000, 0.3) for i in (1, 2))
    assert abs(one.mean() - 0.3) < 0.015 and (one == two).mean() < 0.65


def test_a_plan_in_which_one_party_adds_no_noise_is_refused() -> None:
    plan = build(study()).plan
    first, second = plan.own.parts
    plain = Plain(second.mechanism.bound, steps=2, rate=second.mechanism.rate)
    with pytest.raises(PrivacyError, match="mechanism that fits"):
        plan.with_own(parts=(first, replace(second, mechanism=plain)))


def test_a_party_that_skips_its_noise_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutation "noise added by one party only"."""
    original = Gaussian.add_noise

    def skipping(self: Gaussian, bounded, use):
        if use.part.party == 1:
            return bounded.value.double(), ()
        return original(self, bounded, use)

    monkeypatch.setattr(Gaussian, "add_noise", skipping)
    made, ledger = engine(build(study()), tmp_path, data=columns(study(), people()), chunk=1)
    with ledger, pytest.raises(PrivacyError, match="noised step"):
        made.train()


def test_claims_are_made_per_party_per_person_and_for_insiders() -> None:
    whole, first, second, insider, leaked = claims(build(study()).plan, "os")
    assert first.epsilon == second.epsilon == insider.epsilon < leaked.epsilon
    assert "other parties" in insider.words
    assert leaked.epsilon > whole.epsilon


def test_parties_may_want_noise_of_their_own() -> None:
    asked = study()
    entries = (replace(asked.parties[0], noise=3.0), asked.parties[1])
    _, first, second, *_ = claims(build(replace(asked, parties=entries)).plan, "os")
    assert first.epsilon < second.epsilon
    with pytest.raises(StudyError, match=r"party\.noise"):
        build(replace(study(privacy={"epsilon": 2.0}), parties=entries))


@pytest.mark.slow  # noise is solved for by the accountant
def test_an_epsilon_is_met_for_the_person_at_all_parties() -> None:
    found = claims(build(study(privacy={"epsilon": 2.0})).plan, "os")
    assert 1.9 < found[0].epsilon <= 2.0


@pytest.mark.parametrize("held", [HELD, OVERLAP], ids=["apart", "overlapping"])
@pytest.mark.parametrize("top", [1.0, 0.25])
def test_a_run_ends_in_a_release_that_verifies(
    tmp_path: Path, held: tuple[tuple[str, ...], ...], top: float
) -> None:
    asked, whole = study(held, recipe={"top": top}), people()
    data = [records_of(whole, names) for names in held]
    made = run(asked, data, seed=1, out=tmp_path / "release", rows=30)
    apart = run_apart(asked, data, seed=1, rows=0)
    assert torch.equal(made.model.arrays["generator"], apart.model.arrays["generator"])
    verify(tmp_path / "release")
    frame = made.sample(30).frame
    assert list(frame.columns) == [c.name for c in SCHEMA.columns]
    assert set(made.sample(8, label="yes").frame["ill"]) == {"yes"}


def test_a_quarter_of_the_gradient_takes_half_the_bytes() -> None:
    whole, part = (build(study(recipe={"top": top})).plan.own.parts[0] for top in (1.0, 0.25))
    assert part.bytes == pytest.approx(whole.bytes / 2, rel=0.05)


def test_the_server_puts_each_party_s_numbers_where_they_belong() -> None:
    full, top = (build(study(OVERLAP, recipe={"top": t})) for t in (1.0, 0.999999))
    source, data = NoiseSource.seeded(Streams.from_seed(1)), columns(study(OVERLAP), people())
    steps = []
    for recipe in (full, top):
        state = recipe.init(rng=Streams.from_seed(0))
        total: dict[str, torch.Tensor] = {}
        for party in range(3):
            update, _ = recipe.local(recipe.task(state, 0), site(recipe, data, party, source))
            total |= {name: value[0] for name, value in update.items()}
        steps.append(recipe.step(state, total, rng=Streams.from_seed(0))["generator"])
    assert torch.allclose(*steps) and not torch.equal(steps[0], state["generator"])


def test_without_noise_a_generator_learns_how_often_values_occur() -> None:
    terms = {"steps": 3, "widths": [16, 16], "hidden": 16, "critic_width": 16, "latent": 8,
             "critic_rate": 0.02}  # fmt: skip
    asked = study(
        privacy={"trust": "none", "unit": "record"}, recipe=terms,
        study={"name": "t", "recipe": "vertigan", "rounds": 60}, training={"rate": 0.01},
    )  # fmt: skip
    whole = people(40)
    made = run(asked, [records_of(whole, names) for names in HELD], seed=1, rows=0)
    assert made.claims[0].epsilon is None
    frame = made.sample(600).frame
    for name, value in (("smokes", True), ("town", "x"), ("ill", "no")):
        wanted, found = ((f[name] == value).mean() for f in (whole.frame, frame))
        assert abs(wanted - found) < 0.2, (name, wanted, found)


def test_a_party_that_leaves_makes_the_round_void_and_its_charges_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = Sites.join

    def leaves(self: Sites, clients: np.ndarray, round: int) -> np.ndarray:
        joined = real(self, clients, round)
        return joined if round == 0 else joined[:1]

    data = [records_of(people(), names) for names in HELD]
    short = run(study(study=HEAD | {"rounds": 1}), data, seed=1, rows=0)
    monkeypatch.setattr(Sites, "join", leaves)
    made = run(study(study=HEAD | {"rounds": 2}), data, seed=1, rows=0, out=tmp_path / "out")
    charges = [release.ledger.count('"part":') for release in (short, made)]
    assert charges == [4, 8]  # two steps of two parties, in each round
    assert made.claims[0].epsilon > short.claims[0].epsilon
    monkeypatch.setattr(Sites, "join", lambda self, clients, round: clients[:1])
    with pytest.raises(ReleaseError, match="round that was completed"):
        run(study(), data, seed=1, rows=0, out=tmp_path / "none")


def test_gradients_that_are_not_finite_are_never_sent(tmp_path: Path) -> None:
    """Training that diverges ends without a release; what was charged stays charged."""
    data = [records_of(people(), names) for names in HELD]
    with pytest.raises(ReleaseError, match="round that was completed"):
        asked = study(training={"batch": 16, "rate": 1e30}, recipe={"critic_rate": 1e30})
        run(asked, data, seed=1, out=tmp_path / "out")
    ledger = (tmp_path / "out.partial" / "ledger.jsonl").read_text().splitlines()
    assert len(ledger) == 3 and not (tmp_path / "out").exists()


def test_a_generator_beyond_all_numbers_is_not_released(tmp_path: Path) -> None:
    """Its last round was completed: what it would have made next is no row."""
    data = [records_of(people(), names) for names in HELD]
    asked = study(study=HEAD | {"rounds": 1}, training={"batch": 16, "rate": 1e30})
    with pytest.raises(ReleaseError, match="beyond all numbers"):
        run(asked, data, seed=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bias", [0.0, 40.0])
def test_a_generator_that_makes_one_row_is_warned_of(
    bias: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(vertigan._LOG, "warning", said.append)
    recipe = build(study())
    state = recipe.init(rng=Streams.from_seed(0))
    named = recipe.generator.shapes()
    made = layers.separated(state["generator"][None], named)
    for party in (
        0,
        1,
    ):  # the last bias of each branch: one value of each column, whatever the noise
        name = [name for name in recipe.generator.shapes(party) if name.endswith("bias")][-1]
        made[name] = made[name] + bias * torch.arange(1, made[name].shape[-1] + 1)
    flat = layers.concatenated(made, named)[0]
    recipe.finish({**state, "generator": flat}, rng=Streams.from_seed(0))
    assert ["collapsed" in words for words in said] == ([True] if bias else [])


@pytest.mark.parametrize("shared", [False, True])
def test_parties_are_independent_unless_one_noise_is_asked_for(shared: bool) -> None:
    """Two branches that make their column of noise alike: alike with one noise only."""
    schema = Schema("table", "two", 40, (Column("a", "boolean"), Column("b", "boolean")))
    parties = [{"name": name, "columns": [name]} for name in ("a", "b")]
    tables = {"study": HEAD, "privacy": {"noise": 1.0}, "recipe": {"shared": shared}}
    split = {"simulation": {"data": "-", "split": "columns"}, "party": parties}
    recipe = build(Study.parse({**tables, **split}, schema=schema))
    state = recipe.init(rng=Streams.from_seed(0))
    named = recipe.generator.shapes()
    made = layers.separated(300 * state["generator"][None], named)
    twins = [name for name in named if "branch0" in name]
    made |= {name.replace("branch0", "branch1"): made[name] for name in twins}
    state = {**state, "generator": layers.concatenated(made, named)[0]}
    drawn = recipe.finish(state, rng=Streams.from_seed(0)).rows(400, rng=Streams.from_seed(1))[0]
    share, alike = float(drawn[:, 0].mean()), float((drawn[:, 0] == drawn[:, 1]).float().mean())
    chance = share**2 + (1 - share) ** 2
    assert 0.2 < share < 0.8
    assert alike > 0.95 if shared else abs(alike - chance) < 0.1


SCANNED = replace(SCHEMA, images=(Picture("scan", (3, 4)),))
CLINIC = tuple(column.name for column in SCHEMA.columns)


def scanned() -> tuple[Study, list[Records]]:
    """A party with the columns of a table, and one with an image that is bright or dark."""
    asked, frame = study((CLINIC, ("scan",)), schema=SCANNED), people().frame
    rng, bright = np.random.default_rng(0), (frame["ill"] == "yes").to_numpy()
    pixels = np.where(bright[:, None], 200, 40) + rng.integers(0, 40, (len(frame), 12))
    columns = {name: pixels[:, i] for i, name in enumerate(SCANNED.images[0].pixels)}
    whole = from_frame(frame.assign(**columns), SCANNED)
    return asked, [records_of(whole, names) for names in asked.held.columns]


def test_a_party_of_images_beside_one_of_columns(tmp_path: Path) -> None:
    """A person's pixels count as the rest of a row does, and the release has both."""
    asked, data = scanned()
    recipe, held = build(asked), asked.held
    coded = Columns.of([encode(held.schema_of(i), part) for i, part in enumerate(data)])
    assert recipe.layouts[1].width == 12 and bool(recipe.layouts[1].greys.all())
    check_replay(recipe, tmp_path, Neighbour("n", cut(coded), coded))
    made = run(asked, data, seed=1, out=tmp_path / "release", rows=20)
    verify(tmp_path / "release")
    drawn = made.sample(50).frame
    assert list(drawn.columns) == [c.name for c in SCANNED.columns]
    pixels = drawn[list(SCANNED.images[0].pixels)].to_numpy()
    assert len(np.unique(pixels)) > 20, "pixels are numbers, not yes or no"


@pytest.mark.parametrize("flat", [False, True])
def test_images_that_are_all_alike_are_a_collapse(
    flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(vertigan._LOG, "warning", said.append)
    recipe = build(scanned()[0])
    named = recipe.generator.shapes()
    made = layers.separated(recipe.init(rng=Streams.from_seed(0))["generator"][None], named)
    for party in (0, 1):
        last = [name for name in recipe.generator.shapes(party) if "branch" in name][-2:]
        weight, bias = sorted(last, key=lambda name: -made[name].dim())
        made[weight] = made[weight] * (0 if flat or party == 0 else 3)
        made[bias] = made[bias] + 40 * torch.arange(made[bias].shape[-1]) * (party == 0)
    flat_net = layers.concatenated(made, named)[0]
    recipe._check_made(flat_net[None], Streams.from_seed(0))
    assert bool(said) == flat


BAD = {
    "passes over the rows": ({"training": {"epochs": 2}}, "steps"),
    "another optimiser": ({"training": {"optimiser": "sgd"}}, "RMSprop"),
    "cohorts": ({"cohort": {"rate": 0.5}}, "every round"),
    "an unknown option": ({"recipe": {"depht": 3}}, r"unknown key recipe\.depht"),
    "a trusted server": ({"privacy": {"trust": "central", "noise": 1.0}}, "supports"),
}


@pytest.mark.parametrize("tables, match", BAD.values(), ids=BAD)
def test_what_has_no_meaning_for_parties_is_refused(tables: dict, match: str) -> None:
    with pytest.raises((StudyError, PrivacyError), match=match):
        build(study(**tables))


def test_sites_that_hold_rows_are_refused() -> None:
    tables = {
        "study": {"name": "t", "recipe": "vertigan"},
        "privacy": {"noise": 1.0},
        "simulation": {"data": "-", "sites": 3},
    }
    with pytest.raises(StudyError, match="hold rows"):
        build(Study.parse(tables, schema=SCHEMA))
