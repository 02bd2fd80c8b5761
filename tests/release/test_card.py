from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.privacy.claim import claims
from understudy.privacy.gaussian import NO_BOUND, Gaussian, Plain
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.release.bundle import Release
from understudy.release.card import write_card


def planned(trust: str, noise: float, delta: float) -> PrivacyPlan:
    mechanism = Plain(NO_BOUND) if trust == "none" else Gaussian(1.0, noise=noise)
    part = Part("mean", (3,), "mean", "client" if trust == "local" else "server", mechanism)
    return PrivacyPlan("site", trust, (Phase((part,), 3, 4),), 4, delta)


def card(made: Release, trust: str = "central", source: str = "os") -> str:
    plan = planned(trust, 5.0, 1e-5)
    changed = replace(made, plan=plan, source=source)
    return write_card(changed.manifest, made.schema, claims(plan, source))


def test_a_card_carries_the_claim_and_its_limits(made: Release) -> None:
    text = card(made)
    assert claims(made.plan, "os")[0].adversary in text
    assert "| the server | site | none | none promised" in text
    assert "the server is trusted" in text
    assert "the schema" in text and "tuning" in text and "floating-point" in text


def test_pure_epsilon_is_shown_once_as_the_sum_it_is(made: Release) -> None:
    """The claim holds one sum under two names: that is no check."""
    assert "| ε (PLD) | δ | ε (RDP, check) |" in card(made)
    claim = claims(made.plan, "os")[0]
    pure = replace(claim, delta=0.0, epsilon=3.5, epsilon_rdp=3.5)
    text = write_card(made.manifest, made.schema, [pure])
    assert "| ε (added up) | δ |\n|---|---|---|---|---|\n" in text
    assert text.count("| 3.5 |") == 1 and "RDP" not in text and "PLD" not in text
    mixed = write_card(made.manifest, made.schema, [claim, pure])
    assert "| 3.5 | 0 | added up |" in mixed and "RDP, check" in mixed


def test_a_simulation_is_called_one(made: Release) -> None:
    assert "Noise: a simulation" in card(made, source="simulation")
    assert "simulation" not in card(made, source="os")


def test_a_release_without_noise_does_not_speak_of_noise(made: Release) -> None:
    for source in ("os", "simulation"):
        text = card(made, "none", source)
        assert "no protection is claimed" in text and "not private" in text
        assert "Noise: none" in text and "operating system" not in text


def test_a_card_promises_no_more_than_the_mechanism(made: Release) -> None:
    text = card(made)
    assert "may resemble" in text, "a drawn row may equal a real one by chance"
    assert "anonym" not in text.lower()


@pytest.mark.parametrize("noise", [0.9, 1.7, 3.3, 7.1])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_no_figure_on_a_card_is_below_the_claim(made: Release, trust: str, noise: float) -> None:
    said = claims(planned(trust, noise, 1.04e-5), "os")
    text = write_card(made.manifest, made.schema, said)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for cells, claim in zip(rows[1:], said, strict=True):
        if claim.private:
            stated = [float(cell) for cell in cells[3:]]
            truth = (claim.epsilon, claim.delta, claim.epsilon_rdp)
            assert all(a >= b for a, b in zip(stated, truth, strict=True))
