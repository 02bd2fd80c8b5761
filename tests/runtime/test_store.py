"""What a site on a network keeps: whole, in one move, or refused."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from understudy.errors import OutputError, ReleaseError
from understudy.runtime.store import Kept, Store

KEPT = Kept("run", 3, (2, 1), b"sealed \0 bytes", {"a": torch.arange(6.0).view(1, 2, 3).mT})


def same(one: Kept, two: Kept) -> bool:
    plain = [(k.run, k.round, k.allowance, k.reply, sorted(k.memory)) for k in (one, two)]
    return plain[0] == plain[1] and all(
        torch.equal(one.memory[n], two.memory[n]) for n in one.memory
    )


@pytest.mark.parametrize("kept", [KEPT, Kept("run", 0, (1,)), Kept("r", 1, (0,), b"\0")], ids=repr)
def test_what_was_kept_comes_back_after_a_restart(tmp_path: Path, kept: Kept) -> None:
    Store(tmp_path).save(kept)
    assert same(Store(tmp_path).kept, kept)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["site.lock", "site.state"], "one file, in one move"


def test_a_new_site_has_kept_nothing(tmp_path: Path) -> None:
    for store in (Store(tmp_path), Store()):
        assert store.kept == Kept() and store.kept.round < 0


def test_without_a_folder_it_lasts_as_long_as_the_process() -> None:
    store = Store()
    store.save(KEPT)
    assert same(store.kept, KEPT)


@pytest.mark.parametrize("spoil", ["cut", "altered", "empty"])
def test_a_damaged_file_is_refused_and_never_taken_for_a_new_site(
    tmp_path: Path, spoil: str
) -> None:
    Store(tmp_path).save(KEPT)
    path = tmp_path / "site.state"
    data = path.read_bytes()
    altered = data[:-1] + bytes([data[-1] ^ 1])
    path.write_bytes({"cut": data[:-3], "altered": altered, "empty": b""}[spoil])
    with pytest.raises(ReleaseError, match=r"site\.state"):
        Store(tmp_path)


def test_a_full_disk_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.save(KEPT)

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="room on disk"):
        store.save(Kept("run", 4, (1, 1)))
    monkeypatch.undo()
    assert same(store.kept, KEPT) and same(Store(tmp_path).kept, KEPT)


def test_only_one_process_answers_for_a_site(tmp_path: Path) -> None:
    held = Store(tmp_path)
    held.save(Kept(run="r", round=1, allowance=(2,), reply=b"sent"))
    code = f"import pathlib as p, understudy.runtime.store as s; s.Store(p.Path({str(tmp_path)!r}))"
    other = [sys.executable, "-c", code]
    refused = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode and "another process holds its folder" in refused.stderr
    del held
    gc.collect()
    done = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
