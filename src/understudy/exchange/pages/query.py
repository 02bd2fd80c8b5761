"""What a visitor wants to see of the pool: filters, order and page, from the address."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from understudy.exchange import pool
from understudy.exchange.refusal import Refused
from understudy.exchange.views import ReleaseView

__all__ = ["Query"]

_EACH = 24  # releases on a page
_SORTS = {
    "newest": "newest first",
    "epsilon": "smallest ε first",
    "pulls": "most pulled first",
    "size": "smallest file first",
    "member": "by member",
}


@dataclass(frozen=True)
class Query:
    """As it stands in the address; empty means any."""

    sort: str = "newest"
    member: str = ""
    recipe: str = ""
    covers: str = ""
    epsilon: str = ""
    page: str = "1"

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Query:
        """Those that are known; an order or a number that makes no sense is refused."""
        asked = cls(**{name: given[name] for name in cls.__dataclass_fields__ if name in given})
        if asked.sort not in _SORTS:
            raise Refused(422, f"an order: {', '.join(_SORTS)}", "another", "choose one of them")
        asked._filter()
        if not (asked.page.isdecimal() and len(asked.page) < 6 and int(asked.page) > 0):
            raise Refused(422, "a page from 1", "something else", "go back to the pool")
        return asked

    def _filter(self) -> pool.Asked:
        cap = None
        if self.epsilon:
            try:
                cap = float(self.epsilon)
            except ValueError:
                cap = math.nan
            if not cap > 0:
                raise Refused(422, "ε as a number above 0", "something else", "write it as 0.5")
        return pool.Asked(self.sort, self.recipe, self.member, cap, self.covers)

    def shown(self, everything: Sequence[ReleaseView]) -> dict[str, Any]:
        """What the page of the pool is made of; ``everything`` is in order already."""
        found = list(filter(self._filter(), everything))
        last = max(1, math.ceil(len(found) / _EACH))
        page = min(int(self.page), last)
        return {
            "releases": found[_EACH * (page - 1) : _EACH * page],
            "found": len(found),
            "total": len(everything),
            "page": page,
            "last": last,
            "turned": self._turned,
            "chosen": asdict(self),
            "choices": _choices(everything, self),
            "narrowed": bool(self.member or self.recipe or self.covers or self.epsilon),
        }

    def _turned(self, page: int) -> str:
        """The address of another page of the same."""
        asked = asdict(replace(self, page=str(page)))
        return "/?" + urlencode({name: value for name, value in asked.items() if value})


def _choices(
    releases: Sequence[ReleaseView], asked: Query
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, label, options) of each list that leaves a choice."""
    classes = {name: None for release in releases for name in release.classes}
    lists = [
        ("member", "Member", sorted({release.member for release in releases})),
        ("recipe", "Recipe", sorted({release.recipe for release in releases})),
        ("covers", "Has class", list(classes)),
    ]
    chosen = [
        (name, label, [("", "any"), *((value, value) for value in values)])
        for name, label, values in lists
        if len(values) > 1 or getattr(asked, name)
    ]
    return [("sort", "Order", list(_SORTS.items())), *chosen]
