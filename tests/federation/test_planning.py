from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.toys import ToyMean, ToyStep, ToySum, schema, study
from understudy.errors import PrivacyError, StudyError
from understudy.federation.planning import Terms, noised_plan, pure_plan
from understudy.privacy.account import pure_epsilon
from understudy.privacy.claim import claims, headline
from understudy.privacy.plan import Part
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection


def plan(kind=ToySum, **tables):
    return kind.build(study(kind.info.name, **tables)).plan


def test_the_study_decides_and_the_recipe_fills_in() -> None:
    default = plan(privacy={"noise": 1.0})
    assert (default.unit, default.trust, default.length) == ("record", "central", 2)
    assert {p.where for p in default.own.parts} == {"server"}
    assert default.units == 400 and default.delta == 1e-5
    own = plan(
        study={"rounds": 7},
        privacy={"unit": "site", "trust": "local", "noise": 3.0, "clip": 0.25, "delta": 1e-3},
        cohort={"rate": 0.5, "joins": 2},
    )
    phase = own.own
    assert (phase.rounds, phase.rate, phase.joins, own.delta, own.units) == (7, 0.5, 2, 1e-3, 6)
    mechanisms = {(p.where, p.mechanism.noise, p.mechanism.bound) for p in phase.parts}
    assert mechanisms == {("client", 3.0, 0.25)}


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
    assert {(p.mechanism.bound, p.mechanism.rows) for p in found.own.parts} == {(1.0, 2)}


def test_persons_need_a_schema_that_names_them() -> None:
    plain = schema(person=None, rows_per_person=None)
    with pytest.raises(PrivacyError, match="person column"):
        plan(schema=plain, privacy={"unit": "person"})


@pytest.mark.parametrize(
    "kind, unit, trust",
    [
        (ToyMean, "record", "central"),
        (ToyMean, "person", "local"),
        (ToyStep, "record", "distributed"),
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
    info = replace(ToyMean.info, default=("site", "none"))
    for privacy in ({"epsilon": 1.0}, {"noise": 1.0}):
        with pytest.raises(PrivacyError, match="none"):
            noised_plan(study(privacy=privacy), info, {"mean": (3,)}, Terms(bound=1.0))


ASKED = {"noise": 1.0}


@pytest.mark.parametrize("term", ["combin", "bounds", "rate", "slot", "noise"])
def test_a_misspelt_term_is_an_error(term: str) -> None:
    with pytest.raises(TypeError, match=term):
        Terms(**{"bound": 1.0, term: 1})


def test_terms_are_named_and_every_recipe_must_bound_its_parts() -> None:
    with pytest.raises(TypeError):
        Terms(1.0)  # type: ignore[misc]
    with pytest.raises(TypeError, match="bound"):
        Terms(combine="sum")  # type: ignore[call-arg]


@pytest.mark.parametrize("term", ["round", "note", "combine", "bound"])
def test_a_misspelt_term_of_a_plan_is_an_error(term: str) -> None:
    asked, info = study(privacy=ASKED), ToyMean.info
    with pytest.raises(TypeError, match=term):
        noised_plan(asked, info, {"mean": (3,)}, Terms(bound=1.0), **{term: 1})
    with pytest.raises(TypeError, match=term):
        pure_plan(asked, info, lambda epsilon: (), **{term: 1})


@pytest.mark.parametrize("combine, slot", [("median", None), ("mean", "somewhere")])
def test_a_term_of_no_meaning_makes_no_plan(combine: str, slot: str | None) -> None:
    terms = Terms(bound=1.0, combine=combine, where=slot)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="slot"):
        noised_plan(study(privacy=ASKED), ToyMean.info, {"mean": (3,)}, terms)


def test_without_privacy_the_same_parts_are_sent_as_they_are() -> None:
    private, public = plan(privacy=ASKED), plan(privacy={"trust": "none"})
    assert [p.name for p in public.own.parts] == [p.name for p in private.own.parts]
    assert {p.mechanism.name for p in public.own.parts} == {"plain"}
    assert [p.mechanism.bound for p in public.own.parts] == [
        p.mechanism.bound for p in private.own.parts
    ]


def test_a_price_per_update_is_for_choices_only() -> None:
    with pytest.raises(StudyError, match="epsilon_per_update"):
        plan(ToyMean, privacy={"trust": "local", "epsilon_per_update": 1.0})
    with pytest.raises(StudyError, match=r"privacy\.epsilon or privacy\.noise"):
        plan(ToyMean, privacy={"trust": "local"})


# Plans of choices: ε is shared by the updates of a site.


def choices(epsilon: float) -> tuple[Part, ...]:
    update = Selection(20, 4, 2, 0.9 * epsilon)
    bit = Response(0.1 * epsilon)
    return Part("update", (20,), "sum", "client", update), Part("bit", (), "mean", "client", bit)


INFO = replace(ToyMean.info, default=("site", "local"))


def pure(sites: int = 6, **tables):
    return pure_plan(study("toy-mean", sites, **tables), INFO, choices)


@pytest.mark.parametrize("rounds", [1, 3, 7, 49])
def test_the_updates_of_a_site_share_its_epsilon_and_never_exceed_it(rounds: int) -> None:
    found = pure(study={"rounds": rounds}, privacy={"epsilon": 7.0})
    spent = pure_epsilon(found.promise(amplified=False))
    assert found.participations == rounds and spent <= 7.0
    assert spent == pytest.approx(7.0)


def test_where_the_study_says_nothing_every_site_is_called_once() -> None:
    found = pure(privacy={"epsilon": 7.0})
    assert (found.participations, found.own.size, found.length) == (1, 2, 3)
    each = pure(privacy={"epsilon_per_update": 2.0}, study={"rounds": 4})
    assert each.own.update_epsilon == pytest.approx(2.0) and each.participations == 4


def test_without_privacy_a_site_sends_the_update_and_no_bit() -> None:
    found = pure(privacy={"trust": "none"})
    assert [(p.name, p.mechanism.name) for p in found.own.parts] == [("update", "plain")]
    assert not found.private and found.receipts(0, "os") == ()


@pytest.mark.parametrize("term", ["noise", "clip", "delta"])
def test_choices_take_neither_noise_nor_clip_nor_delta(term: str) -> None:
    with pytest.raises(StudyError, match=term):
        pure(privacy={"epsilon": 1.0, term: 1e-6})


def test_choices_need_a_price() -> None:
    with pytest.raises(StudyError, match="epsilon_per_update"):
        pure(privacy={})
