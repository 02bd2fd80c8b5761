"""``understudy sample``, ``verify`` and ``evaluate``: using a release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from understudy.cli.console import JSON, QUIET, bar, claims_panel, plain_errors, print_json
from understudy.data.stream import Writer
from understudy.errors import OutputError
from understudy.evaluate import Scores
from understudy.evaluate import evaluate as score_release
from understudy.evaluate.fidelity import Fidelity
from understudy.evaluate.forecasts import REPEATING
from understudy.evaluate.rows import NOUNS
from understudy.evaluate.score import Compared, Score
from understudy.evaluate.utility import COMMONEST, StudentScores
from understudy.release import Release
from understudy.release import verify as verify_release
from understudy.rng import Streams

__all__ = ["distances_table", "evaluate", "sample", "scores_table", "verify"]

RELEASE = typer.Argument(..., help="A release folder or .zip.")


def sample(
    release: Path = RELEASE,
    n: int = typer.Option(1000, "-n", help="How many rows, images or series."),
    output: Path = typer.Option(
        ...,
        "--output",
        "-o",
        help="CSV or Parquet for tables and series, npz for images and series.",
    ),
    layout: str | None = typer.Option(
        None, "--layout", help="Series in CSV or Parquet: long or wide; by default the schema's."
    ),
    label: str | None = typer.Option(None, help="Only rows of this class."),
    seed: int | None = typer.Option(None, help="Draw the same rows again."),
    force: bool = typer.Option(False, "--force", help="Overwrite the output."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Draw synthetic rows, as many as you like: sampling costs no privacy.

    Examples:

      understudy sample release -n 100000 -o rows.parquet

      understudy sample release -n 50 --label malignant -o cases.csv

      understudy sample images-release -n 1000 -o images.npz

      understudy sample series-release -n 1000 -o series.csv --layout wide
    """
    with plain_errors(json):
        if output.exists() and not force:
            raise OutputError("a new file", f"{output.name} exists", "choose another, or --force")
        loaded = Release.load(release)
        noun = NOUNS[loaded.schema.kind]
        file = Writer(output, loaded.schema, layout)
        with bar("sampling", quiet or json) as tick, file as writer:
            for batch in loaded.batches(n, label, seed):
                writer.write(batch)
                tick(writer.rows, n, noun)
        if json:
            print_json({"ok": True, "rows": n, "output": str(output)})
        else:
            said = f"[green]✓[/] {n:,} synthetic {noun} in [bold]{output}[/]"
            Console().print(said, soft_wrap=True)


def verify(release: Path = RELEASE, json: bool = JSON) -> None:
    """Recompute the claim from the receipts; check hashes, ledger and plan.

    Examples:  understudy verify release  ·  understudy verify release.zip --json
    """
    with plain_errors(json):
        verdict = verify_release(release)
        if json:
            said = [claim.to_dict() for claim in verdict.release.claims]
            print_json({"ok": True, "checks": list(verdict.checks), "claims": said})
            return
        console = Console()
        for check in verdict.checks:
            console.print(f"[green]✓[/] {check}", soft_wrap=True)
        console.print(claims_panel(verdict.release.claims))
        console.print(
            "[dim]This shows that the figures follow from the plan and the ledger; that the run "
            "was executed as written rests on whoever ran it.[/]"
        )


def evaluate(
    release: Path = RELEASE,
    real: Path = typer.Option(..., help="Real rows to compare with; they stay here."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for report.html and scores.json."),
    test: Path | None = typer.Option(
        None, help="Real rows that no site held; 30 % of --real if absent."
    ),
    inception: Path | None = typer.Option(
        None,
        metavar="FILE.safetensors",
        help="Images: FID weights of Inception-v3; adds the FID. See docs/evaluation.md.",
    ),
    seed: int = typer.Option(0, help="Seed of the students and pictures."),
    force: bool = typer.Option(False, "--force", help="Overwrite an earlier report."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Compare a release with real rows: students, distributions, pictures, a report.

    The scores are computed from real rows without noise: internal, not for release.

    Examples:

      understudy evaluate release --real train.csv --test test.csv --out report

      understudy evaluate release --real train.npz --inception fid.safetensors --out report
    """
    with plain_errors(json):
        loaded = Release.load(release)
        with bar("evaluating", quiet or json) as tick:
            scores = score_release(
                loaded,
                real,
                out,
                test=test,
                inception=inception,
                rng=Streams.from_seed(seed),
                progress=lambda stage, done, total: tick(done, total, stage),
                overwrite=force,
            )
        if json:
            print_json({"ok": True, "out": str(out), "scores": scores.to_dict()})
        else:
            console = Console()
            if scores.utility.students or scores.forecasts.models:
                console.print(scores_table(scores))
            console.print(distances_table(scores))
            for note in scores.notes:
                console.print(f"[yellow]–[/] {note}")
            console.print(f"[green]✓[/] report in [bold]{out / 'report.html'}[/]", soft_wrap=True)


def scores_table(scores: Scores) -> Table:
    """Students trained on synthetic rows beside the same trained on real rows, and on none."""
    title = "students, tested on real rows (internal: reveals statistics of the real data)"
    table = Table(title=title, title_justify="left", header_style="dim")
    for heading in ("student", "score", "trained on synthetic", "trained on real"):
        table.add_column(heading, width=10 if "trained" in heading else None)
    classes, steps = scores.utility, scores.forecasts
    _add_scores(table, classes.students, (COMMONEST, classes.naive), 3)
    _add_scores(table, steps.models, (REPEATING, steps.naive), 4)
    return table


def distances_table(scores: Scores) -> Table:
    """How far synthetic rows are from held-out real ones, beside the same from real rows."""
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
