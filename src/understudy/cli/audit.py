"""``understudy audit``: try to prove a study's privacy claims wrong."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from understudy.cli.console import (
    JSON,
    QUIET,
    bar,
    check_new,
    plain_errors,
    print_hanging,
    print_json,
    writing,
)

if TYPE_CHECKING:
    from understudy.audit import Audit

__all__ = ["audit"]

FILE = "audit.json"


def audit(
    study: Path = typer.Argument(..., help="The study file (study.toml)."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for audit.json."),
    replay: bool = typer.Option(
        False, "--replay", help="Only the replay: does any part move further than it declares?"
    ),
    recipe: Path | None = typer.Option(
        None, "--recipe", help="A Python file with a recipe of your own, which the study names."
    ),
    canaries: int = typer.Option(4000, min=200, max=8000, help="Canaries; more find more."),
    runs: int | None = typer.Option(
        None, min=0, max=100_000, help="Whole runs, each with one canary or none (2000 if tiny)."
    ),
    seed: int | None = typer.Option(None, help="Make the audit repeatable."),
    force: bool = typer.Option(False, "--force", help="Overwrite an earlier audit."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Measure a lower bound on ε beside each claim, on made-up rows; nothing is spent.

    A replay runs the recipe on neighbouring data and names the part that moves
    further than it declares. Canaries then measure how well the worst update
    can be told from none: many in one run, and for tiny studies one in many
    runs; and how well the worst row or site can be told from none. An audit
    falsifies, it never certifies. If a claim is proved wrong, the exit code
    is 11.

    Examples:

      understudy audit study.toml --out audit

      understudy audit study.toml --replay --out audit

      understudy audit study.toml --replay --recipe my_recipe.py --out audit
    """
    with plain_errors(json):
        check_new(out / FILE, force)
        from understudy.audit import audit as audit_study
        from understudy.audit.own import register
        from understudy.rng import Streams
        from understudy.study import Study

        if recipe is not None:
            register(recipe)
        rng = None if seed is None else Streams.from_seed(seed)
        terms = {"only_replay": replay, "many": canaries, "runs": runs, "rng": rng}
        with bar("auditing", quiet or json) as tick:
            found = audit_study(Study.load(study), progress=tick, **terms)  # type: ignore[arg-type]
        text = jsonlib.dumps(found.to_dict(), indent=2, ensure_ascii=False)
        with writing(out / FILE):
            out.mkdir(parents=True, exist_ok=True)
            (out / FILE).write_text(text + "\n", encoding="utf-8")
        if not json:
            show(found, out)
        found.check()
        if json:
            print_json({"ok": True, "out": str(out), "audit": found.to_dict()})


def show(found: Audit, out: Path) -> None:
    """The result as a table, and what it does not mean."""
    from understudy.audit.whole import CAVEAT

    console = Console()
    sign = "[red]✗[/]" if found.replay.findings else "[green]✓[/]"
    print_hanging(console, f"{sign} ", f"replay: {found.replay.words}")
    if found.bounds:
        console.print(_table(found))
    console.print(f"[dim]{CAVEAT}[/]")
    console.print(f"[green]✓[/] audit in [bold]{out / FILE}[/]", soft_wrap=True)


def _table(found: Audit) -> Table:
    """A line for each claim: what it says, and the largest of all lower bounds."""
    table = Table(header_style="dim")
    for heading in ("claim", "unit", "ε claimed", "ε at least", "by", ""):
        table.add_column(heading, justify="right" if heading.startswith("ε") else "left")
    for b in found.bounds:
        said = "[red]broken[/]" if b.broken else b.reason or "[green]not falsified[/]"
        told = f"against {b.claim.adversary}, {b.claim.relation}"
        figures = ("–" if e is None else f"{e:.3g}" for e in (b.claim.epsilon, b.least))
        table.add_row(told, b.claim.unit, *figures, b.way, said)
    return table
