import math
from dataclasses import replace

import pytest

from understudy.evaluation.words import best_guess, figure, in_words, number, percent, upper
from understudy.privacy.account import Event
from understudy.privacy.claim import Claim

CLAIM = Claim(
    adversary="the public",
    unit="record",
    relation="add or remove one",
    trust="the server is trusted",
    sampling="every site joins every round; no amplification",
    events=(Event(noise=(1.5, 3.0), rate=0.1, count=200),),
    delta=1e-5,
    epsilon=1.0,
    epsilon_rdp=1.2,
    noise_source="os",
    excluded=("the schema",),
    caveats=("floating point",),
)
PURE = Event(noise=(), rate=None, count=4, epsilon=0.25)


def test_a_claim_says_whom_it_protects_from_whom_and_at_what_price() -> None:
    said = in_words(CLAIM)
    assert said.title == "Against the public"
    assert "one record" in said.statement and "ε\u00a0=\u00a01 " in said.statement
    assert "73.2\u00a0%" in said.guess_words
    assert said.covered and said.open[0] == "the schema" and said.caveats == ("floating point",)
    assert said.events[0] == (
        "Gaussian noise of 1.5 and 3 times the sensitivity, "
        "on a secret sample of rate 0.1, 200 times"
    )


def test_one_sum_is_not_shown_as_a_check_of_itself() -> None:
    """Pure ε is added up, not reckoned by two accountants."""
    checked = dict(in_words(CLAIM).facts)
    assert checked["Check by a second accountant (RDP)"] == "ε ≤ 1.2"
    pure = replace(CLAIM, delta=0.0, epsilon_rdp=1.0, events=(PURE,))
    facts = dict(in_words(pure).facts)
    assert facts["ε"] == "the sum over all updates"
    assert not any("accountant" in name for name in facts)


def test_no_epsilon_is_no_promise() -> None:
    said = in_words(replace(CLAIM, epsilon=None, epsilon_rdp=None))
    assert not said.private and said.epsilon == "no ε" and said.guess is None
    assert said.covered == ()
    assert "no protection is claimed" in said.statement


def test_replace_one_asks_another_question() -> None:
    said = in_words(replace(CLAIM, relation="replace one"))
    assert "which of two versions" in said.guess_words


def test_best_guess_follows_from_epsilon_and_delta() -> None:
    assert best_guess(0, 0) == 0.5
    assert best_guess(1, 0) == pytest.approx(math.e / (1 + math.e))
    assert best_guess(0, 1) == 1
    assert best_guess(5000, 1e-5) == 1


def test_a_large_epsilon_is_not_rounded_to_certainty() -> None:
    assert percent(0.99999) == ">99.9\u00a0%"
    assert percent(1.0) == "100.0\u00a0%"


@pytest.mark.parametrize(
    ("change", "tone"),
    [
        ({}, "good"),
        ({"epsilon": 8.0}, "weak"),
        ({"epsilon": None}, "none"),
        ({"noise_source": "simulation"}, "none"),
    ],
)
def test_only_a_bound_that_means_something_looks_reassuring(
    change: dict[str, object], tone: str
) -> None:
    said = in_words(replace(CLAIM, **change))
    assert said.tone == tone
    assert ("promises little" in said.guess_words) == (tone == "weak")


def test_powers_of_ten_in_a_sentence_are_written_out() -> None:
    assert "ε\u00a0=\u00a01 at δ\u00a0=\u00a010⁻⁵." in in_words(CLAIM).statement


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.5"), (7.05123, "7.05"), (2.5e-6, "2.5·10⁻⁶"), (12345, "12,345")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (1.001, "1.01"), (7.05, "7.05"), (0.0301, "0.0301"), (0, "0")]
)
def test_bounds_are_rounded_up(value: float, text: str) -> None:
    assert upper(value) == text


def test_simulated_noise_is_said() -> None:
    said = in_words(replace(CLAIM, noise_source="simulation"))
    assert said.simulation and ("Noise source", "seeded, repeatable: a simulation") in said.facts


def test_what_is_covered_is_told_once_where_claims_agree_on_it() -> None:
    said, other = in_words(CLAIM), in_words(replace(CLAIM, adversary="one other site", epsilon=2.0))
    assert said.scope == other.scope != in_words(replace(CLAIM, caveats=())).scope


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.12345, "0.123"), (-0.0001, "0.000"), (12.3456, "12.346"), (123.456, "123.5"),
     (5961.854, "5,962"), (-1234567.8, "-1,234,568")],
)  # fmt: skip
def test_large_figures_have_no_needless_decimals(value: float, said: str) -> None:
    assert figure(value) == said
