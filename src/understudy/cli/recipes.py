"""``understudy recipes``: what each system does, protects and needs."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from understudy.cli.console import JSON, plain_errors, print_json
from understudy.errors import StudyError
from understudy.federation.recipe import RecipeInfo
from understudy.recipes import infos

__all__ = ["recipes"]


def recipes(
    name: str | None = typer.Argument(None, help="One recipe, in detail."), json: bool = JSON
) -> None:
    """List the recipes, or explain one.

    Examples:  understudy recipes  ·  understudy recipes fedvae
    """
    with plain_errors(json):
        found = infos()
        if name is not None and name not in found:
            raise StudyError(f"a recipe of {', '.join(found)}", repr(name), "choose one of these")
        chosen = found if name is None else {name: found[name]}
        if json:
            print_json([_as_json(info) for info in chosen.values()])
        elif name is None:
            _show_all(found)
        else:
            _show_one(found[name])


def _trusts(info: RecipeInfo) -> str:
    pairs = sorted(info.supports)
    return ", ".join(f"{unit}/{trust}" for unit, trust in pairs) or "none (not private)"


def _toml(value: Any) -> str:
    """A default as it stands in a study file."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(info: RecipeInfo) -> list[tuple[str, str, str]]:
    def default(f: Any) -> str:
        return "required" if f.default is MISSING else _toml(f.default)

    return [(f.name, default(f), str(f.metadata.get("help", ""))) for f in fields(info.options)]


def _as_json(info: RecipeInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "summary": info.summary,
        "paper": info.paper,
        "kinds": list(info.kinds),
        "supports": [list(pair) for pair in sorted(info.supports)],
        "default": list(info.default),
        "rounds": info.rounds,
        "corrections": info.corrections,
        "options": [dict(zip(("name", "default", "help"), o, strict=True)) for o in _options(info)],
    }


def _show_all(found: dict[str, RecipeInfo]) -> None:
    table = Table(title="recipes", title_justify="left", header_style="bold")
    for heading in ("name", "what it does", "data", "protects (unit/trust)"):
        table.add_column(heading, overflow="fold")
    for info in found.values():
        table.add_row(f"[bold]{info.name}", info.summary, ", ".join(info.kinds), _trusts(info))
    console = Console()
    console.print(table)
    console.print("understudy recipes NAME explains one.")


def _show_one(info: RecipeInfo) -> None:
    console = Console()
    console.print(f"[bold]{info.name}[/] — {info.title}\n")
    console.print(info.summary)
    console.print(f"\n[bold]paper[/]     {info.paper}")
    console.print(f"[bold]data[/]      {', '.join(info.kinds)}")
    console.print(f"[bold]protects[/]  {_trusts(info)}; by default {'/'.join(info.default)}")
    if info.corrections:
        console.print(f"[bold]note[/]      {info.corrections}")
    table = Table(
        title=r"options, under \[recipe] in study.toml", title_justify="left", header_style="dim"
    )
    for heading in ("key", "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for row in _options(info):
        table.add_row(*row)
    console.print(table)
