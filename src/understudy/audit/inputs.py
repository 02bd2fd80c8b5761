"""Canaries that are rows: the worst that the recipe makes of one unit, under the plan's noise.

In `canary` the canaries are updates, as long as the plan allows. Here the recipe itself turns rows
into them. It runs on made-up rows with and without one unit whose values are meant to break a clip
(`neighbours`), all mechanisms frozen (`trace`), and with everyone in every cohort and batch, so
that the unit is too. What it handed to each mechanism in either case is noted, for the neighbour
that moves it furthest. Then the plan's mechanisms are applied again and again to what they were
handed without the unit or with it, by a coin flip (and, where the plan samples in secret, a coin
for each use), and the likelihood ratio guesses which it was.

What the mechanisms were handed is the same in all runs, as if earlier rounds had always ended
alike: each use must keep its price whatever went before. Only the first `ROUNDS` rounds are looked
at, and no more than `_NUMBERS` numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.audit.canary import Canaries, evidence
from understudy.audit.evidence import least_epsilon, rates, separate_bound
from understudy.audit.replay import ROUNDS, SITES, around
from understudy.audit.trace import Trace, traced
from understudy.data.shards import Shards
from understudy.federation.recipe import Recipe
from understudy.privacy.claim import Claim
from understudy.privacy.clip import Bounded
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.rng import Streams

__all__ = ["Handed", "handed", "inputs"]

_NUMBERS = 2**19  # that are noised in each run
_AT_ONCE = 2**22


@dataclass(frozen=True)
class Handed:
    """What a mechanism was handed without the unit and with it, flat, where that differs."""

    part: Part
    round: int
    without: Tensor
    present: Tensor

    @property
    def far(self) -> float:
        """How far the unit moves it: in deviations of the noise, or coordinates of a top set."""
        mechanism: Any = self.part.mechanism
        if isinstance(mechanism, (Selection, Response)):
            return float((self.without != self.present).sum())
        return float((self.present - self.without).norm()) / mechanism.std

    def cut(self, numbers: int) -> Handed:
        """The numbers that the unit moves most; a choice is not cut."""
        if isinstance(self.part.mechanism, (Selection, Response)):
            return self
        kept = (self.present - self.without).abs().topk(min(numbers, len(self.without))).indices
        return Handed(self.part, self.round, self.without[kept], self.present[kept])


def inputs(
    plan: PrivacyPlan, claim: Claim, found: Sequence[Handed], runs: int, *, rng: Streams
) -> Canaries | None:
    """The ε that so many uses of the mechanisms on worst-case rows show; None without any."""
    if claim.epsilon is None or not found:
        return None
    present = rng.numpy("present").random(runs) < 0.5
    scores = _scores(plan, found, present, rng)
    told = rates(scores[present], scores[~present])
    first = plan.prefix(1 + max(one.round for one in found))
    factor = 2.0 if claim.relation == "replace one" and not plan.own.update_epsilon else 1.0
    events = first.promise(factor=factor, amplified=plan.trust == "central")
    delta = claim.delta or plan.delta
    least = least_epsilon(told, events, claim.events, delta)
    return Canaries(least, separate_bound(told, claim.delta), told, first.length)


def handed(recipe: Recipe, claim: Claim) -> tuple[Handed, ...]:
    """What the neighbour that moves the mechanisms furthest makes them be handed."""
    plan = recipe.plan
    if plan.trust == "distributed" or claim.epsilon is None:
        return ()
    pure = plan.own.update_epsilon is not None
    wanted = 2.0 if claim.relation == "replace one" else 1.0
    every = around(recipe, min(SITES, plan.sites))
    tried = [one for one in every if pure or one.factor == wanted]
    with tempfile.TemporaryDirectory() as name:
        folders = (Path(name) / str(i) for i in count())

        def run(data: Shards, silent: tuple[int, ...] = ()) -> Trace:
            return traced(recipe, next(folders), data, silent, first=ROUNDS)

        known = {i: run(base) for i, base in {id(one.base): one.base for one in tried}.items()}
        each = [_moved(recipe, known[id(one.base)], run(one.data, one.silent)) for one in tried]
    return max(each, key=lambda found: sum(one.far**2 for one in found), default=())


def _moved(recipe: Recipe, one: Trace, two: Trace) -> tuple[Handed, ...]:
    """Where the two runs differ, as far as it is looked at; nothing where they part ways."""
    found, left = [], _NUMBERS
    for key, a, b in _paired(one, two):
        if left <= 0 or torch.equal(a, b):
            continue
        part = recipe.plan.at(key[2]).part(key[0])
        found.append(Handed(part, key[2], a.flatten(), b.flatten()).cut(left))
        left -= len(found[-1].without)
    return tuple(found)


def _paired(one: Trace, two: Trace) -> list[tuple[tuple, Tensor, Tensor]]:
    """The same uses of two runs; none where control flow differs, which `replay` tells of."""
    sides = [[(k, v) for k, v, _ in (*t.queries, *t.choices)] for t in (one, two)]
    if [k for k, _ in sides[0]] != [k for k, _ in sides[1]]:
        return []
    return [(k, a, b) for (k, a), (_, b) in zip(*sides, strict=True)]


def _scores(
    plan: PrivacyPlan, found: Sequence[Handed], present: np.ndarray, rng: Streams
) -> np.ndarray:
    """Evidence of each run that the unit was there ``[runs]``."""
    score = np.zeros(len(present))
    for round in sorted({one.round for one in found}):
        rate = plan.at(round).rate if plan.trust == "central" else None
        here = present & _coins(len(present), rate, rng.numpy("cohort", round))
        joint = np.zeros(len(present))
        for i, one in enumerate(found):
            if one.round != round:
                continue
            batch, own = one.part.mechanism.rate, rng.child("use", i)
            drawn = here & _coins(len(present), batch, own.numpy("batch"))
            seen = _evidence(plan, one, drawn, own)
            if one.part.joint:
                joint += seen
            else:
                score += evidence(seen, batch)
        score += evidence(joint, rate)
    return score


def _coins(many: int, rate: float | None, rng: np.random.Generator) -> np.ndarray:
    return rng.random(many) < (1.0 if rate is None else rate)


def _evidence(plan: PrivacyPlan, one: Handed, present: np.ndarray, rng: Streams) -> np.ndarray:
    """The logarithm of the likelihood ratio of each use, a stack of runs at a time."""
    size = max(1, _AT_ONCE // max(1, len(one.without)))
    found = [np.zeros(0)]
    for start in range(0, len(present), size):
        runs = range(start, min(start + size, len(present)))
        use = Use(one.part, plan.unit, one.round, rng.sites("noise", one.round, runs))
        here = torch.from_numpy(present[runs.start : runs.stop])
        value = torch.where(here[:, None], one.present, one.without)
        found.append(_told(one, value, use))
    return np.concatenate(found)


def _told(one: Handed, value: Tensor, use: Use) -> np.ndarray:
    mechanism: Any = one.part.mechanism
    if isinstance(mechanism, Response):
        said = mechanism.seal(value[:, 0], use)[0].bool()
        return ((said == one.present) * 1.0 - (said == one.without) * 1.0).numpy()
    if isinstance(mechanism, Selection):
        return _hits(one, mechanism.seal(value, use)[0].long())
    seen, _ = mechanism.add_noise(Bounded(value, mechanism.bound, use.unit), use)
    along = one.present - one.without
    return ((seen - (one.without + one.present) / 2) @ along / mechanism.std**2).numpy()


def _hits(one: Handed, said: Tensor) -> np.ndarray:
    """How many of the coordinates are in the one top set, less how many in the other."""
    rule: Any = one.part.mechanism
    top, sign = round(rule.size * rule.top / rule.pool), said[:, :1]
    found = torch.zeros(len(said))
    for value, counts in ((one.present, 1), (one.without, -1)):
        inside = torch.zeros(2, rule.size)
        for place, ordered in enumerate((value, -value)):  # signs +1 and −1
            inside[place, ordered.float().topk(top).indices] = 1
        which = (sign < 0).long().expand(-1, said.shape[1] - 1)
        found += counts * inside[which, said[:, 1:]].sum(1)
    return found.double().numpy()
