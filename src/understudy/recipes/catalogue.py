"""What each recipe is and may be told: the list that is read before any net is loaded.

``catalogue.json`` holds one entry per recipe; its keys are the fields of `RecipeInfo`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from understudy.federation.info import RecipeInfo
from understudy.recipes import options

__all__ = ["CATALOGUE"]


def _info(name: str, entry: dict[str, Any]) -> RecipeInfo:
    """An entry of the list, its pairs hashable and its options a class."""
    entry |= {"kinds": tuple(entry["kinds"]), "default": tuple(entry["default"])}
    entry |= {"supports": frozenset(map(tuple, entry["supports"]))}
    return RecipeInfo(name, **{**entry, "options": getattr(options, entry["options"])})


_TEXT = files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8")
CATALOGUE = {name: _info(name, entry) for name, entry in json.loads(_TEXT).items()}
