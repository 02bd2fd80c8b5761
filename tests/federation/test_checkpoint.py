from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from understudy.errors import OutputError
from understudy.federation.checkpoint import Checkpoint, Saved, write_atomic


def state(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((2, 2), value), "n": torch.tensor([int(value)])}


@pytest.fixture
def two(tmp_path: Path) -> Checkpoint:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(Saved(1, state(1)))
    checkpoint.save(Saved(2, state(2)))
    return checkpoint


def test_the_newest_checkpoint_comes_back_exactly(two: Checkpoint) -> None:
    saved = two.load()
    assert saved is not None and saved.round == 2
    assert torch.equal(saved.state["w"], state(2)["w"])
    assert saved.state["n"].dtype == torch.int64
    assert Checkpoint(two.folder / "nowhere").load() is None


def test_a_truncated_checkpoint_falls_back_to_the_one_before(two: Checkpoint) -> None:
    path = two.folder / "checkpoint"
    whole = path.read_bytes()
    for length in (0, 10, 31, 32, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        saved = two.load()
        assert saved is not None and saved.round == 1, f"believed {length} bytes"


def test_an_altered_checkpoint_falls_back_and_two_altered_ones_to_nothing(two: Checkpoint) -> None:
    for name, expected in (("checkpoint", 1), ("checkpoint.previous", None)):
        path = two.folder / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(bytes(data))
        saved = two.load()
        assert (saved.round if saved else None) == expected


def test_states_that_share_tensors_are_saved(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(Saved(1, {"a": shared, "b": shared, "c": shared[1:], "t": shared.view(2, 2).T}))
    saved = checkpoint.load()
    assert saved is not None and torch.equal(saved.state["c"], shared[1:])
    assert torch.equal(saved.state["t"], shared.view(2, 2).T)


def test_a_full_disk_keeps_the_last_checkpoint(
    two: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="room on disk"):
        two.save(Saved(3, state(3)))
    monkeypatch.undo()
    saved = two.load()
    assert saved is not None and saved.round == 2
    assert not list(two.folder.glob("*.new"))


def test_a_write_replaces_the_file_whole(tmp_path: Path) -> None:
    write_atomic(tmp_path / "f", b"old")
    write_atomic(tmp_path / "f", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"new"


def test_the_cohort_begun_is_remembered(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.begun() is None
    checkpoint.begin(3, np.array([1, 4]))
    found = checkpoint.begun()
    assert found is not None and found[0] == 3 and found[1].tolist() == [1, 4]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"round": 1}', "\x00"])
def test_a_damaged_note_of_the_cohort_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "cohort.json").write_text(text)
    assert Checkpoint(tmp_path).begun() is None
