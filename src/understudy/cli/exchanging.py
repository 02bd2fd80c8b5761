"""``understudy exchange``: a member's commands, each a call of `exchange.client`."""

from __future__ import annotations

import json as jsonlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.console import (
    JSON,
    QUIET,
    bar,
    check_place,
    done,
    plain_errors,
    print_hanging,
    print_json,
    spinner,
    writing,
)
from understudy.errors import ExchangeError

if TYPE_CHECKING:
    from understudy.exchange.client import Client

KEYS = typer.Option(..., "--keys", help="This member's key folder (understudy keys request).")
ID = typer.Argument(..., metavar="ID", help="A release's id, as list shows it.")


def client_of(keys: Path) -> Client:
    """The member of this key folder; loaded here, so that help appears at once."""
    from understudy.exchange.client import Client

    return Client.load(keys)


_WHOLE = ("id", "recipe", "state", "ε", "pulls", "role", "pushed")


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print rows under their headings; only what may be long is folded, also in 80 columns."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        made.add_column(name, no_wrap=name in _WHOLE, overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    Console().print(made, highlight=False)


def day(when: float | None) -> str:
    """A time, as people here write it."""
    return "–" if when is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def eps(value: float | None) -> str:
    """An ε, never below the truth."""
    from understudy.privacy.account import round_up

    return "–" if value is None else round_up(value)


def subscribe(
    url: str = typer.Argument(..., help="The exchange: https://HOST:PORT."),
    keys: Path = KEYS,
    code: str = typer.Option(..., "--code", help="The code of your invitation."),
    ca: Path | None = typer.Option(None, "--ca", help="The authority of its certificate, PEM."),
    insecure: bool = typer.Option(False, "--insecure", help="http over a network, at your risk."),
    json: bool = JSON,
) -> None:
    """Become a member of an exchange, and see what it asks of generators.

    The key folder remembers the exchange for the other commands.

    Examples:

      understudy keys request my-keys --name north

      understudy exchange subscribe https://hub:8703 --keys my-keys --code 4f1c…
    """
    with plain_errors(json):
        from understudy.exchange.client import Client, Site

        site = Site(url, str(ca or ""), insecure)
        client, asked = Client.subscribe(site, keys, code)
        if json:
            print_json({"ok": True, "name": client.link.name, "requirements": asked})
            return
        done(f"{client.link.name} is a member of {asked['name']}")
        _say_requirements(asked)


def requirements(
    keys: Path = KEYS,
    schema: Path | None = typer.Option(None, "--schema", help="Write the schema to this file."),
    force: bool = typer.Option(False, "--force", help="Overwrite it."),
    json: bool = JSON,
) -> None:
    """Show what a generator must be to be taken, and write the schema that it must have.

    Example:

      understudy exchange requirements --keys my-keys --schema schema.toml
    """
    with plain_errors(json):
        if schema is not None:
            check_place(schema, force)
        asked = client_of(keys).requirements()
        if schema is not None:
            with writing(schema):
                schema.write_text(asked["schema"], encoding="utf-8")
        if json:
            print_json({"ok": True, "requirements": asked})
        else:
            _say_requirements(asked)


def _say_requirements(asked: dict[str, Any]) -> None:
    after = "after a push of your own was accepted" if asked["pull_after_push"] else "at any time"
    told = {
        "privacy": f"one {asked['unit']}, ε ≤ {asked['epsilon']:g} at δ = {asked['delta']:g}, "
        "over all pushes of the same data",
        "trust": ", ".join(asked["trust"]),
        "generators": ", ".join(asked["kinds"]) or "all kinds",
        "size": f"at most {asked['megabytes']:g} MB",
        "schema": asked["schema_hash"][:16] + "…",
        "pull": after,
        "licence": asked["licence"] or "none stated",
    }
    for name, text in told.items():
        print_hanging(Console(), f"  {name:<11}", text)


