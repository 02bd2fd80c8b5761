"""What `plan` says of recipes is what the committed benchmark holds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.data.schema import Column, Schema
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes.measured import COMPARED, Compared, advice
from understudy.study import Study

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "tables.json"
SCHEMA = Schema(
    "table",
    "people",
    500,
    (
        Column("age", "integer", 0, 100),
        Column("tall", "numeric", 0.0, 2.5),
        Column("ill", "categorical", categories=("no", "yes")),
    ),
    label="ill",
)

each = pytest.mark.parametrize("found", COMPARED, ids=lambda found: found.recipe)


@cache
def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))["cells"]
    return found


def runs(found: Compared, recipe: str, table: str) -> list[dict[str, Any]]:
    wanted = (recipe, table, found.epsilon, 5)
    return [c for c in cells() if (c["method"], c["table"], c["epsilon"], c["sites"]) == wanted]


def means(found: Compared, recipe: str) -> tuple[float, float]:
    each = [runs(found, recipe, table) for table in found.tables]
    assert all(len({cell["seed"] for cell in one}) >= 3 for one in each)
    pairs = fmean(fmean(c["2-way"] for c in one) for one in each)
    return pairs, fmean(fmean(c["students"]["boosting"]["AUC"] for c in one) for one in each)


@each
def test_figures_are_those_of_the_committed_benchmark(found: Compared) -> None:
    for i, recipe in enumerate((found.recipe, found.better)):
        assert (found.pairs[i], found.boosting[i]) == pytest.approx(means(found, recipe), abs=6e-4)


@each
def test_what_is_called_better_is_better(found: Compared) -> None:
    assert found.pairs[1] <= found.pairs[0] and found.boosting[1] >= found.boosting[0]


def told(recipe: str, unit: str = "record", trust: str = "central", **more: Any) -> list[str]:
    privacy = {"unit": unit, "trust": trust, **(more or {"epsilon": 1.0})}
    tables = {
        "study": {"name": "t", "recipe": recipe},
        "privacy": privacy,
        "simulation": {"data": "-", "sites": 5},
    }
    study = Study.parse(tables, schema=SCHEMA)
    return advice(study, cast(PrivacyPlan, SimpleNamespace(unit=unit, trust=trust)))


@each
def test_a_study_like_those_measured_is_told_so(found: Compared) -> None:
    (words,) = told(found.recipe, epsilon=found.epsilon)
    assert f'"{found.better}"' in words and f"{found.boosting[1]:.3f}" in words


@pytest.mark.parametrize(
    ("recipe", "terms"),
    [
        ("fedmoments", {}),
        ("dpd_fvae", {"epsilon": 5.0}),
        ("dpd_fvae", {"noise": 2.0}),
        ("dpd_fvae", {"unit": "site", "epsilon": 1.0}),
        ("fedmarginals", {"trust": "local", "epsilon": 1.0}),
        ("fedmarginals", {"epsilon": 1.1}),
    ],
)
def test_nothing_is_said_beyond_what_was_measured(recipe: str, terms: dict[str, Any]) -> None:
    assert told(recipe, **terms) == []
