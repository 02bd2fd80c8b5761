"""Alignment over a network: what each end finds, what the server can see, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from parties import enrol, free_port, processes

from contracts.faults import Fault, Faulty
from understudy.cli import app
from understudy.deployment import aligning
from understudy.deployment.aligning import Aligning, relay, wait_for
from understudy.deployment.keys import fingerprint, load_keys
from understudy.errors import DataError, StudyError, WireError
from understudy.federation.secure.keys import lock
from understudy.federation.secure.roster import Roster, identities
from understudy.runtime.wire import unpack

LISTS = {
    "clinic": [f"p{i}" for i in range(12)],
    "insurer": [f"p{i}" for i in range(20, 4, -1)],
    "registry": [f"p{i}" for i in (9, 30, 6, 31, 7)],
}


def parties(*names: str, **lists: list[str]) -> tuple[Roster, dict[str, Aligning]]:
    roster, each = identities(names)
    held = {**LISTS, **lists}
    return roster, {n: Aligning(roster, own, held[n]) for n, own in zip(names, each, strict=True)}


def over(ends: Mapping[str, Aligning], faults: Mapping[tuple[str, int], Fault] = {}) -> Faulty:
    return Faulty({name: end.handle for name, end in ends.items()}, faults)


@pytest.mark.parametrize("names", [("clinic", "insurer"), tuple(LISTS)])
@pytest.mark.parametrize("fault", [None, "duplicate"])
def test_parties_find_the_same_people_in_the_same_order(
    names: tuple[str, ...], fault: Fault | None
) -> None:
    """Also where every message arrives twice: secrets and answers stay the same."""
    roster, ends = parties(*names)
    faults = {(name, leg): fault for name in names for leg in range(len(names) + 2) if fault}
    relay(over(ends, faults), roster)
    people = [[LISTS[name][row] for row in ends[name].rows] for name in names]
    assert all(end.over.is_set() and end.error is None for end in ends.values())
    assert all(found == people[0] for found in people)
    assert set(people[0]) == set.intersection(*(set(LISTS[name]) for name in names))


def test_what_passes_the_server_is_locked_and_tells_lengths_alone() -> None:
    """No point is in any message, in any leg; replies of the last leg are all alike."""
    roster, ends = parties(*LISTS)
    passed: list[bytes] = []

    def noted(handle: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def through(data: bytes) -> bytes:
            passed.extend((data, reply := handle(data)))
            return reply

        return through

    relay(Faulty({name: noted(end.handle) for name, end in ends.items()}), roster)
    points = [end._blinded[1].points for end in ends.values()] + [ends["clinic"]._whole.points]
    seen = b"".join(passed)
    assert len(seen) > sum(map(len, points)) * 32
    assert not any(point.tobytes() in seen for each in points for point in each)
    last = {reply[reply.index(b"{") :].replace(n.encode(), b"") for n, reply in _last(ends)}
    assert len(last) == 1


def _last(ends: Mapping[str, Aligning]) -> list[tuple[str, bytes]]:
    return [(name, end._reply) for name, end in ends.items()]


def test_nobody_in_common_stays_between_the_parties() -> None:
    roster, ends = parties("clinic", "insurer", insurer=["x", "y"])
    relay(over(ends), roster)  # for the server it ends as always
    for end in ends.values():
        assert isinstance(end.error, DataError) and "that all parties know" in str(end.error)


@pytest.mark.parametrize("leg", [0, 1, 2, 3])
def test_a_party_that_leaves_ends_it(leg: int) -> None:
    roster, ends = parties("clinic", "insurer")
    with pytest.raises(WireError, match="an answer of insurer"):
        relay(over(ends, {("insurer", leg): "die"}), roster, deadline=5)
    assert leg == 3 or not len(ends["clinic"].rows)


class Tampering:
    """A server that changes what it passes on in one leg."""

    def __init__(self, ends: Mapping[str, Aligning], leg: int, change: Callable[[bytes], bytes]):
        self.inner, self.leg, self.change, self.count = over(ends), leg, change, -1

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        self.count += 1
        if self.count == self.leg:
            messages = {name: self.change(message) for name, message in messages.items()}
        return self.inner.exchange(messages, deadline)


def _flipped(message: bytes) -> bytes:
    return message[:-1] + bytes([message[-1] ^ 1])


@pytest.mark.parametrize("leg, why", [(1, "a key that"), (2, "a peer"), (3, "a peer")])
def test_what_a_server_changes_is_refused(leg: int, why: str) -> None:
    """Keys that it puts in for a party's, and lists that it alters."""
    roster, ends = parties("clinic", "insurer")
    with pytest.raises(WireError, match=f"refusal.*{why}"):
        relay(Tampering(ends, leg, _flipped), roster)  # type: ignore[arg-type]
    assert not any(len(end.rows) for end in ends.values())


def test_keys_of_another_party_or_run_are_refused() -> None:
    """A server cannot stand in for a party: the roster says who signs."""
    roster, ends = parties("clinic", "insurer")
    _, strangers = parties("clinic", "insurer")
    ends["insurer"] = strangers["insurer"]
    ends["insurer"].roster = roster
    with pytest.raises(WireError, match="a key that insurer has signed"):
        relay(over(ends), roster)
    end = parties("clinic", "insurer")[1]["clinic"]
    with pytest.raises(WireError, match="another roster"):
        relay(over({"clinic": end, "insurer": end}), roster)


