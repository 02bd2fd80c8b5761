"""Building a recipe's plan from a study: which unit, which trust, how much noise.

Every term is typed and a keyword, so a misspelt one is an error. A study gives ε or a noise
multiplier; the other is solved for. With trust "none" the same parts are sent as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from understudy.data.layout import overlap, overlap_notes
from understudy.errors import PrivacyError, StudyError
from understudy.federation.info import RecipeInfo
from understudy.federation.splits import refuse_split, split_notes
from understudy.privacy.account import pure_epsilon
from understudy.privacy.gaussian import Gaussian, Plain
from understudy.privacy.integer import IntegerGaussian, default_shares
from understudy.privacy.mechanism import Mechanism
from understudy.privacy.plan import Part, Phase, PrivacyPlan, default_delta, solve
from understudy.privacy.terms import Held, Slot, Trust, Unit
from understudy.study import Study

__all__ = [
    "Terms",
    "check_kind",
    "noised_plan",
    "parties_plan",
    "pure_plan",
    "shares",
    "unit_and_trust",
]

Pair = tuple[Unit, Trust]
_PARTIES: Pair = ("record", "local")  # the default where parties hold columns

_SLOTS: dict[Trust, Slot] = {
    "central": "server",
    "local": "client",
    "distributed": "distributed",
    "none": "client",
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a recipe's parts are bounded and combined.

    ``bound`` is that of one row, or of a site's update, where the study gives no clip; ``where``
    is said only where the trust does not say it. The others are those of `Part` and its mechanism.
    """

    bound: float
    where: Slot | None = None
    combine: Literal["mean", "sum"] = "mean"
    blocks: int = 1
    steps: int = 1
    batch_rate: float | None = None


def noised_plan(
    study: Study,
    info: RecipeInfo,
    shapes: Mapping[str, tuple[int, ...]],
    terms: Terms,
    *,
    rounds: int | None = None,
    before: PrivacyPlan | None = None,
    notes: tuple[str, ...] = (),
) -> PrivacyPlan:
    """The plan of a recipe whose parts share one bound and one noise multiplier.

    With a plan ``before`` it, this phase gets the noise that keeps both within the study's ε.
    """
    unit, trust = unit_and_trust(study, info)
    _check_price(study, info, trust)
    _check_shares(study, trust)
    mechanism = _mechanism(study, unit, trust, terms)
    where = terms.where or _SLOTS[trust]
    parts = tuple(
        Part(name, shape, terms.combine, where, mechanism) for name, shape in shapes.items()
    )
    phase = _phase(study, parts, rounds or study.rounds or info.rounds)
    plan = _plan(study, unit, trust, (*(before.phases if before else ()), phase), notes)
    epsilon = study.privacy.epsilon
    return plan if epsilon is None else solve(plan, epsilon)


def _mechanism(study: Study, unit: Unit, trust: Trust, terms: Terms) -> Mechanism:
    privacy = study.privacy
    rows = study.schema.rows_per_person or 1 if unit == "person" else 1
    bound = rows * (terms.bound if privacy.clip is None else privacy.clip)
    plain = Plain(bound, terms.blocks, rows, terms.steps, terms.batch_rate)
    if trust == "none":
        return plain
    noised = {**plain.to_dict(), "noise": privacy.noise or 1.0}
    if trust != "distributed":
        return Gaussian(**noised)
    asked, t, c = shares(study)
    most = asked if unit == "site" else _units(study, unit)
    return IntegerGaussian(
        **noised, asked=asked, survivors=t, colluders=c, most=most, whole=unit == "site"
    )


def shares(study: Study) -> tuple[int, int, int]:
    """(n, t, c): sites asked in a round, those that must answer to the end, those that may collude.

    As the study says, or by `default_shares`. Colluders count among all sites of the study: whoever
    makes up a cohort could call them all to one round.
    """
    asked, privacy = study.cohort.size or study.n_sites, study.privacy
    t, c = default_shares(asked, study.n_sites, privacy.colluders)
    return asked, t if privacy.survivors is None else privacy.survivors, c


