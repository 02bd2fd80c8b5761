"""``understudy demo``: every step on real data that comes with the installation."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from understudy.cli.console import JSON, QUIET, bar, plain_errors, print_json
from understudy.errors import OutputError, StudyError

if TYPE_CHECKING:
    from understudy.evaluation.compare import Scores
    from understudy.release import Release

__all__ = ["demo"]


@dataclass(frozen=True)
class Scene:
    """One demonstration: bundled data, a study, and what to know about it."""

    data: str
    study: str
    story: str


SCENES = {
    "fedmoments": Scene(
        "breast_cancer",
        """[study]
name = "five hospitals"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"       # one patient's row
trust = "distributed" # hospitals add the noise in shares; no server sees a hospital's sum
epsilon = 2.0         # the noise is solved for this

[simulation]
data = "train.csv"
sites = 5
split = "dirichlet"   # hospitals see different mixes of cases
alpha = 1.0
masks = "checked"     # add the sums up under real masks, as on a network
""",
        "Five hospitals each hold part of a breast-cancer table. They want one synthetic table "
        "without sharing rows, and trust no server with them. Each hides its sum under masks, with "
        "a share of the noise in it: only the noised sum over all hospitals is ever seen. What is "
        "protected is one patient's row: five sites are too few to protect a whole site.",
    ),
    "fedvae": Scene(
        "digits",
        """[study]
name = "handwriting on phones"
schema = "schema.toml"
recipe = "fedvae"
rounds = 60

[privacy]
unit = "site"         # everything on one phone
trust = "central"
epsilon = 10.0

[cohort]
rate = 0.2            # secret coin flips, one per phone and round

[recipe]              # few phones, much noise: use a small decoder
latent = 4
decoder_widths = [32]
cosines = 6
server_rate = 0.06

[simulation]
data = "train.npz"
sites = 400
split = "uniform"
""",
        "Four hundred phones hold three or four handwritten digits each. A decoder learns from "
        "their noisy updates over many rounds; each phone keeps its encoder. What is protected "
        "is a whole phone. Four hundred phones are few for that: expect blurred digits.",
    ),
}


def demo(
    recipe: str = typer.Option("fedmoments", help=f"Which demonstration: {', '.join(SCENES)}."),
    out: Path | None = typer.Option(None, "--out", "-o", help="The folder to create."),
    seed: int | None = typer.Option(
        None, help="Make the run repeatable; its claims then say simulation."
    ),
    open_report: bool = typer.Option(True, "--open/--no-open", help="Open the report at the end."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Try everything on bundled real data: sites, training, claim, release, report.

    It takes under two minutes. All files end up in one folder, ready for you
    to change and run again.

    Examples:

      understudy demo

      understudy demo --recipe fedvae --out phones
    """
    with plain_errors(json):
        if recipe not in SCENES:
            raise StudyError(f"one of {', '.join(SCENES)}", repr(recipe), "choose one of these")
        folder = _new_folder(out)
        release, scores = _play(SCENES[recipe], folder, quiet or json, seed)
        if json:
            said = [claim.to_dict() for claim in release.claims]
            print_json({"ok": True, "out": str(folder), "claims": said, "scores": scores.to_dict()})
            return
        _say(folder, release, scores)
        if open_report and _has_screen():
            typer.launch(str(folder / "report" / "report.html"))


def _has_screen() -> bool:
    shown = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return sys.stdout.isatty() and shown


def _command() -> str:
    """How to call understudy from here: its environment may not be active."""
    beside = Path(sys.executable).parent / "understudy"
    if shutil.which("understudy") or not beside.exists():
        return "understudy"
    return shlex.quote(min(os.path.relpath(beside), str(beside), key=len))


def _new_folder(out: Path | None) -> Path:
    """The folder asked for, or the next free ``understudy-demo``."""
    folder, number = out or Path("understudy-demo"), 1
    while out is None and folder.exists():
        number += 1
        folder = Path(f"understudy-demo-{number}")
    if folder.is_file() or (folder.exists() and any(folder.iterdir())):
        raise OutputError("a new or empty folder", f"files in {folder}", "choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _play(scene: Scene, folder: Path, quiet: bool, seed: int | None) -> tuple[Release, Scores]:
    from understudy.cli.training import train
    from understudy.evaluation.compare import evaluate
    from understudy.simulation.verification import verify
    from understudy.study import Study

    Console(stderr=True, quiet=quiet).print(f"\n{scene.story}\n")
    real, test = _write_inputs(scene, folder)
    train(Study.load(folder / "study.toml"), folder / "release", quiet, seed=seed)
    release = verify(folder / "release").release
    with bar("evaluating", quiet) as tick:
        scores = evaluate(release, real, folder / "report", test=test, progress=tick)
    return release, scores


def _write_inputs(scene: Scene, folder: Path) -> tuple[Path, Path]:
    """Schema, study and rows: those to train on, and those held out for testing."""
    from understudy.data.bundled import bundled, holdout
    from understudy.data.table import write
    from understudy.rng import Streams

    schema, records = bundled(scene.data)
    train_rows, test_rows = holdout(records, rng=Streams.from_seed(0).numpy("demo holdout"))
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(scene.study, encoding="utf-8")
    ending = "csv" if schema.kind == "table" else "npz"
    real, test = folder / f"train.{ending}", folder / f"test.{ending}"
    write(train_rows, real)
    write(test_rows, test)
    return real, test


def _say(folder: Path, release: Release, scores: Scores) -> None:
    from understudy.cli.claims import claims_panel
    from understudy.cli.scores import verdict_panel

    console, place, command = Console(), shlex.quote(str(folder)), _command()
    console.print(claims_panel(release.claims))
    console.print(verdict_panel(scores))
    console.print(f"[green]✓[/] release  {folder / 'release'}  (verified)", soft_wrap=True)
    console.print(
        f"[green]✓[/] report   [bold]{folder / 'report' / 'report.html'}[/]", soft_wrap=True
    )
    rows = "synthetic.csv" if release.schema.kind == "table" else "synthetic.npz"
    console.print("\nNext:")
    console.print(f"  {command} sample {place}/release -n 1000 -o {rows}", soft_wrap=True)
    console.print(f"  {command} plan {place}/study.toml        # change it, then:", soft_wrap=True)
    console.print(f"  {command} run {place}/study.toml --out {place}/again", soft_wrap=True)
