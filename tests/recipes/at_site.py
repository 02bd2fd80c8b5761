"""Sites in one round, as a recipe's ``local`` is handed them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from understudy.data.shards import Shards
from understudy.federation.site import Site
from understudy.rng import Streams


def names(sites: int) -> tuple[str, ...]:
    return tuple(f"site-{i + 1}" for i in range(sites))


def first_memory(recipe: Any, sites: int) -> dict[str, Tensor]:
    """What sites keep before their first round ``[C, …]``."""
    each = [recipe.memory(name) for name in names(sites)]
    return {part: torch.stack([own[part] for own in each]) for part in each[0]} if each else {}


def at_site(
    recipe: Any, data: Shards, memory: dict | None = None, *, round: int = 0, seed: int = 0
) -> Site:
    """The sites of ``data``; without ``memory``, before their first round."""
    rng, ids = Streams.from_seed(seed), range(len(data))
    memory = first_memory(recipe, len(data)) if memory is None else memory
    own, secret = (rng.sites(purpose, round, ids) for purpose in ("local", "noise"))
    return Site(names(len(data)), data, memory, recipe.plan, round, own, secret)
