from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.errors import BudgetError, OutputError, ReleaseError
from understudy.privacy.account import Event, cost
from understudy.privacy.clip import Receipt
from understudy.privacy.ledger import Ledger, read_entries, receipts_in


def receipt(round: int = 0, **changes) -> Receipt:
    fields = dict(part="a", where="server", mechanism="gaussian", unit="site", bound=1.0, std=2.0)
    return Receipt(round=round, source="os", **{**fields, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with an opening and three charges."""
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        ledger.append("open", {"study": "s", "plan": {}})
        for round in range(3):
            ledger.charge((receipt(round),))
    return tmp_path / "ledger.jsonl"


def test_charges_come_back_as_they_were_written(path: Path) -> None:
    entries = list(read_entries(path.read_text()))
    assert [entry["kind"] for entry in entries] == ["open", "charge", "charge", "charge"]
    assert receipts_in(entries) == [receipt(0), receipt(1), receipt(2)]
    with Ledger(path) as ledger:
        assert ledger.entries == entries
        assert ledger.head == entries[-1]["hash"]


def test_a_reopened_ledger_goes_on_with_the_chain(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.charge((receipt(3),))
    assert len(list(read_entries(path.read_text()))) == 5


def test_each_entry_names_all_before_it(path: Path) -> None:
    entries = list(read_entries(path.read_text()))
    assert [e["previous"] for e in entries] == ["0" * 64, *(e["hash"] for e in entries[:-1])]


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_an_altered_line_is_refused(path: Path, line: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    entry = json.loads(lines[line])
    entry["body"] = {"receipts": []}
    lines[line] = json.dumps(entry) + "\n"
    path.write_text("".join(lines))
    with pytest.raises(ReleaseError, match=f"line {line + 1} altered"):
        Ledger(path)


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_missing_line_is_refused(path: Path, line: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:line] + lines[line + 1 :]))
    with pytest.raises(ReleaseError, match=f"line {line + 1}"):
        Ledger(path)


def test_swapped_lines_are_refused(path: Path) -> None:
    a, b, c, d = path.read_text().splitlines(keepends=True)
    path.write_text(a + c + b + d)
    with pytest.raises(ReleaseError):
        Ledger(path)


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "null", "7", '{"kind": 1}', "\x00", "[" * 100_000], ids=range(8)
)
def test_lines_that_are_no_entries_are_refused(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(ReleaseError, match="line 5"):
        Ledger(path)


def test_bytes_that_are_not_text_are_refused(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"\xff\xfe\n")
    with pytest.raises(ReleaseError, match="not text"):
        Ledger(path)


def test_a_refused_ledger_is_left_as_it_is_and_not_locked(path: Path) -> None:
    damaged = path.read_bytes().replace(b'"a"', b'"b"', 1)
    path.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(ReleaseError):
            Ledger(path)
    assert path.read_bytes() == damaged


def test_a_line_torn_by_a_crash_is_cut_off_wherever_it_tore(path: Path) -> None:
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with Ledger(path) as ledger:
            assert len(ledger.entries) == 3
        assert path.read_bytes() == whole[:last]


def test_names_with_line_separators_do_not_tear_the_ledger(tmp_path: Path) -> None:
    name = "a\u2028b\x85c\x0cd"
    with Ledger(tmp_path / "l") as ledger:
        ledger.append("open", {"name": name})
    with Ledger(tmp_path / "l") as ledger:
        assert ledger.entries[0]["body"]["name"] == name


@pytest.mark.parametrize(
    "body",
    [{}, {"receipts": 3}, {"receipts": ["x"]}, {"receipts": [{"round": 0}]}, {"receipts": None}],
)
def test_charges_without_proper_receipts_are_refused(tmp_path: Path, body: dict) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.append("charge", body)
        with pytest.raises(ReleaseError, match="receipt"):
            receipts_in(ledger.entries)


HOLD = """
import sys, time
from pathlib import Path
from understudy.privacy.ledger import Ledger
with Ledger(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_while_the_first_holds_the_ledger(path: Path) -> None:
    before = path.read_bytes()
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(OutputError, match="another process"):
            Ledger(path)
        assert path.read_bytes() == before
    finally:
        child.communicate()
    Ledger(path).close()


def test_two_runs_note_their_rounds_in_one_ledger(tmp_path: Path) -> None:
    def note(run: str) -> None:
        for round in range(60):
            with Ledger(tmp_path / "own.jsonl") as ledger:
                ledger.join(run, round)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(note, ["a", "b"]))
    with Ledger(tmp_path / "own.jsonl") as ledger:
        assert (ledger.joined("a"), ledger.joined("b")) == (59, 59)


def test_one_process_cannot_open_a_ledger_twice(path: Path) -> None:
    with Ledger(path), pytest.raises(OutputError):
        Ledger(path)


class Full:
    """A file that has room for the first bytes of a line."""

    def __init__(self, file, fail: bool) -> None:
        self._file, self._fail = file, fail

    def write(self, data: bytes) -> int:
        written = self._file.write(data[:10])
        if self._fail:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    def __getattr__(self, name: str):
        return getattr(self._file, name)


@pytest.mark.parametrize("fail", [True, False], ids=["refused", "short"])
def test_a_full_disk_leaves_the_ledger_intact(path: Path, fail: bool) -> None:
    before = path.read_bytes()
    with Ledger(path) as ledger:
        ledger._file, file = Full(ledger._file, fail), ledger._file  # type: ignore[assignment]
        with pytest.raises(OutputError, match="room on disk"):
            ledger.charge((receipt(3),))
        assert len(ledger.entries) == 4
        ledger._file = file
        assert path.read_bytes() == before
        ledger.charge((receipt(3),))  # and it goes on once there is room
    assert len(list(read_entries(path.read_text()))) == 5


def test_a_charge_is_on_disk_before_the_call_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    with Ledger(path) as ledger:
        ledger.charge((receipt(3),))
    assert synced == [path.stat().st_size]


def test_a_failed_sync_does_not_count_as_charged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with Ledger(path) as ledger, pytest.raises(OutputError):
        ledger.charge((receipt(3),))
    assert path.read_bytes() == before


RUN = (Event((4.0,), None, 1),)
PRICE = cost(RUN, 1e-5).epsilon


def test_a_site_spends_a_whole_run_once_per_run_id(tmp_path: Path) -> None:
    with Ledger(tmp_path / "site") as ledger:
        for _ in range(2):
            ledger.check("run", RUN, 1e-5, PRICE * 1.01, "record")
            ledger.reserve("run", RUN, 1e-5, "record")
        assert ledger.spent() == list(RUN)
    with Ledger(tmp_path / "site") as ledger:
        ledger.check("run", RUN, 1e-5, PRICE * 1.01, "record")  # resumed: it is reserved already


def test_a_cap_holds_across_runs_and_restarts(tmp_path: Path) -> None:
    cap = cost([*RUN, *RUN], 1e-5).epsilon * 1.001
    for name in ("one", "two"):
        with Ledger(tmp_path / "site") as ledger:
            ledger.check(name, RUN, 1e-5, cap, "record")
            ledger.reserve(name, RUN, 1e-5, "record")
    before = (tmp_path / "site").read_bytes()
    with Ledger(tmp_path / "site") as ledger, pytest.raises(BudgetError, match="spent already"):
        ledger.check("three", RUN, 1e-5, cap, "record")
    assert (tmp_path / "site").read_bytes() == before, "a refusal spends nothing"


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan")])
def test_a_cap_that_allows_nothing_allows_nothing(tmp_path: Path, cap: float) -> None:
    with Ledger(tmp_path / "site") as ledger, pytest.raises(BudgetError):
        ledger.check("run", RUN, 1e-5, cap, "record")


def test_a_run_without_noise_fits_no_cap(tmp_path: Path) -> None:
    open_run = (Event((0.0,), None, 1),)
    with Ledger(tmp_path / "site") as ledger:
        with pytest.raises(BudgetError):
            ledger.check("run", open_run, 1e-5, 1e9, "record")
        ledger.reserve("run", open_run, 1e-5, "record")
        with pytest.raises(BudgetError):
            ledger.check("next", RUN, 1e-5, 1e9, "record")


def test_what_is_protected_otherwise_is_not_added_up(tmp_path: Path) -> None:
    with Ledger(tmp_path / "site.jsonl") as ledger:
        ledger.reserve("one", RUN, 1e-5, "record")
        with pytest.raises(BudgetError, match="a ledger for site"):
            ledger.check("two", RUN, 1e-5, 1e9, "site")


def test_runs_are_added_up_at_the_smallest_delta_of_all(tmp_path: Path) -> None:
    with Ledger(tmp_path / "site") as ledger:
        assert ledger.total() == 0
        ledger.reserve("one", RUN, 1e-7, "record")
        ledger.reserve("two", RUN, 1e-5, "record")
        both = cost([*RUN, *RUN], 1e-7).epsilon
        assert ledger.total() == both > cost([*RUN, *RUN], 1e-5).epsilon
        assert ledger.total(RUN, 1e-9) == cost([*RUN] * 3, 1e-9).epsilon
        assert ledger.total(delta=1e-9) == cost([*RUN, *RUN], 1e-9).epsilon
        three = cost([*RUN] * 3, 1e-7).epsilon
        ledger.check("three", RUN, 1e-5, three, "record")
        with pytest.raises(BudgetError, match="spent already"):
            ledger.check("three", RUN, 1e-5, three * (1 - 1e-9), "record")


def test_a_ledger_knows_whether_it_goes_on_from_a_recorded_position(path: Path) -> None:
    with Ledger(path) as ledger:
        marks = [(0, "0" * 64), (2, ledger.entries[1]["hash"]), ledger.position]
        ledger.charge((receipt(3),))
        assert all(ledger.holds(*mark) for mark in marks)
        length, head = ledger.position
        for lost in ((length + 1, head), (length, marks[1][1]), (1, head)):
            assert not ledger.holds(*lost)


def test_a_release_is_noted_once(tmp_path: Path) -> None:
    with Ledger(tmp_path / "site") as ledger:
        assert ledger.released("run") is None
        for head in ("first", "second"):
            ledger.release("run", head, "model")
        assert ledger.released("run") == "first" and len(ledger.entries) == 1
        with pytest.raises(ReleaseError, match="other model"):
            ledger.release("run", "first", "another")


def test_an_entry_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.append("refund", {})
    with pytest.raises(ReleaseError, match="another kind"):
        Ledger(tmp_path / "l")


@pytest.mark.parametrize("place", ["none/ledger.jsonl", "."])
def test_a_ledger_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path, place) -> None:
    with pytest.raises(OutputError, match=r"a ledger that can be written.*create its folder"):
        Ledger(tmp_path / place)


def test_the_gap_of_integer_noise_is_kept_and_paid_for(tmp_path: Path) -> None:
    noise = Event((4.0,), None, 3, gap=1e-12)
    with Ledger(tmp_path / "site.jsonl") as ledger:
        ledger.reserve("run", (noise,), 1e-5, "record")
    with Ledger(tmp_path / "site.jsonl") as ledger:
        assert ledger.spent() == [noise]
        assert ledger.total() == cost([noise], 1e-5).epsilon
        assert ledger.total() > cost([replace(noise, gap=0.0)], 1e-5).epsilon
