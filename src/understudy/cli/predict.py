"""``understudy predict``: asking a released classifier about rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console

from understudy.cli.console import JSON, QUIET, bar, plain_errors, print_json, reading
from understudy.data.records import Records
from understudy.data.table import write
from understudy.errors import OutputError
from understudy.evaluate.rows import NOUNS
from understudy.evaluate.score import INTERNAL, Score, score_accuracy, score_commonest
from understudy.evaluate.utility import COMMONEST
from understudy.release import Release
from understudy.release.rows import labels, read_rows

__all__ = ["predict"]

BATCH = 16_384
TABLES = (".csv", ".csv.gz", ".parquet", ".pq")


def predict(
    release: Path = typer.Argument(..., help="A release folder or .zip that holds a classifier."),
    data: Path = typer.Option(
        ..., help="Rows as the release's schema describes them; labels may be absent."
    ),
    output: Path = typer.Option(
        ..., "--output", "-o", help="CSV or Parquet: the predicted class, a probability of each."
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite the output."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Predict the class of rows with a released classifier.

    One line per row, in their order. The rows stay here.

    If they have labels, the accuracy on them is printed: internal, no part of the release.

    Examples:

      understudy predict release --data patients.csv -o predictions.csv

      understudy predict images-release --data test.npz -o predictions.parquet
    """
    with plain_errors(json):
        _check_output(output, data, force)
        loaded = Release.load(release)
        kind = loaded.classifier.kind  # a generator is refused before any row is read
        with bar(f"predicting ({kind})", quiet or json) as tick:
            tick(0, 1, f"reading {NOUNS[loaded.schema.kind]}")
            rows = read_rows(data, loaded.schema, progress=reading(tick))
            said, measured = _predict(loaded, rows, tick)
            write(Records(frame=said), output)
        if json:
            accuracy = None if measured is None else measured.to_dict()
            print_json({"ok": True, "rows": len(said), "output": str(output), "accuracy": accuracy})
        else:
            _report(output, len(said), measured, NOUNS[loaded.schema.kind])


def _check_output(output: Path, data: Path, force: bool) -> None:
    """Refuse, before any work, a place that cannot or must not be written."""
    place = output.resolve()
    if not output.name.lower().endswith(TABLES):
        raise OutputError("an output ending in .csv or .parquet", output.name, "rename the output")
    if any((folder / "release.json").is_file() for folder in place.parents):
        raise OutputError(
            "an output outside any release", f"{output} in one", "choose another: it must not grow"
        )
    if place == data.resolve():
        raise OutputError("an output beside the data", "the data itself", "choose another name")
    if output.exists() and not force:
        raise OutputError("a new file", f"{output.name} exists", "choose another, or --force")
    if not place.parent.is_dir():
        raise OutputError("an existing folder", f"none for {output.name}", "create it first")


@dataclass(frozen=True)
class Measured:
    """How well the predictions meet the labels, and what the simplest guess would reach."""

    accuracy: Score
    commonest: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, marked as what they are."""
        return {"mark": INTERNAL, **self.accuracy.to_dict(), "commonest": round(self.commonest, 6)}


def _predict(
    release: Release, rows: Records, tick: Callable[[int, int, str], None]
) -> tuple[pd.DataFrame, Measured | None]:
    """Predictions of all rows, a batch at a time, measured if the rows have labels."""
    said, truth = [], []
    for start in range(0, max(len(rows), 1), BATCH):
        batch = rows.take(np.arange(start, min(start + BATCH, len(rows))))
        said.append(release.predict(batch))
        truth.append(labels(release.schema, batch))
        tick(start + len(batch), len(rows), NOUNS[release.schema.kind])
    whole = pd.concat(said, ignore_index=True)
    known = [y for y in truth if y is not None]
    if not known or whole.empty:
        return whole, None
    return whole, _measure(np.concatenate(known), whole.iloc[:, -release.schema.n_classes :])


def _measure(truth: np.ndarray, probability: pd.DataFrame) -> Measured:
    guess = probability.to_numpy().argmax(1)
    return Measured(score_accuracy(truth, guess), score_commonest(truth).value)


def _report(output: Path, n: int, found: Measured | None, noun: str) -> None:
    """Lines that fit 80 columns, but for the output's name."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[green]✓[/] predictions of {n:,} {noun} in [bold]{output}[/]")
    if found is None:
        return
    score = found.accuracy
    ends = f"{score.low:.3f} to {score.high:.3f}, 95 %"
    console.print(f"  accuracy [bold]{score.value:.3f}[/] ({ends}) on these {score.n:,} {noun}")
    console.print(f"  always answering {COMMONEST}: {found.commonest:.3f}")
    console.print("[dim]  internal: measured on your labels without noise, no part of the release")