def push(
    release: Path = typer.Argument(..., help="A release folder or .zip."),
    keys: Path = KEYS,
    dataset: str = typer.Option(
        "main", "--data", help="What you call these rows: pushes of the same data share a budget."
    ),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Give a generator to the exchange, which checks it before a steward is shown it.

    An upload that was cut short goes on where it was: run the command again.

    Example:

      understudy exchange push release --keys my-keys --data ward-a
    """
    with plain_errors(json):
        with bar("pushing", quiet or json) as tick:
            found = client_of(keys).push(release, dataset, tick)
        if found["state"] == "refused":
            raise ExchangeError(**found["reason"])
        if json:
            print_json({"ok": True, "push": found})
            return
        state = {"pending": "waits for a steward", "accepted": "is in the pool"}[found["state"]]
        done(f"{found['id']} passed the checks and {state}")
        spent = f"ε = {eps(found['together'])} is spent on {dataset}"
        print_hanging(Console(), "  ", f"{spent}, of it {eps(found['epsilon'])} by this push")


def show_list(
    keys: Path = KEYS,
    own: bool = typer.Option(False, "--own", help="Your own pushes, and what you have spent."),
    sort: str = typer.Option("newest", help="newest, epsilon, pulls, size or member."),
    recipe: str = typer.Option("", help="Only of this recipe."),
    member: str = typer.Option("", help="Only of this member."),
    epsilon: float | None = typer.Option(None, help="Only with an ε of at most this."),
    json: bool = JSON,
) -> None:
    """List the generators in the pool, or your own pushes.

    Examples:

      understudy exchange list --keys my-keys --sort epsilon

      understudy exchange list --keys my-keys --own
    """
    with plain_errors(json):
        client = client_of(keys)
        if own:
            return _list_own(client.pushes(), client.me(), json)
        asked = {"sort": sort, "recipe": recipe, "member": member, "epsilon": epsilon}
        found = client.releases(**asked)
        if json:
            print_json({"ok": True, "releases": found})
            return
        table_of(found)


def table_of(found: list[dict[str, Any]]) -> None:
    """Print releases."""
    columns = ["id", "member", "data", "recipe", "ε", "pulls", "name"]
    rows = [
        [
            each["id"], each["member"], each["dataset"], each["recipe"], eps(each["epsilon"]),
            str(each["pulls"]), each["name"],
        ]
        for each in found
    ]  # fmt: skip
    table(columns, rows)


def _list_own(pushes: list[dict[str, Any]], me: dict[str, Any], json: bool) -> None:
    if json:
        print_json({"ok": True, "me": me, "pushes": pushes})
        return
    for budget in me["budgets"]:
        spent = f"ε = {eps(budget['epsilon'])} of {budget['cap']:g} is spent"
        print_hanging(Console(), "  ", f"{budget['dataset']}: {spent}")
    rows = [
        [
            each["id"], each["dataset"], each["state"], eps(each["epsilon"]), day(each["begun"]),
            (each["reason"] or {}).get("found", ""),
        ]
        for each in pushes
    ]  # fmt: skip
    table(["id", "data", "state", "ε", "pushed", "why"], rows)


def show(id: str = ID, keys: Path = KEYS, json: bool = JSON) -> None:
    """Show all that is known of a release: claims, provenance, checks, who pulled it.

    Example:

      understudy exchange show 0123456789abcdef --keys my-keys
    """
    with plain_errors(json):
        found = client_of(keys).show(id)
        if json:
            print_json({"ok": True, **found})
            return
        release, console = found["release"], Console()
        table_of([release])
        for lead, key in (("claim  ", "claims"), ("check  ", "checks"), ("note   ", "notes")):
            for line in found[key]:
                print_hanging(console, f"  {lead}", line)
        took = ", ".join(each["member"] for each in found["pulled_by"]) or "nobody yet"
        print_hanging(console, "  pulled ", f"by {took}")


def pull(
    ids: list[str] = typer.Argument(None, help="Releases; by default all but your own."),
    keys: Path = KEYS,
    n: int = typer.Option(1000, "-n", min=1, help="Rows in all, classes in equal numbers."),
    output: Path = typer.Option(..., "--output", "-o", help="CSV or Parquet; images: npz."),
    folder: Path = typer.Option(
        Path("pulled"), "--folder", help="Where releases are kept; those that are there stay."
    ),
    screen: Path | None = typer.Option(
        None,
        "--screen",
        metavar="REAL",
        help="Rows of your own: drop generators that do harm, as judged by them.",
    ),
    seed: int | None = typer.Option(None, help="Draw the same rows again."),
    force: bool = typer.Option(False, "--force", help="Overwrite the output."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Make one class-balanced dataset from generators of the pool.

    Each release is verified here, whatever the exchange says of it. With
    --screen, generators are tried on rows of your own, which stay here.
    What came from where is in a file beside the output.

    Examples:

      understudy exchange pull --keys my-keys -n 10000 -o rows.parquet

      understudy exchange pull --keys my-keys -o rows.csv --screen own.csv
    """
    with plain_errors(json):
        check_place(output, force)
        from understudy.data.table import read, write
        from understudy.exchange.dataset import balanced
        from understudy.exchange.screen import screen as find_harm
        from understudy.rng import Streams
        from understudy.simulation.verification import verify

        client, rng, told = client_of(keys), Streams.from_seed(seed), []
        chosen = ids or [
            each["id"] for each in client.releases() if each["member"] != client.link.name
        ]
        if not chosen:
            raise ExchangeError("generators of others in the pool", "none", "come back later")
        with bar("pulling", quiet or json) as tick:
            releases = client.pull(chosen, folder, verify, tick)
        if screen is not None:
            own = read(screen, next(iter(releases.values())).schema)
            with bar("screening", quiet or json) as tick:
                told = find_harm(releases, own, rng=rng.child("screen"), tick=tick)
            dropped = {each.name for each in told if each.dropped}
            releases = {id: each for id, each in releases.items() if id not in dropped}
            _show_screened(told, json)
        if not releases:
            raise ExchangeError(
                "a generator that does no harm", "none of these", "choose others; exchange list"
            )
        with spinner("drawing", quiet or json):
            made = balanced(releases, n, rng=rng.child("rows"))
            write(made.records, output)
        counts = {id: dict(own) for id, own in made.counts.items()}
        about = {"rows": len(made.rows), "from": counts, "screened": [vars(each) for each in told]}
        beside = output.with_name(f"{output.name}.sources.json")
        with writing(beside):
            beside.write_text(jsonlib.dumps(about, indent=2) + "\n", encoding="utf-8")
        if json:
            print_json({"ok": True, "output": str(output), **about, "missing": made.missing})
            return
        makers = "one generator" if len(releases) == 1 else f"{len(releases)} generators"
        done(f"{len(made.rows):,} rows of {makers} in {output}")
        if made.missing:
            lead = "[yellow]–[/] no generator knows "
            print_hanging(Console(), lead, ", ".join(made.missing))


def _show_screened(told: list[Any], json: bool) -> None:
    if json:
        return
    rows = [
        [
            each.name, f"{each.alone:.3f}", f"{each.beside:.3f}", f"{each.without:.3f}",
            f"dropped: {each.why}" if each.dropped else "kept",
        ]
        for each in told
    ]  # fmt: skip
    table(["id", "alone", "with it", "without", ""], rows)


def withdraw(id: str = ID, keys: Path = KEYS, json: bool = JSON) -> None:
    """Take a release of yours out of the pool; what was pulled stays out there, and is spent.

    Example:

      understudy exchange withdraw 0123456789abcdef --keys my-keys
    """
    with plain_errors(json):
        found = client_of(keys).withdraw(id)
        print_json({"ok": True, "push": found}) if json else done(f"{id} is withdrawn")


def open_pages(
    keys: Path = KEYS,
    browser: bool = typer.Option(True, help="Open it in the browser of this machine, too."),
    json: bool = JSON,
) -> None:
    """Print a link that signs a browser in to the pages, once, within two minutes.

    Example:

      understudy exchange open --keys my-keys
    """
    with plain_errors(json):
        import webbrowser

        url = client_of(keys).open()
        if json:
            print_json({"ok": True, "url": url})
            return
        print(url, flush=True)
        if browser:
            webbrowser.open(url)
