from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_hospitals_meet_their_caps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "hospitals_with_budgets.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "ε = 2" in said and "was refused" in said
    assert (tmp_path / "hospitals" / "release" / "claims.json").exists()
    assert not (tmp_path / "hospitals" / "again").exists()
