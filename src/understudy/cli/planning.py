"""What ``understudy plan`` shows: how a study protects its rows, what is sent and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from understudy.cli.claims import claims_panel
from understudy.cli.console import print_hanging
from understudy.cli.warnings import warnings
from understudy.data.split import check_options
from understudy.errors import StudyError
from understudy.federation.recipe import Recipe
from understudy.privacy.claim import Claim, claims, projection, round_up
from understudy.privacy.hints import on_disk
from understudy.privacy.integer import IntegerGaussian, default_shares
from understudy.privacy.plan import PrivacyPlan
from understudy.recipes import build
from understudy.simulation import Standing, standings
from understudy.study import Study

__all__ = ["SOLVING", "as_json", "cost", "show", "warn"]

SOLVING = "working out what it costs"
_TOLD = {"net": "about", "form": "form"}


@dataclass(frozen=True)
class Costed:
    """A study with its plan solved: what it claims, and projections to other populations."""

    study: Study
    recipe: Recipe
    claims: Sequence[Claim]
    projected: Sequence[dict[str, float]]
    standings: Sequence[Standing]

    @property
    def plan(self) -> PrivacyPlan:
        """What the recipe promises."""
        return self.recipe.plan


def cost(path: Path, project: str) -> Costed:
    """Load a study, check it and solve its noise; rows are not read, sites' ledgers are."""
    study = Study.load(path)
    if study.simulation:
        check_options(study.simulation.split, study.simulation.options)
    sizes = _populations(project)
    with on_disk(prices=True):
        recipe = build(study)
        projected = [projection(recipe.plan, n) for n in sizes]
        found = claims(recipe.plan, "os")
        return Costed(study, recipe, found, projected, standings(study, recipe.plan))


def _populations(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.replace("_", "").split(",") if part.strip()]
    except ValueError:
        found = [0]
    if any(n < 2 for n in found):
        expected = "population sizes of at least 2, separated by commas"
        raise StudyError(expected, repr(text), "e.g. --project 1000,30000")
    return found


def _message_bytes(recipe: Recipe) -> int:
    """Of the largest message of one site: phases send different parts, and so do parties."""
    plan = recipe.plan
    sites = range(plan.sites) if plan.held == "columns" else range(1)
    messages = (phase.sent_by(site) for phase in plan.phases for site in sites)
    return max(sum(part.bytes for part in message) for message in messages)


def as_json(found: Costed) -> dict[str, Any]:
    """The plan for machines."""
    study, plan = found.study, found.plan
    return {
        "study": study.name,
        "hash": study.hash,
        "recipe": study.recipe,
        "plan": plan.to_dict(),
        "bytes_per_round_and_site": _message_bytes(found.recipe),
        "epsilon_per_update": plan.own.update_epsilon,
        "updates_per_site": plan.participations,
        "claims": [claim.to_dict() for claim in found.claims],
        "warnings": warnings(study, plan),
        "sites": [asdict(standing) for standing in found.standings],
        **_net(found.recipe),
        "projections": found.projected,
    }


def show(found: Costed) -> None:
    """The plan for people: a table, the claims, warnings, projections."""
    console, plan, info = Console(), found.plan, found.recipe.info
    console.print(_table(found))
    console.print(claims_panel(found.claims))
    for standing in found.standings:
        print_hanging(console, "  ", _stands(standing))
    warn(found.study, plan, console)
    if info.corrections and plan.private:  # they are about ε
        console.print(f"[dim]{info.corrections}[/]")
    if found.projected:
        console.print(_projections(found.projected))


def _stands(site: Standing) -> str:
    """What a site has spent by its ledger, and what it will have spent."""
    of = "(no cap)" if site.cap is None else f"of {site.cap:g}"
    return (
        f"{site.name}: ε = {round_up(site.before)} {of} spent, {round_up(site.after)} with this "
        "study"
    )


def _table(found: Costed) -> Table:
    plan, recipe = found.plan, found.recipe
    mechanisms = (
        ", ".join(part.mechanism.describe(part) for part in phase.parts) for phase in plan.phases
    )
    table = Table(title=f"plan of {found.study.name}", title_justify="left", show_header=False)
    who = "party" if found.study.parties else "site"
    rows = {
        "recipe": f"{recipe.info.name}: {recipe.info.title}",
        "protects": _protects(plan),
        f"{PLURAL[who]} and rounds": f"{_many(plan.sites, who)}, {_rounds(plan)}",
        "cohort": _cohort(plan, who),
        **_net(recipe),
        "mechanism": "; then ".join(mechanisms),
        **_shares(plan),
        f"a {who} sends": _sends(recipe),
        **_totals(plan),
    }
    for name, value in rows.items():
        table.add_row(f"[bold]{name}", value)
    return table


