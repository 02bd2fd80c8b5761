"""How a release that waits differs from those in the pool, for a steward to look at.

It compares what both would show anyway, rows drawn from generators, so it costs no privacy. Being
different proves nothing: noise differs, and members' people do. `usual` says how far apart those
are that are in the pool already. Labels that are swapped do not show in columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from understudy.exchange.views import ReleaseView

__all__ = ["Unlike", "unlike", "usual"]

_NAMED = 3
_TRIED = 30  # releases of the pool that are held against each other


@dataclass(frozen=True)
class Unlike:
    """A column, or the classes, and the share of rows that would have to change to match."""

    what: str
    share: float


def unlike(release: ReleaseView, pool: Sequence[ReleaseView]) -> list[Unlike]:
    """Where it is furthest from the mean of what others have in the pool; empty without others."""
    others = [each for each in pool if each.member != release.member]
    if not others:
        return []
    found = [
        Unlike(name, _distance(counts, [_columns(each).get(name, {}) for each in others]))
        for name, counts in _columns(release).items()
    ]
    if release.classes:
        classes = [each.classes for each in others]
        found.append(Unlike("the shares of classes", _distance(release.classes, classes)))
    return sorted(found, key=lambda each: -each.share)[:_NAMED]


def usual(pool: Sequence[ReleaseView]) -> float | None:
    """How far the furthest of these is for a release in the pool: a median; None without others."""
    some = pool[:_TRIED]
    furthest = [found[0].share for each in some if (found := unlike(each, some))]
    return median(furthest) if furthest else None


def _columns(release: ReleaseView) -> dict[str, Mapping[str, float]]:
    columns: list[dict[str, Any]] = release.preview.get("columns", [])
    return {c["name"]: dict(zip(c["labels"], c["counts"], strict=True)) for c in columns}


def _distance(own: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> float:
    """Total variation between one distribution and the mean of others."""
    mean: dict[str, float] = defaultdict(float)
    for other in others:
        for name, share in _shares(other).items():
            mean[name] += share / len(others)
    shares = _shares(own)
    return sum(abs(shares.get(name, 0) - mean[name]) for name in shares.keys() | mean.keys()) / 2


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values()) or 1
    return {name: count / total for name, count in counts.items()}
