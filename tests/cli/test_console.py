from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from understudy.cli import console


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
