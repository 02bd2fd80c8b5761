"""``understudy sample``, ``verify`` and ``evaluate``: using a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from understudy.cli.console import JSON, QUIET, bar, check_new, plain_errors, print_json, telling

if TYPE_CHECKING:
    from understudy.release.signature import Signed

__all__ = ["evaluate", "sample", "verify"]

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
        None, "--layout", help="Series in CSV or Parquet: long or wide; default: the schema's."
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
        check_new(output, force)
        from understudy.data.stream import Writer
        from understudy.evaluation.rows import NOUNS
        from understudy.release import Release

        loaded = Release.load(release)
        noun = NOUNS[loaded.schema.kind]
        file = Writer(output, loaded.schema, layout)
        with bar("sampling", quiet or json) as tick, file as writer:
            for batch in loaded.batches(n, label, seed):
                writer.write(batch)
                tick(noun, writer.rows, n)
        if json:
            print_json({"ok": True, "rows": n, "output": str(output)})
        else:
            said = f"[green]✓[/] {n:,} synthetic {noun} in [bold]{output}[/]"
            Console().print(said, soft_wrap=True)


def verify(
    release: Path = RELEASE,
    trust: Path | None = typer.Option(
        None, "--trust", help="Roster, or key folder: the parties whose signatures must be there."
    ),
    json: bool = JSON,
) -> None:
    """Recompute the plan and claim of a release, draw its sample again and compare every file.

    Signatures are checked too, where there are any.

    Examples:

      understudy verify release

      understudy verify release.zip --json

      understudy verify release --trust roster.json
    """
    with plain_errors(json):
        from understudy.cli.claims import claims_panel
        from understudy.deployment.signing import check_trust
        from understudy.simulation.verification import verify as verify_release

        verdict = verify_release(release)
        signed = verdict.release.signed
        trusted = [check_trust(verdict, trust)] if trust else []
        checks, notes = [*verdict.checks, *trusted], [*verdict.notes, *_unvouched(signed, trust)]
        if json:
            said = [claim.to_dict() for claim in verdict.release.claims]
            who = signed and {"server": signed.server, "sites": signed.signers}
            found = {"checks": checks, "notes": notes, "claims": said, "signed": who}
            print_json({"ok": True, **found, "missing": signed.missing if signed else []})
            return
        console = Console()
        for check in checks:
            console.print(f"[green]✓[/] {check}", soft_wrap=True)
        for note in notes:
            console.print(f"[yellow]–[/] {note}", soft_wrap=True)
        console.print(claims_panel(verdict.release.claims))
        console.print(f"[dim]{_limits(signed)}[/]")


def _unvouched(signed: Signed | None, trust: Path | None) -> list[str]:
    if signed is None:
        return ["it is not signed: nobody vouches for it with a key"]
    if trust is None:
        return ["whose keys these are was not checked: give --trust ROSTER, from the parties"]
    return []


def _limits(signed: Signed | None) -> str:
    if signed is None:
        return (
            "The figures follow from the plan and the ledger. That the run was carried out as the "
            "plan says is something only those who ran it can vouch for."
        )
    return (
        "The figures follow from the plan and the ledger. Who signed vouches for having joined "
        "this run of this study under this plan; nobody can see that others ran this code."
    )


def evaluate(
    release: Path = RELEASE,
    real: Path = typer.Option(..., help="Real rows to compare with; they stay here."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for report.html and scores.json."),
    test: Path | None = typer.Option(
        None, help="Real rows that no site held; without it, 30 % of --real is held out."
    ),
    inception: Path | None = typer.Option(
        None,
        metavar="FILE.safetensors",
        help="Images: Inception-v3 weights, to add the FID; see docs/evaluation.md.",
    ),
    attacks: bool = typer.Option(
        False,
        "--attacks",
        help="Also attack the rows: --real are members, --test (needed) are controls.",
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite an earlier report."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Say whether the synthetic rows are fit for use, and write a report.

    A verdict comes first: what the rows are as good as real for, what is worst
    and what to change. The scores come from real rows without noise: they are
    internal, not for publication.

    Examples:

      understudy evaluate release --real train.csv --test test.csv --out report

      understudy evaluate release --real train.npz --out report

      understudy evaluate release --real in.csv --test out.csv --attacks -o report
    """
    with plain_errors(json):
        from understudy.cli.scores import attacks_panel, scores_table, verdict_panel
        from understudy.evaluation.compare import evaluate as score_release
        from understudy.evaluation.compare import remove_report
        from understudy.release import Release

        loaded = Release.load(release)
        if force:
            remove_report(out)
        with telling(not json), bar("evaluating", quiet or json) as tick:
            scores = score_release(
                loaded,
                real,
                out,
                test=test,
                inception=inception,
                attacks=attacks,
                progress=tick,
            )
        if json:
            print_json({"ok": True, "out": str(out), "scores": scores.to_dict()})
        else:
            console = Console()
            console.print(verdict_panel(scores))
            if scores.utility.students or scores.forecasts.models:
                console.print(scores_table(scores))
            if scores.attacks is not None:
                console.print(attacks_panel(scores.attacks))
            for note in scores.notes:
                console.print(f"[yellow]–[/] {note}")
            console.print(f"[green]✓[/] report in [bold]{out / 'report.html'}[/]", soft_wrap=True)