def _check_shares(study: Study, trust: Trust) -> None:
    given = [n for n in ("survivors", "colluders") if getattr(study.privacy, n) is not None]
    if trust != "distributed" and study.simulation and study.simulation.masks != "off":
        raise StudyError(
            'no simulation.masks but with trust = "distributed"',
            f'trust = "{trust}"',
            "remove it: without shares there is nothing to mask",
        )
    if given and trust != "distributed":
        raise StudyError(
            f'no privacy.{given[0]} with trust = "{trust}"',
            "one",
            'remove it, or set trust = "distributed"',
        )
    if trust == "distributed" and (asked := shares(study)[0]) < 3:
        why = "; of two sites, each would learn what the other sent" if asked == 2 else ""
        raise StudyError(
            "three sites or more for noise in shares", f"{asked}", f'set trust = "local"{why}'
        )
    if trust == "distributed" and study.privacy.colluders is None:
        _check_colluders(study)


def _check_colluders(study: Study) -> None:
    asked, t, c = shares(study)
    if c > t - 2:
        raise StudyError(
            f"privacy.colluders for cohorts of {asked} out of {study.n_sites} sites",
            f"none, and a tenth of all sites ({c}) could make up a whole cohort",
            f"set it to the sites that may side with the server, {asked - 2} at most; or raise "
            "cohort.size",
        )


def _check_price(study: Study, info: RecipeInfo, trust: Trust) -> None:
    privacy = study.privacy
    if privacy.epsilon_per_update is not None:
        raise StudyError(
            f"privacy.epsilon or privacy.noise for {info.name}",
            "privacy.epsilon_per_update",
            "only recipes that select coordinates have an ε per update",
        )
    if trust != "none" and privacy.epsilon is None and privacy.noise is None:
        raise StudyError(
            "privacy.epsilon or privacy.noise", "neither", "add epsilon = 1.0 under [privacy], say"
        )


def pure_plan(
    study: Study,
    info: RecipeInfo,
    parts: Callable[[float], tuple[Part, ...]],
    *,
    notes: tuple[str, ...] = (),
) -> PrivacyPlan:
    """The plan of a recipe whose sites send choices: ``parts`` for an ε per update.

    The study gives that ε, or the total ε of a site, which its updates share equally. Where the
    study gives neither rounds nor cohorts, every site is called once. With trust "none" a site
    sends the update itself.
    """
    unit, trust = unit_and_trust(study, info)
    _refuse_noise(study, info)
    if trust == "none":
        plain = tuple(replace(p, mechanism=Plain()) for p in parts(1.0) if p.shape)
        phase = _phase(study, plain, study.rounds or info.rounds)
        return _plan(study, unit, trust, (phase,), notes)
    study = _each_once(study, info)
    privacy, rounds = study.privacy, study.rounds or info.rounds

    def at(epsilon: float) -> PrivacyPlan:
        return _plan(study, unit, trust, (_phase(study, parts(epsilon), rounds),), notes)

    if privacy.epsilon_per_update is not None:
        return at(privacy.epsilon_per_update)
    updates = _phase(study, (), rounds).participations
    if privacy.epsilon is None:
        raise StudyError(
            "privacy.epsilon (in total) or privacy.epsilon_per_update",
            "neither",
            f"add epsilon = 8.0 under [privacy]; a site makes {updates} update(s)",
        )
    plan, epsilon = at(privacy.epsilon / updates), privacy.epsilon / updates
    while pure_epsilon(plan.promise(amplified=False)) > privacy.epsilon:  # by rounding alone
        epsilon = math.nextafter(epsilon, 0)
        plan = at(epsilon)
    return plan


def _refuse_noise(study: Study, info: RecipeInfo) -> None:
    unused = [n for n in ("noise", "clip", "delta") if getattr(study.privacy, n) is not None]
    if unused:
        raise StudyError(
            f"no privacy.{unused[0]} for {info.name}: it selects, and neither clips nor noises",
            "one",
            "remove it; set privacy.epsilon or privacy.epsilon_per_update",
        )


