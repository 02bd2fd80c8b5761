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
from typing import Any, Literal, get_args

from understudy.errors import BudgetError, PrivacyError
from understudy.privacy.account import Event, cost, solve_noise
from understudy.privacy.clip import Receipt, Slot, Unit

__all__ = ["Part", "PrivacyPlan", "Trust", "default_delta", "solve"]

Trust = Literal["central", "local", "distributed", "none"]


def default_delta(units: int) -> float:
    """min(1e-5, N^−1.1): well below one expected failure among N units."""
    return min(1e-5, max(units, 2) ** -1.1)


@dataclass(frozen=True)
class Part:
    """One named part of an update: its shape at one site, its slot, bound and noise.

    ``bound`` is the L2 norm of one unit's contribution, ``noise`` the multiplier z, so that
    the noise has standard deviation z·bound on the sum. ``blocks`` > 1 clips that many
    blocks of the first axis to bound/√blocks each; ``rows`` is how many rows one unit may add
    to a sum. ``combine``: the server forms the mean over the planned cohort, or the sum.
    ``rate`` is that of batches of records, each drawn by its own secret coin flip at its site
    (None: all records); ``steps`` are the noisy steps per round of the step slot.
    """

    name: str
    shape: tuple[int, ...]
    slot: Slot
    bound: float
    noise: float
    blocks: int = 1
    rows: int = 1
    combine: Literal["mean", "sum"] = "mean"
    steps: int = 1
    rate: float | None = None


@dataclass(frozen=True)
class PrivacyPlan:
    """Slots, sampling and length of one run; see the module's paragraph.

    ``rate`` is the chance with which each site joins each round, by secret coin flips
    (None: everyone, every round). ``joins`` is the most rounds one site may join.
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

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_phases(self)
        _check_delta(self.delta, self.units)
        _check_names(self)
        for part in self.parts:
            _check_part(part, self)

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
        return self.sites * (1.0 if self.rate is None else self.rate)

    @property
    def participations(self) -> int:
        """The most rounds that any one site's data can take part in."""
        return min(self.rounds, self.joins or self.rounds)

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
                round, p.name, p.slot, "gaussian", self.unit, p.bound, p.noise * p.bound, source
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
        whole = tuple(p.noise / factor for p in self.parts if p.slot != "step" and not p.rate)
        events = [Event(whole, self.rate if amplified else None, rounds)] if whole else []
        for p in self.parts:  # a batch is its site's secret, so every adversary is in the dark
            if p.slot == "step" or p.rate:
                events.append(Event((p.noise / factor,), p.rate, self.participations * p.steps))
        return (*earlier, *events)

    def admits(self, receipts: Iterable[Receipt]) -> None:
        """Refuse receipts that exceed the promise: too many, too little noise, another part."""
        seen: dict[tuple[str, int], int] = {}
        for receipt in receipts:
            phase = self.at(_whole(receipt.round))
            part = phase.part(receipt.part)
            _check_receipt(receipt, part, phase)
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
            "parts": [{**p.__dict__, "shape": list(p.shape)} for p in self.parts],
            "before": self.before.to_dict() if self.before else None,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyPlan:
        """Inverse of `to_dict`; unknown or missing fields are refused."""
        parts = tuple(Part(**{**p, "shape": tuple(p["shape"])}) for p in data["parts"])
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


def _check_counts(plan: PrivacyPlan) -> None:
    for name in ("rounds", "sites", "units"):
        if getattr(plan, name) < 1:
            raise PrivacyError(f"{name} of at least 1", f"{getattr(plan, name)}", f"set {name}")
    if plan.joins is not None and plan.joins < 1:
        raise PrivacyError(
            "cohort.joins of at least 1", f"{plan.joins}", "raise it or leave it out"
        )
    if plan.rate is not None and not 0 < plan.rate <= 1:
        raise PrivacyError("a cohort rate in (0, 1]", f"{plan.rate}", "set cohort.rate, e.g. 0.1")
    if plan.rate is not None and plan.trust == "central" and plan.unit != "site":
        raise PrivacyError(
            f"every site in every round where one {plan.unit} is protected",
            "a cohort rate",
            "leave cohort.rate out: all rows of a site share its coin, so it hides no single row",
        )
    if plan.trust not in get_args(Trust) or plan.unit not in get_args(Unit):
        raise PrivacyError("a known unit and trust", f"{plan.unit}, {plan.trust}", "see `recipes`")


