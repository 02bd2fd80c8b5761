"""``understudy ledger``: what a privacy officer reads, and ledgers that cannot be believed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.toys import TOYS, rows, study
from understudy.cli import app
from understudy.privacy.account import Event
from understudy.privacy.ledger import Ledger
from understudy.recipes import RECIPES
from understudy.simulation import run

SAID = {"study": "heart", "when": "2026-11-18T17:40:00+00:00", "cap": 5.0}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "north.jsonl"
    with Ledger(path) as ledger:
        events = (Event((4.0,), None, 3),)
        ledger.reserve("aa" * 16, events, 1e-5, "record, add or remove one", SAID)
        ledger.release("aa" * 16, "head", "model")
        ledger.reserve("bb" * 16, events, 1e-6, "record, add or remove one")
    return path


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["ledger", *map(str, words)], env={"COLUMNS": "120"})
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_a_site_reads_what_it_spent_on_what_and_what_is_left(book: Path) -> None:
    with Ledger(book) as ledger:
        total = ledger.total()
    said = call("show", book)
    assert "2026-11-18 17:40 heart" in said and "released" in said
    assert "not noted run bbbbbbbb" in said and "no release noted" in said
    assert "2 runs together: ε = " in said and "at δ = 1e-06, for each record" in said
    assert "the cap is ε = 5: ε = " in said
    (told,) = json.loads(call("show", book.parent, "--json"))["ledgers"]
    assert told["epsilon"] == total and told["left"] == 5 - total
    assert [each["study"] for each in told["runs"]] == ["heart", ""]


def test_reading_changes_nothing_and_needs_no_lock(book: Path) -> None:
    before = book.read_bytes()
    with Ledger(book):
        call("show", book)
        call("verify", book)
    assert book.read_bytes() == before
    missing = book.with_name("none.jsonl")
    assert "a ledger, or a folder" in call("show", missing, code=8)
    assert not missing.exists()


def test_an_empty_ledger_and_one_without_cap(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("")
    assert "nothing has been spent" in call("show", path)
    with Ledger(path) as ledger:
        ledger.reserve("aa", (Event((4.0,), None, 1),), 1e-5, "person, replace one")
    assert "no cap: nothing limits" in call("show", path)


def test_a_position_shows_that_a_ledger_was_rolled_back(book: Path) -> None:
    old = book.read_text().splitlines(keepends=True)
    position = json.loads(call("verify", book, "--json"))["position"]
    assert f"nothing was lost since {position}" in call("verify", book, "--since", position)
    book.write_text("".join(old[:2]))
    assert "3 entries" not in call("verify", book)
    said = call("verify", book, "--since", position, code=8)
    assert "it was rolled back" in said and "never an older one" in said
    book.unlink()
    with Ledger(book) as ledger:
        for number in range(3):
            ledger.reserve(str(number), (), 1e-5, "record, replace one")
    assert "rewritten" in call("verify", book, "--since", position, code=8)
    assert "a position such as" in call("verify", book, "--since", "3", code=8)


@pytest.mark.parametrize(
    ("spoil", "words"),
    (
        (lambda text: text.replace("heart", "heard"), "line 1 altered, missing or torn"),
        (lambda text: "".join(text.splitlines(keepends=True)[1:]), "line 1 altered"),
        (lambda text: text[:-10], "a last line cut short"),
        (lambda text: "\ud800" + text, "is no text"),
    ),
)
def test_damaged_ledgers_are_named_with_the_fix(book: Path, spoil, words: str) -> None:
    book.write_bytes(spoil(book.read_text()).encode(errors="surrogatepass"))
    for command in ("show", "verify"):
        said = call(command, book, code=8)
        assert words in said and ("copy" in said)
    assert json.loads(call("verify", book, "--json", code=8))["ok"] is False


def test_a_run_reads_which_rounds_were_charged(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "toy-mean", TOYS["toy-mean"])  # type: ignore[arg-type]
        asked = study("toy-mean", 4, privacy={"noise": 4.0})
        run(asked, rows(4), out=tmp_path / "release", seed=0, rows=5)
    said = call("show", tmp_path / "release")
    assert "3 of 3 rounds were charged" in said and "• Against" in said
    ledger = tmp_path / "cut.jsonl"
    shutil.copy(tmp_path / "release" / "ledger.jsonl", ledger)
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:2]))
    assert "1 of 3 rounds were charged – what is below is the cost of the whole" in call(
        "show", ledger
    )


def test_of_several_ledgers_none_is_checked_for_all(book: Path) -> None:
    position = call("verify", book)
    assert call("verify", book.parent) == position
    shutil.copy(book, book.with_name("south.jsonl"))
    assert "2 in" in call("verify", book.parent, code=8)
