"""The private folder of a run, ``OUT.partial``.

Ledger, checkpoints and the sites' memory lie in it. The process that runs holds a lock on the
folder, so that nobody takes a run that is going on for one that was interrupted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.errors import OutputError, unwritable
from understudy.release.archive import refuse_existing

__all__ = ["RESERVED", "charged", "private_folder", "workplace"]

RESERVED = "reserved"  # in the private folder: the sites' own ledgers have been charged


def private_folder(out: Path) -> Path:
    """Where a run keeps what it must remember until ``out`` is there."""
    return out.with_name(out.name + ".partial")


@contextmanager
def workplace(out: Path | None, resume: bool) -> Iterator[Path]:
    """The private folder of a run: kept if the run is interrupted, removed when it is done."""
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    refuse_existing(out)
    folder = private_folder(out)
    with _locked(folder, resume):
        try:
            yield folder
        except BaseException:
            if not resume and not charged(folder):  # a folder that was there before stays
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path, resume: bool) -> Iterator[None]:
    """Make the folder, or find it if the run is resumed, and hold it alone."""
    there = folder.exists()
    if resume and not there:
        raise OutputError(f"an interrupted run at {folder.name}", "none", "leave out --resume")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise unwritable(folder.name, error) from error
    try:
        _lock(handle, folder)
        if there and not resume:
            raise OutputError(
                f"no interrupted run at {folder.name}",
                "one",
                "add --resume to finish it, or choose another --out",
            )
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OutputError(
            f"no other run at {folder.name}",
            "another process is running there",
            "wait until it has finished, or choose another --out",
        ) from error


def charged(folder: Path) -> bool:
    """Whether anything was spent or trained: then the folder must stay."""
    return any((folder / name).exists() for name in ("cohort.json", RESERVED))
