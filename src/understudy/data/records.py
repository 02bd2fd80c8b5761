"""Records as users see them, and the checks every reader shares."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from understudy.errors import DataError

__all__ = [
    "DAMAGED",
    "Progress",
    "Records",
    "by_time",
    "check_memory",
    "check_size",
    "check_there",
    "crossing",
    "file_kind",
    "some",
    "unreadable",
]

Progress = Callable[[int, int], None]
"""Called with the work done (images read, rounds) and the work in all."""
DAMAGED = (OSError, EOFError, zlib.error)
"""What reading a file raises, packed or not, that is cut short or damaged."""
MAX_FILE = 16 * 2**30
SUFFIXES = {"csv": (".csv", ".tsv", ".txt"), "parquet": (".parquet", ".pq"), "npz": (".npz",)}


@dataclass(frozen=True)
class Records:
    """Rows as users see them: one of a frame, images (bytes [n, H, W(, C)]) or series [n, L, ch].

    ``labels`` and ``person`` [n] go with images and series (a table's label is a column). Series
    from tables know the ``recording`` [n] they were cut from and the ``start`` [n] in it.
    """

    frame: pd.DataFrame | None = None
    images: np.ndarray | None = None
    series: np.ndarray | None = None
    labels: np.ndarray | None = None
    person: np.ndarray | None = None
    recording: np.ndarray | None = None
    start: np.ndarray | None = None

    def __len__(self) -> int:
        held = [h for h in (self.frame, self.images, self.series) if h is not None]
        return len(held[0]) if held else 0

    def take(self, rows: np.ndarray) -> Records:
        """Some of the records, in the given order."""
        cut = {
            name: None if held is None else held[rows]
            for name in ("images", "series", "labels", "person", "recording", "start")
            for held in [getattr(self, name)]
        }
        frame = None if self.frame is None else self.frame.iloc[rows].reset_index(drop=True)
        return Records(frame=frame, **cut)


def by_time(records: Records) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Windows in order of recording and time: their places, recordings (as numbers) and starts."""
    if records.recording is None or records.start is None:
        return None
    recording = pd.factorize(records.recording)[0]
    order = np.lexsort((records.start, recording))
    return order, recording[order], records.start[order]


def crossing(part: np.ndarray, recording: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """Which windows, in order of time, share steps with the first one of the next part."""
    edges = np.flatnonzero(part[1:] != part[:-1]) + 1
    at = np.append(edges, -1)[np.searchsorted(edges, np.arange(len(part)), side="right")]
    return (at >= 0) & (recording[at] == recording) & (start[at] < start + length)


def file_kind(path: Path) -> str:
    """csv, parquet or npz, by the file's name."""
    name = path.name.lower().removesuffix(".gz")
    for kind, suffixes in SUFFIXES.items():
        if name.endswith(suffixes):
            return kind
    raise DataError(
        ".csv, .tsv, .txt (or .gz of these), .parquet or .npz", path.name, "convert or rename it"
    )


def check_there(path: Path) -> None:
    """Refuse what is not there."""
    if not path.exists():
        bundled = path.name.startswith("bundled:")
        do = "bundled rows are for study files; here, give a file" if bundled else "check the path"
        raise DataError("a data file", f"nothing at {path}", do)


def check_size(size: int) -> None:
    """Refuse, before reading, what would not fit in memory."""
    if size > MAX_FILE:
        raise DataError(
            f"at most {MAX_FILE / 2**30:.0f} GiB", f"{size / 2**30:.1f} GiB", "split the file"
        )


def check_memory(needed: int) -> None:
    """Refuse, before making room for them, rows that would take too many bytes."""
    limit = memory_limit()
    if needed > limit:
        raise DataError(
            f"at most {limit / 2**30:.1f} GiB of encoded rows",
            f"{needed / 2**30:.1f} GiB",
            "use fewer rows or coarser categories, or a larger machine",
        )


def memory_limit() -> int:
    """Half of this machine's memory, in bytes (4 GiB if unknown)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def unreadable(path: Path, error: Exception) -> DataError:
    """The error for a damaged file: its kind, never its contents."""
    return DataError("a readable data file", f"{path.name}: {type(error).__name__}", "re-export it")


def some(names: Sequence[str]) -> str:
    """The first few names of columns or arrays, for an error."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