def _each_once(study: Study, info: RecipeInfo) -> Study:
    """Rounds and cohorts in which each site answers once, for what the study leaves out."""
    rounds = max(1, min(info.rounds, study.n_sites // info.cohort))
    size = study.cohort.size or study.n_sites // rounds
    if study.rounds is not None or study.cohort.rate is not None:
        return study
    return replace(
        study, rounds=max(1, study.n_sites // size), cohort=replace(study.cohort, size=size)
    )


def _phase(study: Study, parts: tuple[Part, ...], rounds: int) -> Phase:
    """Rounds with the study's sites and cohorts."""
    cohort = study.cohort
    phase = Phase(parts, rounds, study.n_sites, cohort.rate, cohort.size, cohort.joins)
    if phase.size and phase.joins is not None and phase.joins < phase.calls:
        raise StudyError(
            f"at least {phase.calls} update(s) of a site: {rounds} rounds call {phase.size} of "
            f"{phase.sites} sites each",
            f"cohort.joins = {phase.joins}",
            f"raise it, or set study.rounds = {phase.joins * phase.sites // phase.size} or fewer",
        )
    return phase


def _plan(
    study: Study, unit: Unit, trust: Trust, phases: tuple[Phase, ...], notes: tuple[str, ...]
) -> PrivacyPlan:
    units = _units(study, unit)
    delta = study.privacy.delta or default_delta(units)
    said = (*_overlap_notes(study, unit), *split_notes(study), *notes)
    held: Held = "columns" if study.parties else "rows"
    return PrivacyPlan(unit, trust, phases, units, delta, notes=said, held=held)


def _units(study: Study, unit: Unit) -> int:
    """The declared, public number of protected units."""
    return study.n_sites if unit == "site" else study.schema.records


_WHOLE = ("blocks", "column", "person")  # splits that can keep a recording's windows at one site


def _overlap_notes(study: Study, unit: Unit) -> tuple[str, ...]:
    """What a claim must say of windows that share time steps."""
    if unit == "record":
        return overlap_notes(study.schema)
    many, cut = overlap(study.schema), study.simulation
    if unit == "person" or many == 1 or cut is None or cut.split in _WHOLE:
        return ()
    return (
        f"windows overlap and were dealt out one by one: a time step is at up to {many} sites, and "
        'only one site is protected; split = "blocks" or "column" keeps a recording together',
    )


def check_kind(study: Study, info: RecipeInfo) -> None:
    """Refuse rows that a recipe has no net for, and columns held apart if it has no form for it."""
    _supported(study, info)
    if study.schema.kind not in info.kinds:
        raise StudyError(
            f"data of kind {' or '.join(info.kinds)} for {info.name}",
            study.schema.kind,
            "choose another recipe: understudy recipes",
        )


def unit_and_trust(study: Study, info: RecipeInfo) -> tuple[Unit, Trust]:
    """What the study asks for, or the recipe's default; refused where the recipe has no proof."""
    allowed, default = _supported(study, info)
    unit = study.privacy.unit or default[0]
    trust = study.privacy.trust or default[1]
    check_kind(study, info)
    asked = study.privacy.epsilon or study.privacy.noise or study.privacy.epsilon_per_update
    if trust == "none" and asked:
        raise PrivacyError(
            'a trust other than "none" where an ε or noise is asked for',
            f'{info.name}, whose trust is "none": it adds no noise',
            "choose a private recipe or trust, or remove epsilon and noise",
        )
    if trust != "none" and (unit, trust) not in allowed:
        pairs = ", ".join(f"{u}/{t}" for u, t in sorted(allowed))
        raise PrivacyError(
            f"a unit and trust that {info.name} supports ({pairs})",
            f"{unit}/{trust}",
            "change privacy.unit or privacy.trust; see understudy recipes",
        )
    refuse_split(study, unit, trust)
    if unit == "person" and not (study.schema.person and study.schema.rows_per_person):
        raise PrivacyError(
            "a schema that names the person column and the cap on rows per person",
            "none",
            "add person and rows_per_person to the schema, or protect records",
        )
    return unit, trust


def _supported(study: Study, info: RecipeInfo) -> tuple[frozenset[tuple[Unit, Trust]], Pair]:
    """Units and trusts for sites that hold rows, or for parties that hold columns; the default."""
    found, default = (info.parties, _PARTIES) if study.parties else (info.supports, info.default)
    if not found:
        holders = "parties that hold columns" if study.parties else "sites that hold rows"
        raise StudyError(f"a recipe for {holders}", info.name, "choose another: understudy recipes")
    return found, default


def parties_plan(
    study: Study,
    info: RecipeInfo,
    parts: tuple[Part, ...],
    *,
    rounds: int,
    before: PrivacyPlan | None = None,
    notes: tuple[str, ...] = (),
) -> PrivacyPlan:
    """The plan of a recipe for parties, whose parts are in `Part.party`'s hands.

    With the study's ε, the noise of all parts of this phase is solved for what is left of it
    against the public; without, parts keep the noise they have.
    """
    unit, trust = unit_and_trust(study, info)
    _check_price(study, info, trust)
    phase = _phase(study, parts, rounds)
    plan = _plan(study, unit, trust, (*(before.phases if before else ()), phase), notes)
    epsilon = study.privacy.epsilon
    return plan if epsilon is None else solve(plan, epsilon)
