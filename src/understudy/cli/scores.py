"""Scores of a release as the terminal shows them: the verdict first, then every model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from understudy.evaluation.attacks.outcome import FOUND
from understudy.evaluation.attacks.suite import Attacks
from understudy.evaluation.compare import Scores
from understudy.evaluation.forecasts import REPEATING
from understudy.evaluation.report import TONES, written
from understudy.evaluation.score import Score
from understudy.evaluation.utility import StudentScores
from understudy.evaluation.verdict import Verdict
from understudy.evaluation.words import figure

__all__ = ["attacks_panel", "scores_table", "verdict_panel"]

COLOURS = {"fit": "green", "limited": "yellow", "unfit": "red", "unknown": "dim"}
STYLES = {"good": "green", "middle": "yellow", "bad": "red", "open": "dim"}
SHOWN = 3


def verdict_panel(scores: Scores) -> Panel:
    """Whether the rows are fit for use, why, what is worst and what to change."""
    verdict = scores.verdict
    colour = COLOURS[verdict.level]
    head = Text(verdict.headline, style=f"bold {colour}")
    parts: list[RenderableType] = [head, Text(), _judgements(verdict), *_lists(verdict)]
    title = "verdict (internal: reveals statistics of the real data)"
    return Panel(Group(*parts), title=title, title_align="left", border_style=colour)


def _judgements(verdict: Verdict) -> Table:
    """A line per use: the score, beside it guessing and real rows."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "synthetic", "guessing", "real", ""):
        right = heading in ("synthetic", "guessing", "real")
        table.add_column(heading, justify="right" if right else "left", no_wrap=right)
    for j in verdict.judgements:
        figures = (written(score, j.measure) for score in (j.synthetic, j.guess, j.real))
        words = Text(j.words, style=STYLES[TONES[j.level]])
        table.add_row(f"{escape(j.use)}: {j.measure}", *figures, words)
    return table


def _lists(verdict: Verdict) -> Iterator[RenderableType]:
    worst = [f"{c.column} {_apart(c.synthetic, c.floor)}; {c.how}" for c in verdict.columns[:SHOWN]]
    worst += [
        f"{p.first} with {p.second} {_apart(p.synthetic, p.floor)}" for p in verdict.pairs[:SHOWN]
    ]
    titles = ("worst (distance; floor: of two real samples)", "what to change", "note")
    for title, lines in zip(titles, (worst, verdict.advice, verdict.remarks), strict=True):
        if lines:
            yield Text(f"\n{title}", style="dim")
            yield from (Padding(_item(line), (0, 0, 0, 1)) for line in lines)


def _item(line: str) -> Table:
    """A line after a dash; its further lines are indented as far."""
    table = Table.grid(padding=(0, 1))
    table.add_row("–", Text(line))
    return table


def _apart(distance: float, floor: float | None) -> str:
    return figure(distance, 2) + ("" if floor is None else f" (floor {figure(floor, 2)})")


def scores_table(scores: Scores) -> Table:
    """Models trained on synthetic rows, beside the same trained on real rows and guessing."""
    title = "all models, tested on real rows (internal)"
    table = Table(title=title, title_justify="left", header_style="dim")
    guess = scores.utility.guess or REPEATING
    for heading in ("model", "score", "trained on synthetic", "trained on real", guess):
        table.add_column(heading, width=11 if heading not in ("model", "score") else None)
    _add_scores(table, scores.utility.students, 3)
    _add_scores(table, scores.forecasts.models, 4)
    return table


def _add_scores(table: Table, students: Sequence[StudentScores], decimals: int) -> None:
    for student in students:
        for i, one in enumerate(student.scores):
            name = "" if i else student.student
            figures = (_figure(s, decimals) for s in (one.synthetic, one.real, one.guess))
            table.add_row(name, one.name, *figures)


def _figure(score: Score | None, decimals: int) -> str:
    return "–" if score is None else figure(score.value, decimals)


TONE = {"nothing": "green", "found": "yellow", "unclear": "dim", "broken": "red", "unknown": "dim"}


def attacks_panel(attacks: Attacks) -> Panel:
    """What was tried, what it found, and what the claim allows."""
    colour = TONE[attacks.level]
    parts: list[RenderableType] = [Text(attacks.headline, style=f"bold {colour}")]
    if attacks.found:
        parts += [Text(), _attack_lines(attacks)]
    if attacks.bound is not None:
        bound = attacks.bound
        parts.append(
            Text(f"\nthe claim allows an advantage of {figure(bound.value)} at most, {bound.words}")
        )
    if attacks.average_case is not None:
        mu = figure(attacks.average_case.mu, 4)
        parts.append(Text(f"average-case privacy μ = {mu}: an estimate, not an ε", style="dim"))
    parts += [Text(line, style="dim") for line in attacks.notes]
    title = "attacks (internal: reveals statistics of the real data)"
    return Panel(Group(*parts), title=title, title_align="left", border_style=colour)


def _attack_lines(attacks: Attacks) -> Table:
    """A line per attack: what its success on members exceeds that on controls by."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", min_width=14)
    for heading in ("advantage", "95 % interval", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", min_width=9)
    for a in attacks.found:
        ends = f"{figure(a.advantage.low)} to {figure(a.advantage.high)}"
        p = "< .001" if a.p < 0.001 else figure(a.p)
        said = Text(a.level, style="yellow" if a.level == FOUND else "green")
        table.add_row(a.name, figure(a.advantage.value), ends, p, said)
    return table
