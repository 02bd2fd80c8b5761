"""The doctor names what is wrong and says how to fix it."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from understudy.cli import doctor as module
from understudy.cli.doctor import Check, doctor, examine

app = typer.Typer()
app.command()(doctor)
run = CliRunner().invoke

FINE = Check("thing", True, "there", "nothing")
BROKEN = Check("thing", False, "gone", "put [it] back")


def pretend(monkeypatch: pytest.MonkeyPatch, *findings: Check) -> None:
    monkeypatch.setattr(module, "examine", lambda checks: findings)


def test_this_machine_passes_every_check() -> None:
    findings = examine(module.CHECKS + module.LOADED)
    assert [f for f in findings if not f.ok] == []


def test_full_adds_the_checks_that_load_libraries() -> None:
    names = [check["name"] for check in json.loads(run(app, ["--json", "--full"]).stdout)["checks"]]
    assert {"PyTorch in use", "dp-accounting"} < set(names)
    names = [check["name"] for check in json.loads(run(app, ["--json"]).stdout)["checks"]]
    assert "PyTorch" in names and "dp-accounting" not in names


@pytest.mark.parametrize(("version", "ok"), [("2.9.1", False), ("2.10.0+cpu", True), (None, False)])
def test_old_or_missing_torch_is_refused(
    version: str | None, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_version", lambda name: version)
    assert module.torch_version().ok is ok


def test_accountant_check_fails_if_the_known_value_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GAUSSIAN_EPSILON", 4.0)
    assert not module.accountant().ok


def test_full_disk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREE_GB", 1e12)
    assert not module.disk_space().ok


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.metadata, "requires", lambda _: ["no-such-package>=1", "numpy>=2"])
    assert module.packages().found == "missing: no-such-package"


def test_a_check_that_crashes_becomes_a_failed_line() -> None:
    def torch_build() -> Check:
        raise ImportError("libgomp is missing")

    (finding,) = examine((torch_build,))
    assert not finding.ok
    assert "libgomp" in finding.found


def test_exit_code_is_zero_when_everything_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, FINE)
    result = run(app, [])
    assert result.exit_code == 0
    assert "nothing" not in result.output, "a fix is shown only where one is needed"


def test_exit_code_is_one_and_the_fix_is_shown_when_something_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, FINE, BROKEN)
    result = run(app, [])
    assert result.exit_code == 1
    assert "put [it] back" in result.output


def test_json_holds_every_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, FINE, BROKEN)
    told = json.loads(run(app, ["--json"]).stdout)
    assert told["ok"] is False
    assert [check["found"] for check in told["checks"]] == ["there", "gone"]
