"""Checks that never end, eat memory or crash are ended, and the push is refused with a reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from contracts.toys import plain
from exchange import verifiers
from understudy.exchange.admission import Rules
from understudy.exchange.worker import Job, Worker
from understudy.simulation.verification import verify

RULES = Rules(plain().hash, "record", ("local",), (), 1.0, 1e-5, False, 100)
pytestmark = pytest.mark.slow


def test_a_fit_push_passes_in_a_process_of_its_own(pushed: dict[str, Path]) -> None:
    found = Worker(verify, 60, 2.0).check(Job(pushed["one"], RULES, []))
    assert found.keys() == {"facts", "preview"}
    twice = Worker(verify, 60, 2.0).check(Job(pushed["one"], RULES, [found["facts"]["share"]] * 9))
    assert "9 earlier push(es)" in twice["refused"]["found"]


@pytest.mark.parametrize(
    "verifier, found",
    [
        (verifiers.for_ever, "no end after 5 s"),
        (verifiers.hungry, "MemoryError"),
        (verifiers.crashing, "broke off"),
        (verifiers.filling, "OSError"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_checks_that_misbehave_are_ended(
    pushed: dict[str, Path], verifier: Any, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "release.zip"
    path.write_bytes(pushed["one"].read_bytes())
    worker = Worker(verifier, 60, 1.0)
    worker.warm()
    begun, patience = time.monotonic(), 5 if verifier is verifiers.for_ever else 60
    answer = Worker(verifier, patience, 1.0).check(Job(path, RULES, []))
    assert time.monotonic() - begun < 120
    assert found in answer["refused"]["found"]
    junk = tmp_path / "junk"
    assert not junk.exists() or junk.stat().st_size <= 64 << 20
