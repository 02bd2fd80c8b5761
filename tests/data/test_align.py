"""Alignment: the people that all parties know, in one order, and nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from understudy.data import align
from understudy.data.align import (
    Alignment,
    Blinded,
    Secret,
    align_here,
    answer,
    blind,
    common,
    identifiers,
)
from understudy.errors import DataError, WireError


def test_parties_find_the_same_people_in_the_same_order() -> None:
    lists = [[f"P{i}" for i in range(a, b)] for a, b in ((0, 60), (20, 90), (10, 50))]
    found, alignment = align_here([identifiers([each]) for each in lists])
    people = [[names[i] for i in rows] for names, rows in zip(lists, found, strict=True)]
    assert people[0] == people[1] == people[2]
    assert set(people[0]) == {f"P{i}" for i in range(20, 50)}
    assert people[0] != sorted(people[0])  # the order says nothing
    assert alignment.rows == 30


def test_scalars_commute_and_hide_identifiers() -> None:
    (a, sent_a), (b, sent_b) = blind(["x", "y"]), blind(["y", "x"])
    one, other = answer(b, sent_a), answer(a, sent_b)
    assert np.array_equal(one.points[np.argsort(a.order)][0], other.points[np.argsort(b.order)][1])
    assert not set(map(bytes, sent_a.points)) & set(map(bytes, sent_b.points))


def test_a_third_party_learns_how_many_people_two_others_share_that_it_does_not_have() -> None:
    """As the module says of three parties or more: all see all lists that everyone multiplied."""
    (a, sent_a), (b, sent_b), (c, _) = blind(["x", "y", "z"]), blind(["z", "y"]), blind(["w"])
    lists = answer(c, answer(b, sent_a)), answer(c, answer(a, sent_b))
    assert len(set(map(bytes, lists[0].points)) & set(map(bytes, lists[1].points))) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (" Ann  Lee ", "ann lee"),
        ("2001-03-04", "04.03.2001"),
        ("2001/3/4", "2001-03-04"),
        ("\uff21\uff22", "ab"),
        (17, "17"),
    ],
)
def test_ways_of_writing_one_identifier(one: object, other: object) -> None:
    assert identifiers([[one]]) == identifiers([[other]])


def test_dates_that_could_be_two_days_stay_as_they_are() -> None:
    assert identifiers([["3/4/2001"]]) != identifiers([["4/3/2001"]])


def test_several_columns_make_one_identifier() -> None:
    assert identifiers([["a", "a"], ["1", "2"]]) == ["a\x1f1", "a\x1f2"]
    assert identifiers([["ab"], ["c"]]) != identifiers([["a"], ["bc"]])


@pytest.mark.parametrize("bad", [["a", " "], ["a", "A "], [None], [float("nan")]])
def test_empty_and_repeated_identifiers_are_refused(bad: list[object]) -> None:
    with pytest.raises(DataError) as error:
        identifiers([bad])
    assert "a" not in error.value.found.split()  # no identifier in the message


def test_nobody_in_common_is_an_error() -> None:
    with pytest.raises(DataError, match="people that all parties know"):
        align_here([["a"], ["b"]])


def test_files_in_the_wrong_place_are_refused() -> None:
    secret, sent = blind(["a", "b"])
    with pytest.raises(DataError, match="points of one's own"):
        common(secret, Blinded(sent.points[:1]), [sent])
    for bad in (b"", sent.to_bytes()[:-1], b"X" + sent.to_bytes()[1:]):
        with pytest.raises(WireError, match="blinded identifiers"):
            Blinded.from_bytes(bad)
    assert np.array_equal(Blinded.from_bytes(sent.to_bytes()).points, sent.points)


@pytest.mark.parametrize("worth", [10_000, 1], ids=["here", "in other processes"])
def test_points_of_small_order_are_refused(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "_WORTH", worth)
    monkeypatch.setattr(align.os, "cpu_count", lambda: 2)
    secret, sent = blind(["a", "b"])
    points = np.concatenate([sent.points, np.zeros((1, 32), np.uint8)])
    with pytest.raises(WireError, match="small order"):
        answer(secret, Blinded(points))


def test_several_processes_give_the_points_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, sent = blind(["a", "b", "c"])
    alone = answer(secret, sent).points
    monkeypatch.setattr(align, "_WORTH", 1)
    monkeypatch.setattr(align.os, "cpu_count", lambda: 2)
    assert np.array_equal(answer(secret, sent).points, alone)


def test_processes_import_nothing_from_the_folder_they_are_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold others' files, and the processes are told the scalar."""
    (tmp_path / "cryptography.py").write_text("raise SystemExit(5)", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(align, "_WORTH", 1)
    monkeypatch.setattr(align.os, "cpu_count", lambda: 2)
    secret, sent = blind(["a", "b"])
    assert len(answer(secret, sent)) == 2


def test_a_secret_does_not_show_in_its_text() -> None:
    assert "scalar" not in repr(Secret(b"s" * 32, np.arange(2)))


def test_all_parties_find_one_alignment_and_another_time_another() -> None:
    """No list that travels holds it; of the answered ones of all parties anybody can make it."""
    (a, sent_a), (b, sent_b) = blind(["x", "y"]), blind(["y", "x", "z"])
    whole_a, whole_b = answer(b, sent_a), answer(a, sent_b)
    (_, one), (_, other) = common(a, whole_a, [whole_b]), common(b, whole_b, [whole_a])
    assert one == other and one.rows == 2 and one.mark == other.mark
    again = align_here([["x", "y"], ["y", "x", "z"]])[1]
    assert again.secret != one.secret and again.mark != one.mark
    assert one.secret not in sent_a.to_bytes() + sent_b.to_bytes()


def test_an_alignment_follows_from_everybody_in_it() -> None:
    (a, sent_a), (b, sent_b) = blind(["x", "y"]), blind(["x", "y"])
    own, other = answer(b, sent_a), answer(a, sent_b)
    first = min(range(2), key=lambda i: other.points[i].tobytes())
    whole, fewer = (common(a, own, [each])[1] for each in (other, Blinded(other.points[[first]])))
    assert (whole.rows, fewer.rows) == (2, 1) and whole.secret != fewer.secret


def test_batches_follow_from_the_secret_not_from_the_mark_that_is_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A study file and its release show the mark to everybody."""
    alignment = Alignment.fresh(10)
    agreed = alignment.agreed("study", "run")
    monkeypatch.setattr(Alignment, "mark", "00" * 32)
    assert alignment.agreed("study", "run") == agreed
    assert replace(alignment, secret=bytes(32)).agreed("study", "run") != agreed
    assert Alignment.fresh(10).secret != alignment.secret


def test_an_alignment_marks_all_of_itself_and_no_two_runs_draw_alike() -> None:
    alignment = Alignment(bytes(range(32)), 10)
    assert Alignment.from_bytes(alignment.to_bytes()) == alignment
    others = [Alignment(bytes(32), 10), Alignment(alignment.secret, 11)]
    assert alignment.mark not in {other.mark for other in others}
    assert alignment.secret.hex() not in alignment.mark
    runs = {alignment.agreed(study, run) for study in "ab" for run in "cd"}
    assert len(runs) == 4 and alignment.agreed("a", "c") in runs
    assert others[0].agreed("a", "c") not in runs
    assert "x01" not in repr(alignment)
    for bad in (b"", alignment.to_bytes()[:-1], b"X" + alignment.to_bytes()[1:]):
        with pytest.raises(DataError, match="an alignment file"):
            Alignment.from_bytes(bad)
