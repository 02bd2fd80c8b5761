"""The private folder of a run, ``OUT.partial``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.errors import OutputError, unwritable
from understudy.release.bundle import refuse_existing

__all__ = ["RESERVED", "charged", "workplace"]

RESERVED = "reserved"  # in the private folder: the sites' own ledgers have been charged


@contextmanager
def workplace(out: Path | None, resume: bool) -> Iterator[Path]:
    """The private folder of a run: kept if the run is cut short, gone when it is done."""
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder = _partial_folder(out, resume)
    try:
        yield folder
    except BaseException:
        if not resume and not charged(folder):  # a folder that was there before stays
            shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _partial_folder(out: Path, resume: bool) -> Path:
    refuse_existing(out)
    folder = out.with_name(out.name + ".partial")
    if folder.exists() and not resume:
        raise OutputError(
            f"no interrupted run at {folder.name}", "one", "add --resume, or remove that folder"
        )
    if resume and not folder.exists():
        raise OutputError(f"an interrupted run at {folder.name}", "none", "leave out --resume")
    try:
        folder.mkdir(mode=0o700, exist_ok=resume)
    except OSError as error:
        raise unwritable(folder.name, error) from error
    return folder


def charged(folder: Path) -> bool:
    """Whether anything was spent or trained: then the folder must stay."""
    return any((folder / name).exists() for name in ("cohort.json", RESERVED))
