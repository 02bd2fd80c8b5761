"""The privacy plan: what a run promises before it starts.

One object owns bounds, noise, sampling and the events that follow from them, so that they cannot
disagree. Each part of an update names where it is protected (at a training step, at the site, at
the server, or in shares) and by which mechanism: moving a study from central to local trust
changes the plan, not the recipe. The promise is an upper bound for every protected unit;
receipts must fit it or there is no release. A run is one phase or several (a warm start, then
training), all under one claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from understudy.errors import BudgetError, PrivacyError
from understudy.privacy.account import Event, cost, round_up, solve_noise
from understudy.privacy.checks import check_plan, check_receipt
from understudy.privacy.clip import Receipt
from understudy.privacy.gaussian import Gaussian, Plain
from understudy.privacy.integer import IntegerGaussian
from understudy.privacy.mechanism import Mechanism
from understudy.privacy.products import Products
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.privacy.terms import Held, Kind, Slot, Trust, Unit

__all__ = ["Part", "Phase", "PrivacyPlan", "default_delta", "solve"]

_KINDS = (Gaussian, IntegerGaussian, Products, Selection, Response, Plain)
_MECHANISMS: dict[str, Any] = {kind.name: kind for kind in _KINDS}


def default_delta(units: int) -> float:
    """min(1e-5, N^−1.1): well below one expected failure among N units."""
    return min(1e-5, max(units, 2) ** -1.1)


@dataclass(frozen=True)
class Part:
    """One named part of an update: its shape at one site, and how it is protected where.

    ``combine``: the server forms the mean over the planned cohort, or the sum. ``party``: where
    sites hold columns, the one party that sends it (None: all of them).
    """

    name: str
    shape: tuple[int, ...]
    combine: Literal["mean", "sum"]
    where: Slot
    mechanism: Mechanism
    party: int | None = None

    @property
    def bytes(self) -> int:
        """What one site sends of this part, in bytes, at most."""
        return self.mechanism.bytes(self)

    @property
    def joint(self) -> bool:
        """Whether its noise acts on the cohort's sample, as that of other such parts does."""
        mechanism = self.mechanism
        return self.where != "step" and mechanism.epsilon is None and not mechanism.rate

    def to_dict(self) -> dict[str, Any]:
        mechanism = {"name": self.mechanism.name, **self.mechanism.to_dict()}
        found = {**self.__dict__, "shape": list(self.shape), "mechanism": mechanism}
        return found if self.party is not None else {k: found[k] for k in found if k != "party"}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Part:
        """Inverse of `to_dict`; unknown or missing fields are refused."""
        terms = dict(data["mechanism"])
        mechanism = _MECHANISMS[terms.pop("name")](**terms)
        return cls(**{**data, "shape": tuple(data["shape"]), "mechanism": mechanism})


@dataclass(frozen=True)
class Phase:
    """Rounds in which the same parts are sent.

    ``rate`` is the chance with which each site joins each round, by secret coin flips
    (None: everyone, every round). With ``size``, a public schedule calls that many sites a
    round, pass after pass over all; it earns no amplification and serves local trust.
    ``joins`` is the most rounds of the phase that one site may join.
    """

    parts: tuple[Part, ...]
    rounds: int
    sites: int
    rate: float | None = None
    size: int | None = None
    joins: int | None = None

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
    def shares(self) -> tuple[int, int]:
        """(t, c) of noise in shares: sites that must answer to the end, and how many may collude.

        (1, 0) where there are no shares.
        """
        found = [p.mechanism for p in self.parts if isinstance(p.mechanism, IntegerGaussian)]
        return (found[0].survivors, found[0].colluders) if found else (1, 0)

    @property
    def survivors(self) -> int:
        """t: with fewer sites that answer to the end, a round has no sum."""
        return self.shares[0]

    @property
    def colluders(self) -> int:
        """c: how many sites may tell others their shares of the noise."""
        return self.shares[1]

    @property
    def update_epsilon(self) -> float | None:
        """What one update of one site costs, where every mechanism is pure."""
        found = [part.mechanism.epsilon for part in self.parts]
        known = [epsilon for epsilon in found if epsilon is not None]
        return sum(known) if known and len(known) == len(found) else None

    def part(self, name: str) -> Part:
        """The part of that name; an update may hold no other."""
        for part in self.parts:
            if part.name == name:
                return part
        raise PrivacyError(
            f"parts {[p.name for p in self.parts]}", f"{name!r}", "declare it in the recipe's plan"
        )

    def sent_by(self, party: int) -> tuple[Part, ...]:
        """The parts that a party sends: its own and those of all."""
        return tuple(part for part in self.parts if part.party in (None, party))

    def promise(
        self, *, factor: float, amplified: bool, together: bool = False
    ) -> tuple[Event, ...]:
        """The events of this phase; noise on one sample is one event.

        ``together``: all parts are about one sample, since a record is at every party.
        """
        found = [
            (part, part.mechanism.event(part, self, factor=factor, amplified=amplified))
            for part in self.parts
        ]
        joint = [event for part, event in found if part.joint or together]
        noise = tuple(z for event in joint for z in event.noise)
        gap = sum(event.gap for event in joint)
        merged = (replace(joint[0], noise=noise, gap=gap),) if joint else ()
        return (*merged, *(event for part, event in found if not (part.joint or together)))

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Phase:
        return cls(**{**data, "parts": tuple(Part.from_dict(part) for part in data["parts"])})


