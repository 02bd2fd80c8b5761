"""Where the files of a release lie: a folder, or a zip that holds the same files.

Files are read by name, with size limits, and links are not followed, so that no path can escape. A
zip is not compressed and must be, byte for byte, what `save` writes for its files: so it holds
nothing else (comments, hidden or repeated entries, other bytes) and cannot swell when it is read.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import OutputError, ReleaseError, unwritable

__all__ = ["Archive", "open_archive", "refuse_existing", "save"]

MAX_FILE = 4 << 30
_BAD_ZIP = (OSError, KeyError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Archive:
    """The names of all that is there, and what reads one of them."""

    names: frozenset[str]
    read: Callable[[str], bytes]


def open_archive(path: Path) -> Archive:
    """A release's folder or ``.zip``."""
    return _zip(path) if path.suffix == ".zip" else _folder(path)


def _folder(path: Path) -> Archive:
    def read(name: str) -> bytes:
        file = path / name
        if not file.is_file() or file.is_symlink():
            raise _absent(name, path)
        _check_size(file)
        return file.read_bytes()

    children = path.iterdir() if path.is_dir() else ()
    return Archive(frozenset(child.name for child in children), read)


def _zip(path: Path) -> Archive:
    files = _unzipped(path)

    def read(name: str) -> bytes:
        if name not in files:
            raise _absent(name, path)
        return files[name]

    return Archive(frozenset(files), read)


def _unzipped(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        raise _absent("release.json", path)
    _check_size(path)
    data = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            plain = sum(e.file_size for e in entries) <= len(data)  # nothing is compressed
            files = {e.filename: archive.read(e) for e in entries} if plain else {}
    except _BAD_ZIP as error:
        raise ReleaseError(f"{path.name} to be a zip", "a damaged one", "fetch it again") from error
    if _zipped(files) != data:
        raise ReleaseError(
            f"{path.name} as Understudy writes a zip",
            "another (packed by other software, or altered)",
            "unpack it and use the folder, or fetch it again",
        )
    return files


def _absent(name: str, path: Path) -> ReleaseError:
    return ReleaseError(f"{name} in {path.name}", "no such file", "check the path; fetch it again")


def _check_size(file: Path) -> None:
    if file.stat().st_size > MAX_FILE:
        limit = f"{file.name} below {MAX_FILE >> 30} GiB"
        raise ReleaseError(limit, "a larger one", "do not trust it")


def refuse_existing(path: Path) -> None:
    """Nothing is ever overwritten."""
    if os.path.lexists(path):
        raise OutputError("a new path for a release", f"{path} exists", "choose another --out")
    if not path.absolute().parent.is_dir():
        raise OutputError(
            "an existing parent folder", "none", f"create the folder that {path} is in"
        )


def save(files: Mapping[str, bytes], path: Path) -> None:
    """Write the folder (or ``.zip``) in one move; an existing one is never touched."""
    refuse_existing(path)
    try:
        _save_zip(files, path) if path.suffix == ".zip" else _save_folder(files, path)
    except OSError as error:
        raise unwritable(path.name, error) from error


def _save_folder(files: Mapping[str, bytes], path: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        for name, data in files.items():
            (partial / name).write_bytes(data)
        partial.chmod(0o755)
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _save_zip(files: Mapping[str, bytes], path: Path) -> None:
    partial = path.with_name(f".{path.name}.new")
    try:
        partial.write_bytes(_zipped(files))
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """The one zip of these files: sorted, stored as they are, all of one date."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3  # as on Unix, whatever system this is
            archive.writestr(entry, data)
    return buffer.getvalue()
