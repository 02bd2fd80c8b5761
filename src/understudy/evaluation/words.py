"""Privacy claims, figures and names in words a person can act on.

A claim (claims.json) holds the facts; this module says what they mean: who is protected from
whom, what an attacker could at best find out, and what the claim does not cover. It adds no
promise of its own: the attacker's odds are the standard consequence of (ε, δ) (for even prior
odds the chance of guessing right is at most (e^ε + δ)/(1 + e^ε)), and where a claim gives no ε
nothing is promised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from understudy.privacy.account import Event, round_up
from understudy.privacy.claim import Claim

__all__ = [
    "ClaimWords",
    "best_guess",
    "figure",
    "in_words",
    "listed",
    "number",
    "percent",
    "percentage",
    "tidy",
    "upper",
]

WEAK = 0.99
NOMINAL = (
    "A bound so close to certainty promises little by itself. It is a worst case; an audit can "
    "show how far a real attack gets, but it proves no bound."
)
ALWAYS_OPEN = (
    "facts about people in general: what would be true without any one of them can be learned "
    "from the release",
    "several protected units together: for a group of k, ε is more than k times as large (ε = 1, "
    "δ = 1e-5, ten of them: 14)",
)


@dataclass(frozen=True)
class ClaimWords:
    """One claim, ready to be read."""

    title: str
    unit: str
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
        if self.guess is None or self.simulation:
            return "none"
        return "weak" if self.guess > WEAK else "good"

    @property
    def scope(self) -> tuple[tuple[str, ...], ...]:
        """What is covered and what is not: often the same for every adversary."""
        return self.covered, self.open, self.caveats


def in_words(claim: Claim) -> ClaimWords:
    """Spell a claim out."""
    guess = None if claim.epsilon is None else best_guess(claim.epsilon, claim.delta)
    return ClaimWords(
        title=f"Against {claim.adversary}",
        unit=claim.unit,
        statement=tidy(claim.words),
        private=claim.private,
        epsilon="no ε" if claim.epsilon is None else f"ε = {upper(claim.epsilon)}",
        delta=f"δ = {upper(claim.delta)}",
        guess=guess,
        guess_words=_guess_words(claim, guess),
        facts=_facts(claim),
        covered=_covered(claim) if claim.private else (),
        open=(*claim.excluded, *ALWAYS_OPEN) if claim.private else (),
        caveats=claim.caveats,
        events=tuple(map(_event, claim.events)),
        simulation=claim.noise_source == "simulation",
    )


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


def figure(value: float, decimals: int = 3) -> str:
    """A number to so many decimals, fewer of large ones; what rounds to zero has no sign."""
    decimals = min(decimals, 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else decimals)
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def percentage(share: float) -> str:
    """A share in whole per cent, never rounded to none or all that it is not."""
    text = f"{100 * share:.0f}"
    if text == "0" and share > 0:
        text = "<1"
    if text == "100" and share < 1:
        text = ">99"
    return f"{text} %"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a row, the last ones counted where there are many."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left:,} more" if left > 0 else "")


def _guess_words(claim: Claim, guess: float | None) -> str:
    unit = claim.unit
    if guess is None:
        return f"Nothing is promised about what this adversary could learn about a single {unit}."
    question = f"whether one given {unit} took part"
    if "replace" in claim.relation:
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


def _facts(claim: Claim) -> tuple[tuple[str, str], ...]:
    noise = {
        "os": "the operating system's secure randomness",
        "simulation": "seeded, repeatable: a simulation",
    }
    facts = (
        ("Protected unit", claim.unit),
        ("Neighbouring data", claim.relation),
        ("Trust", claim.trust),
        ("Sampling", claim.sampling),
        _check(claim),
        ("Noise source", noise.get(claim.noise_source, claim.noise_source)),
    )
    return tuple((name, value) for name, value in facts if value)


def _check(claim: Claim) -> tuple[str, str]:
    """A second accountant's ε; pure ε (δ = 0) has none, and one sum said twice is no check."""
    if claim.delta == 0:
        return "ε", "the sum over all updates" if claim.private else ""
    check = claim.epsilon_rdp
    return "Check by a second accountant (RDP)", "" if check is None else f"ε ≤ {upper(check)}"


def _covered(claim: Claim) -> tuple[str, ...]:
    return (
        f"the release, every synthetic row drawn from it and anything done with them later: none "
        f"of it reveals more about one {claim.unit}",
        "anything else the attacker knows, now or in the future",
    )


def tidy(text: str) -> str:
    """Keep "ε = 1" on one line and write powers of ten as such."""
    text = re.sub(r"\b\d[\d.]*e[-+]\d+", lambda found: number(float(found[0])), text)
    return re.sub(r"([εδ]) = ", "\\1\u00a0=\u00a0", text)


def _event(event: Event) -> str:
    times = "once" if event.count == 1 else f"{event.count:,} times"
    if event.epsilon:
        return f"a randomised choice with pure ε = {upper(event.epsilon)}, {times}"
    noise = " and ".join(map(number, event.noise))
    rate = event.rate
    sample = "on everyone" if rate is None else f"on a secret sample of rate {number(rate)}"
    return f"Gaussian noise of {noise} times the sensitivity, {sample}, {times}"
