"""What a plan warns of: runs that spend privacy and learn little."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.data.schema import Schema
from understudy.privacy.claim import round_up
from understudy.privacy.plan import PrivacyPlan
from understudy.privacy.select import Selection
from understudy.run import site_plans
from understudy.study import Study

__all__ = ["warnings"]

_TELLING = 0.1  # a choice that tells less than this share is as good as a lot


def warnings(study: Study, plan: PrivacyPlan) -> list[str]:
    """Why little will be learnt, if so: idle or reluctant sites, or choices that say little."""
    rules = [part.rule for part in plan.parts if isinstance(part.rule, Selection)]
    found = [said(rule, plan) for rule in rules for said in (_of_chance, _of_votes)]
    idle = _of_idle(plan, study.schema)
    return [warning for warning in (idle, *_of_caps(study, plan), *found) if warning]


def _of_idle(plan: PrivacyPlan, schema: Schema) -> str:
    """More sites than rows."""
    idle = plan.sites - schema.records
    if idle <= 0:
        return ""
    return (
        f"{plan.sites:,} sites for the {schema.records:,} records of the schema: {idle:,} or more "
        "have no rows, and only add noise. Have fewer sites, or correct the schema."
    )


def _of_caps(study: Study, plan: PrivacyPlan) -> Iterator[str]:
    """Sites that are called more often than their own caps allow."""
    asked = _answers(plan)
    for site, own in zip(study.sites, site_plans(study, plan), strict=True):
        if _answers(own) < asked:
            yield (
                f"Site {site.name} may be called {asked} times, and its cap ε = {site.epsilon:g} "
                f"allows {_answers(own)}: it refuses the rest, and sends and spends nothing there."
            )


def _answers(plan: PrivacyPlan) -> int:
    """How often one site answers at most."""
    return sum(phase.participations for phase in plan.phases)


def _of_chance(rule: Selection, plan: PrivacyPlan) -> str:
    """A site's choice is little more than a lot: too small an ε per update."""
    chance = rule.top / rule.pool
    if (rule.law.share - chance) / (1 - chance) >= _TELLING:
        return ""
    once = "A site already answers once: only a larger ε would tell more."
    often = (
        "Few updates of a large ε beat many of a small one: with "
        f"{plan.sites} sites, leave study.rounds and [cohort] out and each answers once."
    )
    return (
        f"At ε = {round_up(rule.epsilon)} per update a site's choice is close to chance "
        f"({rule.law.share:.3g} of it from the top set, {chance:.3g} by lot), so little will be "
        f"learnt. {often if plan.participations > 1 else once}"
    )


def _of_votes(rule: Selection, plan: PrivacyPlan) -> str:
    """A model too large for its sites: not every coordinate can be voted for."""
    called = plan.size or round((plan.rate or 1) * plan.sites)
    votes = rule.output * min(plan.rounds * called, plan.participations * plan.sites)
    if votes >= rule.size:
        return ""
    return (
        f"{votes:,} vote(s) in all are fewer than the {rule.size:,} coordinates they are about: "
        "many of these will stay as they began. More sites help, more outputs of each, or a "
        "smaller model."
    )
