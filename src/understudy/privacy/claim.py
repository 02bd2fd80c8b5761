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
from understudy.privacy.account import Cost, Event, cost, fixed_size_cost, rdp_epsilon
from understudy.privacy.plan import PrivacyPlan, claim_terms, default_delta, slots

__all__ = ["Claim", "claims", "headline", "projection", "round_up", "spent_so_far"]

EXCLUDED = (
    "the schema: columns, bounds, categories, classes, their declared balance and sizes are public",
    "that a site's rows were accepted or refused when they were read",
    "choices made while tuning this study on the same data",
    "scores computed against real rows (kept out of the release, internal)",
)
EMPTY_SITE = "its rows or none"
_IN_PROCESS = "all sites ran in one process: whoever ran it held all rows"
_FLOAT = "noise is floating-point Gaussian: attacks on low-order bits are not covered"
_SIMULATION = "simulation: the noise can be repeated by whoever knows the seed; not for real data"


def round_up(epsilon: float, digits: int = 3) -> str:
    """ε to so many significant digits, never below the truth."""
    if not 0 < epsilon < math.inf:
        return f"{epsilon:g}"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - digits + 1)
    return f"{math.ceil(epsilon / unit - 1e-9) * unit:.{digits}g}"


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
            f"ε = {round_up(self.epsilon or 0)} at δ = {self.delta:.2g}{self._lifetime}.{verdict}"
        )

    @property
    def _lifetime(self) -> str:
        """What a pure claim adds up: the updates of the most exposed site."""
        if not self.events or any(event.noise for event in self.events):
            return ""
        updates = max(event.count for event in self.events)
        each = round_up((self.epsilon or 0) / updates)
        many = f", over a lifetime of {updates} updates of ε = {each} each"
        return ", in its one update" if updates == 1 else many

    @property
    def _secret(self) -> str:
        """What is protected, by relation: a server that asks a site knows that it took part."""
        if self.relation == "replace one":
            return f"what any one {self.unit} holds"
        if self.relation == EMPTY_SITE:
            return "whether any one site holds rows at all"
        return f"whether any one {self.unit} took part"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, with the sentence."""
        return {**asdict(self), "words": self.words}


def _sampling(plan: PrivacyPlan, amplified: bool) -> str:
    """Who takes part when, phase by phase."""
    return "; then ".join(_amplification(phase, amplified) for phase in plan.phases)


def _amplification(plan: PrivacyPlan, amplified: bool) -> str:
    rates = {part.rate for part in plan.parts if part.rate}
    if rates:
        return (
            f"every step takes each record by a secret coin flip, rate {max(rates):g}, over at "
            f"most {plan.participations} round(s) of a site; only its site knows the batches"
        )
    if plan.size is not None:
        return (
            f"a public schedule calls {plan.size} site(s) to each of {plan.rounds} rounds; a site "
            f"makes at most {plan.participations} update(s), and refuses more; no amplification"
        )
    if plan.rate is None and plan.participations == plan.rounds:
        return f"every site joins every round ({plan.rounds}); no amplification"
    if amplified and plan.rate is not None:
        return (
            f"each site joins each of {plan.rounds} rounds by a secret coin flip, "
            f"rate {plan.rate:g}; only the server knows the cohorts"
        )
    return f"a site joins at most {plan.participations} rounds; the adversary knows which"


def _claim(
    plan: PrivacyPlan, source: str, adversary: str, relation: str, trust: str, **terms: Any
) -> Claim:
    events = plan.promise(**terms)
    price = cost(events, plan.delta)
    if not math.isfinite(price.epsilon):
        return _nothing(plan, source, adversary, "the noise is too small to promise anything")
    caveats = (
        (_IN_PROCESS,)
        + _precision(events)
        + ((_SIMULATION,) if source == "simulation" else ())
        + _unit_caveat(plan)
        + plan.notes
    )
    return Claim(
        adversary=adversary,
        unit=plan.unit,
        relation=relation,
        trust=trust,
        sampling=_sampling(plan, terms.get("amplified", True)),
        events=events,
        delta=price.delta,
        epsilon=price.epsilon,
        epsilon_rdp=price.epsilon_rdp,
        noise_source=source,
        excluded=EXCLUDED,
        caveats=caveats,
    )


def _precision(events: tuple[Event, ...]) -> tuple[str, ...]:
    """What a mechanism leaves open. A choice leaves nothing: its chances are exact integers."""
    return (_FLOAT,) if any(e.noise for e in events) else ()


def _unit_caveat(plan: PrivacyPlan) -> tuple[str, ...]:
    if plan.unit == "record":
        return ("one row is protected: a person with several rows is protected less",)
    if plan.unit == "person":
        return ("a person's rows are taken to be at one site",)
    return ()


def _nothing(plan: PrivacyPlan, source: str, adversary: str, trust: str) -> Claim:
    return Claim(
        adversary,
        plan.unit,
        "none",
        trust,
        "not applicable",
        (),
        plan.delta,
        None,
        None,
        source,
        EXCLUDED,
        (),
    )


def claims(plan: PrivacyPlan, source: str) -> tuple[Claim, ...]:
    """Every claim of a plan; the first is the headline. ``source`` is "os" or "simulation"."""
    if plan.trust == "none":
        return (
            _nothing(plan, source, "anyone", "no noise was added: this release is not private"),
        )
    if plan.unproven:
        unproven = _nothing(plan, source, "anyone", plan.unproven)
        return (replace(unproven, unit="record"), *claims(replace(plan, unproven=""), source))
    used = frozenset[str]().union(*(slots(phase.parts) for phase in plan.phases))
    if used == {"server"}:
        return _central(plan, source)
    if used <= {"client", "step"}:
        return _local(plan, source)
    raise PrivacyError(
        "parts that are noised by the server, or by the sites",
        f"slots {sorted(used)}",
        "use trust central or local; distributed noise has no claim yet",
    )


def _central(plan: PrivacyPlan, source: str) -> tuple[Claim, ...]:
    trust = "the server is trusted: it sees each site's bounded contribution before noise"
    return (
        _claim(plan, source, "the public and the other sites", "add or remove one", trust),
        _nothing(plan, source, "the server", trust),
    )


def _local(plan: PrivacyPlan, source: str) -> tuple[Claim, ...]:
    trust = "nobody is trusted: noise is added at the site before anything is sent"
    who = "the server, the other sites and the public"
    single = dict(factor=1.0, amplified=False)
    double = dict(factor=2.0, amplified=False)
    if all(phase.update_epsilon for phase in plan.phases):  # any two updates alike, and no update
        trust = "nobody is trusted: a site sends only randomised choices"
        return (_claim(plan, source, who, "replace one", trust, **single),)
    if plan.unit == "site":
        return (
            _claim(plan, source, who, "replace one", trust, **double),
            _claim(plan, source, who, EMPTY_SITE, trust, **single),
        )
    added = _claim(plan, source, who, "add or remove one", trust, **single)
    if any(part.rate for phase in plan.phases for part in phase.parts):
        return (added,)  # no accountant here covers replaced records in secret batches
    return added, _claim(plan, source, who, "replace one", trust, **double)


def headline(found: tuple[Claim, ...]) -> float:
    """ε of the first claim; infinity where there is none."""
    return found[0].epsilon if found[0].epsilon is not None else math.inf


def projection(plan: PrivacyPlan, population: int) -> dict[str, float]:
    """What the same noise on the mean would cost with N′ sites. Planning only, never a claim.

    Central (FedVAE §4.4.2): σ_G = zS/(qN) stays; z′ = 1 and q′ = qN/(zN′), or where there are too
    few sites for that, all of them and less noise. Local: each site's noise is σ_G·√(q′N′), over
    the rounds it may join, at doubled sensitivity. δ as default for N′.
    """
    pure = any(part.rule for part in plan.parts)
    if plan.trust == "none" or population < 2 or plan.before or plan.unit != "site" or pure:
        raise PrivacyError(
            "a private plan of one phase that noises sites' updates, and a population of 2 or more",
            f"trust {plan.trust}, unit {plan.unit}, {len(plan.phases)} phase(s), {population}",
            "project a study that adds noise to whole sites' updates, without a warm start",
        )
    z, delta = plan.parts[0].noise, default_delta(population)
    wanted = plan.cohort / (z * population)
    rate, noise = min(wanted, 1.0), min(1 / wanted, 1.0)
    central = cost([Event((noise,), rate, plan.rounds)], delta).epsilon
    local_noise = math.sqrt(rate * population) * z / plan.cohort
    joins = max(1, math.ceil(rate * plan.rounds))
    local = cost([Event((local_noise / 2,), None, joins)], delta).epsilon
    return {
        "population": population,
        "rate": rate,
        "noise": noise,
        "central": central,
        "local": local,
        "delta": delta,
    }


def fixed_size_warning(plan: PrivacyPlan, members: int) -> Cost:
    """What drawing exactly ``members`` sites would cost, by the bound that holds for it."""
    return fixed_size_cost(plan.parts[0].noise, members, plan.sites, plan.rounds, plan.delta)


def spent_so_far(plan: PrivacyPlan, rounds: int) -> float:
    """An upper bound on the headline ε after so many rounds (by RDP: quick, a little loose)."""
    if rounds == 0:
        return 0.0
    factor, amplified = claim_terms(plan)
    begun = plan.prefix(rounds)
    return rdp_epsilon(begun.promise(factor=factor, amplified=amplified), plan.delta)
