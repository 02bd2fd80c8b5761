"""Scores of a release as the terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from understudy.evaluation.compare import Scores
from understudy.evaluation.forecasts import REPEATING
from understudy.evaluation.score import Score
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
    fidelity = scores.fidelity
    found = [*fidelity.overall, *(joint.distance for joint in fidelity.joints[:1])]
    rows = [(one.name, one) for one in found]
    if fidelity.coverage is not None:
        rows.append((f"{fidelity.coverage.name} (more is better)", fidelity.coverage))
    for name, one in rows:
        table.add_row(name, _figure(one.synthetic), _figure(one.real))
    return table


def _figure(score: Score | None, decimals: int = 3) -> str:
    return "–" if score is None else f"{score.value:.{decimals}f}"


def _add_scores(
    table: Table,
    students: Sequence[StudentScores],
    untrained: tuple[str, Score | None],
    decimals: int,
) -> None:
    """A row per student and score, and what takes no training below."""
    for student in students:
        for score in student.scores:
            figures = (_figure(one, decimals) for one in (score.synthetic, score.real))
            table.add_row(student.student, score.name, *figures)
    name, naive = untrained
    if naive is not None:
        table.add_row(f"[dim]{name}", naive.name, "–", _figure(naive, decimals), end_section=True)
