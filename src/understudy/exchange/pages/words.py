"""Templates, and how they write days, sizes, shares and cards."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from understudy.evaluation.words import best_guess, tidy, upper
from understudy.exchange.pages import plots
from understudy.exchange.views import ReleaseView
from understudy.privacy.account import round_up

__all__ = ["templates"]

_SURE = 0.999  # from here on a bound on guesses says nothing
_BELOW = 3  # the level of the heading above a card
_CARDS = MarkdownIt("commonmark", {"html": False}).enable("table")
_CARDS.disable(["link", "image", "autolink", "reference", "html_block", "html_inline"])


def _time(when: float | None, written: str) -> str:
    if when is None:
        return "–"
    moment = datetime.fromtimestamp(when, timezone.utc)
    stamp, text = moment.isoformat(timespec="seconds"), moment.strftime(written)
    return Markup('<time datetime="{}">{}</time>').format(stamp, text)


def _day(when: float | None) -> str:
    return _time(when, "%-d %b %Y")


def _clock(when: float | None) -> str:
    return _time(when, "%-d %b %Y, %H:%M UTC")


def _weight(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _percent(share: float) -> str:
    small = 0 < share < 0.01
    return f"{100 * share:.1f}\u00a0%" if small else f"{100 * share:.0f}\u00a0%"


def _guess(release: ReleaseView) -> str:
    """The most often that a guess about one unit can be right, rounded up; empty if always."""
    most = best_guess(release.epsilon, release.delta)
    return f"{round_up(100 * most)}\u00a0%" if most < _SURE else ""


def _left(epsilon: float) -> str:
    """What is left, never above the truth."""
    return f"{math.floor(1000 * epsilon) / 1000:g}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _markdown(card: str) -> Markup:
    """A card that somebody else wrote, below a heading: no links, no images, no HTML of its own."""
    tokens = _CARDS.parse(card)
    for token in tokens:
        if token.type.startswith("heading_"):
            token.tag = f"h{min(6, int(token.tag[1:]) + _BELOW)}"
        if token.type == "th_open":
            token.attrSet("scope", "col")
    return Markup(_CARDS.renderer.render(tokens, _CARDS.options, {}))  # escaped by the renderer


def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(
        day=_day, clock=_clock, weight=_weight, percent=_percent, eps=upper, left=_left,
        guess=_guess, tidy=tidy, sentence=_sentence, markdown=_markdown,
    )  # fmt: skip
    made.globals.update({name: getattr(plots, name) for name in plots.__all__})
    return made


templates = _environment()