def _check_phases(plan: PrivacyPlan) -> None:
    """Phases protect the same thing in the same way; only rounds, parts and cohorts differ."""
    if plan.before is None:
        return
    same = ("unit", "trust", "sites", "units", "delta")
    if any(getattr(plan, name) != getattr(plan.before, name) for name in same):
        raise PrivacyError(
            "phases with one unit, trust, δ and number of sites", "others", "fix the recipe's plan"
        )


def _check_delta(delta: float, units: int) -> None:
    if not 0 < delta < 1 / units:
        raise PrivacyError(
            f"δ above 0 and below 1/N = {1 / units:.3g} (N={units} units)",
            f"{delta}",
            "leave privacy.delta out to use min(1e-5, N^-1.1), or set a smaller one",
        )


def _check_names(plan: PrivacyPlan) -> None:
    names = [part.name for part in plan.parts]
    if len(set(names)) < len(names) or (plan.trust != "none" and not names):
        raise PrivacyError("at least one part, each with its own name", f"{names}", "fix the plan")


_SLOTS_OF: dict[Trust, tuple[Slot, ...]] = {
    "central": ("server",),
    "local": ("client", "step"),
    "distributed": ("distributed",),
}


def _check_part(part: Part, plan: PrivacyPlan) -> None:
    trust = plan.trust
    if trust == "none":
        return
    if part.rate is not None and plan.unit != "record":
        raise PrivacyError(
            "batches drawn record by record only where a record is protected",
            f"a batch rate for unit {plan.unit}",
            "leave the part's rate out: the coins of single rows hide no larger unit",
        )
    if part.slot not in _SLOTS_OF[trust]:
        slots_here = " or ".join(_SLOTS_OF[trust])
        raise PrivacyError(f"slot {slots_here} for {trust} trust", part.slot, "fix the plan")
    if not (part.noise > 0 and math.isfinite(part.noise)):
        raise PrivacyError(
            "a positive noise multiplier",
            f"{part.noise}",
            'set privacy.noise > 0, or trust = "none"',
        )
    if not (part.bound > 0 and math.isfinite(part.bound)):
        raise PrivacyError("a positive clip bound", f"{part.bound}", "set privacy.clip")
    if min(part.steps, part.rows, part.blocks) < 1 or not (part.rate is None or 0 < part.rate <= 1):
        raise PrivacyError(
            "steps, rows and blocks of at least 1, and a batch rate in (0, 1]",
            f"{part.steps}, {part.rows}, {part.blocks}, {part.rate}",
            f"correct part {part.name!r}",
        )


def _whole(round: Any) -> int:
    """A round of a receipt; what is none belongs to the last phase, which refuses it."""
    return round if type(round) is int else 2**31


def _check_receipt(receipt: Receipt, part: Part, plan: PrivacyPlan) -> None:
    try:
        enough = receipt.std >= part.noise * receipt.bound * (1 - 1e-9)
        within = type(receipt.round) is int and plan.first <= receipt.round < plan.length
        same = (receipt.slot, receipt.unit, receipt.mechanism) == (part.slot, plan.unit, "gaussian")
        fits = enough and within and same and 0 < receipt.bound <= part.bound
    except TypeError:  # a field that is no number
        fits = False
    if not fits or receipt.source not in ("os", "simulation"):
        raise BudgetError(
            f"a receipt that fits the promise for part {part.name!r}",
            "less noise, another slot or unit, or a round beyond the plan",
            "do not release this run; the plan and the mechanism disagree",
        )


def slots(parts: Sequence[Part]) -> frozenset[Slot]:
    """The slots in use."""
    return frozenset(part.slot for part in parts)
