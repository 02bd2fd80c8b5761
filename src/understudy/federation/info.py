"""What a recipe is, without the recipe: read before any net is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.privacy.terms import Trust, Unit
from understudy.settings import Settings

__all__ = ["RecipeInfo"]


@dataclass(frozen=True)
class RecipeInfo:
    """What `understudy recipes` shows, and the table of what is supported."""

    name: str
    title: str
    paper: str
    summary: str
    kinds: tuple[str, ...]
    supports: frozenset[tuple[Unit, Trust]]
    default: tuple[Unit, Trust]
    options: type = Settings
    rounds: int = 1
    corrections: str = ""
    parties: frozenset[tuple[Unit, Trust]] = frozenset()  # where parties hold columns, if they may
    cohort: int = 1  # sites of a round at least, where a recipe of choices may set its own rounds
