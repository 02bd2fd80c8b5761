"""``understudy keys``: the parties of a federation make keys and come to trust each other's."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.console import JSON, done, plain_errors, print_hanging, print_json

__all__ = ["app"]

app = typer.Typer(
    name="keys",
    help="Keys of a federation: init (server), request (site), approve (server), install (site).",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

DAYS = typer.Option(365, "--days", help="How long certificates are valid.")
_SITE = typer.Argument(..., help="The site's key folder.")


def _say(mark: str, text: str) -> None:
    print_hanging(Console(), f"{mark} ", text)


def _next(text: str) -> None:
    _say("[cyan]→[/]", text)


def _show(what: str, printed: str) -> None:
    Console().print(f"  {escape(what)}: [bold]{printed}[/]", highlight=False, soft_wrap=True)


@app.command()
def init(
    folder: Path = typer.Argument(..., help="A new folder, which stays on the server."),
    name: str = typer.Option("", "--name", help="The server's name, which sites will see."),
    host: list[str] = typer.Option(
        [], "--host", help="A host name or IP address at which sites reach it; may be repeated."
    ),
    days: int = DAYS,
    renew: bool = typer.Option(
        False, "--renew", help="Keep the keys; make a new certificate, for another year or host."
    ),
    json: bool = JSON,
) -> None:
    """At the server: make an authority for this federation, and the server's own keys.

    Examples:

      understudy keys init hub-keys --name hub --host hub.hospital.example

      understudy keys init hub-keys --renew --host hub.hospital.example
    """
    with plain_errors(json):
        from understudy.deployment.enrolment import make_server, renew_server
        from understudy.deployment.keys import load_keys

        if renew:
            renew_server(folder, host, days)
            keys = load_keys(folder)
        else:
            keys = make_server(folder, name, host, days)
        printed = keys.listed.server_fingerprint
        if json:
            end = keys.expires.isoformat()
            print_json({"ok": True, "name": keys.name, "fingerprint": printed, "expires": end})
            return
        done(f"keys of server {keys.name} in {folder}, valid until {keys.expires:%d %B %Y}")
        _show("the server's fingerprint, for sites to compare", printed)
        if not host:
            _say("[yellow]–[/]", "no --host given: sites can reach it from this machine only")
        _next("each site runs: understudy keys request FOLDER --name SITE")


@app.command()
def request(
    folder: Path = typer.Argument(..., help="A new folder, which stays at the site."),
    name: str = typer.Option(..., "--name", help="The site's name, as in the study file."),
    json: bool = JSON,
) -> None:
    """At a site: make its keys, which never leave the folder, and a request to send to the server.

    Example:

      understudy keys request north-keys --name north
    """
    with plain_errors(json):
        from understudy.deployment.enrolment import make_site

        made, path = make_site(folder, name)
        if json:
            printed = made.fingerprint
            print_json({"ok": True, "name": name, "fingerprint": printed, "request": str(path)})
            return
        done(f"keys of site {name} in {folder}; the private ones never leave it")
        _show("the request's fingerprint", made.fingerprint)
        _next(
            f"for a federation, send {path} to the server, and read this fingerprint to its people "
            "by telephone"
        )


@app.command()
def approve(
    folder: Path = typer.Argument(..., help="The server's key folder."),
    requests: list[Path] = typer.Argument(..., help="Request files that sites have sent."),
    days: int = DAYS,
    yes: bool = typer.Option(False, "--yes", help="The fingerprints were compared: do not ask."),
    json: bool = JSON,
) -> None:
    """At the server: sign sites' requests, list the sites, and write a reply for each.

    All sites get a new reply when one is added, because each knows all others.
    Sites can be added until a run begins.

    Example:

      understudy keys approve hub-keys north.request.json south.request.json
    """
    with plain_errors(json):
        from understudy.deployment.enrolment import approve as sign_requests
        from understudy.deployment.enrolment import read_request
        from understudy.deployment.keys import load_keys

        read = [read_request(path) for path in requests]
        if not json:
            _table([(each.name, each.fingerprint) for each in read])
        if not yes:
            typer.confirm("Did each site read you the same fingerprint?", abort=True, err=json)
        replies = sign_requests(folder, read, days)
        keys = load_keys(folder)
        if json:
            said = {name: str(path) for name, path in replies.items()}
            print_json({"ok": True, "roster": keys.fingerprint, "replies": said})
            return
        done(f"{len(read)} approved; {len(keys.roster)} in the roster of {keys.name}")
        _show("the server's fingerprint", keys.listed.server_fingerprint)
        _show("the roster's fingerprint", keys.fingerprint)
        for name, path in replies.items():
            _next(f"send {path} to {name}, which runs: understudy keys install FOLDER {path.name}")


@app.command()
def install(
    folder: Path = _SITE,
    reply: Path = typer.Argument(..., help="The reply that the server has sent."),
    yes: bool = typer.Option(False, "--yes", help="The fingerprints were compared: do not ask."),
    json: bool = JSON,
) -> None:
    """At a site: check the server's reply and keep it.

    The server could list sites that do not exist. Secure sums rest on all sites
    seeing the same roster, of sites they know: compare its fingerprint with the
    other sites.

    Example:

      understudy keys install north-keys north.reply.json
    """
    with plain_errors(json):
        from understudy.deployment.enrolment import install as keep
        from understudy.deployment.enrolment import read_reply

        read = read_reply(folder, reply)
        if not json:
            sites = ", ".join(read.listed.roster.names)
            _say(" ", f"server {read.listed.server}; sites {sites}")
            _show("the server's fingerprint", read.listed.server_fingerprint)
            _show("the roster's fingerprint", read.listed.fingerprint)
        if not yes:
            asked = "Did the server's people and the other sites read you the same fingerprints?"
            typer.confirm(asked, abort=True, err=json)
        keys = keep(folder, read)
        if json:
            print_json({"ok": True, "name": keys.name, "roster": keys.fingerprint})
            return
        done(f"{keys.name} can join, until {keys.expires:%d %B %Y}")
        place = shlex.quote(str(folder))
        _next(f"understudy join STUDY --keys {place} --data FILE --server HOST:PORT")


@app.command()
def show(folder: Path = typer.Argument(..., help="A key folder."), json: bool = JSON) -> None:
    """Check a key folder, and show whose it is, until when it is valid, and its fingerprints.

    Example:

      understudy keys show north-keys
    """
    with plain_errors(json):
        from understudy.deployment.keys import fingerprint, load_keys

        keys = load_keys(folder)
        pairs = list(zip(keys.roster.names, keys.roster.keys, strict=True))
        if json:
            sites = {name: key.hex() for name, key in pairs}
            said = {"name": keys.name, "role": keys.role, "server": keys.server, "sites": sites}
            print_json({"ok": True, **said, "expires": keys.expires.isoformat()})
            return
        done(f"keys of {keys.role} {keys.name}, valid until {keys.expires:%d %B %Y}")
        _show("the server's fingerprint", keys.listed.server_fingerprint)
        _show("the roster's fingerprint", keys.fingerprint)
        _table([(name, fingerprint(key)) for name, key in pairs], "identity")


def _table(rows: list[tuple[str, str]], title: str = "fingerprint") -> None:
    table = Table(box=None, padding=(0, 2))
    table.add_column("site")
    table.add_column(title)
    for name, printed in rows:
        table.add_row(escape(name), printed)
    Console().print(table, highlight=False)
