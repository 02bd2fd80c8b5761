from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from understudy.data.records import Records
from understudy.data.schema import Schema
from understudy.data.stream import Writer
from understudy.data.table import write
from understudy.errors import OutputError, unwritable

IMAGES = Schema("image", "dots", 9, classes=("a", "b"), shape=(2, 2))
ROWS = Records(images=np.zeros((3, 2, 2), np.uint8), labels=np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("number", "do"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EPERM, "a folder that you may write to"),
        (errno.EACCES, "a folder that you may write to"),
        (errno.EROFS, "a folder that you may write to"),
    ],
)
def test_only_a_full_disk_asks_for_space(number: int, do: str) -> None:
    said = unwritable("rows.csv", OSError(number, os.strerror(number)))
    assert do in said.do and said.found == os.strerror(number) and "rows.csv" in said.expected
    assert ("room" in said.expected) == ("space" in said.do)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_closed_folder_is_an_output_error_that_leaves_nothing(
    streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(np, "savez_compressed", closed)
    monkeypatch.setattr(np, "savez", closed)
    with pytest.raises(OutputError, match="you may write to"):
        if streamed:
            with Writer(tmp_path / "a.npz", IMAGES) as file:
                file.write(ROWS)
        else:
            write(ROWS, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())
