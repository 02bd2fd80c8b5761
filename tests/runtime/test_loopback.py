"""The transport of threads: every fault does what it says, and nothing else."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from contracts.faults import Fault, Faulty
from understudy.runtime.loopback import Loopback

NAMES = ("a", "b", "c")


def loopback(faults: dict[tuple[str, int], Fault] | None = None) -> tuple[Faulty, Counter[str]]:
    """Three sites that answer with their name and what they were told, and how often they did."""
    heard: Counter[str] = Counter()

    def handler(name: str):
        def handle(message: bytes) -> bytes:
            heard[name] += 1
            return name.encode() + b" heard " + message

        return handle

    return Faulty({name: handler(name) for name in NAMES}, faults or {}), heard


def told(message: bytes = b"one") -> dict[str, bytes]:
    return dict.fromkeys(NAMES, message)


def answer(name: str, message: bytes = b"one") -> bytes:
    return name.encode() + b" heard " + message


def test_without_faults_everyone_answers_once() -> None:
    made, heard = loopback()
    assert list(made.sites()) == list(NAMES) and made.ran == "one process"
    assert made.exchange(told(), 5.0) == ({n: answer(n) for n in NAMES}, {})
    assert heard == dict.fromkeys(NAMES, 1)
    assert made.exchange({}, 5.0) == ({}, {})


@pytest.mark.parametrize("fault, calls", [("drop", 0), ("lose", 1), ("late", 1), ("die", 0)])
def test_a_message_or_its_reply_gets_lost(fault: Fault, calls: int) -> None:
    made, heard = loopback({("b", 0): fault})
    replies, failures = made.exchange(told(), 5.0)
    assert set(replies) == {"a", "c"} and set(failures) == {"b"}
    assert "no answer" in failures["b"] and heard["b"] == calls


def test_a_late_reply_comes_in_the_place_of_the_next() -> None:
    made, _ = loopback({("b", 0): "late"})
    made.exchange(told(), 5.0)
    replies, _ = made.exchange(told(b"two"), 5.0)
    assert replies["b"] == answer("b") and replies["a"] == answer("a", b"two")
    assert made.exchange(told(b"three"), 5.0)[0]["b"] == answer("b", b"three")


def test_a_dead_site_stays_dead() -> None:
    made, heard = loopback({("b", 1): "die"})
    assert "b" in made.exchange(told(), 5.0)[0]
    for _ in range(3):
        assert "b" in made.exchange(told(), 5.0)[1]
    assert heard["b"] == 1


def test_a_duplicate_is_handled_twice_and_a_delay_only_takes_a_moment() -> None:
    made, heard = loopback({("a", 0): "duplicate", ("b", 0): "delay"})
    replies, failures = made.exchange(told(), 5.0)
    assert not failures and replies["a"] == answer("a") and replies["b"] == answer("b")
    assert (heard["a"], heard["b"]) == (2, 1)


def test_half_a_reply_arrives() -> None:
    made, _ = loopback({("c", 0): "truncate"})
    replies, _ = made.exchange(told(), 5.0)
    assert replies["c"] == answer("c")[: len(answer("c")) // 2]


def test_replies_arrive_under_each_others_names() -> None:
    made, _ = loopback({("a", 0): "reorder"})
    replies, failures = made.exchange(told(), 5.0)
    assert set(replies) == set(NAMES) and not failures
    assert sorted(replies.values()) == sorted(answer(n) for n in NAMES)
    assert all(replies[n] != answer(n) for n in NAMES)


def test_faults_are_counted_by_site_and_message() -> None:
    made, _ = loopback({("a", 1): "drop"})
    assert "a" in made.exchange({"a": b"x"}, 5.0)[0]
    made.exchange({"b": b"x"}, 5.0)
    assert "a" in made.exchange({"a": b"x"}, 5.0)[1]
    assert "a" in made.exchange({"a": b"x"}, 5.0)[0]


def test_nobody_is_waited_for_beyond_the_deadline() -> None:
    release = threading.Event()

    def slow(data: bytes) -> bytes:
        release.wait(10)
        return data

    made = Loopback({"slow": slow, "quick": lambda data: data})
    begun = time.monotonic()
    replies, failures = made.exchange({"slow": b"x", "quick": b"y"}, 0.2)
    release.set()
    assert time.monotonic() - begun < 5
    assert replies == {"quick": b"y"} and "deadline" in failures["slow"]


def test_a_handler_that_fails_is_a_failure_of_its_site_alone() -> None:
    def broken(data: bytes) -> bytes:
        raise ValueError("broken")

    made = Loopback({"a": broken, "b": lambda data: data})
    replies, failures = made.exchange({"a": b"x", "b": b"y"}, 5.0)
    assert replies == {"b": b"y"} and failures == {"a": "broken"}
