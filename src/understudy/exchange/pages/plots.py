"""Small pictures as inline SVG, without colours of their own: the style sheet has them.

They stretch to the width they are given, so all text stands beside them, in HTML. A picture either
has a label that says the same in words, or is hidden from screen readers because a figure stands
next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from markupsafe import Markup

from understudy.exchange.views import BudgetView
from understudy.privacy.account import round_up

__all__ = ["bars", "coverage", "lines", "meter", "share", "spending"]

_WIDE, _HIGH = 120.0, 36.0
_FEW = 6  # bars; fewer are no wider
_HEADROOM = 6.0  # above the cap


def bars(column: Mapping[str, Any]) -> Markup:
    """How often each value, or each range of values, of a column was drawn."""
    counts = column["counts"]
    step, most = _WIDE / max(len(counts), _FEW), max([*counts, 1])
    gap = min(1.2, step / 8) if column["kind"] == "numeric" else step / 5
    drawn = [
        _rect("bar", step * i, _HIGH * (1 - count / most), step - gap, _HIGH * count / most)
        for i, count in enumerate(counts)
        if count
    ]
    return _svg(_WIDE, _HIGH, drawn, _said(column), "bars")


def _said(column: Mapping[str, Any]) -> str:
    counts, labels, total = column["counts"], column["labels"], max(sum(column["counts"]), 1)
    first = max(range(len(counts)), key=counts.__getitem__) if counts else None
    if first is None:
        return f"{column['name']}: nothing was drawn"
    most = f"{labels[first]}, in {100 * counts[first] / total:.0f} % of rows"
    if column["kind"] == "numeric":
        low, high = column["ends"]
        return f"{column['name']}, from {low} to {high}; most often from {most}"
    return f"{column['name']}; most often {most}"


def lines(channel: Mapping[str, Any]) -> Markup:
    """A few series of one channel, all on its public range."""
    low, high = channel["range"]
    scale = _HIGH / ((high - low) or 1.0)
    drawn = []
    for values in channel["lines"]:
        step = _WIDE / max(len(values) - 1, 1)
        points = (f"{step * i:.1f},{_HIGH - scale * (v - low):.1f}" for i, v in enumerate(values))
        drawn.append(Markup('<polyline class="series" points="{}"/>').format(" ".join(points)))
    many = len(drawn)
    return _svg(_WIDE, _HIGH, drawn, f"{channel['name']}: {many} synthetic series", "plot")


def coverage(classes: Mapping[str, float]) -> Markup:
    """The shares of all classes as one bar, cut where one class ends."""
    left, drawn = 0.0, []
    for i, value in enumerate(classes.values()):
        drawn.append(_rect(f"part c{i % 4}", left, 0, max(100 * value - 0.6, 0.2), 8))
        left += 100 * value
    return _svg(100, 8, drawn, "", "strip")


def share(value: float) -> Markup:
    """A share between 0 and 1, on a bar as long as 1."""
    return _svg(100, 8, [_rect("part", 0, 0, 100 * min(max(value, 0), 1), 8)], "", "strip")


def meter(spent: float, cap: float, before: float | None = None) -> Markup:
    """ε spent of the cap; with ``before``, what was spent earlier and what is new, apart."""
    scale = 100 / max(cap, spent)
    known = spent if before is None else min(before, spent)
    drawn = [_rect("spent", 0, 0, scale * known, 8)]
    if known < spent:
        drawn.append(_rect("new", scale * known, 0, scale * (spent - known), 8))
    return _svg(100, 8, drawn, "", "strip")


def spending(budget: BudgetView, since: float, until: float) -> Markup:
    """ε spent on one dataset over time, as steps below the cap."""
    top = max(budget.cap, budget.epsilon)
    span = max(until - since, 1.0)

    def x(when: float) -> float:
        return _WIDE * min(max((when - since) / span, 0), 1)

    def y(epsilon: float) -> float:
        return _HEADROOM + (_HIGH - _HEADROOM) * (1 - epsilon / top)

    path, level = [f"M0,{y(0):.1f}"], 0.0
    for when, epsilon in sorted(budget.steps):
        level = max(level, epsilon)
        path.append(f"H{x(when):.2f}V{y(level):.2f}")
    outline = f"{''.join(path)}H{_WIDE:.0f}"
    drawn = [
        Markup('<path class="area" d="{}V{}H0Z"/>').format(outline, _HIGH),
        Markup('<path class="cap" d="M0,{0}H{1}"/>').format(f"{y(budget.cap):.1f}", _WIDE),
        Markup('<path class="line" d="{}"/>').format(outline),
    ]
    told = "; ".join(f"{round_up(e)} from {_day(when)}" for when, e in budget.steps)
    said = f"ε spent on {budget.dataset} of {budget.member}: {told or 'none'}; the cap is "
    return _svg(_WIDE, _HIGH, drawn, said + round_up(budget.cap), "plot")


def _day(when: float) -> str:
    """A day, as people write it."""
    return datetime.fromtimestamp(when, timezone.utc).strftime("%-d %b %Y")


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    numbers = (f"{value:.2f}" for value in (x, y, width, height))
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(kind, *numbers)


def _svg(width: float, height: float, drawn: Iterable[Markup], said: str, kind: str) -> Markup:
    role = Markup('role="img" aria-label="{}"').format(said) if said else Markup("aria-hidden=true")
    head = '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" {}>{}</svg>'
    return Markup(head).format(kind, f"{width:g}", f"{height:g}", role, Markup("").join(drawn))
