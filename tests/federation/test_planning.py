from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.toys import ToyMean, ToyStep, ToySum, schema, study
from understudy.errors import PrivacyError, StudyError, UnderstudyError
from understudy.federation.planning import Terms, noised_plan, pure_plan
from understudy.privacy.account import pure_epsilon
from understudy.privacy.claim import claims, headline, projection
from understudy.privacy.plan import Part, PrivacyPlan
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


# Noise in shares.


def shared(sites: int = 5, unit: str = "record", kind=ToySum, **privacy) -> PrivacyPlan:
    terms = {"unit": unit, "trust": "distributed", "noise": 2.0, **privacy}
    simulation = {"data": "-", "sites": sites}
    return plan(kind, privacy=terms, simulation=simulation)


@pytest.mark.parametrize(
    "sites, t, c", [(3, 3, 1), (4, 4, 1), (5, 4, 1), (9, 8, 1), (20, 16, 2), (1000, 800, 100)]
)
def test_shares_have_safe_defaults(sites: int, t: int, c: int) -> None:
    own = shared(sites).own
    assert (own.survivors, own.colluders) == (t, c)
    assert t - c >= 2 and 2 * t > sites + c


def test_a_study_says_who_must_answer_and_who_may_collude() -> None:
    own = shared(20, survivors=18, colluders=5).own
    assert own.shares == (18, 5)
    assert shared(20, colluders=0).own.shares == (16, 0)


@pytest.mark.parametrize(
    "terms, said",
    [
        ({"sites": 2}, "three sites or more"),
        ({"sites": 2, "colluders": 0}, "three sites or more"),
        ({"sites": 2, "survivors": 2}, "three sites or more"),
        ({"survivors": 6}, "at most 5"),
        ({"colluders": 4}, "at least two of 5"),
        ({"survivors": 4, "colluders": 3}, "at least two of 4"),
        ({"survivors": 3}, "at least 4"),
        ({"trust": "central", "survivors": 3}, "no privacy.survivors"),
        ({"trust": "local", "colluders": 1}, "no privacy.colluders"),
    ],
)
def test_shares_that_promise_nothing_are_refused_with_the_fix(terms: dict, said: str) -> None:
    with pytest.raises(UnderstudyError, match=said):
        shared(**terms)


def test_shares_of_two_sites_of_a_schedule_are_refused() -> None:
    terms = {"unit": "site", "trust": "distributed", "noise": 2.0, "colluders": 0}
    with pytest.raises(StudyError, match="three sites or more"):
        plan(ToyMean, privacy=terms, simulation={"data": "-", "sites": 9}, cohort={"size": 2})


def test_cohorts_of_shares_follow_a_schedule() -> None:
    with pytest.raises(PrivacyError, match=r"cohort\.rate"):
        plan(ToyMean, privacy={"trust": "distributed", "noise": 1.0}, cohort={"rate": 0.5})
    scheduled = plan(
        ToyMean,
        privacy={"trust": "distributed", "noise": 1.0},
        simulation={"data": "-", "sites": 10},
        cohort={"size": 5},
        study={"rounds": 4},
    )
    assert scheduled.own.shares == (4, 1) and scheduled.participations == 2


def called(sites: int, size: int, **privacy) -> PrivacyPlan:
    terms = {"trust": "distributed", "noise": 1.0, **privacy}
    cohort, simulation = {"size": size}, {"data": "-", "sites": sites}
    return plan(ToyMean, privacy=terms, simulation=simulation, cohort=cohort)


def test_colluders_are_a_tenth_of_all_sites_not_of_those_called() -> None:
    """A server that makes up a cohort could call all of them to it."""
    found = called(50, 10)
    assert found.own.shares == (8, 5)
    assert "c = 5 of all 50 sites tell" in " ".join(claims(found, "os")[0].caveats)
    with pytest.raises(StudyError, match=r"10 out of 200 sites.*8 at most"):
        called(200, 10)
    assert called(200, 10, colluders=2).own.shares == (8, 2)


def test_a_split_that_moves_rows_between_sites_has_no_record_level_claim_in_shares() -> None:
    terms = {"unit": "record", "trust": "distributed", "noise": 1.0}
    with pytest.raises(PrivacyError, match="keeps every other row"):
        plan(ToySum, privacy=terms, simulation={"data": "-", "sites": 5, "split": "kmeans"})


def test_masks_without_shares_are_refused() -> None:
    with pytest.raises(StudyError, match=r"simulation\.masks"):
        plan(privacy={"noise": 1.0}, simulation={"data": "-", "sites": 5, "masks": "checked"})


def test_solved_shares_cost_what_was_asked_for_against_the_server() -> None:
    found = claims(shared(noise=None, epsilon=1.0), "os")
    assert 0.9 < found[0].epsilon <= 1.0 and found[0].adversary.startswith("the server")


def test_a_projection_has_a_column_for_shares() -> None:
    found = projection(shared(20, "site", ToyMean), 2000)
    assert found["distributed"] < found["local"]
    more = projection(shared(20, "site", ToyMean), 20_000)
    assert more["distributed"] < found["distributed"]
