"""Releases on disk, each under its SHA-256, and uploads that are not complete yet.

A blob appears in one move, after it was written and synced: there is no half one, whenever the
process or the machine stops. The database says which blobs there should be; a blob is there before
its row says so, and its row is gone before the blob is.

::

    blobs/ab/abcdef….zip     uploads/0123456789abcdef.zip     head.json (of the audit log)
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from understudy.errors import ExchangeError, unwritable

__all__ = ["Blobs", "file_hash"]

_BLOCK = 1 << 20


class Blobs:
    """The store of one exchange."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs, self._uploads = folder / "blobs", folder / "uploads"
        self._head = folder / "head.json"
        try:
            for part in (self._blobs, self._uploads):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(str(folder), error) from error

    def path(self, sha256: str) -> Path:
        """Where a blob lies."""
        return self._blobs / sha256[:2] / f"{sha256}.zip"

    def upload(self, push: str) -> Path:
        """Where the bytes of an upload are gathered."""
        return self._uploads / f"{push}.zip"

    def received(self, push: str) -> int:
        """How many bytes of an upload are there; a push that is being refused loses its own."""
        try:
            return self.upload(push).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, push: str, offset: int, data: bytes) -> int:
        """Add to an upload that has ``offset`` bytes; all of ``data``, or nothing."""
        path = self.upload(push)
        with open(path, "ab") as file:
            try:
                file.write(data)
                file.flush()
            except OSError:
                os.truncate(path, offset)
                raise
        return offset + len(data)

    def keep(self, push: str, sha256: str) -> Path:
        """Make a blob of an upload; the upload stays until it is dropped."""
        target = self.path(sha256)
        target.parent.mkdir(exist_ok=True)
        partial = self._uploads / f"{push}.{secrets.token_hex(4)}.new"
        try:
            _copy(self.upload(push), partial)
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        for folder in (target.parent, self._blobs):
            _sync(folder)
        return target

    def drop_upload(self, push: str) -> None:
        """Forget an upload."""
        self.upload(push).unlink(missing_ok=True)

    def remove(self, sha256: str) -> None:
        """Forget a blob, which no row names any more."""
        self.path(sha256).unlink(missing_ok=True)

    def kept(self) -> Iterator[str]:
        """The names of all blobs."""
        for path in sorted(self._blobs.glob("??/*")):
            yield path.name.removesuffix(".zip")

    def uploads(self) -> Iterator[str]:
        """All uploads, by the number of their push."""
        for path in sorted(self._uploads.iterdir()):
            yield path.name.removesuffix(".zip")

    def stray(self, name: str) -> None:
        """Remove what an interrupted write left in the folder of uploads."""
        for path in (self._uploads / name, self.upload(name)):
            path.unlink(missing_ok=True)

    def note_head(self, seq: int, hash: str) -> None:
        """Remember how far the audit log went, apart from the database."""
        partial = self._head.with_suffix(".new")
        partial.write_text(json.dumps({"seq": seq, "hash": hash}) + "\n", encoding="utf-8")
        os.replace(partial, self._head)

    def head(self) -> tuple[int, str] | None:
        """What was remembered."""
        if not self._head.exists():
            return None
        try:
            found = json.loads(self._head.read_text("utf-8"))
            return int(found["seq"]), str(found["hash"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExchangeError(
                f"{self._head.name} as the service writes it", "a damaged one", "restore the store"
            ) from error


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            made.update(block)
    return made.hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Byte by byte, and on the disk when this returns."""
    with source.open("rb") as old, target.open("xb") as new:
        while block := old.read(_BLOCK):
            new.write(block)
        new.flush()
        os.fsync(new.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
