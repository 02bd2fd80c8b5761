from __future__ import annotations

import pytest

from contracts.toys import ToyMean, ToyStep, ToySum, schema, study
from understudy.errors import PrivacyError, StudyError
from understudy.federation.recipe import make_plan
from understudy.privacy.claim import claims, headline


def plan(kind=ToySum, **tables):
    return kind.build(study(kind.info.name, **tables)).plan


def test_the_study_decides_and_the_recipe_fills_in() -> None:
    default = plan(privacy={"noise": 1.0})
    assert (default.unit, default.trust, default.rounds) == ("record", "central", 2)
    assert {p.slot for p in default.parts} == {"server"}
    assert default.units == 400 and default.delta == 1e-5
    own = plan(
        study={"rounds": 7},
        privacy={"unit": "site", "trust": "local", "noise": 3.0, "clip": 0.25, "delta": 1e-3},
        cohort={"rate": 0.5, "joins": 2},
    )
    assert (own.rounds, own.rate, own.joins, own.delta, own.units) == (7, 0.5, 2, 1e-3, 6)
    assert {(p.slot, p.noise, p.bound) for p in own.parts} == {("client", 3.0, 0.25)}


def test_too_few_joins_for_a_schedule_name_the_rounds_that_would_do() -> None:
    """Six sites, four a round: three updates of each last four rounds, and not five."""
    local = {"unit": "site", "trust": "local", "noise": 1.0}
    cohort = {"size": 4, "joins": 3}
    with pytest.raises(StudyError, match=r"at least 4 .* study\.rounds = 4 or fewer"):
        plan(ToyMean, study={"rounds": 5}, privacy=local, cohort=cohort)
    assert plan(ToyMean, study={"rounds": 4}, privacy=local, cohort=cohort).participations == 3


def test_epsilon_is_solved_for_by_trust() -> None:
    for trust in ("central", "local"):
        found = plan(ToyMean, privacy={"epsilon": 3.0, "trust": trust})
        assert 2.9 < headline(claims(found, "os")) <= 3.0


def test_a_person_counts_with_all_its_rows() -> None:
    found = plan(privacy={"unit": "person", "clip": 0.5, "noise": 1.0})
    assert {(p.bound, p.rows) for p in found.parts} == {(1.0, 2)}


def test_persons_need_a_schema_that_names_them() -> None:
    plain = schema(person=None, rows_per_person=None)
    with pytest.raises(PrivacyError, match="person column"):
        plan(schema=plain, privacy={"unit": "person"})


@pytest.mark.parametrize(
    "kind, unit, trust",
    [
        (ToyMean, "record", "central"),
        (ToyMean, "person", "local"),
        (ToySum, "record", "distributed"),
        (ToyStep, "record", "central"),
        (ToyStep, "site", "local"),
    ],
)
def test_what_a_recipe_does_not_support_is_refused(kind, unit: str, trust: str) -> None:
    with pytest.raises(PrivacyError, match="supports"):
        plan(kind, privacy={"unit": unit, "trust": trust})


@pytest.mark.parametrize("delta", [0.0025, 0.1])
def test_a_delta_of_one_in_n_is_refused(delta: float) -> None:
    with pytest.raises(PrivacyError, match="1/N"):
        plan(privacy={"delta": delta, "noise": 1.0})


def test_data_of_another_kind_is_refused() -> None:
    from understudy.data.schema import Schema

    images = Schema("image", "i", 10, classes=("a", "b"), shape=(2, 2))
    with pytest.raises(StudyError, match="kind"):
        plan(schema=images)


def test_an_epsilon_is_never_ignored() -> None:
    """A baseline is not private by default: asking it for an ε must not pass silently."""
    from dataclasses import replace

    info = replace(ToyMean.info, default=("site", "none"))
    for privacy in ({"epsilon": 1.0}, {"noise": 1.0}):
        with pytest.raises(PrivacyError, match="none"):
            make_plan(study(privacy=privacy), info, {"mean": (3,)}, bound=1.0)
