"""``understudy exchange``: the operator's commands, and the list of all."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from understudy.cli import exchanging, stewarding
from understudy.cli.console import JSON, plain_errors, print_hanging, print_json, writing
from understudy.errors import ExchangeError

__all__ = ["app"]

app = typer.Typer(
    name="exchange",
    help="Generators given and taken: serve, check, invite (operator); subscribe, push, pull …",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

PORT = 8703
SETTINGS = typer.Argument(..., help="The exchange's file, exchange.toml.")
_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic")


def _check_extra() -> None:
    """Say what to install, before an import fails."""

    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ExchangeError(
            "the libraries of an exchange's service",
            f"no {', '.join(missing)}",
            "in a clone of Understudy: pip install -e '.[exchange]'",
        )


@app.command()
def serve(
    settings: Path = SETTINGS,
    host: str = typer.Option("localhost", help="The address of this machine to listen on."),
    port: int = typer.Option(PORT, min=0, max=65535, help="The port; 0 takes any that is free."),
    cert: Path | None = typer.Option(None, "--cert", help="TLS certificate, PEM."),
    key: Path | None = typer.Option(None, "--key", help="Its private key, PEM."),
    insecure: bool = typer.Option(
        False, "--insecure", help="Without TLS: only behind a proxy that adds it."
    ),
) -> None:
    """Serve an exchange of generators, until Ctrl-C.

    Members subscribe with the code of an invitation, push releases, and pull
    those of others. Each push is checked in a process of its own before a
    steward is shown it. Makes store and tables where they are missing.

    Examples:

      understudy exchange serve exchange.toml

      understudy exchange serve exchange.toml --cert tls.pem --key tls.key
    """
    with plain_errors():
        _check_extra()
        from understudy.exchange.policy import Policy
        from understudy.exchange.serving import Address, open_exchange
        from understudy.exchange.serving import serve as run
        from understudy.simulation.verification import verify

        where = Address(host, port, cert, key, insecure)
        where.check()
        policy = Policy.load(settings)

        def opened(url: str) -> None:
            print(f"{policy.about.name} is served at {url}", flush=True)

        run(open_exchange(policy, verify), where, opened)


@app.command()
def check(settings: Path = SETTINGS, json: bool = JSON) -> None:
    """Compare store and database, blob by blob, and follow the audit log from end to end.

    Exit code 12 if they do not agree.

    Example:

      understudy exchange check exchange.toml
    """
    with plain_errors(json):
        _check_extra()
        from understudy.exchange.blobs import Blobs
        from understudy.exchange.database import Database
        from understudy.exchange.integrity import inspect
        from understudy.exchange.policy import Policy

        policy = Policy.load(settings)
        with closing(Database(policy.database)) as database:
            found = inspect(database, Blobs(policy.store))
        if found.faults:
            raise ExchangeError(
                "a store and a database that agree",
                "; ".join(found.faults),
                "restore both from one backup; see docs/exchange.md",
            )
        if json:
            about = {"releases": found.releases, "entries": found.entries, "head": found.head}
            print_json({"ok": True, **about})
            return
        console = Console()
        console.print(f"[green]✓[/] {found.releases} releases: each is in store and database")
        console.print(f"[green]✓[/] {found.entries} entries of the audit log: an unbroken chain")
        print_hanging(console, "  its head: ", found.head or "none yet")


@app.command()
def invite(
    settings: Path | None = typer.Argument(None, help="exchange.toml, on the service's machine."),
    keys: Path | None = typer.Option(None, "--keys", help="Or an admin's key folder, anywhere."),
    role: str = typer.Option("member", help="member, steward or admin."),
    json: bool = JSON,
) -> None:
    """Make a code with which one person can subscribe, within a week.

    Examples:

      understudy exchange invite exchange.toml --role admin

      understudy exchange invite --keys my-keys
    """
    with plain_errors(json):
        if keys is not None:
            made = exchanging.client_of(keys).invite(role)
            return _show_code(made["code"], role, made["expires"], json)
        _check_extra()
        from understudy.exchange.database import Database
        from understudy.exchange.members import OPERATOR
        from understudy.exchange.members import invite as make_code
        from understudy.exchange.policy import Policy

        if settings is None:
            raise ExchangeError("exchange.toml or --keys", "neither", "give one of them")
        policy = Policy.load(settings)
        with writing(policy.store):
            policy.store.mkdir(parents=True, exist_ok=True)
        with closing(Database(policy.database)) as database:
            database.migrate()
            with database.writing() as session:
                code, expires = make_code(session, OPERATOR, role)
        return _show_code(code, role, expires, json)


def _show_code(code: str, role: str, expires: float, json: bool) -> None:
    """Print an invitation."""
    if json:
        print_json({"ok": True, "code": code, "role": role, "expires": expires})
        return
    console = Console()
    console.print(f"[green]✓[/] for one {escape(role)}, within a week: [bold]{code}[/]")
    lead = "[cyan]→[/] they run: "
    print_hanging(console, lead, f"understudy exchange subscribe URL --keys FOLDER --code {code}")


app.command()(exchanging.subscribe)
app.command()(exchanging.requirements)
app.command()(exchanging.push)
app.command(name="list")(exchanging.show_list)
app.command()(exchanging.show)
app.command()(exchanging.pull)
app.command()(exchanging.withdraw)
app.command(name="open")(exchanging.open_pages)
app.command()(stewarding.queue)
app.command()(stewarding.approve)
app.command()(stewarding.reject)
app.command()(stewarding.members)
app.command()(stewarding.revoke)
app.command()(stewarding.role)
