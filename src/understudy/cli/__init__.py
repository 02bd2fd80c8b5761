"""The command ``understudy``: one file per group of commands.

Command bodies import what they need, so that help and lists appear at once.
"""

from __future__ import annotations

import typer

from understudy import __version__
from understudy.cli import (
    align,
    audit,
    demo,
    doctor,
    exchange,
    keys,
    ledger,
    network,
    predict,
    recipes,
    release,
    schema,
    study,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="understudy",
    help="One synthetic dataset from data owners who may not share rows.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,  # locals may hold records
)

app.command()(demo.demo)
app.command()(recipes.recipes)
app.add_typer(schema.app, name="schema")
app.add_typer(align.app, name="align")
app.command()(study.plan)
app.command()(study.run)
app.command()(network.serve)
app.command()(network.join)
app.command()(release.sample)
app.command()(predict.predict)
app.command()(release.evaluate)
app.command()(release.verify)
app.command()(audit.audit)
app.add_typer(keys.app, name="keys")
app.add_typer(ledger.app, name="ledger")
app.add_typer(exchange.app, name="exchange")
app.command()(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"understudy {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Global options."""


def main() -> None:
    """Entry point."""
    app()
