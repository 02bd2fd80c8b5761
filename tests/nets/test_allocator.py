"""Memory that was freed is kept: pages are not asked for again."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource, torch
from understudy.nets.allocator import keep_freed_memory
ctypes.CDLL(None).mallopt(-3, 1 << 17)  # every large block is the system's again once it is freed
{call}
def step():
    return [torch.ones(1 << 21) for _ in range(6)]
for _ in range(3): step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    """Pages asked for in ten steps of six blocks of eight megabytes."""
    command = [sys.executable, "-c", FAULTS.format(call=call)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_steps_ask_for_no_pages_again() -> None:
    assert faults("keep_freed_memory()") < 1000 < 10_000 < faults("")
