"""``understudy schema``: draft a public schema from a local file, check a file against it."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.console import (
    JSON,
    QUIET,
    READING,
    bar,
    check_place,
    plain_errors,
    print_hanging,
    print_json,
    writing,
)
from understudy.errors import DataError

if TYPE_CHECKING:
    from understudy.data.check import Finding

__all__ = ["app"]

app = typer.Typer(
    name="schema",
    help="Describe your data in public terms: draft a schema, check a file against one.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

MARKS = {"ok": "[green]✓[/]", "note": "[yellow]–[/]", "error": "[red]✗[/]"}


@app.command()
def draft(
    data: Path = typer.Argument(..., help="CSV, Parquet, npz or a folder of images."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file."),
    label: str | None = typer.Option(
        None, "--label", help="The column to predict: classes, or a number."
    ),
    name: str | None = typer.Option(None, "--name", help="The schema's name."),
    layout: str | None = typer.Option(
        None, "--layout", help="Series: the layout of the table: long, wide or recording."
    ),
    series: str | None = typer.Option(
        None, "--series", help="Series: the column that says which series a row belongs to."
    ),
    time: str | None = typer.Option(None, "--time", help="Series: the column of time steps."),
    length: int | None = typer.Option(
        None, "--length", min=1, help="Series: the number of time steps of a record."
    ),
    stride: int | None = typer.Option(
        None, "--stride", min=1, help="Series: steps from one window to the next."
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite the output."),
    json: bool = JSON,
) -> None:
    """Draft a schema from a local file, for you to edit.

    The draft is made from your rows: its bounds and categories are guesses
    and may reveal something about people. Columns that look like identifiers
    are left for you to decide.

    Examples:

      understudy schema draft patients.csv -o schema.toml --label diagnosis

      understudy schema draft scans/ -o schema.toml

      understudy schema draft air.csv -o schema.toml --length 24 --time datetime
    """
    with plain_errors(json):
        if output is not None:
            check_place(output, force)
        from understudy.data.draft import SeriesHints
        from understudy.data.draft import draft as draft_file

        hints = SeriesHints(layout, series, time, length, stride)
        said = hints if hints != SeriesHints() else None
        text, warnings = draft_file(data, label, name=name, series=said)
        if output is not None:
            with writing(output):
                output.write_text(text, encoding="utf-8")
    if json:
        place = None if output is None else str(output)
        print_json({"schema": text, "warnings": warnings, "output": place})
        return
    if output is None:
        print(text)
    console = Console(stderr=True)
    for warning in warnings:
        print_hanging(console, "[yellow]![/] ", warning)
    if output is not None:
        command = f"understudy schema check {shlex.quote(str(output))} {shlex.quote(str(data))}"
        console.print(f"Wrote {escape(str(output))}. Edit it, then run:", soft_wrap=True)
        console.print(f"  {escape(command)}", soft_wrap=True, highlight=False)


@app.command()
def check(
    schema: Path = typer.Argument(..., help="The public schema (TOML)."),
    data: Path = typer.Argument(..., help="CSV, Parquet, npz or a folder of images."),
    columns: str = typer.Option(
        "", "--columns", help="Of a party that holds only these columns, e.g. age,income."
    ),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Say in plain words whether a file fits the schema.

    Exit code 0 if it fits (public rules such as clamping may apply), 3 if it
    does not, 2 if the schema itself is wrong. The counts describe private
    rows: do not share them.

    Examples:

      understudy schema check schema.toml patients.csv

      understudy schema check schema.toml patients.parquet --json

      understudy schema check schema.toml clinic.csv --columns age,diagnosis
    """
    with plain_errors(json):
        from understudy.data.check import check as check_file
        from understudy.data.schema import Schema

        loaded = Schema.load(schema)
        if columns:
            loaded = loaded.project([name.strip() for name in columns.split(",")])
        with bar("checking", quiet or json) as tick:
            tick("reading rows", 0, 1)
            findings = check_file(loaded, data, progress=partial(tick, READING))
    fits = all(finding.level != "error" for finding in findings)
    if json:
        print_json({"ok": fits, "findings": [asdict(f) for f in findings]})
    else:
        _show(findings, fits)
    raise typer.Exit(0 if fits else DataError.exit_code)


def _show(findings: list[Finding], fits: bool) -> None:
    console = Console()
    table = Table(show_header=False, box=None, padding=(0, 1))
    for finding in findings:
        column = escape(finding.column or "")
        table.add_row(MARKS[finding.level], f"[bold]{column}[/]", escape(finding.text))
    console.print(table)
    console.print(
        "[green]The file fits the schema.[/]"
        if fits
        else "[red]The file does not fit: fix the lines marked ✗.[/]"
    )
    console.print("[dim]These counts describe private rows: do not share them.[/]")
