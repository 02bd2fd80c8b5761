"""What to change: from what is off and from public numbers, by rules that can be argued with.

How far noise alone would move a column is estimated by the plainest mechanism there is, one noisy
sum: a Gaussian of multiplier z = √(2 ln(1.25/δ))/ε on a vector that holds d columns, over N
protected units, moves every share by z·√d/N (times √sites where each site adds its own noise,
times the rows of a person). Over ten cells that is a distance of four times as much. If the
columns are off by about that, noise is the limit: more ε, more records or fewer columns help. If
they are off by far more, it is the recipe, or bounds that are far too wide, and more ε will not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.data.schema import Schema
from understudy.evaluation.axes import Axis, axes
from understudy.evaluation.fidelity import Fidelity
from understudy.evaluation.rows import Rows
from understudy.evaluation.utility import Utility
from understudy.evaluation.verdict import BETTER, NONE, WORSE, Judgement
from understudy.evaluation.words import figure, listed, number, percentage
from understudy.evaluation.worst import excess
from understudy.privacy.claim import Claim

__all__ = ["Circumstances", "advise", "noise_distance"]

OFF = 0.05
"""A column this much farther from real rows than another real sample is worth advice."""
NARROW = 0.25
"""The share of the public range that real rows should fill."""
SUMS = ("fedmoments", "fedmarginals")
"""Recipes of noisy sums: the first to try on tables (docs/benchmarks.md)."""


@dataclass(frozen=True)
class Circumstances:
    """What a release says about how it was made, all of it public."""

    recipe: str
    epsilon: float | None
    delta: float
    unit: str
    trust: str
    units: int
    sites: int

    @classmethod
    def of(
        cls, manifest: Mapping[str, Any], claims: Sequence[Claim], schema: Schema
    ) -> Circumstances:
        """From the manifest and the headline claim."""
        plan, claim = manifest.get("plan", {}), claims[0]
        phases = plan.get("phases") or [{}]
        return cls(
            manifest.get("recipe", ""),
            claim.epsilon,
            claim.delta,
            claim.unit,
            plan.get("trust", "central"),
            plan.get("units", schema.records),
            phases[-1].get("sites", 1),
        )


def noise_distance(schema: Schema, how: Circumstances) -> float:
    """How far noise alone moves a column of ten cells at this ε; see the module's paragraph."""
    if not how.epsilon:
        return 0.0
    z = math.sqrt(2 * math.log(1.25 / max(how.delta, 1e-12))) / how.epsilon
    share = z * math.sqrt(max(1, len(axes(schema)))) / max(1, how.units)
    if how.trust == "local":
        share *= math.sqrt(how.sites)
    return min(1.0, 4 * share)


def advise(
    schema: Schema,
    how: Circumstances,
    judgements: Sequence[Judgement],
    utility: Utility,
    fidelity: Fidelity,
    test: Rows,
) -> tuple[str, ...]:
    """What to change, the most promising first; nothing where nothing is off."""
    if not any(j.level in (BETTER, NONE, WORSE) for j in judgements):
        return ()
    off = {fit.column: excess(fit) for fit in fidelity.columns if excess(fit) > OFF}
    rules = (
        _noise_or_recipe(schema, how, fidelity),
        *_tighter_bounds(schema, off, test),
        _balance(schema, off),
        _relations(how, judgements),
        _rare_classes(utility),
    )
    return tuple(rule for rule in rules if rule)


def _noise_or_recipe(schema: Schema, how: Circumstances, fidelity: Fidelity) -> str:
    """Is noise the limit, or the recipe?"""
    found = fidelity.overall[0] if fidelity.overall else None
    if schema.kind == "image" or found is None or not how.epsilon:
        return _images(schema, how)
    apart = found.synthetic.value - (found.real.value if found.real else 0.0)
    noise = noise_distance(schema, how)
    budget = (
        f"ε = {number(how.epsilon)} for {len(axes(schema))} columns and "
        f"{'up to ' if how.unit == 'person' else ''}{how.units:,} {how.unit}s"
    )
    if noise >= max(0.5 * apart, 0.02):
        return (
            f"Spend more ε, bring in more {how.unit}s or drop columns: {budget} allow no better "
            f"than about {figure(noise, 2)} per column even in one noisy sum. Twice the ε halves "
            "that."
        )
    if apart <= OFF:
        return ""
    other = "" if how.recipe in SUMS or schema.kind != "table" else f": {SUMS[0]} sums once"
    cause = f"Noise is not the cause: {budget} need cost only about {figure(noise, 2)} per column"
    if how.recipe in SUMS:
        return f"{cause}. More ε will hardly help; look at the bounds and at the columns below."
    return f"{cause}. Try another recipe{other} (understudy recipes)."


def _images(schema: Schema, how: Circumstances) -> str:
    if schema.kind != "image" or not how.epsilon or how.unit != "site":
        return ""
    if how.sites >= 500:
        return ""
    return (
        f"Protect records instead of sites, or bring in more sites: noise that hides one of "
        f"{how.sites:,} sites hides most of what they send."
    )


def _tighter_bounds(schema: Schema, off: Mapping[str, float], test: Rows) -> list[str]:
    """Numbers that fill a small part of their public range cost accuracy in most recipes."""
    spans = {a.name: _span(a, test) for a in axes(schema) if a.name in off and _is_number(a)}
    narrow = sorted((n for n in spans if spans[n] < NARROW), key=lambda n: -off[n])
    if not narrow:
        return []
    width = percentage(max(spans[n] for n in narrow[:4]))
    most = f"less than {width[1:]}" if width.startswith("<") else f"at most {width}"
    found = "Where nobody knows, fedmoments finds them under noise: bounds = true under [recipe]."
    return [
        f"Set tighter public bounds for {listed(narrow, 4)}: real values fill {most} of the range. "
        "Take them from what is known about such data, not from these rows; for a long tail set "
        f'scale = "log".{" " + found if schema.kind == "table" else ""}'
    ]


def _is_number(axis: Axis) -> bool:
    return not axis.categories and axis.column is not None


def _span(axis: Axis, rows: Rows) -> float:
    """The share of the public range that the middle 98 % of real values take."""
    values = axis.values(rows)
    if not np.isfinite(values).any():
        return 1.0
    low, high = np.nanquantile(values, [0.01, 0.99])
    return float(high - low)


def _balance(schema: Schema, off: Mapping[str, float]) -> str:
    if schema.n_classes < 2 or schema.balance is not None:
        return ""
    name = schema.label or "class"
    if name not in off:
        return ""
    return f"The shares of {name} are off. If they are public knowledge, declare them as balance."


def _relations(how: Circumstances, judgements: Sequence[Judgement]) -> str:
    """Columns are well and pairs are not: the relations are what is missing."""
    level = {j.use: j.level for j in judgements}
    if level.get("pairs of columns") not in (BETTER, NONE, WORSE):
        return ""
    if level.get("single columns") in (BETTER, NONE, WORSE):
        return ""
    return (
        "Columns are right one by one, relations between them are not. If only some columns matter "
        "together, leave the others out; a relation that always holds can be declared as a rule."
    )


def _rare_classes(utility: Utility) -> str:
    rare = [c.name for c in utility.classes if c.synthetic < 10 <= c.real]
    if not rare:
        return ""
    few = listed(rare, 4)
    return f"Merge rare classes, or give them more records: hardly a synthetic row is {few}."
