"""Canaries in update space: the worst units that a plan allows, present or not by coin flips.

A `Probe` is a recipe with the study's own plan (bounds, noise, rates, rounds) whose protected units
each send a direction of their own, far beyond the bound, or nothing (or the opposite, where the
claim is about replacing). It runs once through the real engine: cohorts, batches, clip, noise, sum.
What an adversary sees of a canary is turned into the logarithm of the likelihood ratio, the best
test there is. Directions are orthogonal and noise is independent, so one run is as many experiments
as there are canaries. Two bounds follow: that of Steinke et al. (2023), which assumes nothing, and
the trade-off curve's (`evidence`), much tighter, which takes canaries to be independent. (`runs`
has one canary in each of many runs.)

It audits how the plan is carried out; whether a recipe's own sums are bounded is what `replay`
looks at. In one run, parts are cut to a number for each canary: noise acts on each number alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.audit.evidence import Rates, least_epsilon, one_run_bound, rates
from understudy.audit.trace import Unwritten, prepared
from understudy.data.shards import Shards
from understudy.federation.recipe import State, Task
from understudy.federation.site import Site, Update
from understudy.privacy.claim import Claim
from understudy.privacy.clip import Bounded, clip
from understudy.privacy.clipped import Clipped
from understudy.privacy.mechanism import Use
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.rng import Streams

__all__ = ["Canaries", "Probe", "canaries", "evidence", "played", "probed"]

ROUNDS = 12
FAR = 1e4  # times the bound
SURE = 0.5  # of all canaries: those that the one-run audit guesses about
_NO_DRAWS: Any = None  # adding up shares draws nothing


@dataclass(frozen=True)
class Canaries:
    """Lower bounds on ε for one claim: by the trade-off curve, and from right guesses alone.

    ``single`` is at the claim's δ and for the rounds that were tried alone, without assumptions.
    """

    epsilon: float
    single: float
    rates: Rates
    rounds: int

    @property
    def least(self) -> float:
        """The larger of the two."""
        return max(self.epsilon, self.single)


def canaries(plan: PrivacyPlan, claim: Claim, many: int, *, rng: Streams) -> Canaries | None:
    """The ε that a run of this plan has at least; None where shares of noise need all sites."""
    if plan.trust == "distributed" or claim.epsilon is None:
        return None
    replaced, small = claim.relation == "replace one", probed(plan, many)
    present = rng.numpy("present").random(many) < 0.5
    scores = played(small, present, replaced, rng)
    factor = 2.0 if replaced and not small.own.update_epsilon else 1.0
    events = small.promise(factor=factor, amplified=plan.trust == "central")
    found = rates(scores[present], scores[~present])
    delta = claim.delta or plan.delta
    least = least_epsilon(found, events, claim.events, delta)
    return Canaries(least, _guessed(scores, present, claim.delta), found, small.length)


def _guessed(scores: np.ndarray, present: np.ndarray, delta: float) -> float:
    """Guess about the canaries with the most evidence either way."""
    many = int(SURE * len(scores) / 2)
    order = np.argsort(scores)
    right = int(present[order[-many:]].sum() + (~present[order[:many]]).sum())
    return one_run_bound(right, 2 * many, len(scores), delta)


def probed(plan: PrivacyPlan, many: int) -> PrivacyPlan:
    """The plan with a site for each canary or, for smaller units, one; few rounds, short parts."""
    local, sites = plan.trust != "central", many if plan.unit == "site" else 1

    def short(part: Part) -> Part:
        mechanism = part.mechanism
        if not isinstance(mechanism, Clipped):
            return part
        wide = 1 if plan.unit == "site" and local else many
        return replace(part, shape=(mechanism.blocks, wide))

    def phase(one: Phase) -> Phase:
        rounds = min(ROUNDS, one.participations if local else one.rounds)
        terms: dict[str, Any] = {"rate": None if local else one.rate, "size": None, "joins": None}
        return replace(one, parts=tuple(map(short, one.parts)), rounds=rounds, sites=sites, **terms)

    return replace(plan, phases=tuple(map(phase, plan.phases)), unproven="")


@dataclass
class Probe:
    """See the module's paragraph; ``score`` ``[many]`` is the evidence that each is present.

    The first ``ears`` sites are listened to: those with canaries or, of shares of noise, those
    that the adversary does not know.
    """

    plan: PrivacyPlan
    replaced: bool
    score: np.ndarray
    ears: int
    heard: dict[str, list[Tensor]] = field(default_factory=dict)

    def init(self, *, rng: Streams) -> State:
        """A count of rounds."""
        return {"round": torch.zeros(1)}

    def memory(self, site: str) -> State:
        """Nothing is kept."""
        return {}

    def task(self, state: State, round: int) -> Task:
        """Nothing is asked."""
        self.heard.clear()
        return Task()

    def local(self, task: Task, site: Site) -> tuple[Update, State]:
        """The canaries in every part."""
        return {part.name: self._part(part, site) for part in site.phase.parts}, {}

    def _part(self, part: Part, site: Site) -> Tensor | Bounded:
        mechanism = part.mechanism
        if part.where == "step" or mechanism.rate:
            return self._batches(part, site)
        if site.plan.unit != "site":
            return site.sum(part.name, lambda x, y: _directions(x, part)[:, : part.shape[-1]])
        x = torch.stack([_first(site, c) for c in range(len(site))])
        if isinstance(mechanism, Selection):
            return x[:, :1] * torch.linspace(-1, 1, mechanism.size)
        if isinstance(mechanism, Response):
            return x[:, 0] > 0
        return _directions(x, part).reshape(len(site), *part.shape)

    def _batches(self, part: Part, site: Site) -> Tensor | Bounded:
        """Every step's secret batch, each record clipped; what is noised here is heard here."""
        bound = part.mechanism.bound  # type: ignore[attr-defined]
        for _ in range(part.mechanism.steps if part.where == "step" else 1):
            member, row = site.sample(part.name).unbind(1)
            each = clip(_directions(site.data.x[row], part).double(), bound).value
            total = torch.zeros(len(site), each.shape[1], dtype=torch.float64)
            total.index_add_(0, member, each)
            bounded = Bounded(total.reshape(len(site), *part.shape), bound, "record")
            if part.where != "step":
                return bounded
            seen = site.step(part.name, bounded)
            if site.ids[0] == 0:
                self.heard.setdefault(part.name, []).append(seen[0])
        return seen

    def step(self, state: State, total: State, *, rng: Streams) -> State:
        """Add up the evidence of what the adversary saw in this round."""
        phase = self.plan.at(int(state["round"][0]))
        seen = [p for p in phase.parts if p.where == "server" or p.name in self.heard]
        joint = [self._power(p, phase, total[p.name]) for p in seen if p.joint]
        if joint:
            self.score = self.score + evidence(sum(joint), phase.rate)
        for part in seen:
            if not part.joint:
                self.score = self.score + self._apart(part, phase, total[part.name])
        return {"round": state["round"] + 1}

    def _apart(self, part: Part, phase: Phase, total: Tensor) -> np.ndarray:
        """Choices, or batches with coins of their own."""
        mechanism = part.mechanism
        if isinstance(mechanism, Selection):
            sent = torch.cat(self.heard[part.name]).double()
            lean = torch.linspace(-1, 1, mechanism.size).double()[sent[:, 1:].long()]
            return (sent[:, 0] * lean.sum(1)).numpy()
        if isinstance(mechanism, Response):
            return torch.cat(self.heard[part.name]).double().flatten().numpy() - 0.5
        seen = self.heard[part.name] if part.where == "step" else [total]
        powers = (self._power(part, phase, one) for one in seen)
        return np.sum([evidence(power, mechanism.rate) for power in powers], axis=0)

    def _power(self, part: Part, phase: Phase, total: Tensor) -> np.ndarray:
        """μx − μ²/2 along each canary, in promised deviations; 2μx where signs differ."""
        mechanism: Any = part.mechanism
        mu = 1 / mechanism.noise
        along = self._along(part, phase, total).sum(0).numpy()
        x = along / mechanism.blocks**0.5 * mu / mechanism.bound
        return 2 * mu * x if self.replaced else mu * x - mu * mu / 2

    def near(self, clients: np.ndarray, part: Part) -> np.ndarray:
        """Which of a round's sites are listened to: of shares, as many as ever, or none at all.

        A schedule calls others each round; without the canary's share a sum says nothing of it.
        """
        if part.where != "distributed":
            return clients < self.ears
        return (clients.min(initial=1) == 0) & np.isin(clients, np.sort(clients)[: self.ears])

    def _along(self, part: Part, phase: Phase, total: Tensor) -> Tensor:
        """What was seen in each canary's direction ``[blocks, many]``."""
        mechanism: Any = part.mechanism
        if part.where == "client":
            sent = torch.cat(self.heard[part.name]).double()
            each = sent.reshape(len(sent), mechanism.blocks, -1)
            if self.plan.unit == "site":
                return each[:, :, 0].T
            total = each[0]
        elif part.where == "distributed":  # no other shares hide anything
            shares = torch.cat(self.heard[part.name]).sum(0)
            total, _ = mechanism.complete(shares, Use(part, self.plan.unit, 0, _NO_DRAWS))
        elif part.where == "server" and part.combine == "mean":
            total = total * phase.cohort
        return total.double().reshape(mechanism.blocks, -1)[:, : len(self.score)]

    def finish(self, state: State, *, rng: Streams) -> None:
        """Nothing is released."""