def _shares(plan: PrivacyPlan) -> dict[str, str]:
    """What it costs that no server is trusted, and what would make it cheaper."""
    mechanism = plan.own.parts[0].mechanism
    if not isinstance(mechanism, IntegerGaussian):
        return {}
    asked, t, c = mechanism.shares
    others = [
        f"{_times(math.sqrt(n / (s - d))).removesuffix(' as')} with {said}"
        for said, n, s, d in _other_shares(mechanism)
        if math.sqrt(n / (s - d)) < mechanism.surplus
    ]
    side = f"{c} of all {plan.sites} sites may side" if c else "no site is assumed to side"
    told = (
        f"at least {t} of {asked} sites must answer, and {side} with the server: any {t - c} "
        "shares make up the noise. If fewer answer, the round gives nothing and its ε is spent "
        f"all the same. If all answer, the noise is {_times(mechanism.surplus)} a trusted server's"
    )
    return {"noise in shares": "; it would be ".join(filter(None, (told, ", ".join(others))))}


def _times(factor: float) -> str:
    return "as much as" if f"{factor:.3g}" == "1" else f"{factor:.3g} times"


def _other_shares(mechanism: IntegerGaussian) -> Iterator[tuple[str, int, int, int]]:
    """What fewer colluders, no drop-outs and more sites would buy: (words, n, t, c)."""
    asked, t, c = mechanism.shares
    if c > 1:
        yield f"colluders = {c // 2}", asked, t, c // 2
    if c:
        yield "colluders = 0 (nothing promised against other sites)", asked, t, 0
    if t < asked:
        yield f"survivors = {asked} (every site must answer)", asked, asked, c
    more = 4 * asked
    yield f"{more} sites", more, *default_shares(more)


def _protects(plan: PrivacyPlan) -> str:
    if not plan.private:
        return "nothing: trust = none"
    most = "at most " if plan.unit == "person" else ""  # records are declared, persons are not
    return f"one {plan.unit} among {most}{plan.units:,}, {plan.trust} trust"


def _rounds(plan: PrivacyPlan) -> str:
    named = {"shared": "the shared net"}
    names = [" and ".join(named.get(p.name, p.name) for p in phase.parts) for phase in plan.phases]
    each = [
        f"{_many(phase.rounds, 'round')} of {name}"
        for phase, name in zip(plan.phases, names, strict=True)
    ]
    return ", then ".join(each) if len(each) > 1 else _many(plan.own.rounds, "round")


PLURAL = {"site": "sites", "party": "parties"}


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {PLURAL.get(noun, noun + 's')}"


def _cohort(plan: PrivacyPlan, who: str) -> str:
    own = plan.own
    if own.size is not None:
        often = "once" if own.calls == 1 else f"{own.calls:,} times"
        each = _many(own.size, "site")
        return f"{each} per round on a public schedule, each at most {often}"
    if own.rate is None:
        return f"every {who} in every round"
    return f"each site joins a round with probability {own.rate:g}, by a secret coin flip"


def _sends(recipe: Recipe) -> str:
    """What travels, in words a data owner can check."""
    size, plan = _message_bytes(recipe), recipe.plan
    rounds = f"in up to {_many(plan.participations, 'round')}"
    if plan.own.update_epsilon is None:
        told = f"{size} bytes" if size < 1000 else f"{size / 1e3:,.3g} kB"
        return f"up to {told} per round, {rounds}"
    whole = 4 * sum(math.prod(part.shape) for part in plan.own.parts)
    return f"{size} bytes and a header per round (chosen from {whole / 1e3:,.3g} kB), {rounds}"


def _net(recipe: Recipe) -> dict[str, str]:
    """What is trained, or which form a recipe takes, where the recipe says so."""
    found = {name: getattr(recipe, attribute, None) for name, attribute in _TOLD.items()}
    return {name: value for name, value in found.items() if value is not None}


def warn(study: Study, plan: PrivacyPlan, console: Console) -> None:
    """Print what a plan warns of."""
    for warning in warnings(study, plan):
        print_hanging(console, "[yellow]![/] ", warning)


def _totals(plan: PrivacyPlan) -> dict[str, str]:
    """ε per update, and in total per site, where choices are sent."""
    each, updates = plan.own.update_epsilon, plan.own.participations
    if each is None:
        return {}
    return {
        "ε per update": round_up(each),
        "total ε per site": f"{round_up(each * updates)} ({_many(updates, 'update')}; it refuses "
        "more)",
    }


def _projections(projected: Sequence[dict[str, float]]) -> Table:
    title = "projection, not a claim: other populations with the same noise on the mean"
    table = Table(title=title, title_justify="left", header_style="dim")
    for heading in ("sites", "rate", "z", "ε central", "ε distributed", "ε local", "δ"):
        table.add_column(heading, justify="right")
    for row in projected:
        table.add_row(
            f"{row['population']:,}",
            f"{row['rate']:.3g}",
            f"{row['noise']:.3g}",
            round_up(row["central"]),
            round_up(row["distributed"]),
            round_up(row["local"]),
            f"{row['delta']:.2g}",
        )
    return table
