"""What a plan warns of: studies that spend privacy and learn little."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.data.schema import Schema
from understudy.privacy.claim import round_up
from understudy.privacy.plan import PrivacyPlan
from understudy.privacy.select import Selection
from understudy.recipes import infos
from understudy.recipes.measured import advice
from understudy.recipes.vae_options import VAEOptions
from understudy.simulation import site_plans
from understudy.study import Study

__all__ = ["warnings"]

_TELLING = 0.1  # a choice that tells less than this share is as good as random
_BEST = "fedmoments"  # of tables and images at few sites: docs/benchmarks.md
_FEW_NOISED, _FEW_VOTES = 20, 100  # the smallest studies that gave useful results had as many sites


def warnings(study: Study, plan: PrivacyPlan) -> list[str]:
    """Why little will be learned, if so: few or idle sites, the wrong recipe, random choices."""
    rules = [p.mechanism for p in plan.own.parts if isinstance(p.mechanism, Selection)]
    found = [said(rule, plan) for rule in rules for said in (_of_chance, _of_votes)]
    few = (_of_trusting(plan), _of_few_sites(study, plan))
    first = (*few, _of_idle(plan, study.schema), _of_classes(study, plan))
    told = (*_of_files(study), *first, *advice(study, plan), *_of_caps(study, plan), *found)
    return [warning for warning in told if warning]


def _of_files(study: Study) -> Iterator[str]:
    """Files of rows that are named and not there."""
    named = {f"Site {entry.name}": entry.data for entry in study.owners if entry.data}
    if study.simulation and not study.simulation.data.startswith("bundled:"):
        named["The simulation"] = study.simulation.data
    for who, data in named.items():
        if not (study.base / data).exists():
            yield f"{who}: there is no file {data}. A run needs it."


def _of_trusting(plan: PrivacyPlan) -> str:
    """Sites that trust each other, perhaps without meaning to."""
    if plan.trust != "distributed" or not plan.private or plan.own.colluders:
        return ""
    return (
        "With privacy.colluders = 0 nothing is promised between the sites: each knows its own "
        "share of the noise and can take it off. Set it to 1 or more, unless the sites trust each "
        "other."
    )


def _of_few_sites(study: Study, plan: PrivacyPlan) -> str:
    """Too few sites to protect a whole site and still learn something."""
    votes = plan.own.update_epsilon is not None
    if not plan.private or plan.unit != "site":
        return ""
    if plan.sites >= (_FEW_VOTES if votes else _FEW_NOISED):
        return ""
    why = (
        f"{study.recipe} learns from the votes of hundreds of sites, and with {plan.sites} the "
        "result will be barely better than random"
        if votes
        else "the noise that hides one of them hides almost everything they send"
    )
    few = "1 site is" if plan.sites == 1 else f"{plan.sites} sites are"
    return (
        f"{few} too few to protect a whole site: {why}. "
        f"{_protect_records(study)} If you go on, the budget is spent all the same."
    )


def _protect_records(study: Study) -> str:
    """The alternative with few sites: the recipe that did best of all that protect records."""
    able = [
        info.name
        for info in infos().values()
        if study.schema.kind in info.kinds and ("record", "central") in info.supports
    ]
    best = [_BEST] if _BEST in able else able
    how = "" if study.recipe in able else f" and study.recipe = {' or '.join(map(repr, best))}"
    return f"Protect single records instead: set privacy.unit = 'record'{how}.".replace("'", '"')


def _of_idle(plan: PrivacyPlan, schema: Schema) -> str:
    """More sites than rows."""
    idle = plan.sites - schema.records
    if idle <= 0:
        return ""
    return (
        f"{plan.sites:,} sites for the {schema.records:,} records of the schema: {idle:,} or more "
        "have no rows and add only noise. Use fewer sites, or correct the schema."
    )


def _of_classes(study: Study, plan: PrivacyPlan) -> str:
    """Classes of a table that nothing in the plan counts."""
    schema, counted = study.schema, _counts(study, plan)
    if counted or schema.kind != "table" or schema.n_classes < 2 or schema.balance:
        return ""
    return (
        f"Nothing in this plan counts the {schema.n_classes} classes, so they are drawn in equal "
        "shares. Declare balance in the schema if the shares are public, or give privacy.epsilon "
        "and a recipe.warm_start, which learns them."
    )


def _counts(study: Study, plan: PrivacyPlan) -> bool:
    """Whether the run learns how often each class occurs: all do, but VAEs without a warm start."""
    return plan.first > 0 or not issubclass(infos()[study.recipe].options, VAEOptions)


def _of_caps(study: Study, plan: PrivacyPlan) -> Iterator[str]:
    """Sites that are called more often than their own caps allow."""
    asked = plan.participations
    for site, own in zip(study.owners, site_plans(study, plan), strict=True):
        if own.participations < asked:
            yield (
                f"Site {site.name} may be called {asked} times, and its cap ε = {site.epsilon:g} "
                f"allows {own.participations}: it refuses the rest, where it sends and spends "
                "nothing."
            )


def _of_chance(rule: Selection, plan: PrivacyPlan) -> str:
    """A site's choice is barely better than random: ε per update is too small."""
    if rule.telling >= _TELLING:
        return ""
    chance = rule.top / rule.pool
    once = "Each site already answers only once: a larger ε is the only way to learn more."
    often = (
        "A few updates with a large ε are better than many with a small one: remove study.rounds "
        f"and [cohort], and each of the {plan.sites} sites answers once."
    )
    return (
        f"At ε = {round_up(rule.epsilon)} per update a site's choice is close to random "
        f"({rule.law.share:.3g} of it from the top set; by chance it would be {chance:.3g}), so "
        f"little will be learned. {often if plan.participations > 1 else once}"
    )


def _of_votes(rule: Selection, plan: PrivacyPlan) -> str:
    """A model too large for its sites: not every coordinate can be voted for."""
    own = plan.own
    called = own.size or round((own.rate or 1) * own.sites)
    votes = rule.output * min(own.rounds * called, own.participations * own.sites)
    if votes >= rule.size:
        return ""
    return (
        f"{votes:,} votes in all are fewer than the {rule.size:,} coordinates of the model: many "
        "coordinates will never change. Use more sites, more outputs per site or a smaller model."
    )
