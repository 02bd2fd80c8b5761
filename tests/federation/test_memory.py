from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from understudy.errors import OutputError
from understudy.federation.memory import SiteMemory

INITIAL = {"a": torch.tensor([1.0, 2.0]), "b": torch.full((2, 3), 5.0)}


def initial(site: str) -> dict[str, torch.Tensor]:
    return INITIAL


def names(count: int) -> list[str]:
    return [f"site-{i}" for i in range(count)]


@pytest.mark.parametrize("on_disk", [False, True], ids=["ram", "disk"])
def test_memory_is_kept_per_site_and_starts_from_the_initial(tmp_path: Path, on_disk: bool) -> None:
    memory = SiteMemory(initial, names(5), tmp_path if on_disk else None)
    new = {"a": torch.rand(2, 2), "b": torch.rand(2, 2, 3)}
    memory.scatter(np.array([3, 1]), new)
    found = memory.gather(np.array([1, 2, 3]))
    assert torch.equal(found["a"][[2, 0]], new["a"]) and torch.equal(found["b"][[2, 0]], new["b"])
    assert torch.equal(found["a"][1], INITIAL["a"]) and torch.equal(found["b"][1], INITIAL["b"])
    assert memory.touched.tolist() == [False, True, False, True, False]
    memory.close()


def test_what_is_kept_does_not_change_with_what_was_given() -> None:
    memory, value = SiteMemory(lambda site: {"a": torch.zeros(2)}, ["only"]), torch.ones(1, 2)
    memory.scatter(np.array([0]), {"a": value})
    value += 7
    memory.gather(np.array([0]))["a"] += 7
    assert torch.equal(memory.gather(np.array([0]))["a"], torch.ones(1, 2))


def test_memory_on_disk_survives_a_restart(tmp_path: Path) -> None:
    first = SiteMemory(initial, names(3), tmp_path)
    first.scatter(np.array([2]), {k: v[None] + 1 for k, v in INITIAL.items()})
    first.close()
    second = SiteMemory(initial, names(3), tmp_path)
    second.touched[:] = first.touched
    assert torch.equal(second.gather(np.array([2]))["a"][0], INITIAL["a"] + 1)
    second.close()
    assert (tmp_path / "memory.bin").stat().st_mode & 0o077 == 0, "others can read it"


def test_sites_that_keep_nothing_need_no_file(tmp_path: Path) -> None:
    memory = SiteMemory(lambda site: {}, names(3), tmp_path)
    memory.scatter(np.array([0]), {})
    assert memory.gather(np.array([0, 1])) == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("short", [True, False])
def test_a_full_disk_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if short:
            return len(data) // 2
        raise OSError(errno.ENOSPC, "No space left on device")

    memory = SiteMemory(initial, names(3), tmp_path)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OutputError, match="room on disk"):
        memory.scatter(np.array([1]), {k: v[None] for k, v in INITIAL.items()})
    assert not memory.touched.any()
    memory.close()


def test_every_site_starts_from_what_its_name_gives() -> None:
    """A site may differ from another; what it keeps later is its own."""
    memory = SiteMemory(lambda site: {"a": torch.tensor([float(len(site))])}, ["x", "yy", "zzz"])
    memory.scatter(np.array([1]), {"a": torch.tensor([[9.0]])})
    assert memory.gather(np.arange(3))["a"].flatten().tolist() == [1.0, 9.0, 3.0]
