"""What an attack found: success on members, on controls, and without the synthetic rows at all.

Every attack gives each target a number: a guess that is right or wrong, or evidence that it took
part. Members and controls are alike but for having taken part, so with a harmless release their
numbers are alike too; the chance of a difference as large as the one seen is ``p`` (one-sided,
Mann-Whitney). *Advantage* is success on members less success on controls, which is what a privacy
claim bounds (`bound`). The naive attack is the same without the release: if that
tells members from controls, either way round, they differ by themselves, and what the attack finds
no better than it was not found out from the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import mannwhitneyu

from understudy.evaluation.measures import auc
from understudy.evaluation.score import Score, wilson

__all__ = [
    "ANYWAY",
    "FOUND",
    "NOTHING",
    "SIGNIFICANT",
    "Attack",
    "Evidence",
    "by_rate",
    "by_score",
    "unlike",
]

SIGNIFICANT = 0.01
UNLIKE = 0.001
RARE = 0.01  # false alarms among controls
FOUND, NOTHING = "tells members from controls", "found nothing"
ANYWAY = "no better than without the release"

Evidence = tuple[np.ndarray, np.ndarray]
"""A number for each member, and for each control."""


@dataclass(frozen=True)
class Attack:
    """One attack. Rates are of right guesses about members and, for comparison, controls.

    For membership, a guess is "took part", so the rate on controls is that of false alarms.
    ``naive`` is the advantage without the release. ``rare`` is the share of members that are
    recognised where one control in a hundred is taken for one.
    """

    name: str
    group: str
    asks: str
    members: Score
    controls: Score
    advantage: Score
    naive: Score
    p: float
    naive_p: float
    auc: Score | None = None
    rare: Score | None = None
    note: str = ""

    @property
    def level(self) -> str:
        """What it found, in words."""
        if self.p >= SIGNIFICANT:
            return NOTHING
        anyway = self.naive_p < SIGNIFICANT and self.advantage.low <= self.naive.high
        return ANYWAY if anyway else FOUND


def unlike(found: Sequence[Attack]) -> bool:
    """Whether members and controls differ without the release, by what the naive attacks see."""
    return min(a.naive_p for a in found) < UNLIKE / len(found)


def by_score(name: str, asks: str, evidence: Evidence, naive: Evidence) -> Attack:
    """A membership attack: the half of all targets with the most evidence is said to be members."""
    found = _rates(_halved(*evidence), _halved(*naive))
    area = auc(*_as_classes(evidence), np.array([1]))
    assert area is not None
    p, blind = _p(evidence), _p(naive, "two-sided")
    return Attack(name, "membership", asks, *found, p, blind, area.score(), _rare(*evidence))


def by_rate(name: str, asks: str, hits: Evidence, naive: Evidence, note: str = "") -> Attack:
    """An attack that is right or wrong about each target, or right about a share of its cells."""
    found = _rates(hits, naive)
    return Attack(name, "inference", asks, *found, _p(hits), _p(naive, "two-sided"), note=note)


def _rates(hits: Evidence, naive: Evidence) -> tuple[Score, Score, Score, Score]:
    members, controls = (_rate(side, hit) for side, hit in zip(SIDES, hits, strict=True))
    return members, controls, _difference("advantage", *hits), _difference("naive", *naive)


SIDES = ("members", "controls")


def _halved(members: np.ndarray, controls: np.ndarray) -> Evidence:
    """Which targets are among the half with the most evidence; those at the edge count in part."""
    both = np.concatenate([members, controls])
    edge = np.partition(both, len(both) // 2)[len(both) // 2]
    above, at = both > edge, both == edge
    share = np.where(above, 1.0, at * (len(both) / 2 - above.sum()) / max(1, at.sum()))
    return share[: len(members)], share[len(members) :]


def _rate(name: str, hits: np.ndarray) -> Score:
    n, value = len(hits), float(np.mean(hits))
    return Score(name, value, *wilson(round(value * n), n), n)


def _difference(name: str, members: np.ndarray, controls: np.ndarray) -> Score:
    """Newcombe's interval for the difference of two shares."""
    a, b = _rate("", members), _rate("", controls)
    value = a.value - b.value
    low = value - float(np.hypot(a.value - a.low, b.high - b.value))
    high = value + float(np.hypot(a.high - a.value, b.value - b.low))
    return Score(name, value, max(-1.0, low), min(1.0, high), a.n)


def _p(evidence: Evidence, side: str = "greater") -> float:
    """How likely members would be so far ahead (or, of two sides, so different) by chance."""
    members, controls = evidence
    if np.ptp(np.concatenate(evidence)) == 0:
        return 1.0
    return float(mannwhitneyu(members, controls, alternative=side, method="asymptotic")[1])


def _as_classes(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    truth = np.repeat([1, 0], [len(side) for side in evidence])
    both = np.concatenate(evidence)
    return truth, np.column_stack([-both, both])


def _rare(members: np.ndarray, controls: np.ndarray) -> Score:
    """Members with more evidence than all but one in a hundred controls."""
    edge = np.sort(controls)[::-1][int(RARE * len(controls))]
    return _rate(f"found at {RARE:.0%} false alarms", members > edge)
