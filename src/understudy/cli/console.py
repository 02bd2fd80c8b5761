"""What all commands share: how errors, claims and progress look."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from understudy.errors import UnderstudyError
from understudy.privacy.claim import Claim, round_up
from understudy.release.card import added_up

__all__ = [
    "JSON",
    "QUIET",
    "bar",
    "claims_panel",
    "plain_errors",
    "print_json",
    "reading",
    "spinner",
]

JSON = typer.Option(False, "--json", help="Print JSON, for machines.")
QUIET = typer.Option(False, "--quiet", "-q", help="No progress bar.")


@contextmanager
def plain_errors(json: bool = False) -> Iterator[None]:
    """Turn an expected failure into a message and its exit code; never a traceback."""
    try:
        yield
    except UnderstudyError as error:
        if json:
            parts = {"expected": error.expected, "found": error.found, "do": error.do}
            print(jsonlib.dumps({"ok": False, "error": parts}, ensure_ascii=False))
        else:
            err = Console(stderr=True)
            err.print(f"[red]✗ expected[/] {escape(error.expected)}", highlight=False)
            err.print(f"  [red]found[/]    {escape(error.found)}", highlight=False)
            err.print(f"  [green]do[/]       {escape(error.do)}", highlight=False)
        raise typer.Exit(error.exit_code) from None


def print_json(value: Any) -> None:
    """One JSON document on standard output; infinity becomes null, as JSON has none."""
    print(jsonlib.dumps(value, indent=2, ensure_ascii=False))


_WIDE = 100  # columns of a terminal that has room for a bar, its note and two times
Tick = Callable[[int, int, str], None]


def _columns(width: int) -> tuple[ProgressColumn, ...]:
    """What a bar shows; a narrow terminal has no room for the time that has passed."""
    elapsed = (TimeElapsedColumn(),) if width >= _WIDE else ()
    return (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("[cyan]{task.fields[note]}"),
        *elapsed,
        TimeRemainingColumn(),
    )


@contextmanager
def bar(title: str, quiet: bool) -> Iterator[Tick]:
    """A progress bar; call it with (done, total, note)."""
    if quiet:
        yield lambda done, total, note: None
        return
    console = Console(stderr=True)
    with Progress(*_columns(console.width), console=console, transient=True) as progress:
        task = progress.add_task(title, total=1, note="")
        yield lambda done, total, note: progress.update(
            task, completed=done, total=total, note=note
        )


def reading(tick: Tick) -> Callable[[int, int], None]:
    """A bar as readers of files call it: of image files, which take long, they say how many."""
    return lambda done, total: tick(done, total, "reading images")


@contextmanager
def spinner(doing: str, quiet: bool) -> Iterator[None]:
    """A sign of life while something takes seconds and cannot say how many."""
    if quiet:
        yield
        return
    with Console(stderr=True).status(f"[bold]{doing} …"):
        yield


def _price(value: float | None) -> str:
    if value is None:
        return "[red]∞ (nothing promised)[/]"
    return f"[bold]{round_up(value, 4)}[/]"


def _check(claim: Claim) -> str:
    """ε by the second accountant; pure ε is a sum, which has none."""
    if claim.epsilon_rdp is None:
        return ""
    return "added up" if added_up([claim]) else round_up(claim.epsilon_rdp, 4)


def _claims_table(claims: Sequence[Claim]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    price = ("ε, added up", "δ") if added_up(claims) else ("ε", "δ", "ε by RDP")
    headings = ("against", "unit", "relation", *price)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for claim in claims:
        said = (claim.adversary, claim.unit, claim.relation, _price(claim.epsilon))
        cells = (*said, round_up(claim.delta, 2), _check(claim))
        table.add_row(*cells[: len(headings)])
    return table


def claims_panel(claims: Sequence[Claim]) -> Panel:
    """Every claim as a table, under the first in words."""
    lines = Table.grid(padding=(0, 0))
    lines.add_row(claims[0].words)
    lines.add_row("")
    lines.add_row(_claims_table(claims))
    for caveat in dict.fromkeys(caveat for claim in claims for caveat in claim.caveats):
        lines.add_row(f"[dim]• {escape(caveat)}[/]")
    return Panel(lines, title="privacy claim", title_align="left", border_style="cyan")
