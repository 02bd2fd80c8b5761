"""``understudy predict``: asking a released classifier about rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from rich.console import Console

from understudy.cli.console import JSON, QUIET, READING, bar, check_place, plain_errors, print_json
from understudy.errors import OutputError

if TYPE_CHECKING:
    import pandas as pd

    from understudy.data.records import Records
    from understudy.evaluation.score import Score
    from understudy.release import Release

__all__ = ["predict"]

BATCH = 16_384
TABLES = (".csv", ".csv.gz", ".parquet", ".pq")


def predict(
    release: Path = typer.Argument(..., help="A release folder or .zip that holds a classifier."),
    data: Path = typer.Option(
        ..., help="Rows that fit the release's schema; labels may be missing."
    ),
    output: Path = typer.Option(
        ..., "--output", "-o", help="CSV or Parquet: predicted class and class probabilities."
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite the output."),
    quiet: bool = QUIET,
    json: bool = JSON,
) -> None:
    """Predict the class of rows with a released classifier.

    The output has one line per row, in the same order. Your rows stay on this
    machine. If they have labels, the accuracy is printed. It is internal: not
    part of the release.

    Examples:

      understudy predict release --data patients.csv -o predictions.csv

      understudy predict images-release --data test.npz -o predictions.parquet
    """
    with plain_errors(json):
        from understudy.data.records import Records
        from understudy.data.table import write
        from understudy.evaluation.rows import NOUNS
        from understudy.release import Release
        from understudy.release.rows import read_rows

        _check_output(output, data, force)
        loaded = Release.load(release)
        kind = loaded.classifier.kind  # a generator is refused before any row is read
        with bar(f"predicting ({kind})", quiet or json) as tick:
            tick(f"reading {NOUNS[loaded.schema.kind]}", 0, 1)
            rows = read_rows(data, loaded.schema, progress=partial(tick, READING))
            said, measured = _predict(loaded, rows, tick)
            write(Records(frame=said), output)
        if json:
            accuracy = None if measured is None else _as_json(measured)
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
            "an output outside any release",
            f"{output} inside one",
            "choose another folder: a release must not change",
        )
    if place == data.resolve():
        raise OutputError("a new output file", "the data file itself", "choose another name")
    check_place(output, force)


Measured: TypeAlias = "tuple[Score, Score]"
"""How often the predictions are right, and how often always predicting the commonest class is."""


def _predict(
    release: Release, rows: Records, tick: Callable[[str, int, int], None]
) -> tuple[pd.DataFrame, Measured | None]:
    """Predictions of all rows, a batch at a time, measured if the rows have labels."""
    import numpy as np
    import pandas as pd

    from understudy.evaluation.measures import accuracy, commonest
    from understudy.evaluation.rows import NOUNS
    from understudy.release.rows import labels

    said, truth = [], []
    for start in range(0, max(len(rows), 1), BATCH):
        batch = rows.take(np.arange(start, min(start + BATCH, len(rows))))
        said.append(release.predict(batch))
        truth.append(labels(release.schema, batch))
        tick(NOUNS[release.schema.kind], start + len(batch), len(rows))
    whole = pd.concat(said, ignore_index=True)
    known = [y for y in truth if y is not None]
    if not known or whole.empty:
        return whole, None
    right = np.concatenate(known)
    guess = whole.iloc[:, -release.schema.n_classes :].to_numpy().argmax(1)
    return whole, (accuracy(right, guess).score(), accuracy(right, commonest(right)).score())


def _as_json(found: Measured) -> dict[str, Any]:
    """The accuracy, marked as what it is."""
    from understudy.evaluation.score import INTERNAL, plain

    accuracy, commonest = map(plain, found)
    return {"mark": INTERNAL, **accuracy, "commonest": commonest["value"]}


def _report(output: Path, n: int, found: Measured | None, noun: str) -> None:
    """Lines that fit 80 columns, but for the output's name."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[green]✓[/] predictions of {n:,} {noun} in [bold]{output}[/]")
    if found is None:
        return
    from understudy.evaluation.utility import COMMONEST

    score, commonest = found
    ends = f"{score.low:.3f} to {score.high:.3f}, 95 %"
    console.print(f"  accuracy [bold]{score.value:.3f}[/] ({ends}) on these {score.n:,} {noun}")
    console.print(f"  always predicting {COMMONEST}: {commonest.value:.3f}")
    console.print("[dim]  internal: measured on your labels without noise, not part of the release")
