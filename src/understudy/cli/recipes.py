"""``understudy recipes``: what each system does, protects and needs."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from understudy.cli.console import JSON, plain_errors, print_json
from understudy.data.schema_toml import toml_value
from understudy.errors import StudyError
from understudy.federation.info import RecipeInfo
from understudy.settings import allowed, nearest

__all__ = ["recipes"]


def recipes(
    name: str | None = typer.Argument(None, help="One recipe, in detail."), json: bool = JSON
) -> None:
    """List the recipes, or explain one.

    Examples:  understudy recipes  ·  understudy recipes fedvae
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
    pairs = sorted(info.supports)
    return ", ".join(f"{unit}/{trust}" for unit, trust in pairs) or "none (not private)"


def _options(info: RecipeInfo) -> list[tuple[str, str, str, str]]:
    """Key, default and allowed values as they stand in a study file, and meaning."""
    hints = get_type_hints(info.options)
    return [
        (f.name, _default(f.default), _allowed(f, hints), str(f.metadata.get("help", "")))
        for f in fields(info.options)
    ]


def _allowed(declared: Field[Any], hints: dict[str, Any]) -> str:
    return allowed(hints[declared.name], declared.metadata.get("range"))


def _default(value: Any) -> str:
    if value is MISSING:
        return "required"
    return "(left out)" if value is None else toml_value(value)


def _options_json(info: RecipeInfo) -> list[dict[str, Any]]:
    hints = get_type_hints(info.options)
    return [
        {
            "name": f.name,
            "default": None if f.default is MISSING else f.default,
            "required": f.default is MISSING,
            "allowed": _choices(hints[f.name]) or _allowed(f, hints),
            "help": str(f.metadata.get("help", "")),
        }
        for f in fields(info.options)
    ]


def _choices(hint: Any) -> list[Any]:
    return list(get_args(hint)) if get_origin(hint) is Literal else []


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
        "options": _options_json(info),
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
    narrow = 16 if console.width < 120 else None  # room for the meaning
    for heading in ("key", "default", "allowed", "meaning"):
        width = narrow if heading == "allowed" else None
        table.add_column(heading, overflow="fold", max_width=width)
    for row in _options(info):
        table.add_row(*row)
    console.print(table)
