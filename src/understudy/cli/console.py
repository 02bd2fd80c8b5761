"""What all commands share: how errors, claims and progress look."""

from __future__ import annotations

import json as jsonlib
import logging
import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.status import Status
from rich.text import Text

from understudy.errors import OutputError, UnderstudyError, unwritable

__all__ = [
    "JSON",
    "QUIET",
    "READING",
    "bar",
    "check_new",
    "check_place",
    "done",
    "plain_errors",
    "print_hanging",
    "print_json",
    "spinner",
    "telling",
    "writing",
]

JSON = typer.Option(False, "--json", help="Print JSON, for machines.")
QUIET = typer.Option(False, "--quiet", "-q", help="No progress bar.")
READING = "reading images"  # what takes long to read


@contextmanager
def plain_errors(json: bool = False) -> Iterator[None]:
    """Turn an expected failure into a message and its exit code; never a traceback."""
    try:
        yield
    except UnderstudyError as error:
        if json:
            parts = {"expected": error.expected, "found": error.found, "do": error.do}
            print(jsonlib.dumps({"ok": False, "error": parts}, ensure_ascii=False))
        else:
            err = Console(stderr=True)
            print_hanging(err, "[red]✗ expected[/] ", error.expected)
            print_hanging(err, "  [red]found[/]    ", error.found)
            print_hanging(err, "  [green]do[/]       ", error.do)
        raise typer.Exit(error.exit_code) from None


def done(text: str) -> None:
    """Say what was done."""
    print_hanging(Console(), "[green]✓[/] ", text)


def print_hanging(console: Console, lead: str, text: str) -> None:
    """Print ``text`` after a lead (with markup); its further lines are indented as far."""
    indent = Text.from_markup(lead).cell_len
    wrap = textwrap.TextWrapper(
        max(console.width - indent, 20), break_long_words=False, break_on_hyphens=False
    )
    lines = [part for line in text.splitlines() for part in wrap.wrap(line)]
    said = lead + escape(("\n" + " " * indent).join(lines))
    console.print(said, highlight=False, soft_wrap=True)


@contextmanager
def telling(aloud: bool = True) -> Iterator[None]:
    """Say at the end how the files that were read are written, where that is out of the ordinary.

    The readers of `understudy.data` log it. Their warnings are said at once.
    """
    notes: dict[str, None] = {}

    def emit(record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            print_hanging(Console(stderr=True), "[yellow]![/] ", record.getMessage())
        else:
            notes.setdefault(record.getMessage())

    handler = logging.Handler(logging.INFO)
    handler.emit = emit  # type: ignore[method-assign]
    log = logging.getLogger("understudy.data")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        for text in notes if aloud else ():
            print_hanging(Console(stderr=True), "[yellow]–[/] ", text)


def check_new(output: Path, force: bool | None = None) -> None:
    """Refuse to replace a file without --force, where a command has it."""
    if output.exists() and not force:
        do = "choose another name" + ("" if force is None else ", or add --force")
        raise OutputError("a new file", f"{output.name} exists", do)


def check_place(output: Path, force: bool | None = None) -> None:
    """Before any work: refuse also a file whose folder is not there."""
    check_new(output, force)
    if not output.absolute().parent.is_dir():
        raise OutputError("an existing folder", f"no folder {output.parent}", "create it first")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in plain words why a file or folder could not be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(str(path), error) from error


def print_json(value: Any) -> None:
    """One JSON document on standard output; infinity becomes null, as JSON has none."""
    print(jsonlib.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_WIDE = 100  # columns of a terminal that has room for a bar, its note and two times
Tick = Callable[[str, int, int], None]


def _columns(width: int) -> tuple[ProgressColumn, ...]:
    """What a bar shows; a narrow terminal has no room for the time that has passed."""
    elapsed = (TimeElapsedColumn(),) if width >= _WIDE else ()
    return (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("[cyan]{task.fields[note]}"),
        *elapsed,
        TimeRemainingColumn(),
    )


@contextmanager
def bar(title: str, quiet: bool) -> Iterator[Tick]:
    """A progress bar; call it with (note, done, total)."""
    console = Console(stderr=True)
    columns = _columns(console.width)
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(title, total=1, note="")

        def tick(note: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, note=note)

        yield tick


def spinner(doing: str, quiet: bool) -> Status:
    """A sign of life while something takes seconds and has no steps to count."""
    return Console(stderr=True, quiet=quiet).status(f"[bold]{doing} …")
