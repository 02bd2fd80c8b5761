"""Scores of a release as the terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from understudy.evaluation.compare import Scores
from understudy.evaluation.fidelity import Fidelity
from understudy.evaluation.forecasts import REPEATING
from understudy.evaluation.score import Compared, Score
from understudy.evaluation.utility import COMMONEST, StudentScores

__all__ = ["distances_table", "scores_table"]


def scores_table(scores: Scores) -> Table:
    """Models trained on synthetic rows, beside the same trained on real rows and on none."""
    title = "models tested on real rows (internal: reveals statistics of the real data)"
    table = Table(title=title, title_justify="left", header_style="dim")
    for heading in ("model", "score", "trained on synthetic", "trained on real"):
        table.add_column(heading, width=10 if "trained" in heading else None)
    classes, steps = scores.utility, scores.forecasts
    _add_scores(table, classes.students, (COMMONEST, classes.naive), 3)
    _add_scores(table, steps.models, (REPEATING, steps.naive), 4)
    return table


def distances_table(scores: Scores) -> Table:
    """How far synthetic rows are from held-out real ones, beside the same for real rows."""
    title = "distance from held-out real rows (internal: reveals statistics of the real data)"
    table = Table(title=title, title_justify="left", header_style="dim")
    for heading in ("distance", "synthetic", "real"):
        table.add_column(heading)
    for name, one in _distances(scores.fidelity):
        figures = (one.synthetic, one.real)
        table.add_row(name, *("–" if s is None else f"{s.value:.3f}" for s in figures))
    return table


def _distances(fidelity: Fidelity) -> Iterator[tuple[str, Compared]]:
    """Distances by name, of joint distributions only the first; last what should be large."""
    for one in fidelity.overall:
        yield one.name, one
    for joint in fidelity.joints[:1]:
        yield joint.distance.name, joint.distance
    if fidelity.coverage is not None:
        yield f"{fidelity.coverage.name} (more is better)", fidelity.coverage


def _add_scores(
    table: Table,
    students: Sequence[StudentScores],
    untrained: tuple[str, Score | None],
    decimals: int,
) -> None:
    """A row per student and score, and what takes no training below."""

    def figure(score: Score | None) -> str:
        return "–" if score is None else f"{score.value:.{decimals}f}"

    for student in students:
        for score in student.scores:
            table.add_row(student.student, score.name, figure(score.synthetic), figure(score.real))
    name, naive = untrained
    if naive is not None:
        table.add_row(f"[dim]{name}", naive.name, "–", figure(naive), end_section=True)
