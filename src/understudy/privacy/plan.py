"""The privacy plan: what a run promises before it starts.

One object owns clip bounds, noise, sampling and the events that follow from them, so
that they cannot disagree. It fills the four slots (step, client, server, distributed):
moving a study from central to local trust changes the plan, not the recipe. The promise
is an upper bound for every protected unit; receipts must fit it or there is no release.
A run of two phases (a warm start, then training) is a plan with another one ``before`` it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from understudy.errors import BudgetError, PrivacyError
from understudy.privacy.account import Event, cost, solve_noise
from understudy.privacy.checks import check_plan, check_receipt, whole_round
from understudy.privacy.clip import Receipt, Slot, Unit
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.privacy.terms import Trust

__all__ = ["NO_BOUND", "Part", "PrivacyPlan", "Rule", "Trust", "default_delta", "solve"]

NO_BOUND = 1e9  # of updates that are sent as they are, without privacy
Rule = Selection | Response
_RULES: dict[str, type[Selection] | type[Response]] = {"select": Selection, "respond": Response}


def default_delta(units: int) -> float:
    """min(1e-5, N^−1.1): well below one expected failure among N units."""
    return min(1e-5, max(units, 2) ** -1.1)


@dataclass(frozen=True)
class Part:
    """One named part of an update: its shape at one site, its slot, and its mechanism.

    ``bound`` is the L2 norm of one unit's contribution, ``noise`` the multiplier z, so that
    the noise has standard deviation z·bound on the sum. ``blocks`` > 1 clips that many
    blocks of the first axis to bound/√blocks each; ``rows`` is how many rows one unit may add
    to a sum. ``combine``: the server forms the mean over the planned cohort, or the sum.
    ``rate`` is that of batches of records, each drawn by its own secret coin flip at its site
    (None: all records); ``steps`` are the noisy steps per round of the step slot. With a
    ``rule`` the part is not noised: its site sends coordinates or an answer under pure ε.
    """

    name: str
    shape: tuple[int, ...]
    slot: Slot
    bound: float = 0.0
    noise: float = 0.0
    blocks: int = 1
    rows: int = 1
    combine: Literal["mean", "sum"] = "mean"
    steps: int = 1
    rate: float | None = None
    rule: Rule | None = None

    @property
    def mechanism(self) -> str:
        """What the receipts of this part are called."""
        return next((n for n, kind in _RULES.items() if isinstance(self.rule, kind)), "gaussian")

    @property
    def bytes(self) -> int:
        """What one site sends of this part, in bytes."""
        return self.rule.bytes if self.rule else 4 * math.prod(self.shape)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        rule = {"mechanism": self.mechanism, **self.rule.__dict__} if self.rule else None
        return {**self.__dict__, "shape": list(self.shape), "rule": rule}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Part:
        """Inverse of `to_dict`."""
        rule = data.get("rule")
        if rule is not None:
            rule = _RULES[rule["mechanism"]](**{k: v for k, v in rule.items() if k != "mechanism"})
        return cls(**{**data, "shape": tuple(data["shape"]), "rule": rule})


@dataclass(frozen=True)
class PrivacyPlan:
    """Slots, sampling and length of one run; see the module's paragraph.

    ``rate`` is the chance with which each site joins each round, by secret coin flips
    (None: everyone, every round). With ``size``, a public schedule calls that many sites a
    round, pass after pass over all; it earns no amplification and serves local trust.
    ``joins`` is the most rounds one site may join.
    ``units`` is the declared, public number of protected units. ``rounds``, ``parts``, ``rate``
    and ``joins`` are this phase's own; `at` finds the phase of a round, counted over the run.
    ``unproven`` says which claim a reader might expect and why it is not made; ``notes`` are
    caveats that the recipe adds to the claims.
    """

    unit: Unit
    trust: Trust
    parts: tuple[Part, ...]
    rounds: int
    sites: int
    units: int
    delta: float
    rate: float | None = None
    joins: int | None = None
    before: PrivacyPlan | None = None
    unproven: str = ""
    notes: tuple[str, ...] = ()
    size: int | None = None

    def __post_init__(self) -> None:
        check_plan(self)

    @property
    def phases(self) -> tuple[PrivacyPlan, ...]:
        """Every phase of the run, in order; the last is this plan."""
        return (*(self.before.phases if self.before else ()), self)

    @property
    def first(self) -> int:
        """The round of the run in which this phase begins."""
        return self.before.length if self.before else 0

    @property
    def length(self) -> int:
        """Rounds of the whole run."""
        return self.first + self.rounds

    def at(self, round: int) -> PrivacyPlan:
        """The phase that a round of the run belongs to: its parts, rate and cohort count."""
        return self.before.at(round) if self.before and round < self.first else self

    def phase(self, round: int) -> int:
        """Which phase that is, from 0."""
        return self.phases.index(self.at(round))

    def prefix(self, rounds: int) -> PrivacyPlan:
        """The plan of the first so many rounds of the run (at least one)."""
        if self.before and rounds <= self.first:
            return self.before.prefix(rounds)
        return replace(self, rounds=rounds - self.first)

    @property
    def cohort(self) -> float:
        """The planned cohort qN, the public divisor of noised sums."""
        return self.size or self.sites * (1.0 if self.rate is None else self.rate)

    @property
    def calls(self) -> int:
        """The most rounds that any one site is called to."""
        return -(-self.rounds * self.size // self.sites) if self.size else self.rounds

    @property
    def participations(self) -> int:
        """The most rounds that any one site's data can take part in."""
        return min(self.calls, self.joins or self.calls)

    @property
    def update_epsilon(self) -> float | None:
        """What one update of one site costs, where every mechanism of this phase is pure."""
        rules = [part.rule for part in self.parts]
        return math.fsum(rule.epsilon for rule in rules if rule) if all(rules) else None

    def part(self, name: str) -> Part:
        """The part of that name; an update may hold no other."""
        for part in self.parts:
            if part.name == name:
                return part
        raise PrivacyError(
            f"parts {[p.name for p in self.parts]}", f"{name!r}", "declare it in the recipe's plan"
        )

    def with_noise(self, noise: float) -> PrivacyPlan:
        """The same plan with every part of this phase at multiplier z."""
        return replace(self, parts=tuple(replace(p, noise=noise) for p in self.parts))

    def receipts(self, round: int, source: str) -> tuple[Receipt, ...]:
        """What is charged for one round, before any noise is drawn."""
        return tuple(
            Receipt(
                round,
                p.name,
                p.slot,
                p.mechanism,
                self.unit,
                p.bound,
                p.noise * p.bound,
                source,
                p.rule.epsilon if p.rule else 0.0,
            )
            for p in self.at(round).parts
            for _ in range(p.steps)
        )

    def promise(self, *, factor: float = 1.0, amplified: bool = True) -> tuple[Event, ...]:
        """The events one unit can be exposed to, as seen by one adversary.

        ``factor`` multiplies the sensitivity (2 for replace-one on a clipped value).
        ``amplified`` is True only for an adversary who does not know who was sampled.
        """
        earlier = self.before.promise(factor=factor, amplified=amplified) if self.before else ()
        rounds = self.rounds if amplified and self.rate else self.participations
        noised = [p for p in self.parts if not p.rule]
        whole = tuple(p.noise / factor for p in noised if p.slot != "step" and not p.rate)
        events = [Event(whole, self.rate if amplified else None, rounds)] if whole else []
        for p in self.parts:  # a pure mechanism protects any two updates alike: no factor
            if p.rule:
                events.append(Event((), None, self.participations, p.rule.epsilon))
        for p in noised:  # a batch is its site's secret, so every adversary is in the dark
            if p.slot == "step" or p.rate:
                events.append(Event((p.noise / factor,), p.rate, self.participations * p.steps))
        return (*earlier, *events)

    def admits(self, receipts: Iterable[Receipt]) -> None:
        """Refuse receipts that exceed the promise: too many, too little noise, another part."""
        seen: dict[tuple[str, int], int] = {}
        for receipt in receipts:
            phase = self.at(whole_round(receipt.round))
            part = phase.part(receipt.part)
            check_receipt(receipt, part, phase)
            key = (receipt.part, receipt.round)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > part.steps:
                raise BudgetError(
                    f"at most {part.steps} charge(s) of {part.name!r} per round",
                    "more in the ledger",
                    "do not release this run; a part was noised more often than promised",
                )

    def settles(self, receipts: Sequence[Receipt]) -> None:
        """Refuse a finished run whose charges are not the whole promise.

        Empty and void rounds are charged too, so a missing charge means noise that was
        drawn without one, or a ledger that was cut.
        """
        self.admits(receipts)
        charges = sum(phase.rounds * sum(p.steps for p in phase.parts) for phase in self.phases)
        expected = charges if self.trust != "none" else 0
        if len(receipts) != expected:
            raise BudgetError(
                f"{expected} charge(s) in {self.length} round(s)",
                f"{len(receipts)}",
                "do not release this run; its ledger does not cover it",
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, kept in the release so that anyone can recompute the claim."""
        return {
            **self.__dict__,
            "parts": [part.to_dict() for part in self.parts],
            "before": self.before.to_dict() if self.before else None,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyPlan:
        """Inverse of `to_dict`; unknown or missing fields are refused."""
        parts = tuple(Part.from_dict(part) for part in data["parts"])
        before = cls.from_dict(data["before"]) if data["before"] else None
        return cls(**{**data, "parts": parts, "before": before, "notes": tuple(data["notes"])})


def solve(plan: PrivacyPlan, epsilon: float) -> PrivacyPlan:
    """The plan with the least noise in its last phase whose headline claim costs at most ε."""
    factor, amplified = claim_terms(plan)
    noise = solve_noise(
        lambda z: plan.with_noise(z).promise(factor=factor, amplified=amplified),
        epsilon,
        plan.delta,
    )
    solved = plan.with_noise(noise)
    found = cost(solved.promise(factor=factor, amplified=amplified), plan.delta).epsilon
    if found > epsilon * (1 + 1e-6):
        raise PrivacyError(f"ε ≤ {epsilon:g}", f"{found:.6g}", "ask for a slightly larger ε")
    return solved


def claim_terms(plan: PrivacyPlan) -> tuple[float, bool]:
    """(sensitivity factor, amplification) of the headline claim.

    Local trust protects a site against the server, which knows who replied and what an
    empty reply looks like: replace-one, doubled sensitivity, no amplification. A record in
    a sum that its site noises itself is added or removed: single sensitivity.
    """
    if plan.trust == "local":
        return (2.0 if plan.unit == "site" else 1.0), False
    return 1.0, True


def allowed_joins(plan: PrivacyPlan, epsilon: float) -> int:
    """How many rounds a site with its own cap ε may join at the plan's noise (0: none)."""
    factor, _ = claim_terms(plan)

    def fits(joins: int) -> bool:
        events = replace(plan, joins=joins).promise(factor=factor, amplified=False)
        return cost(events, plan.delta).epsilon <= epsilon

    low, high = 0, plan.participations
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def slots(parts: Sequence[Part]) -> frozenset[Slot]:
    """The slots in use."""
    return frozenset(part.slot for part in parts)
