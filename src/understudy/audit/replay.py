"""Replay: does one unit move what is noised by more than declared, or anything else at all?

Two runs on neighbouring data with frozen mechanisms (`trace`) must agree in ledger, receipts,
control flow, what travels and the final state; and each query that was noised may differ by no
more than its declared sensitivity. A finding names the part. It is a test on the neighbours that
were tried: it falsifies, it certifies nothing.

For a recipe of your own::

    from understudy.audit import replay
    print(replay(study).words)      # a Study whose recipe is registered
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from understudy.audit.neighbours import Neighbour, neighbours
from understudy.audit.trace import Choice, Trace, traced
from understudy.data.encode import Encoded
from understudy.data.schema import Schema
from understudy.data.shards import Shards
from understudy.evaluation.axes import even_rows
from understudy.federation.recipe import Recipe
from understudy.privacy.plan import PrivacyPlan
from understudy.privacy.respond import Response
from understudy.recipes import RECIPES, build
from understudy.study import Simulation, Study

__all__ = ["ROUNDS", "SITES", "Finding", "Replay", "around", "compared", "replay"]

SITES, ROUNDS, EACH = 4, 4, 4
Tick = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """What differed that must not; ``part`` is the query, where one is to blame."""

    part: str
    neighbour: str
    words: str


@dataclass(frozen=True)
class Replay:
    """What was found, how many neighbours were tried, and the most of a sensitivity that was used.

    ``used`` is 0 where no neighbour moved anything: then nothing was shown.
    """

    findings: tuple[Finding, ...]
    neighbours: int
    used: float

    @property
    def words(self) -> str:
        """The result as sentences."""
        if self.findings:
            return "; ".join(
                f"{f.part or 'the run'} ({f.neighbour}): {f.words}" for f in _few(self)
            )
        if not self.used:
            return "no neighbour moved anything: the replay shows nothing"
        return (
            f"{self.neighbours} neighbouring data sets moved what is noised by at most "
            f"{100 * self.used:.0f} % of what was declared, and nothing else"
        )


def _few(found: Replay, most: int = 3) -> tuple[Finding, ...]:
    seen = {(f.part, f.words.split(" ")[0]): f for f in reversed(found.findings)}
    return tuple(reversed(seen.values()))[:most]


def replay(study: Study, *, progress: Tick = lambda *done: None) -> Replay:
    """Replay a small version of a study (`small`) on made-up rows: no real row is read."""
    recipe = build(small(study))
    return _replayed(recipe, around(recipe, recipe.plan.sites), progress)


def around(recipe: Recipe, sites: int) -> list[Neighbour]:
    """Neighbours of made-up rows at so many sites."""
    plan, schema = recipe.plan, recipe.schema
    size = schema.rows_per_person or 1
    return neighbours(
        made_up(schema, sites, EACH + size),
        plan.unit,
        plan.trust,
        site=min(1, sites - 1),
        size=size if plan.unit == "person" else 1,
        classes=max(1, schema.n_classes),
    )


def _replayed(recipe: Recipe, tried: list[Neighbour], progress: Tick) -> Replay:
    findings: list[Finding] = []
    used = 0.0
    known: dict[int, Trace] = {}
    with tempfile.TemporaryDirectory() as name:
        for i, neighbour in enumerate(tried):
            progress(f"replaying: {neighbour.name}", i, len(tried))
            base = id(neighbour.base)
            if base not in known:
                known[base] = traced(recipe, Path(name) / f"base-{i}", neighbour.base)
            other = traced(recipe, Path(name) / str(i), neighbour.data, neighbour.silent)
            found, share = compared(recipe.plan, known[base], other, neighbour)
            findings += found
            used = max(used, share)
    progress("replaying", len(tried), len(tried))
    return Replay(tuple(findings), len(tried), used)


def small(study: Study) -> Study:
    """The same study with few sites and rounds; noise does not matter here, bounds do."""
    sites = min(SITES, study.n_sites)
    info = RECIPES[study.recipe].info if study.recipe in RECIPES else None
    rounds = min(ROUNDS, study.rounds or (info.rounds if info else ROUNDS))
    size = study.cohort.size
    return replace(
        study,
        rounds=rounds,
        sites=(),
        simulation=Simulation(data="-", sites=sites),
        cohort=replace(study.cohort, size=None if size is None else min(size, sites)),
    )


def made_up(schema: Schema, sites: int, each: int) -> Shards:
    """Rows drawn evenly within the public bounds, as many at each site."""
    rows = even_rows(schema, sites * each, np.random.default_rng(0))
    parts = list(np.arange(sites * each).reshape(sites, each))
    shards = Shards.pack(Encoded(rows.x, rows.y), parts)
    return replace(shards, x=shards.x.clone(), y=shards.y.clone())


def compared(
    plan: PrivacyPlan, one: Trace, two: Trace, neighbour: Neighbour
) -> tuple[list[Finding], float]:
    """What two runs differ in that they must not, and the largest share of what they may."""
    moved: list[float] = [0.0]
    texts = [
        *_outside(one, two, neighbour),
        *_queries(plan, one, two, neighbour, moved),
        *_choices(plan, one, two, moved),
    ]
    return [Finding(part, neighbour.name, words) for part, words in texts], max(moved)


Text = tuple[str, str]  # the part, and what is wrong


def _outside(one: Trace, two: Trace, neighbour: Neighbour) -> Iterator[Text]:
    """Everything but the queries themselves."""
    for part, norm, limit in (*one.overlong, *two.overlong):
        yield part, f"left its site with norm {norm:g}, above {limit:g}"
    if one.ledger != two.ledger:
        yield "", "the ledger depends on the data"
    if one.receipts != two.receipts:
        yield "", "receipts depend on the data"
    if not neighbour.silent and (one.sealed != two.sealed or one.tasks != two.tasks):
        yield "", "what travels diverges"
    if one.state.keys() != two.state.keys():
        yield "", "the state has other parts"
    for name in one.state.keys() & two.state.keys():
        if not torch.equal(one.state[name], two.state[name]):
            yield name, f"{name} passed the noise by"
    if len(one.rounded) != len(two.rounded):
        yield "", "control flow depends on the data"
    for (a, most), (b, _) in zip(one.rounded, two.rounded, strict=False):
        if not (a.shape == b.shape and float((a - b).norm()) <= neighbour.factor * most):
            yield "", "rounding moved more than its bound"


def _queries(
    plan: PrivacyPlan, one: Trace, two: Trace, neighbour: Neighbour, share: list[float]
) -> Iterator[Text]:
    if [key for key, *_ in one.queries] != [key for key, *_ in two.queries]:
        yield "", "control flow depends on the data"
        return
    units: dict[tuple, int] = {}
    for (key, a, bound), (_, b, declared) in zip(one.queries, two.queries, strict=True):
        promised = plan.at(key[2]).part(key[0]).mechanism.bound  # type: ignore[attr-defined]
        if not bound == declared == promised:
            yield key[0], f"declares {declared:g}, not the plan's {promised:g}"
        apart = (a - b).flatten(1).norm(dim=1)  # of each site in the stack
        distance, limit = float(apart.norm()), neighbour.factor * promised * (1 + 1e-9)
        if not math.isfinite(distance):
            yield key[0], "is not finite"
        elif distance > limit:
            yield key[0], f"moved by {distance:g}, declared {limit:g} (round {key[2]})"
        share.append(min(distance / limit, 1.0))
        if key[1] != "step":
            units[key[:3]] = units.get(key[:3], 0) + int((apart > 0).sum())
    for key, count in units.items():
        if count > 1:
            yield key[0], "one unit moved several sites' queries"


def _choices(plan: PrivacyPlan, one: Trace, two: Trace, share: list[float]) -> Iterator[Text]:
    """Choices may depend on data by no more than their ε, and on one site's only."""
    if [key for key, *_ in one.choices] != [key for key, *_ in two.choices]:
        yield "", "control flow depends on the data"
        return
    moved: dict[tuple, int] = {}
    for (key, a, rule), (_, b, other) in zip(one.choices, two.choices, strict=True):
        if not rule == other == plan.at(key[2]).part(key[0]).mechanism:
            yield key[0], "not what was promised"
        if ratio(rule) > math.exp(rule.epsilon) * (1 + 1e-9):
            yield key[0], "messages differ in probability by more than e^ε"
        differs = (a != b).reshape(len(a), -1).any(1)
        moved[key[:3]] = moved.get(key[:3], 0) + int(differs.sum())
    for key, count in moved.items():
        if count > 1:
            yield key[0], "one unit moved several sites' choices"
    share.append(float(any(moved.values())))


def ratio(rule: Choice) -> float:
    """The most by which a message's probability can differ between two updates."""
    weights = rule.chances.weights  # as they are drawn
    if isinstance(rule, Response):
        return max(weights) / min(weights)
    rest = rule.pool - rule.top
    each = range(rule.output + 1)
    ways = [math.comb(rule.top, i) * math.comb(rest, rule.output - i) for i in each]
    chances = [Fraction(weight, n) for weight, n in zip(weights, ways, strict=True)]
    return float(max(chances) / min(chances))
