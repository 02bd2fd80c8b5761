"""``understudy ledger``: what has been spent here, on what, and what is left."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.console import JSON, plain_errors, print_hanging, print_json
from understudy.errors import ReleaseError

if TYPE_CHECKING:
    from understudy.privacy.ledger import Entry
    from understudy.privacy.spending import Charged, Spending

__all__ = ["app"]

app = typer.Typer(
    name="ledger",
    help="What has been spent here, on what, and what is left: show and verify ledgers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command()
def show(
    path: Path = typer.Argument(..., help="A ledger, or a folder that holds ledgers."),
    json: bool = JSON,
) -> None:
    """Say in plain words what a site or a run has spent. Nothing is changed.

    Examples:

      understudy ledger show north.jsonl

      understudy ledger show release
    """
    with plain_errors(json):
        from understudy.privacy.spending import find, read

        found = {file: read(file) for file in find(path)}
        if json:
            print_json({"ok": True, "ledgers": [_told(f, each) for f, each in found.items()]})
            return
        for file, entries in found.items():
            _print(file, entries)


@app.command()
def verify(
    file: Path = typer.Argument(..., help="A ledger."),
    since: str | None = typer.Option(
        None,
        "--since",
        metavar="POSITION",
        help="What an earlier verify printed: has anything been lost since?",
    ),
    json: bool = JSON,
) -> None:
    """Check that no entry was altered or removed; with --since, that none of the last is gone.

    Examples:

      understudy ledger verify north.jsonl

      understudy ledger verify north.jsonl --since 12:9f3a61c07d25be48
    """
    with plain_errors(json):
        from understudy.privacy.spending import check_position, find, position_of, read

        files = find(file)
        if len(files) > 1:
            raise ReleaseError("one ledger", f"{len(files)} in {file}", "name one of them")
        entries = read(files[0])
        if since is not None:
            check_position(entries, since)
        position = position_of(entries)
        if json:
            print_json({"ok": True, "entries": len(entries), "position": position})
            return
        console = Console()
        print_hanging(console, "[green]✓[/] ", f"{len(entries)} entries, an unbroken chain")
        if since is not None:
            print_hanging(console, "[green]✓[/] ", f"nothing was lost since {since}")
        else:
            said = "that the last entries are not gone shows only against a position written down"
            print_hanging(console, "[yellow]–[/] ", f"{said} before: give it as --since")
        console.print(f"  its position is now [bold]{position}[/]: write it down", highlight=False)


def _told(file: Path, entries: list[Entry]) -> dict[str, Any]:
    from understudy.privacy.spending import charged, position_of, spending

    if entries and entries[0]["kind"] == "open":
        run = charged(entries)
        said: dict[str, Any] = {"study": run.study, "rounds": run.rounds, "planned": run.planned}
        said["claims"] = [claim.to_dict() for claim in run.claims]
    else:
        spent = spending(entries)
        said = {**asdict(spent), "left": spent.left}
    return {"file": str(file), "position": position_of(entries), **said}


def _print(file: Path, entries: list[Entry]) -> None:
    from understudy.privacy.spending import charged, spending

    console = Console()
    if entries and entries[0]["kind"] == "open":
        _print_run(console, file, charged(entries))
    else:
        _print_site(console, file, spending(entries))


def _print_run(console: Console, file: Path, run: Charged) -> None:
    kind = "the ledger of one run"
    console.print(f"[bold]{escape(str(file))}[/]: {kind}", highlight=False, soft_wrap=True)
    said = f"study {run.study[:12]}: {run.rounds} of {run.planned} rounds were charged"
    print_hanging(console, "  ", said)
    if run.rounds < run.planned:
        rest = "what is below is the cost of the whole plan, which bounds that of a part"
        print_hanging(console, "  [yellow]–[/] ", rest)
    for claim in run.claims:
        print_hanging(console, "  • ", claim.words)


def _print_site(console: Console, file: Path, spent: Spending) -> None:
    from understudy.privacy.account import round_up

    kind = "what the people in these rows have been exposed to"
    console.print(f"[bold]{escape(str(file))}[/]: {kind}", highlight=False, soft_wrap=True)
    if not spent.runs:
        print_hanging(console, "  ", "nothing has been spent")
        return
    console.print(_runs(spent))
    many = "1 run" if len(spent.runs) == 1 else f"{len(spent.runs)} runs together"
    total = f"{many}: ε = {round_up(spent.epsilon)} at δ = {round_up(spent.delta, 2)}"
    print_hanging(console, "  ", f"{total}, for each {spent.runs[0].unit.split(',')[0]}")
    if spent.cap is None:
        print_hanging(console, "  [yellow]–[/] ", "no cap: nothing limits what may be spent here")
        return
    left = f"ε = {spent.left:.3g}" if spent.left else "nothing"
    print_hanging(console, "  ", f"the cap is ε = {spent.cap:g}: {left} is left")
    print_hanging(
        console,
        "  ",
        "A run counts in full from its first round on, also if it was not finished.",
    )


def _runs(spent: Spending) -> Table:
    from understudy.privacy.account import round_up

    table = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("when (UTC)", "study", "protects", "ε", "δ", "result"):
        table.add_column(heading, overflow="fold")
    for run in spent.runs:
        result = "released" if run.released else "no release noted"
        when = run.when[:16].replace("T", " ") or "not noted"
        study = escape(run.study) or f"run {run.run[:8]}"
        price = (round_up(run.epsilon), round_up(run.delta, 2))
        table.add_row(when, study, f"a {run.unit}", *price, result)
    return table
