"""Every attack that this kind of data allows, and what the claim allows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.attacks.bound import Bound, allowed
from understudy.evaluation.attacks.inference import attribute_inference, linkability, singling_out
from understudy.evaluation.attacks.inversion import Inversion, measure_inversion
from understudy.evaluation.attacks.membership import membership
from understudy.evaluation.attacks.memorised import Memorised, memorised
from understudy.evaluation.attacks.outcome import ANYWAY, FOUND, Attack, unlike
from understudy.evaluation.attacks.targets import Targets, draw_targets, unusable
from understudy.evaluation.average_case import AverageCase, average_case
from understudy.evaluation.rows import Rows
from understudy.evaluation.score import plain
from understudy.evaluation.utility import Progress
from understudy.evaluation.words import listed
from understudy.privacy.claim import Claim
from understudy.rng import Streams

__all__ = ["Attacks", "attack"]

SHADOW = (
    "shadow models: they need the recipe to be run again many times, which a release cannot do; "
    "docs/audit.md says how to try them"
)
RECORDS = (
    "The claim protects whole {unit}s, and with them each of their rows; the attacks are on single "
    "rows and say little about what a {unit} as a whole gives away."
)


@dataclass(frozen=True)
class Attacks:
    """What was tried, what it found, and what was not tried and why."""

    level: str
    headline: str
    rows: dict[str, int]
    found: tuple[Attack, ...] = ()
    bound: Bound | None = None
    memorised: Memorised | None = None
    average_case: AverageCase | None = None
    inversion: Inversion | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without pictures."""
        return {
            "level": self.level,
            "headline": self.headline,
            "rows": dict(self.rows),
            "attacks": [{**plain(a), "level": a.level} for a in self.found],
            "allowed_advantage": None if self.bound is None else plain(self.bound),
            "memorised": None if self.memorised is None else plain(self.memorised),
            "average_case": None if self.average_case is None else _average(self.average_case),
            "inversion": None
            if self.inversion is None
            else {name: plain(score) for name, score in self.inversion.plain.items()},
            "missing": list(self.missing),
            "notes": list(self.notes),
        }


def _average(found: AverageCase) -> dict[str, Any]:
    return {**plain(found), "gamma": found.gamma, "kind": "estimate of average-case risk"}


def attack(
    schema: Schema,
    sides: tuple[Rows, Rows, Rows],
    claims: Sequence[Claim],
    *,
    rng: Streams,
    progress: Progress,
) -> Attacks:
    """Attack synthetic rows; ``sides`` are synthetic rows, members and controls."""
    synthetic, real, controls = sides
    counts = {"members": len(real), "controls": len(controls), "synthetic": len(synthetic)}
    if reason := unusable(real, controls):
        return Attacks("unknown", f"No attack was tried: {reason}.", counts, missing=(reason,))
    t = draw_targets(schema, *sides, rng=rng.numpy("targets"))
    counts = {"targets": t.n, "reference": len(t.reference), "synthetic": len(t.synthetic)}
    progress("membership attacks", 0, 100)
    found = list(membership(t))
    progress("inference attacks", 35, 100)
    more, missing = _inference(t, rng.numpy("inference"))
    bound = allowed(claims)
    level, headline = _sum_up([*found, *more], bound)
    progress("memorised rows", 55, 100)
    copied = memorised(t)
    progress("average-case privacy", 60, 100)
    average = average_case(schema, synthetic, real, rng=rng.numpy("average case"))
    inverted, why = _inversion(schema, sides, rng.child("inversion"), progress)
    progress("attacks", 100, 100)
    return Attacks(
        level,
        headline,
        counts,
        (*found, *more),
        bound,
        copied,
        average,
        inverted,
        (*missing, *why, SHADOW),
        _notes(claims, bound),
    )


def _inference(t: Targets, rng: np.random.Generator) -> tuple[list[Attack], list[str]]:
    found, missing = [], []
    if t.schema.kind == "table":
        found.append(singling_out(t, rng=rng))
    else:
        missing.append("singling out: descriptions are made of a table's columns")
    if t.schema.width > 1:
        found.append(linkability(t, rng=rng))
    else:
        missing.append("linkability: there is one column only")
    secrets = attribute_inference(t, rng=rng)
    if secrets is None:
        missing.append("attribute inference: no column has more than one value")
    return [*found, *([secrets] if secrets else [])], missing


def _inversion(
    schema: Schema, sides: tuple[Rows, Rows, Rows], rng: Streams, progress: Progress
) -> tuple[Inversion | None, list[str]]:
    if schema.kind != "image" or schema.n_classes < 2:
        return None, ["model inversion: it is for images with classes"]
    if any(len(np.unique(rows.y)) < 2 for rows in sides):
        return None, ["model inversion: some rows have one class only"]

    def tick(done: int, total: int) -> None:
        progress("model inversion", 65 + 35 * done // total, 100)

    found = measure_inversion(schema, *sides, rng=rng, tick=tick)
    return found, [] if found else ["model inversion: no class has two members and two controls"]


def _sum_up(found: Sequence[Attack], bound: Bound | None) -> tuple[str, str]:
    """A level for the whole, and one sentence."""
    if unlike(found):
        return "unclear", (
            "Members and controls differ already without the release, so that nothing can be said: "
            "take both from the same rows at random."
        )
    leaks = [a.name for a in found if a.level == FOUND]
    over = [a.name for a in found if bound and a.name in leaks and a.advantage.low > bound.value]
    if over:
        return "broken", (
            f"More than the claim allows: {listed(over)}. Do not use this release: either the "
            "claim is wrong, or the controls are not like the members."
        )
    if leaks:
        many = f"{len(leaks)} of {len(found)} attacks tell members from controls"
        return "found", f"{many}: {listed(leaks)}."
    anyway = [a.name for a in found if a.level == ANYWAY]
    beyond = f" but for what {listed(anyway)} tells without the release" if anyway else ""
    return "nothing", (
        f"None of {len(found)} attacks told members from controls{beyond}. That proves nothing: a "
        "better attack may."
    )


def _notes(claims: Sequence[Claim], bound: Bound | None) -> tuple[str, ...]:
    if bound is None:
        return ("Nothing is promised about this release, so that nothing bounds an attack.",)
    return (RECORDS.format(unit=bound.unit),) if bound.unit != "record" else ()
