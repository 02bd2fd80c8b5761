"""``understudy plan`` and ``understudy run``: what a study will cost, and the study itself."""

from __future__ import annotations

import math
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.console import (
    JSON,
    QUIET,
    bar,
    claims_panel,
    plain_errors,
    print_json,
    reading,
    spinner,
)
from understudy.cli.warnings import warnings
from understudy.data.split import check_options
from understudy.errors import StudyError
from understudy.federation.recipe import Recipe
from understudy.privacy.claim import Claim, claims, projection, round_up, spent_so_far
from understudy.privacy.plan import NO_BOUND, Part, PrivacyPlan
from understudy.privacy.respond import Response
from understudy.privacy.select import Selection
from understudy.recipes import build
from understudy.recipes.signds import SignDS
from understudy.release.bundle import Release
from understudy.run import run as run_study
from understudy.study import Study

__all__ = ["plan", "run", "train"]

SOLVING = "working out what it costs"
STUDY = typer.Argument(..., help="The study file (study.toml).")


def plan(
    study: Path = STUDY,
    project: str = typer.Option("", help="Populations to project to, e.g. 1000,30000."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Say what a study will cost and spend, before anything is trained.

    Nothing is read but the study file, its schema and rows it declares public; nothing is spent.

    Examples:

      understudy plan study.toml

      understudy plan study.toml --project 10000,100000 --json
    """
    with plain_errors(json):
        loaded = Study.load(study)
        if loaded.simulation:
            check_options(loaded.simulation.split, loaded.simulation.options)
        populations = _populations(project)
        with spinner(SOLVING, quiet or json):
            recipe = build(loaded)
            said = claims(recipe.plan, "os")
            projected = [projection(recipe.plan, n) for n in populations]
        if json:
            print_json(_as_json(loaded, recipe, said, projected))
        else:
            _show(loaded, recipe, said, projected)


def _populations(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.replace("_", "").split(",") if part.strip()]
    except ValueError:
        found = [0]
    if any(n < 2 for n in found):
        raise StudyError(
            "populations of 2 or more, with commas", repr(text), "--project 1000,30000"
        )
    return found


def _message_bytes(recipe: Recipe) -> int:
    """Of the largest message: phases send different parts."""
    return max(sum(part.bytes for part in phase.parts) for phase in recipe.plan.phases)


def _as_json(
    study: Study, recipe: Recipe, said: Sequence[Claim], projected: list[dict[str, float]]
) -> dict[str, Any]:
    return {
        "study": study.name,
        "hash": study.hash,
        "recipe": study.recipe,
        "plan": recipe.plan.to_dict(),
        "bytes_per_round_and_site": _message_bytes(recipe),
        "epsilon_per_update": recipe.plan.update_epsilon,
        "updates_per_site": sum(phase.participations for phase in recipe.plan.phases),
        "claims": [claim.to_dict() for claim in said],
        "warnings": warnings(study, recipe.plan),
        **_net(recipe),
        "projections": projected,
    }


def _show(
    study: Study, recipe: Recipe, said: Sequence[Claim], projected: list[dict[str, float]]
) -> None:
    console, found = Console(), recipe.plan
    table = Table(title=f"plan of {study.name}", title_justify="left", show_header=False)
    rows = {
        "recipe": f"{recipe.info.name} — {recipe.info.title}",
        "protects": _protects(found),
        "sites and rounds": f"{found.sites} sites, {_rounds(found)}",
        "cohort": _cohort(found),
        **_net(recipe),
        **_mechanisms(found),
        "a site sends": _sends(recipe),
        **_lifetime(found),
    }
    for name, value in rows.items():
        table.add_row(f"[bold]{name}", value)
    console.print(table)
    console.print(claims_panel(said))
    _warn(study, found, console)
    if recipe.info.corrections and found.trust != "none":  # they are about ε
        console.print(f"[dim]{recipe.info.corrections}[/]")
    if projected:
        console.print(_projections(projected))


def _protects(plan: PrivacyPlan) -> str:
    if plan.trust == "none":
        return "nothing: trust = none"
    return f"one {plan.unit} among {plan.units}, {plan.trust} trust"


def _rounds(plan: PrivacyPlan) -> str:
    first = f"{plan.first} round(s) of warm start, then " if plan.first else ""
    return f"{first}{plan.rounds} round(s)"


def _cohort(plan: PrivacyPlan) -> str:
    if plan.size is not None:
        most = f"none more than {plan.calls} time(s)"
        return f"{plan.size} sites a round by a public schedule, {most}"
    every = "every site, every round"
    return every if plan.rate is None else f"coin flips, rate {plan.rate:g}"


def _mechanisms(plan: PrivacyPlan) -> dict[str, str]:
    """What is done to what sites send, phase by phase; no line where it goes as it is."""
    if plan.trust == "none" and all(part.bound >= NO_BOUND for part in plan.parts):
        return {}
    name = "mechanism" if plan.update_epsilon else "bound and noise"
    phases = (", ".join(map(_mechanism, phase.parts)) for phase in plan.phases)
    return {name: "; then ".join(phases)}


def _mechanism(p: Part) -> str:
    if isinstance(p.rule, Selection):
        pool = f" of a random {p.rule.pool:,}" if p.rule.subset else ""
        return (
            f"{p.name}: {p.rule.output} of {p.rule.size:,} coordinates{pool}, top set "
            f"{p.rule.top:,}, expected share from it {_below_one(p.rule.law.share)} (chance alone: "
            f"{_below_one(p.rule.top / p.rule.pool)}), ε = {round_up(p.rule.epsilon)}"
        )
    if isinstance(p.rule, Response):
        price = round_up(p.rule.epsilon)
        return f"{p.name}: one bit, true with chance {p.rule.truth:.3g}, ε = {price}"
    return (
        f"{p.name}: norm ≤ {p.bound:.4g}, z = {p.noise:.4g} ({p.slot} slot)"
        + (f", {p.steps} step(s) per round" if p.slot == "step" else "")
        + (f", records by coin flips, rate {p.rate:.3g}" if p.rate else "")
    )


def _below_one(share: float) -> str:
    """Two digits of a share, more where they would make it look like all."""
    return f"{share:.2g}" if share < 0.995 else f"{math.floor(share * 1e3) / 1e3:g}"


def _sends(recipe: Recipe) -> str:
    """What travels, in words a data owner can check."""
    size, plan = _message_bytes(recipe), recipe.plan
    rounds = sum(phase.participations for phase in plan.phases)
    if plan.update_epsilon is None:
        return f"{size / 1e3:,.3g} kB in each of up to {rounds} round(s)"
    whole = 4 * sum(math.prod(part.shape) for part in plan.parts)
    chosen = sum(p.rule.output for p in plan.parts if isinstance(p.rule, Selection))
    bit = " and a bit" if any(isinstance(p.rule, Response) for p in plan.parts) else ""
    return (
        f"a sign, {chosen} coordinate(s){bit}: {size} bytes and an envelope of 0.6 kB (what they "
        f"are chosen from: {whole / 1e3:,.3g} kB), in each of up to {rounds} round(s)"
    )


def _net(recipe: Recipe) -> dict[str, str]:
    """What is trained, where a classifier is."""
    return {"net": recipe.about} if isinstance(recipe, SignDS) else {}


def _warn(study: Study, plan: PrivacyPlan, console: Console) -> None:
    for warning in warnings(study, plan):
        console.print(f"[yellow]![/] {escape(warning)}", highlight=False)


def _lifetime(plan: PrivacyPlan) -> dict[str, str]:
    """ε per update beside that of a site's whole life, where choices are sent."""
    if plan.update_epsilon is None:
        return {}
    return {
        "ε per update": round_up(plan.update_epsilon),
        "ε of a site's life": f"{round_up(plan.update_epsilon * plan.participations)} "
        f"({plan.participations} update(s); it refuses more)",
    }


def _projections(projected: list[dict[str, float]]) -> Table:
    title = "projection, not a claim: the same noise on the mean, other populations"
    table = Table(title=title, title_justify="left", header_style="dim")
    for heading in ("sites", "rate", "z", "ε central", "ε local", "δ"):
        table.add_column(heading, justify="right")
    for row in projected:
        table.add_row(
            f"{row['population']:,}",
            f"{row['rate']:.3g}",
            f"{row['noise']:.3g}",
            round_up(row["central"]),
            round_up(row["local"]),
            f"{row['delta']:.2g}",
        )
    return table


def run(
    study: Path = STUDY,
    out: Path = typer.Option(..., "--out", "-o", help="The release folder (or .zip) to make."),
    seed: int | None = typer.Option(
        None, help="Make the run repeatable; its claims then say simulation."
    ),
    resume: bool = typer.Option(False, "--resume", help="Go on with an interrupted run."),
    rows: int = typer.Option(1000, help="Rows of the sample inside the release."),
    wire: bool = typer.Option(False, "--wire", help="Send every message through the byte format."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Run a study with all sites in this process and make a release.

    Ctrl-C ends the round and keeps what was done; --resume goes on without spending twice.

    Examples:

      understudy run study.toml --out release

      understudy run study.toml --out release --resume
    """
    with plain_errors(json):
        loaded = Study.load(study)
        try:
            release = train(
                loaded, out, quiet or json, seed=seed, resume=resume, wire=wire, rows=rows
            )
        except KeyboardInterrupt:
            _say_interrupted(study, out)
            raise typer.Exit(130) from None
        if json:
            print_json(
                {"ok": True, "release": str(out), "claims": [c.to_dict() for c in release.claims]}
            )
        else:
            _say_done(loaded, release, out)


def train(study: Study, out: Path, quiet: bool, **options: Any) -> Release:
    """Run a study under a progress bar that shows rounds and ε so far."""
    with spinner(SOLVING, quiet):
        price = _price_so_far(build(study))
    with bar(f"training {study.name}", quiet) as tick, _between_rounds() as interrupted:
        tick(0, 1, "reading rows")

        def progress(done: int, total: int) -> None:
            tick(done, total, "" if quiet else price(done))
            if interrupted() and done < total:
                raise KeyboardInterrupt

        def read(done: int, total: int) -> None:
            reading(tick)(done, total)
            if interrupted():  # nothing is spent yet: there is no round to wait for
                raise KeyboardInterrupt

        return run_study(study, out=out, reading=read, progress=progress, **options)


@contextmanager
def _between_rounds() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait for the round to end, so that its charge is not wasted."""
    pressed = []

    def note(*_: object) -> None:
        pressed.append(True)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _price_so_far(recipe: Recipe) -> Callable[[int], str]:
    """ε spent after so many rounds, at a dozen points of the run (accounting takes a moment)."""
    length = recipe.plan.length
    step = max(1, length // 12)
    known = lru_cache(lambda rounds: spent_so_far(recipe.plan, rounds))
    of = f"per {recipe.plan.unit} " if recipe.plan.unproven else ""
    found = [claim.epsilon for claim in claims(recipe.plan, "os") if claim.epsilon is not None]
    promised = found[0] if found else float("inf")

    def note(done: int) -> str:
        charged = min(done + 1, length)  # the round at hand is charged before its noise is drawn
        reached = length if charged == length else -(-charged // step) * step
        spent = min(known(min(reached, length)), promised)
        warm = "warm start and pre-training, " if done < recipe.plan.first else ""
        return f"{warm}{of}ε ≤ {round_up(spent)} so far"

    return (lambda done: "not private") if recipe.plan.trust == "none" else note


def _say_done(study: Study, release: Release, out: Path) -> None:
    console = Console()
    console.print(claims_panel(release.claims))
    _warn(study, release.plan, console)
    place = shlex.quote(str(out))
    console.print(f"[green]✓[/] release in [bold]{out}[/]", soft_wrap=True)
    console.print(f"  understudy verify {place}", soft_wrap=True)
    for use in _uses(release, place):
        console.print(f"  understudy {use}", soft_wrap=True)


def _uses(release: Release, place: str) -> tuple[str, ...]:
    """What to do next with a generator, or with a classifier."""
    if release.model.role == "classifier":
        return (f"predict {place} --data YOUR_ROWS -o predictions.csv",)
    in_tables = release.schema.kind == "table" or release.schema.layout is not None
    rows = "synthetic.csv" if in_tables else "synthetic.npz"
    evaluate = f"evaluate {place} --real YOUR_ROWS --out report"
    return f"sample {place} -n 1000 -o {rows}", evaluate


def _say_interrupted(study: Path, out: Path) -> None:
    console = Console(stderr=True)
    if not out.with_name(out.name + ".partial").exists():
        console.print("[yellow]Interrupted.[/] Nothing was spent yet.")
        return
    console.print(
        "[yellow]Interrupted.[/] What was charged stays charged; what was learned is kept."
    )
    command = f"understudy run {shlex.quote(str(study))} --out {shlex.quote(str(out))} --resume"
    console.print(f"Go on with:  {command}", soft_wrap=True)
