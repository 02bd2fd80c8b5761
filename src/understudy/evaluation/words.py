"""Privacy claims in words a person can act on.

A claim (claims.json) holds the facts; this module says what they mean: who is protected from
whom, what an attacker could at best find out, and what the claim does not cover. It adds no
promise of its own: the attacker's odds are the standard consequence of (ε, δ) (for even prior
odds the chance of guessing right is at most (e^ε + δ)/(1 + e^ε)), and where a claim gives no ε
nothing is promised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from understudy.privacy.account import round_up

__all__ = ["ClaimWords", "best_guess", "headline", "in_words", "number", "percent", "upper"]

WEAK = 0.99
NOMINAL = (
    "A bound so close to certainty promises little by itself. It is a worst case; an audit can "
    "show how far a real attack gets, but it proves no bound."
)
ALWAYS_OPEN = (
    "facts about people in general: what would be true without any one of them can be learned "
    "from the release",
    "several protected units together: for a group of k, ε is about k times as large",
)


@dataclass(frozen=True)
class ClaimWords:
    """One claim, ready to be read."""

    title: str
    statement: str
    private: bool
    epsilon: str
    delta: str
    guess: float | None
    guess_words: str
    facts: tuple[tuple[str, str], ...]
    covered: tuple[str, ...]
    open: tuple[str, ...]
    caveats: tuple[str, ...]
    events: tuple[str, ...]
    simulation: bool

    @property
    def tone(self) -> str:
        """How the page may colour it: only a bound that means something looks reassuring."""
        if not self.private or self.simulation:
            return "none"
        return "weak" if self.guess is None or self.guess > WEAK else "good"


def in_words(claim: Mapping[str, Any]) -> ClaimWords:
    """Spell a claim out."""
    epsilon = _finite(claim.get("epsilon"))
    delta = _finite(claim.get("delta")) or 0.0
    guess = None if epsilon is None else best_guess(epsilon, delta)
    return ClaimWords(
        title=f"Against {claim.get('adversary') or 'an unnamed adversary'}",
        statement=_tidy(str(claim.get("words") or _statement(claim, epsilon, delta))),
        private=epsilon is not None,
        epsilon="no ε" if epsilon is None else f"ε = {upper(epsilon)}",
        delta=f"δ = {upper(delta)}",
        guess=guess,
        guess_words=_guess_words(claim, epsilon, guess),
        facts=_facts(claim),
        covered=_covered(claim, epsilon),
        open=_open(claim, epsilon),
        caveats=tuple(map(str, claim.get("caveats") or ())),
        events=tuple(_event(event) for event in claim.get("events") or ()),
        simulation=claim.get("noise_source") == "simulation",
    )


def headline(claims: Sequence[Mapping[str, Any]]) -> str:
    """The first claim in one sentence, or the plain statement that there is none."""
    if not claims:
        return "This release carries no privacy claim: treat it like the real data."
    return in_words(claims[0]).statement


def best_guess(epsilon: float, delta: float) -> float:
    """The most an attacker with even prior odds can be right about one unit's part."""
    return min(1.0, (1 + min(1.0, delta) * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def number(value: float) -> str:
    """A short decimal: three significant figures, small and large ones as powers of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, power = f"{value:.1e}".split("e")
    exponent = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    head = "" if mantissa in ("1.0", "1") else f"{mantissa.removesuffix('.0')}·"
    return f"{head}10{exponent}"


def upper(value: float) -> str:
    """A bound as `number` writes it, rounded up: a claim never looks better than it is."""
    return number(float(round_up(value, 3 if 1e-3 <= value < 1e5 else 2)))


def percent(value: float) -> str:
    """A share in per cent, never rounded up to a certainty it is not."""
    text = f"{100 * value:.1f}"
    return f"{'>99.9' if text == '100.0' and value < 1 else text}\u00a0%"


def _finite(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _statement(claim: Mapping[str, Any], epsilon: float | None, delta: float) -> str:
    who = claim.get("adversary") or "an unnamed adversary"
    if epsilon is None:
        return f"Against {who}: no protection is claimed."
    return (
        f"Against {who}, whether any one {claim.get('unit', 'record')} took part is protected "
        f"with ε = {upper(epsilon)} at δ = {upper(delta)}."
    )


def _guess_words(claim: Mapping[str, Any], epsilon: float | None, guess: float | None) -> str:
    unit = claim.get("unit", "record")
    if epsilon is None or guess is None:
        return f"Nothing is promised about what this adversary could learn about a single {unit}."
    question = f"whether one given {unit} took part"
    if "replace" in str(claim.get("relation")):
        question = f"which of two versions of one {unit} took part"
    often = (
        f"at most {percent(math.ceil(1000 * guess) / 1000)} of the time"
        if guess < 0.9995
        else "almost always in the worst case"
    )
    said = (
        f"An attacker who knows everything else and must guess {question}, with even odds "
        f"beforehand, is right {often}."
    )
    return said if guess <= WEAK else f"{said} {NOMINAL}"


def _facts(claim: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    noise = {
        "os": "the operating system's secure randomness",
        "simulation": "seeded, repeatable: a simulation",
    }
    facts = [
        ("Protected unit", claim.get("unit")),
        ("Neighbouring data", claim.get("relation")),
        ("Trust", claim.get("trust")),
        ("Sampling", claim.get("sampling")),
        _check(claim),
        ("Noise source", noise.get(str(claim.get("noise_source")), claim.get("noise_source"))),
    ]
    return tuple((name, str(value)) for name, value in facts if value)


def _check(claim: Mapping[str, Any]) -> tuple[str, str | None]:
    """A second accountant's ε; pure ε (δ = 0) has none, and one sum said twice is no check."""
    if _finite(claim.get("delta")) == 0:
        return "ε", None if _finite(claim.get("epsilon")) is None else "the sum over all updates"
    check = _finite(claim.get("epsilon_rdp"))
    return "Check by a second accountant (RDP)", None if check is None else f"ε ≤ {upper(check)}"


def _covered(claim: Mapping[str, Any], epsilon: float | None) -> tuple[str, ...]:
    if epsilon is None:
        return ()
    unit = claim.get("unit", "record")
    return (
        f"the release, every synthetic row drawn from it and anything done with them later: none "
        f"of it reveals more about one {unit}",
        "anything else the attacker knows, now or in the future",
    )


def _open(claim: Mapping[str, Any], epsilon: float | None) -> tuple[str, ...]:
    """What an ε leaves open; without one there is nothing to except from."""
    if epsilon is None:
        return ()
    return tuple(map(str, claim.get("excluded") or ())) + ALWAYS_OPEN


def _tidy(text: str) -> str:
    """Keep "ε = 1" on one line and write powers of ten as such."""
    text = re.sub(r"\b\d[\d.]*e[-+]\d+", lambda found: number(float(found[0])), text)
    return re.sub(r"([εδ]) = ", "\\1\u00a0=\u00a0", text)


def _event(event: Any) -> str:
    if not isinstance(event, Mapping):
        return str(event)
    if not {"noise", "rate", "count"} <= set(event):
        return ", ".join(f"{key} {value}" for key, value in event.items())
    times = "once" if event["count"] == 1 else f"{event['count']:,} times"
    if event.get("epsilon"):
        return f"a randomised choice with pure ε = {upper(event['epsilon'])}, {times}"
    noise = " and ".join(number(z) for z in _many(event["noise"]))
    rate = event["rate"]
    sample = "on everyone" if rate is None else f"on a secret sample of rate {number(rate)}"
    return f"Gaussian noise of {noise} times the sensitivity, {sample}, {times}"


def _many(value: Any) -> Sequence[float]:
    return value if isinstance(value, Sequence) else (value,)