def _first(site: Site, client: int) -> Tensor:
    """Sign and number of a site's canary; zeros where it has no rows."""
    rows = site.data.rows(client)[0]
    return rows[0] if len(rows) else torch.zeros(2)


def _directions(x: Tensor, part: Part) -> Tensor:
    """Each canary's own direction, flat ``[n, numbers]``: the same number of every block."""
    mechanism: Any = part.mechanism
    size = int(np.prod(part.shape))
    wide = size // mechanism.blocks
    found = torch.zeros(len(x), mechanism.blocks, wide)
    place = (x[:, 1].long() % wide).reshape(-1, 1, 1).expand(-1, mechanism.blocks, 1)
    far = (FAR * mechanism.bound * x[:, :1]).reshape(-1, 1, 1).expand_as(place)
    return found.scatter_(2, place, far).reshape(len(x), size)


def evidence(power: Any, rate: float | None) -> np.ndarray:
    """The logarithm of the likelihood ratio where a canary is in a sample of this rate."""
    if rate is None or rate >= 1:
        return np.asarray(power)
    return np.asarray(np.logaddexp(np.log1p(-rate), np.log(rate) + power))


def played(
    plan: PrivacyPlan, present: np.ndarray, replaced: bool, rng: Streams, ears: int | None = None
) -> np.ndarray:
    """Evidence about every canary from one run of the engine."""
    probe = Probe(plan, replaced, np.zeros(len(present)), ears or len(present))
    data = _data(plan, np.where(present, 1.0, -1.0 if replaced else 0.0))
    made, sites = prepared(probe, Unwritten(), data, rng, len(data))  # type: ignore[arg-type]
    answer = sites.answer

    def listening(task: Task, round: int, clients: np.ndarray, memory: State | None = None) -> Any:
        sealed, kept = answer(task, round, clients, memory)
        for part in plan.at(round).parts:
            near = torch.from_numpy(probe.near(clients, part))
            if part.where in ("client", "distributed") and bool(near.any()):
                probe.heard.setdefault(part.name, []).append(sealed.parts[part.name][near])
        return sealed, kept

    sites.answer = listening  # type: ignore[method-assign]
    made.train()
    return probe.score


def _data(plan: PrivacyPlan, signs: np.ndarray) -> Shards:
    """A site for each canary, or all of them at the first; an absent canary has no rows."""
    each = max(_rows(part) for phase in plan.phases for part in phase.parts)
    here = np.flatnonzero(signs) if plan.unit != "site" else np.arange(len(signs))
    rows = np.repeat(here, each if plan.unit == "person" else 1)
    x = torch.from_numpy(np.column_stack([signs[rows], rows]).astype(np.float32))
    starts, counts = torch.zeros(2, plan.sites, dtype=torch.long)
    counts[0] = len(rows)
    if plan.unit == "site":
        starts[: len(rows)] = torch.arange(len(rows))
        counts[: len(rows)] = torch.from_numpy((signs != 0).astype(np.int64))
    return Shards(x, torch.zeros(len(rows)).long(), starts, counts)


def _rows(part: Part) -> int:
    return part.mechanism.rows if isinstance(part.mechanism, Clipped) else 1
