"""``understudy plan`` and ``understudy run``: what a study will cost, and the study itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from understudy.cli.console import JSON, QUIET, plain_errors, print_json, spinner

__all__ = ["plan", "run"]

STUDY = typer.Argument(..., help="The study file (study.toml).")


def plan(
    study: Path = STUDY,
    project: str = typer.Option(
        "", help="Also ε with this many sites, e.g. 1000,30000 (unit = site, without a warm start)."
    ),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Say what a study will cost before anything is trained.

    It reads the study file, its schema, rows declared public and the sites'
    own ledgers, and no other rows. Nothing is spent.

    Examples:

      understudy plan study.toml

      understudy plan study.toml --project 10000,100000 --json
    """
    with plain_errors(json):
        from understudy.cli.planning import SOLVING, as_json, cost, show

        with spinner(SOLVING, quiet or json):
            found = cost(study, project)
        if json:
            print_json(as_json(found))
        else:
            show(found)


def run(
    study: Path = STUDY,
    out: Path = typer.Option(..., "--out", "-o", help="The release folder (or .zip) to make."),
    seed: int | None = typer.Option(
        None, help="Make the run repeatable; its claims then say simulation."
    ),
    resume: bool = typer.Option(False, "--resume", help="Continue an interrupted run."),
    rows: int = typer.Option(1000, help="Rows of the sample inside the release."),
    wire: bool = typer.Option(
        False,
        "--wire",
        help="Let the sites exchange bytes as on a network, under masks if trust is distributed.",
    ),
    workers: int | None = typer.Option(
        None, min=1, help="Cores to use; all by default. The release does not depend on it."
    ),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Run a study with all sites in this process and make a release.

    Ctrl-C waits for the current round and keeps what was done. --resume
    continues from there and never pays twice for the same round.

    Examples:

      understudy run study.toml --out release

      understudy run study.toml --out release --resume
    """
    with plain_errors(json):
        from understudy.cli.training import say_done, say_interrupted, say_left, train
        from understudy.cli.warnings import warnings
        from understudy.nets.stacked import torch_threads
        from understudy.study import Study

        loaded = Study.load(study)
        try:
            options: dict[str, Any] = {"seed": seed, "resume": resume, "rows": rows}
            with torch_threads(workers):
                release = train(loaded, out, quiet or json, aloud=not json, wire=wire, **options)
        except KeyboardInterrupt:
            say_interrupted(study, out)
            raise typer.Exit(130) from None
        if json:
            said = [claim.to_dict() for claim in release.claims]
            warned = warnings(loaded, release.plan)
            print_json({"ok": True, "release": str(out), "claims": said, "warnings": warned})
        else:
            say_done(release, out)
            say_left(loaded)
