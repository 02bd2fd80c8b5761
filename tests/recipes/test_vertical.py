"""fedmoments for parties: replay, the whole way apart and together, what a release claims."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.data.bundled import bundled
from understudy.data.columns import Columns, records_of
from understudy.data.encode import encode
from understudy.data.pictures import Picture
from understudy.data.records import Records
from understudy.data.schema import Column, Schema
from understudy.data.table import from_frame
from understudy.errors import ReleaseError, StudyError
from understudy.federation.memory import Memories
from understudy.federation.recipe import Task
from understudy.federation.sites import Sites
from understudy.privacy.claim import claims
from understudy.privacy.products import SCALE, Products
from understudy.recipes import build
from understudy.recipes.vertical import Vertical
from understudy.rng import NoiseSource, Streams
from understudy.simulation import run, verify
from understudy.simulation.simulate import run_apart
from understudy.study import Study

DATA = {"data": "bundled:breast_cancer", "split": "columns"}


def study(epsilon: float = 20.0, sites: int = 2) -> Study:
    tables = {
        "study": {"name": "s", "recipe": "fedmoments"},
        "privacy": {"epsilon": epsilon},
        "simulation": {**DATA, "sites": sites},
    }
    return Study.parse(tables, schema=bundled("breast_cancer")[0])


def held(made: Study, records: Records) -> tuple[Vertical, Sites]:
    recipe, parties = build(made), made.held
    assert isinstance(recipe, Vertical) and parties is not None
    rows = [
        encode(parties.schema_of(i), records_of(records, parties.columns[i]))
        for i in range(len(parties))
    ]
    source = NoiseSource.seeded(Streams.from_seed(0))
    names = list(parties.names)
    return recipe, Sites(
        recipe,
        names,
        np.arange(len(names)),
        Columns.of(rows),
        Memories(recipe.memory, names),
        Streams.from_seed(0),
        source,
        np.ones((2, len(names)), np.int64),
    )


def test_removing_one_person_from_all_parties_stays_within_the_bound() -> None:
    made, records = study(sites=3), bundled("breast_cancer")[1]
    less = records.take(np.delete(np.arange(len(records)), 17))
    (recipe, whole), (_, cut) = held(made, records), held(made, less)
    apart = 0.0
    for i in range(3):
        part = recipe.plan.phases[0].parts[i]
        site = [sites._site(0, np.array([i])) for sites in (whole, cut)]
        sums = [recipe.local(Task(), s)[0][part.name] for s in site]
        moved = float((sums[0].value - sums[1].value).norm())  # type: ignore[union-attr]
        assert moved <= part.mechanism.bound  # type: ignore[attr-defined]
        apart += moved**2
    assert 0.99 < apart <= 1.0  # all histograms of a person together
    cells = sum(view.cells for view in recipe.views)
    task = Task({"shares": torch.full((cells,), 0.1)})
    grams = []
    for sites in (whole, cut):
        rows = np.concatenate([sites.held(task, 1, i).rows for i in range(3)], axis=1)
        grams.append(rows.astype(np.float64).T @ rows.astype(np.float64) / SCALE**2)
    change = grams[0] - grams[1]
    mechanism = recipe.plan.own.parts[0].mechanism
    assert isinstance(mechanism, Products)
    assert 0 < np.linalg.norm(change) <= mechanism.bound  # off the diagonal twice: noise is less


def test_one_seed_gives_one_release_together_and_apart(tmp_path: Path) -> None:
    here = run(study(), out=tmp_path / "here", seed=3, rows=20)
    there = run_apart(study(), out=tmp_path / "there", seed=3, rows=20)
    assert here.model_hash == there.model_hash
    verdict = verify(tmp_path / "there")
    assert verdict.release.agreement["parties"] == study().agreement()["parties"]
    drawn = here.sample(200, seed=1).frame
    assert drawn is not None and set(drawn["diagnosis"]) == {"benign", "malignant"}


def test_claims_name_outsiders_insiders_and_what_is_lost() -> None:
    outside, _, insider, _, lost, departing = claims(build(study()).plan, "os")
    assert outside.epsilon == pytest.approx(20.0, rel=0.01) and "server" in outside.adversary
    assert insider.epsilon == outside.epsilon and "other parties" in insider.adversary
    assert lost.epsilon is None and lost.adversary == "the server together with a party"
    assert departing.epsilon is None and "departs from the protocol" in departing.adversary


def test_the_matrix_without_noise_gives_the_moments_of_the_rows() -> None:
    records = bundled("breast_cancer")[1]
    recipe, sites = held(study(), records)
    cells = sum(view.cells for view in recipe.views)
    task = Task({"shares": torch.full((cells,), 0.05)})
    rows = np.concatenate([sites.held(task, 1, i).rows for i in range(2)], axis=1) / SCALE
    state = {"moments": torch.from_numpy(rows.T @ rows)}
    state |= {part.name: torch.zeros(part.shape) for part in recipe.plan.phases[0].parts}
    recipe = replace(recipe, plan=recipe.plan.with_noise(1e-3))
    found = recipe._moments(state)
    y = encode(recipe.schema, records).y
    assert found.counts == pytest.approx(np.bincount(y), rel=0.02)
    spread = np.diagonal(found.squares[0])
    assert spread.min() >= 0 and spread.sum() <= len(records) * 1.01


def test_too_much_noise_for_the_rows_is_said_before_anything_is_spent() -> None:
    with pytest.raises(StudyError, match="enough rows for histograms"):
        build(study(0.01))


def test_a_party_that_leaves_stops_the_run_and_its_charges_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = Sites.join

    def leaves(self: Sites, clients: np.ndarray, round: int) -> np.ndarray:
        joined = real(self, clients, round)
        return joined if round == 0 else joined[:1]

    monkeypatch.setattr(Sites, "join", leaves)
    with pytest.raises(ReleaseError, match="a sum of moments that was completed"):
        run(study(), out=tmp_path / "out", seed=0)
    ledger = (tmp_path / "out.partial" / "ledger.jsonl").read_text().splitlines()
    assert len(ledger) == 3 and not (tmp_path / "out").exists()


def test_bounds_of_all_parties_add_up_to_that_of_one_table() -> None:
    mechanism = build(study(sites=5)).plan.own.parts[0].mechanism
    assert isinstance(mechanism, Products)
    assert mechanism.bound == pytest.approx(1.2, rel=2e-3)
    assert math.fsum(mechanism.norms) == mechanism.bound


def test_images_at_one_party_keep_what_another_knows_of_them() -> None:
    """The digit is known here, its picture there: rows made of sums alone still tie them."""
    _, source = bundled("digits")
    pixels = np.asarray(source.images).reshape(len(source), -1)
    digit = Column("digit", "categorical", categories=tuple("0123456789"))
    schema = Schema(
        "table", "d", 1800, (digit, Column("dark", "boolean")), label="digit",
        images=(Picture("scan", (8, 8)),),
    )  # fmt: skip
    frame = pd.DataFrame(pixels, columns=list(schema.images[0].pixels))
    told = {"digit": np.asarray(source.labels).astype(str), "dark": pixels.mean(1) > 75}
    whole = from_frame(frame.assign(**told), schema)
    tables = {
        "study": {"name": "d", "recipe": "fedmoments"},
        "privacy": {"epsilon": 8.0},
        "simulation": {"data": "-", "split": "columns"},
        "party": [
            {"name": "registry", "columns": ["digit", "dark"]},
            {"name": "scanner", "columns": ["scan"]},
        ],
    }
    asked = Study.parse(tables, schema=schema)
    data = [records_of(whole, names) for names in asked.held.columns]
    made = encode(schema, run(asked, data, seed=0, rows=0).sample(3000, seed=0))
    real = encode(schema, whole)
    means = np.stack([made.x[made.y == k].mean(0) for k in range(10)])
    apart = ((real.x[:, None] - means) ** 2).sum(2)
    assert float((apart.argmin(1) == real.y).mean()) > 0.8