def test_two_messages_in_one_leg_are_refused() -> None:
    """Or a server could have a party multiply lists of its own making with one secret."""
    roster, ends = parties("clinic", "insurer")
    relay(over(ends), roster)
    rows = ends["clinic"].rows
    with pytest.raises(WireError, match="alignment that was begun"):
        relay(over(ends), roster)
    assert np.array_equal(ends["clinic"].rows, rows)


def test_a_message_of_an_earlier_leg_or_another_in_the_same_is_refused() -> None:
    roster, ends = parties("clinic", "insurer")
    handle, sent = ends["clinic"].handle, []

    def noted(data: bytes) -> bytes:
        sent.append(data)
        return handle(data)

    relay(Faulty({"clinic": noted, "insurer": ends["insurer"].handle}), roster)
    assert unpack(handle(sent[-1]), "aligned", "refusal")[0]["message"] == "aligned"  # a retry
    for data in (*sent[:-1], _flipped(sent[-1])):
        header, _ = unpack(handle(data), "aligned", "refusal")
        assert header["message"] == "refusal" and "leg 4 of an alignment" in header["reason"]


def test_an_error_at_a_party_ends_it_there_and_its_words_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(secret: object, theirs: object) -> None:
        raise RuntimeError("p7")

    monkeypatch.setattr(aligning, "answer", broken)
    roster, ends = parties("clinic", "insurer")
    with pytest.raises(WireError, match=r"refusal.*an error at clinic") as error:
        relay(over(ends), roster)
    assert "p7" not in str(error.value)
    assert all(end.over.is_set() and isinstance(end.error, WireError) for end in ends.values())


def test_every_list_on_its_way_is_locked_under_a_key_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each key encrypts one message, under one nonce for all: two would show their difference."""
    keys: list[bytes] = []
    monkeypatch.setattr(
        aligning, "lock", lambda key, found, bound: (keys.append(key), lock(key, found, bound))[1]
    )
    roster, ends = parties(*LISTS)
    relay(over(ends), roster)
    assert len(keys) == len(set(keys)) == 3 * 4


def test_parties_that_were_told_other_keys_do_not_read_each_other() -> None:
    """As where a third has started again: all must mean the same parties, in one run of each."""
    roster, ends = parties(*LISTS)
    again = Aligning(roster, ends["registry"].identity, LISTS["registry"])
    first, second, third, other = (end._step(0, b"") for end in (*ends.values(), again))
    sent = ends["clinic"]._step(1, first + second + third)
    ends["insurer"]._step(1, first + second + other)
    with pytest.raises(WireError, match="a peer"):
        ends["insurer"]._step(2, sent)
    with pytest.raises(WireError, match="this party's own key"):
        ends["registry"]._step(1, first + second + other)


def test_one_party_cannot_align_nor_a_missing_one_be_waited_for_for_ever() -> None:
    roster, ends = parties("clinic")
    with pytest.raises(StudyError, match="2 to 16 parties"):
        relay(over(ends), roster)
    with pytest.raises(WireError, match="no word from insurer"):
        wait_for(over(ends), ["clinic", "insurer"], 0.0, lambda line: None)


def test_parties_are_shown_a_fingerprint_that_tells_made_up_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server hands out the keys: with a party's of its own making it could try guesses."""
    monkeypatch.setattr("understudy.deployment.attendance.attend", None)  # nobody takes part
    said = []
    for name, more in (("true", []), ("forged", ["--json"])):  # programs are asked, too
        enrol(tmp_path / name, ("clinic", "insurer"))
        data = tmp_path / f"{name}.csv"
        pd.DataFrame({"ssn": LISTS["clinic"]}).to_csv(data, index=False)
        words = ("align", "join", data, "--id", "ssn", "-o", tmp_path / "out.csv")
        asked = [*map(str, words), "--keys", str(tmp_path / name / "clinic"), *more]
        made = CliRunner().invoke(app, asked, input="n\n")
        assert made.exit_code == 1 and "with insurer" in made.output
        said.append(" ".join(made.output.split()).partition("by telephone say: ")[2][:39])
        keys = load_keys(tmp_path / name / "insurer")
        assert said[-1] == fingerprint(keys.seated(["clinic", "insurer"])[0].hash)
    assert said[0] != said[1]


@pytest.mark.slow
def test_real_commands_align_files_over_the_network(tmp_path: Path) -> None:
    enrol(tmp_path, ("clinic", "insurer"))
    for name in ("clinic", "insurer"):
        frame = pd.DataFrame({"ssn": LISTS[name], f"{name} row": range(len(LISTS[name]))})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    port = free_port()
    with processes() as start:
        command = ("-m", "understudy", "align")
        serve = (*command, "serve", "--keys", tmp_path / "hub", "--port", port, "--wait", 60)
        hub = start(tmp_path / "hub.log", *serve)
        for name in ("clinic", "insurer"):
            where = ("--keys", tmp_path / name, "--server", f"localhost:{port}", "--yes")
            out = ("-o", tmp_path / f"{name}-aligned.csv")
            join = (*command, "join", tmp_path / f"{name}.csv", "--id", "ssn", *where, *out)
            each = start(tmp_path / f"{name}.log", *join)
        assert hub.ended(60) == 0, hub.said
        assert each.ended(30) == 0, each.said
    made = [pd.read_csv(tmp_path / f"{name}-aligned.csv") for name in ("clinic", "insurer")]
    assert len(made[0]) == 7 and "ssn" not in made[0]
    assert (made[0]["clinic row"] == 20 - made[1]["insurer row"]).all()
