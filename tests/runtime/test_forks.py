"""Forks of a process answer in order, and never outlive what they were made for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from typing import Any

import pytest
import torch

from understudy.errors import StudyError, UnderstudyError
from understudy.rng import NoiseSource
from understudy.runtime.forks import Forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux alone")


def made(work: Any, items: Any, number: int = 2) -> list[Any]:
    forks = Forks(work, number)
    try:
        return list(forks.map(items))
    finally:
        forks.close()


@pytest.mark.parametrize("items", [0, 1, 2, 7])
def test_results_come_in_the_order_of_their_items(items: int) -> None:
    def work(n: int) -> tuple[int, int]:
        time.sleep(0.02 * (n % 2))
        return n, os.getpid()

    found = made(work, range(items))
    assert [n for n, _ in found] == list(range(items))
    assert len({pid for _, pid in found}) == min(items, 2)
    assert os.getpid() not in {pid for _, pid in found}


def test_tensors_arrive_as_they_were_sent_in_memory_of_their_own() -> None:
    sent = {"a": torch.rand(3, 5)[:, ::2], "b": torch.arange(4, dtype=torch.int32) > 1}
    (found,) = made(lambda held: {name: value.clone() for name, value in held.items()}, [sent])
    for name, value in sent.items():
        assert torch.equal(found[name], value) and found[name].dtype == value.dtype
        found[name].zero_()


def test_a_fork_sees_what_was_there_when_it_was_made_and_runs_on_one_thread() -> None:
    held = torch.ones(3)
    forks = Forks(lambda _: (float(held.sum()), torch.get_num_threads()), 1)
    held += 1
    assert list(forks.map([None])) == [(3.0, 1)]
    forks.close()


def test_an_error_in_a_fork_is_raised_here_in_its_own_words() -> None:
    def work(n: int) -> int:
        if n == 2:
            raise StudyError("an even share", "an odd one", "share again")
        return n

    with pytest.raises(StudyError, match="Expected an even share; found an odd one"):
        made(work, range(4))


def test_a_fork_that_was_killed_is_told_from_an_error_and_the_way_out_named() -> None:
    with pytest.raises(UnderstudyError, match=r"--workers"):
        made(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == 1 else n, range(4))


def test_forks_end_when_they_are_closed_or_forgotten() -> None:
    before = set(active_children())
    forks = Forks(os.getpid, 2)
    assert len(set(active_children()) - before) == 2
    del forks
    assert not set(active_children()) - before


def test_no_two_forks_draw_the_same_noise() -> None:
    """Numbers that both had from their parent would cancel in a difference of their sums."""
    source = NoiseSource.system()
    source.sites(0, [0]).words(4)  # used before the forks are made
    held = source.sites(0, [0])
    for draws in (lambda: held, lambda: source.sites(1, [0])):
        found = made(lambda _, draws=draws: draws().normal((4,)).tobytes(), range(6))
        assert len(set(found)) == 6


PARENT = """
import os, time
from understudy.runtime.forks import Forks
forks = Forks(lambda _: os.getpid(), 2)
print(*forks.map([0, 1]), flush=True)
time.sleep(60)
"""


def test_forks_end_with_a_parent_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    deadline = time.monotonic() + 10
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2 and not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