@dataclass(frozen=True)
class PrivacyPlan:
    """Phases, and what they protect; see the module's paragraph.

    ``units`` is the declared, public number of protected units. ``unproven`` says which claim a
    reader might expect and why it is not made; ``notes`` are caveats that the recipe adds to
    the claims. Rounds are counted over the whole run. ``held``: sites hold rows, or columns of all
    rows: then a record is at every site, and what they do in a phase is one event for it.
    """

    unit: Unit
    trust: Trust
    phases: tuple[Phase, ...]
    units: int
    delta: float
    unproven: str = ""
    notes: tuple[str, ...] = ()
    held: Held = "rows"

    def __post_init__(self) -> None:
        check_plan(self)

    @property
    def own(self) -> Phase:
        """The last phase: that of the recipe for which the plan was built."""
        return self.phases[-1]

    @property
    def sites(self) -> int:
        return self.own.sites

    @property
    def first(self) -> int:
        """The round of the run in which the last phase begins."""
        return self.length - self.own.rounds

    @property
    def length(self) -> int:
        """Rounds of the whole run."""
        return sum(phase.rounds for phase in self.phases)

    @property
    def participations(self) -> int:
        """The most rounds of the run that any one site's data can take part in."""
        return sum(phase.participations for phase in self.phases)

    @property
    def private(self) -> bool:
        """Whether anything is promised."""
        return all(part.mechanism.promises for phase in self.phases for part in phase.parts)

    @property
    def kind(self) -> Kind:
        """What leaves a site: the kind of its sealed updates."""
        if not self.private:
            return "not private"
        if "distributed" in self.slots:
            return "masked"
        return "entrusted" if "server" in self.slots else "noised"

    @property
    def slots(self) -> frozenset[Slot]:
        """Where parts are protected."""
        return frozenset(part.where for phase in self.phases for part in phase.parts)

    def phase(self, round: int) -> int:
        """Which phase a round of the run belongs to, from 0."""
        ends = accumulate(phase.rounds for phase in self.phases)
        return next((i for i, end in enumerate(ends) if round < end), len(self.phases) - 1)

    def at(self, round: int) -> Phase:
        """The phase that a round of the run belongs to."""
        return self.phases[self.phase(round)]

    def start(self, phase: int) -> int:
        """The round in which a phase begins."""
        return sum(earlier.rounds for earlier in self.phases[:phase])

    def prefix(self, rounds: int) -> PrivacyPlan:
        """The plan of the first so many rounds of the run (at least one)."""
        last = self.phase(rounds - 1)
        cut = replace(self.phases[last], rounds=rounds - self.start(last))
        return replace(self, phases=(*self.phases[:last], cut))

    def with_noise(self, noise: float) -> PrivacyPlan:
        """The same plan with every part of its last phase at multiplier z."""
        parts = (replace(p, mechanism=p.mechanism.with_noise(noise)) for p in self.own.parts)
        return self.with_own(parts=tuple(parts))

    def with_own(self, **changes: Any) -> PrivacyPlan:
        """The same plan with changes to its last phase."""
        return replace(self, phases=(*self.phases[:-1], replace(self.own, **changes)))

    def against(self, colluders: int) -> PrivacyPlan:
        """The plan as seen by an adversary who knows so many shares of the noise."""

        def seen(part: Part) -> Part:
            mechanism = part.mechanism
            assert isinstance(mechanism, IntegerGaussian)
            return replace(part, mechanism=mechanism.against(colluders))

        phases = (replace(p, parts=tuple(map(seen, p.parts))) for p in self.phases)
        return replace(self, phases=tuple(phases))

    def receipts(self, round: int, source: str) -> tuple[Receipt, ...]:
        """What is charged for one round, before any noise is drawn."""
        found = (
            part.mechanism.receipt(part, self.unit, round, source)
            for part in self.at(round).parts
            for _ in range(part.mechanism.steps)
        )
        return tuple(receipt for receipt in found if receipt is not None)

    def promise(self, *, factor: float = 1.0, amplified: bool = True) -> tuple[Event, ...]:
        """The events one unit can be exposed to, as seen by one adversary.

        ``factor`` multiplies the sensitivity (2 for replace-one on a clipped value).
        ``amplified`` is True only for an adversary who does not know who was sampled.
        """
        return tuple(
            event
            for phase in self.phases
            for event in phase.promise(
                factor=factor, amplified=amplified, together=self.held == "columns"
            )
        )

    def of(self, parties: Iterable[int]) -> PrivacyPlan:
        """The plan as far as these parties carry it out: what is to be seen of their columns."""
        kept = {None, *parties}
        phases = (
            replace(p, parts=tuple(part for part in p.parts if part.party in kept))
            for p in self.phases
        )
        return replace(self, phases=tuple(phases))

    def least(self, round: int) -> int:
        """How many sites must answer for a round to count: of parties, all."""
        return self.sites if self.held == "columns" else self.at(round).survivors

    def admits(self, receipts: Iterable[Receipt]) -> None:
        """Refuse receipts that exceed the promise: too many, too little noise, another part."""
        seen: dict[tuple[str, int], int] = {}
        for receipt in receipts:
            part = check_receipt(receipt, self)
            key = (receipt.part, receipt.round)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > part.mechanism.steps:
                raise BudgetError(
                    f"at most {part.mechanism.steps} charge(s) of {part.name!r} per round",
                    "more in the ledger",
                    "do not release this run; a part was noised more often than promised",
                )

    def settles(self, receipts: Sequence[Receipt]) -> None:
        """Refuse a finished run whose charges are not the whole promise.

        Empty and void rounds are charged too, so a missing charge means noise that was
        drawn without one, or a ledger that was cut.
        """
        self.admits(receipts)
        starts = (self.start(i) for i in range(len(self.phases)))
        each = [len(self.receipts(start, "os")) for start in starts]
        expected = sum(n * phase.rounds for n, phase in zip(each, self.phases, strict=True))
        if len(receipts) != expected:
            raise BudgetError(
                f"{expected} charge(s) in {self.length} round(s)",
                f"{len(receipts)}",
                "do not release this run; its ledger does not cover it",
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, kept in the release so that anyone can recompute the claim."""
        phases = [phase.to_dict() for phase in self.phases]
        found = {**self.__dict__, "phases": phases, "notes": list(self.notes)}
        return found if self.held == "columns" else {k: found[k] for k in found if k != "held"}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyPlan:
        """Inverse of `to_dict`; unknown or missing fields are refused."""
        phases = tuple(Phase.from_dict(phase) for phase in data["phases"])
        return cls(**{**data, "phases": phases, "notes": tuple(data["notes"])})


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
        raise PrivacyError(f"ε ≤ {epsilon:g}", round_up(found, 6), "ask for a slightly larger ε")
    return solved


def claim_terms(plan: PrivacyPlan) -> tuple[float, bool]:
    """(sensitivity factor, amplification) of the headline claim.

    Local trust protects a site against the server, which knows who replied and what an
    empty reply looks like: replace-one, doubled sensitivity, no amplification. A record in
    a sum that its site noises itself is added or removed: single sensitivity. Distributed trust
    has the relation of central trust, so that the two compare: a site's rows or none.
    """
    if plan.trust == "local":
        return (2.0 if plan.unit == "site" else 1.0), False
    if plan.trust == "distributed":
        return 1.0, False
    return 1.0, True
