from __future__ import annotations

import json
from pathlib import Path

import pytest

from understudy.deployment.status import FILE, LINES, Promised, SiteStatus, Status
from understudy.errors import OutputError, UnderstudyError

CLAIM = Promised("anyone who sees the release", "record", 2.0, 1e-5, "Against anyone …")


def status() -> Status:
    sites = (SiteStatus("north"), SiteStatus("south"))
    return Status("heart", 5, sites, (CLAIM, Promised("the server", "record", None, 1e-5, "…")))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    said = status().with_site("north", "joined").told("north joined", phase="training", round=2)
    said.write(tmp_path)
    assert Status.read(tmp_path) == said
    assert said.sites[0].seen and said.sites[1].seen is None
    assert said.log[0].endswith("north joined") and said.started == said.updated
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_lost_site_keeps_the_time_it_was_seen() -> None:
    seen = status().with_site("north", "joined").sites[0].seen
    lost = status().with_site("north", "joined").with_site("north", "lost", "no reply").sites[0]
    assert lost.seen == pytest.approx(seen, abs=1) and lost.note == "no reply"


def test_the_log_keeps_its_last_lines() -> None:
    said = status()
    for number in range(LINES + 5):
        said = said.told(f"line {number}")
    assert len(said.log) == LINES and said.log[-1].endswith(f"line {LINES + 4}")


@pytest.mark.parametrize(
    "change",
    (
        {"phase": "elsewhere"},
        {"round": 6},
        {"extra": 1},
        {"sites": [{"name": "x", "state": "?"}]},
        {"sites": [{}]},
        {"log": None},
    ),
)
def test_a_damaged_file_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    status().write(tmp_path)
    data = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**data, **change}))
    with pytest.raises(UnderstudyError, match="damaged"):
        Status.read(tmp_path)


def test_absent_cut_and_unwritable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnderstudyError, match="no such file"):
        Status.read(tmp_path)
    (tmp_path / FILE).write_text('{"study": "he')
    with pytest.raises(UnderstudyError, match="damaged"):
        Status.read(tmp_path)
    with pytest.raises(OutputError):
        status().write(tmp_path / "none")
