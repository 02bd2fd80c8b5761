from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.progress import Progress

from understudy.cli import console
from understudy.data.schema import Column, Schema
from understudy.data.table import read


def drawn(width: int, note: str) -> str:
    """The line of a bar that is done, on a terminal of so many columns."""
    terminal = Console(width=width, file=io.StringIO())
    progress = Progress(*console._columns(width), console=terminal)
    progress.add_task("evaluating", total=1000, completed=1000, note=note)
    with terminal.capture() as said:
        terminal.print(progress.get_renderable())
    return said.get().rstrip("\n")


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_and_its_note_fit_a_terminal(width: int) -> None:
    note = "next step, two-layer network on synthetic"
    line = drawn(width, note)
    assert len(line.splitlines()) == 1 and note in line and "1000/1000" in line
    assert line.count("━") >= 8, line
    times = line.partition(note)[2].split()
    assert times == ["0:00:00", "-:--:--"][width == 80 :], "whole, or not there"


def test_how_files_are_written_is_said_once_and_at_the_end(tmp_path, capsys) -> None:
    columns = (Column("a", "numeric", 0, 9), Column("b", "boolean"))
    (tmp_path / "rows.csv").write_text("a;b\n1,5;ja\n2;nein\n")
    schema = Schema("table", "t", 2, columns)
    with console.telling():
        read(tmp_path / "rows.csv", schema)
        read(tmp_path / "rows.csv", schema)
        assert not capsys.readouterr().err
    said = capsys.readouterr().err
    assert said.count("semicolons between cells") == said.count("decimal commas in a") == 1
    with console.telling(aloud=False):
        read(tmp_path / "rows.csv", schema)
    assert not capsys.readouterr().err


def test_infinity_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"left": float("inf"), "runs": [(1.5, float("nan"))]})
    assert json.loads(capsys.readouterr().out) == {"left": None, "runs": [[1.5, None]]}
