"""The claim: what is protected, against whom, and at what price.

A claim is computed from the plan's promise, one per adversary, never from what happened
to be sampled. An adversary to whom nothing is promised gets a claim too, with ε = ∞, so
that silence cannot be mistaken for protection.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from understudy.errors import PrivacyError
from understudy.privacy.account import Event, cost, rdp_epsilon, round_up
from understudy.privacy.columns import (
    DOUBLE,
    OTHERS,
    SINGLE,
    column_caveats,
    column_claims,
    known_batches,
)
from understudy.privacy.gaussian import Gaussian
from understudy.privacy.integer import IntegerGaussian, default_shares
from understudy.privacy.plan import Phase, PrivacyPlan, claim_terms, default_delta

__all__ = ["Claim", "claims", "headline", "projection", "round_up", "spent_so_far"]

EXCLUDED = (
    "the schema: columns, bounds, categories, classes, their declared balance and sizes are public",
    "that a site's rows were accepted or refused when they were read",
    "choices made while tuning this study on the same data",
    "scores computed against real rows (kept out of the release, internal)",
)
EMPTY_SITE = "its rows or none"
SPARSE = 100  # sites of a round above which masks are not shared by all pairs of sites
UNMASKED = ", no masks"
_ONE = "all sites ran on one machine: whoever ran it held all rows"
_WORKERS = (
    "the sites were simulated in several processes, each with the rows of many: nothing is claimed "
    "of who ran one of them, or listened between them"
)
_BARE_SUMS = (
    "; shares were added up without masks: what is claimed of a server or other sites holds for a "
    "run with masks"
)
RAN = {
    "": "",  # a plan that was not run
    "one process": _ONE,
    "one process" + UNMASKED: _ONE + _BARE_SUMS,
    "workers": _WORKERS,
    "workers" + UNMASKED: _WORKERS + _BARE_SUMS,
    "network": "each site ran in a process of its own and sent what the plan lists, over an "
    "encrypted network; that each ran this code is taken on trust",
    "open network": "each site ran in a process of its own and sent what the plan lists, over a "
    "network without encryption: whoever listened saw what the server saw; that each ran this code "
    "is taken on trust",
}
_SHARED = (
    "no server is trusted: each site adds a share of the noise, and only sums under masks are seen"
)
_BARE = (
    "no server is trusted: each site adds a share of the noise; this simulation used no masks, "
    "which let only sums be seen"
)
_FLOAT = "noise is floating-point Gaussian: attacks on low-order bits are not covered"
_SIMULATION = "simulation: the noise can be repeated by whoever knows the seed; not for real data"


@dataclass(frozen=True)
class Claim:
    """One statement: (ε, δ) for a unit and relation against an adversary.

    ``epsilon`` is the headline by PLD, ``epsilon_rdp`` the check; both are None where
    nothing is promised to this adversary.
    """

    adversary: str
    unit: str
    relation: str
    trust: str
    sampling: str
    events: tuple[Event, ...]
    delta: float
    epsilon: float | None
    epsilon_rdp: float | None
    noise_source: str
    excluded: tuple[str, ...]
    caveats: tuple[str, ...]

    @property
    def private(self) -> bool:
        """Whether anything is promised to this adversary."""
        return self.epsilon is not None

    @property
    def words(self) -> str:
        """The claim as one sentence."""
        if not self.private:
            return f"Against {self.adversary}: no protection is claimed. {self.trust.capitalize()}."
        verdict = (
            " With an ε this large the guarantee is nominal." if (self.epsilon or 0) > 20 else ""
        )
        return (
            f"Against {self.adversary}, {self._secret} ({self.relation}) is protected with "
            f"ε = {round_up(self.epsilon or 0)} at δ = {round_up(self.delta, 2)}"
            f"{self._added_up}.{verdict}"
        )

    @property
    def _added_up(self) -> str:
        """What a pure claim adds up: the updates of the most exposed site."""
        if not self.events or any(event.noise for event in self.events):
            return ""
        updates = max(event.count for event in self.events)
        each = round_up((self.epsilon or 0) / updates)
        many = f", over its {updates} updates of ε = {each} each"
        return ", in its one update" if updates == 1 else many

    @property
    def _secret(self) -> str:
        """What is protected, by relation: a server that asks a site knows that it took part."""
        if self.relation == "replace one":
            return f"what any one {self.unit} holds"
        if self.relation == OTHERS:
            return f"what the other parties hold about any one {self.unit}"
        if self.relation == EMPTY_SITE:
            return "whether any one site holds rows at all"
        return f"whether any one {self.unit} took part"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "words": self.words}


def _sampling(plan: PrivacyPlan, amplified: bool, seen: bool = False) -> str:
    """Who takes part when, phase by phase."""
    if plan.held == "columns":
        return "; then ".join(_shared_batches(phase, seen) for phase in plan.phases)
    return "; then ".join(_amplification(phase, amplified) for phase in plan.phases)


def _shared_batches(phase: Phase, seen: bool) -> str:
    """Parties hold columns of the same rows, so a batch is one for all of them."""
    mechanism = phase.parts[0].mechanism
    if not mechanism.rate:
        return f"every party joins every round ({phase.rounds}) with all rows; no amplification"
    known = "the adversary knows the batches" if seen else "only the parties know the batches"
    return (
        f"every step takes each record by a coin flip that all parties share, rate "
        f"{mechanism.rate:g}, over {phase.rounds * mechanism.steps} steps; {known}"
    )


def _amplification(phase: Phase, amplified: bool) -> str:
    rates = {part.mechanism.rate for part in phase.parts if part.mechanism.rate}
    if rates:
        return (
            f"every step takes each record by a secret coin flip, rate {max(rates):g}, over at "
            f"most {phase.participations} round(s) of a site; only its site knows the batches"
        )
    if phase.size is not None:
        return (
            f"a public schedule calls {phase.size} site(s) to each of {phase.rounds} rounds; a "
            f"site makes at most {phase.participations} update(s), and refuses more; "
            "no amplification"
        )
    if phase.rate is None and phase.participations == phase.rounds:
        return f"every site joins every round ({phase.rounds}); no amplification"
    if amplified and phase.rate is not None:
        return (
            f"each site joins each of {phase.rounds} rounds by a secret coin flip, "
            f"rate {phase.rate:g}; only the server knows the cohorts"
        )
    return f"a site joins at most {phase.participations} rounds; the adversary knows which"


@dataclass(frozen=True)
class _Told:
    """A plan and what is known of its run: where noise came from, and what ran where."""

    plan: PrivacyPlan
    source: str
    ran: str

    def claim(self, adversary: str, relation: str, trust: str, **terms: Any) -> Claim:
        """What is promised to one adversary."""
        plan, seen = self.plan, terms.pop("seen", False)
        events = plan.promise(**terms)
        events = known_batches(events) if seen else events
        price = cost(events, plan.delta)
        if not math.isfinite(price.epsilon):
            return self.nothing(adversary, "the noise is too small to promise anything")
        return Claim(
            adversary=adversary,
            unit=plan.unit,
            relation=relation,
            trust=trust,
            sampling=_sampling(plan, terms.get("amplified", True), seen),
            events=events,
            delta=price.delta,
            epsilon=price.epsilon,
            epsilon_rdp=price.epsilon_rdp,
            noise_source=self.source,
            excluded=EXCLUDED,
            caveats=self._caveats(events),
        )

    def _caveats(self, events: tuple[Event, ...]) -> tuple[str, ...]:
        simulated = _SIMULATION if self.source == "simulation" else ""
        found = (RAN[self.ran], *_precision(events), simulated, *_unit_caveat(self.plan))
        return (*(caveat for caveat in found if caveat), *self.plan.notes)

    def nothing(self, adversary: str, trust: str) -> Claim:
        """An adversary to whom nothing is promised."""
        return Claim(
            adversary=adversary,
            unit=self.plan.unit,
            relation="none",
            trust=trust,
            sampling="not applicable",
            events=(),
            delta=self.plan.delta,
            epsilon=None,
            epsilon_rdp=None,
            noise_source=self.source,
            excluded=EXCLUDED,
            caveats=(),
        )


def _precision(events: tuple[Event, ...]) -> tuple[str, ...]:
    """What a mechanism leaves open: choices and noise in whole numbers are exact."""
    return (_FLOAT,) if any(e.noise and not e.gap for e in events) else ()


def _unit_caveat(plan: PrivacyPlan) -> tuple[str, ...]:
    if plan.held == "columns":
        return column_caveats(plan)
    if plan.unit == "record":
        return ("one row is protected: a person with several rows is protected less",)
    if plan.unit == "person":
        return ("a person's rows are taken to be at one site",)
    return ()


def claims(plan: PrivacyPlan, source: str, ran: str = "") -> tuple[Claim, ...]:
    """Every claim of a plan; the first is the headline.

    ``source`` of the noise is "os" or "simulation"; ``ran`` is a key of `RAN`, which the runtime
    gives, or empty before a run.
    """
    told = _Told(plan, source, ran)
    if not plan.private:
        return (told.nothing("anyone", "no noise was added: this release is not private"),)
    if plan.unproven:
        unproven = told.nothing("anyone", plan.unproven)
        rest = claims(replace(plan, unproven=""), source, ran)
        return (replace(unproven, unit="record"), *rest)
    if plan.held == "columns":
        return column_claims(told)
    if plan.slots == {"server"}:
        return _central(told)
    if plan.slots <= {"client", "step"}:
        return _local(told)
    if plan.slots == {"distributed"}:
        return _distributed(told)
    raise PrivacyError(
        "parts that are all noised by the server, by the sites, or in shares",
        f"slots {sorted(plan.slots)}",
        "fix the recipe's plan",
    )


def _central(told: _Told) -> tuple[Claim, ...]:
    trust = "the server is trusted: it sees each site's bounded contribution before noise"
    return (
        told.claim("the public and the other sites", "add or remove one", trust),
        told.nothing("the server", trust),
    )


def _distributed(told: _Told) -> tuple[Claim, ...]:
    """The server is the strongest adversary, so its claim comes first: the noise is solved for it.

    Nobody gets amplification: whoever sees a sum knows who was asked for it. A site that holds
    no rows still adds its share, so at site level the relation is "its rows or none".
    """
    c = told.plan.own.colluders
    told = replace(told, plan=replace(told.plan, notes=(_assumed(told.plan), *told.plan.notes)))
    trust = _BARE if told.ran.endswith(UNMASKED) else _SHARED
    relation = EMPTY_SITE if told.plan.unit == "site" else "add or remove one"
    server = f"the server together with {_up_to(c, 'site')}" if c else "the server alone"
    found = [told.claim(server, relation, trust, **SINGLE)]
    if not any(part.mechanism.rate for phase in told.plan.phases for part in phase.parts):
        found.append(told.claim(server, "replace one", trust, **DOUBLE))
    if c:
        found.append(told.claim(_up_to(c, "other site"), relation, trust, **SINGLE))
    else:
        found.append(told.nothing("the other sites", "each knows its own share, and c = 0"))
    public = replace(told, plan=told.plan.against(0))
    return (*found, public.claim("the public", relation, trust, **SINGLE))


def _up_to(many: int, noun: str) -> str:
    return f"one {noun}" if many == 1 else f"up to {many} {noun}s"


def _assumed(plan: PrivacyPlan) -> str:
    """On what the size of the noise rests."""
    (t, c), asked = plan.own.shares, int(plan.own.cohort)
    called = min(plan.sites, 2 * t - c - 1)  # the most sites that a server could call at once
    server = "" if called <= SPARSE else ", and that the server follows the protocol"
    tell = f"at most c = {c} of all {plan.sites} sites tell" if c else "no site (c = 0) tells"
    return (
        f"a sum is over at least t = {t} of {asked} sites, or there is none; it is assumed that "
        f"{tell} others their share of the noise{server}"
    )


def _local(told: _Told) -> tuple[Claim, ...]:
    trust = "nobody is trusted: noise is added at the site before anything is sent"
    who, phases = "the server, the other sites and the public", told.plan.phases
    if all(phase.update_epsilon for phase in phases):  # any two updates alike, and no update
        trust = "nobody is trusted: a site sends only randomised choices"
        return (told.claim(who, "replace one", trust, **SINGLE),)
    if told.plan.unit == "site":
        return (
            told.claim(who, "replace one", trust, **DOUBLE),
            told.claim(who, EMPTY_SITE, trust, **SINGLE),
        )
    added = told.claim(who, "add or remove one", trust, **SINGLE)
    if any(part.mechanism.rate for phase in phases for part in phase.parts):
        return (added,)  # no accountant here covers replaced records in secret batches
    return added, told.claim(who, "replace one", trust, **DOUBLE)


def headline(found: tuple[Claim, ...]) -> float:
    """ε of the first claim; infinity where there is none."""
    return found[0].epsilon if found[0].epsilon is not None else math.inf


def projection(plan: PrivacyPlan, population: int) -> dict[str, float]:
    """What the same noise on the mean would cost with N′ sites. Planning only, never a claim.

    Central (FedVAE §4.4.2): σ_G = zS/(qN) stays; z′ = 1 and q′ = qN/(zN′), or where there are too
    few sites for that, all of them and less noise. Local: each site's noise is σ_G·√(q′N′), over
    the rounds it may join, at doubled sensitivity. Distributed: every site in every round, and
    t − c of N′ shares by default. δ as default for N′.
    """
    own, mechanism = plan.own, plan.own.parts[0].mechanism
    alone = len(plan.phases) == 1 and plan.unit == "site"
    if not (isinstance(mechanism, (Gaussian, IntegerGaussian)) and alone and population >= 2):
        phases = "one phase" if len(plan.phases) == 1 else f"{len(plan.phases)} phases"
        kind = type(mechanism).__name__
        raise PrivacyError(
            'a study with noise on the updates of whole sites (unit = "site") in one phase, and a '
            "population of 2 or more",
            f'unit = "{plan.unit}", {phases} ({kind}), {population} sites',
            "project a study of that form; a warm start is a phase: [recipe] warm_start = 0",
        )
    z, delta = mechanism.noise, default_delta(population)
    z *= mechanism.surplus if isinstance(mechanism, IntegerGaussian) else 1.0
    wanted = own.cohort / (z * population)
    rate, noise = min(wanted, 1.0), min(1 / wanted, 1.0)
    central = cost([Event((noise,), rate, own.rounds)], delta).epsilon
    local_noise = math.sqrt(rate * population) * z / own.cohort
    joins = max(1, math.ceil(rate * own.rounds))
    local = cost([Event((local_noise / 2,), None, joins)], delta).epsilon
    t, c = default_shares(population)
    shared = z * math.sqrt((t - c) * population) / own.cohort
    return {
        "population": population,
        "rate": rate,
        "noise": noise,
        "central": central,
        "local": local,
        "distributed": cost([Event((shared,), None, own.rounds)], delta).epsilon,
        "delta": delta,
    }


def spent_so_far(plan: PrivacyPlan, rounds: int) -> float:
    """An upper bound on the headline ε after so many rounds (by RDP: quick, a little loose)."""
    if rounds == 0:
        return 0.0
    factor, amplified = claim_terms(plan)
    begun = plan.prefix(rounds)
    return rdp_epsilon(begun.promise(factor=factor, amplified=amplified), plan.delta)
