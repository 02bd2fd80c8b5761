"""``understudy recipes``: what each system does, protects and needs."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from understudy.cli.console import JSON, plain_errors, print_hanging, print_json
from understudy.data.schema_toml import toml_value
from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.settings import allowed, nearest

__all__ = ["recipes"]


def recipes(
    name: str | None = typer.Argument(None, help="One recipe, in detail."), json: bool = JSON
) -> None:
    """List the recipes, or explain one.

    Examples:

      understudy recipes

      understudy recipes fedvae
    """
    with plain_errors(json):
        from understudy.recipes import infos

        found = infos()
        if name is not None and name not in found:
            how = f"choose one of these{nearest(name, found)}"
            raise StudyError(f"a recipe of {', '.join(found)}", repr(name), how)
        chosen = found if name is None else {name: found[name]}
        if json:
            print_json([_as_json(info) for info in chosen.values()])
        elif name is None:
            _show_all(found)
        else:
            _show_one(found[name])


def _trusts(info: RecipeInfo) -> str:
    rows = [f"{unit}/{trust}" for unit, trust in sorted(info.supports)]
    columns = [
        f"{unit}/{trust} (parties that hold columns)" for unit, trust in sorted(info.parties)
    ]
    return ", ".join((*rows, *columns)) or "none (not private)"


def _options(info: RecipeInfo) -> list[dict[str, Any]]:
    """Key, default, allowed values (a list, if they are few) and meaning of every option."""
    hints = get_type_hints(info.options)
    return [
        {
            "name": f.name,
            "default": None if f.default is MISSING else f.default,
            "required": f.default is MISSING,
            "allowed": _choices(hints[f.name]) or allowed(hints[f.name], f.metadata.get("range")),
            "help": str(f.metadata.get("help", "")),
        }
        for f in fields(info.options)
    ]


def _choices(hint: Any) -> list[Any]:
    return list(get_args(hint)) if get_origin(hint) is Literal else []


def _default(option: dict[str, Any]) -> str:
    """As it stands in a study file."""
    if option["required"]:
        return "required"
    return "(left out)" if option["default"] is None else toml_value(option["default"])


def _as_json(info: RecipeInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "summary": info.summary,
        "paper": info.paper,
        "kinds": list(info.kinds),
        "supports": [list(pair) for pair in sorted(info.supports)],
        "parties": [list(pair) for pair in sorted(info.parties)],
        "default": list(info.default),
        "rounds": info.rounds,
        "corrections": info.corrections,
        "options": _options(info),
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
    console.print()
    print_hanging(console, "[bold]paper[/]     ", info.paper)
    print_hanging(console, "[bold]data[/]      ", ", ".join(info.kinds))
    protects = f"{_trusts(info)}; by default {'/'.join(info.default)}"
    print_hanging(console, "[bold]protects[/]  ", protects)
    if info.corrections:
        print_hanging(console, "[bold]note[/]      ", info.corrections)
    table = Table(
        title=r"options, under \[recipe] in study.toml", title_justify="left", header_style="dim"
    )
    narrow = 16 if console.width < 120 else None  # room for the meaning
    for heading in ("key", "default", "allowed", "meaning"):
        width = narrow if heading == "allowed" else None
        table.add_column(heading, overflow="fold", max_width=width)
    hints = get_type_hints(info.options)
    for f, option in zip(fields(info.options), _options(info), strict=True):
        values = allowed(hints[f.name], f.metadata.get("range"))
        table.add_row(f.name, _default(option), values, option["help"])
    console.print(table)
